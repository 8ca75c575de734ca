//! Who may come in at all: no page of a stranger's site, whatever name it has made point here.

use axum::extract::{Request, State as Given};
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use filch_api::problem::Problem;

use super::{Failure, State};

/// Checks where a request comes from before anything looks at it.
pub(crate) async fn guard(
    Given(state): Given<State>,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let headers = request.headers();
    let port = state.address.port();
    if !headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok())
        .is_some_and(|host| is_here(host, port))
    {
        return Err(Problem::new(421, "wrong-host", "this server does not have that name")
            .help(format!("use http://127.0.0.1:{port}"))
            .into());
    }
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    if (changes || is_upgrade(headers)) && !comes_from_here(headers, port) {
        return Err(
            Problem::new(403, "wrong-origin", "pages of other sites may not do this").into()
        );
    }
    let has_body = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length != "0")
        && (headers.contains_key(header::CONTENT_LENGTH)
            || headers.contains_key(header::TRANSFER_ENCODING));
    if changes && has_body && !is_json(headers) {
        return Err(Problem::new(415, "not-json", "the body is not said to be JSON")
            .help("send it with content-type: application/json, or application/x-ndjson for lines")
            .into());
    }
    let mut response = next.run(request).await;
    // What is answered is what it says it is, and nothing to keep.
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    Ok(response)
}

fn is_here(host: &str, port: u16) -> bool {
    ["127.0.0.1", "localhost", "[::1]"].into_iter().any(|name| {
        let rest = host.strip_prefix(name);
        rest.is_some_and(|rest| rest == format!(":{port}") || (rest.is_empty() && port == 80))
    })
}

fn comes_from_here(headers: &HeaderMap, port: u16) -> bool {
    headers.get(header::ORIGIN).is_none_or(|origin| {
        let host = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
        host.is_some_and(|host| is_here(host, port))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_here() {
        for host in ["127.0.0.1:7420", "localhost:7420", "[::1]:7420"] {
            assert!(is_here(host, 7420), "{host}");
        }
        for host in
            ["127.0.0.1", "127.0.0.1:80", "evil.example:7420", "localhost.evil.example:7420", ""]
        {
            assert!(!is_here(host, 7420), "{host}");
        }
    }
}
