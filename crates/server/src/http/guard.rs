//! The checks of every request: `Host` and `Origin` (against DNS rebinding and other sites),
//! content type, and authentication once there are tokens.

use axum::body::{Body, HttpBody as _};
use axum::extract::{MatchedPath, Request, State as Given};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use filch_api::problem::Problem;
use filch_api::token::{self, Secret};
use futures_util::StreamExt as _;

use super::listen::Peer;
use super::names::Names;
use super::{Failure, State};
use crate::tokens::Caller;

/// Checks the origin of a request and authenticates its sender, before anything else.
pub(crate) async fn guard(
    Given(state): Given<State>,
    mut request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let caller = match check(&state, &request) {
        Ok(caller) => caller,
        Err(problem) => {
            log_refusal(&state, &request, &problem);
            return Err(problem.into());
        }
    };
    let mut response = match caller {
        None => next.run(request).await,
        Some(caller) => {
            request.extensions_mut().insert(caller.clone());
            // In this order: a request that goes on after its token has ended is dropped, and not
            // handled once more first.
            let answered = tokio::select! {
                biased;
                why = caller.over() => Err(why),
                response = next.run(request) => Ok(response),
            };
            let response = answered?;
            let is_long = response.body().size_hint().exact().is_none()
                && response.extensions().get::<EndsItself>().is_none();
            if is_long { response.map(|body| until_over(body, caller)) } else { response }
        }
    };
    // Responses must not be sniffed or cached.
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Checks a request; returns its sender, if the operation needs one.
fn check(state: &State, request: &Request) -> Result<Option<Caller>, Problem> {
    let headers = request.headers();
    let names = &state.names;
    if !headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .is_some_and(|host| names.is_host(host))
    {
        return Err(Problem::new(421, "wrong-host", "unknown `Host` header")
            .help(format!("use {}, or start the server with `--allow-host NAME`", names.url())));
    }
    if request.uri().query().is_some_and(token::is_in) {
        let title = "the URL contains a token, and URLs end up in logs and histories";
        return Err(Problem::new(400, "token-in-url", title).help(
            "revoke it, create another, and send that in the header `Authorization: Bearer ...`",
        ));
    }
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    if (changes || is_upgrade(headers)) && !comes_from_here(headers, names) {
        return Err(Problem::new(
            403,
            "wrong-origin",
            "requests from other origins are not allowed",
        ));
    }
    let has_body = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length != "0")
        && (headers.contains_key(header::CONTENT_LENGTH)
            || headers.contains_key(header::TRANSFER_ENCODING));
    if changes && has_body && !is_json(headers) {
        return Err(Problem::new(415, "not-json", "expected `Content-Type: application/json`")
            .help(
                "set the header to application/json, or to application/x-ndjson for lines of JSON",
            ));
    }
    admit(state, request)
}

/// Logs why a request was refused. A URL may contain secrets, so only its route is logged.
fn log_refusal(state: &State, request: &Request, problem: &Problem) {
    let Some(suppressed) = state.log_limits.requests.admit() else { return };
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0.to_string());
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let (method, code) = (request.method().as_str(), problem.code.as_str());
    let what = match problem.status {
        401 => "authentication failed",
        403 => "not permitted",
        _ => "request refused",
    };
    let reason = problem.title.as_str();
    tracing::warn!(peer, method, route, code, reason, suppressed, "{what}");
}

/// Authenticates and authorizes the sender, if the operation needs it.
fn admit(state: &State, request: &Request) -> Result<Option<Caller>, Problem> {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    if state.rights.is_open(request.method(), path) {
        return Ok(None);
    }
    let caller = state.tokens.admit(bearer(request.headers())?.as_ref())?;
    state.rights.check(&caller, request.method(), path)?;
    Ok(Some(caller))
}

/// The token of a request, if it has one.
fn bearer(headers: &HeaderMap) -> Result<Option<Secret>, Problem> {
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        return Ok(None);
    };
    let words = value.to_str().ok().and_then(|value| value.split_once(' '));
    let token = words.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let secret = token.and_then(|(_, token)| Secret::read(token.trim()));
    let bad = || {
        Problem::new(401, "bad-token", "malformed token")
            .help("send the whole token: `Authorization: Bearer filch_...`")
    };
    secret.map(Some).ok_or_else(bad)
}

/// Marks a streamed response that ends by itself when the client's token ends: what was done until
/// then is still acknowledged.
#[derive(Clone, Copy)]
pub(super) struct EndsItself;

/// Ends a streamed response when the client's token ends.
fn until_over(body: Body, caller: Caller) -> Body {
    let over = Box::pin(async move { drop(caller.over().await) });
    Body::from_stream(body.into_data_stream().take_until(over))
}

fn comes_from_here(headers: &HeaderMap, names: &Names) -> bool {
    let origin = headers.get(header::ORIGIN).map(HeaderValue::to_str);
    origin.is_none_or(|origin| origin.is_ok_and(|origin| names.is_origin(origin)))
}

fn is_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(header::UPGRADE)
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    kind.is_some_and(|kind| {
        let known = ["application/json", "application/x-ndjson", "application/jsonl"];
        known.iter().any(|name| kind.eq_ignore_ascii_case(name))
    })
}
