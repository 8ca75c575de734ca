//! Extractors for the path and the query string of requests.

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use filch_api::id;
use filch_api::problem::Problem;
use filch_api::token::Role;
use filch_scheduler::id::{JobId, WorkerId};
use filch_store::{EXAMINED_ROWS_MAX, FoundIds, Store};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Failure, State};
use crate::tokens::Caller;

/// The query string.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<State> for Params<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Failure> {
        match Query::<T>::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => {
                let text = rejection.body_text();
                let why = text.strip_prefix("Failed to deserialize query string: ");
                Err(Problem::new(400, "bad-query", why.unwrap_or(&text))
                    .help("see GET /openapi.json for the parameters")
                    .into())
            }
        }
    }
}

/// For requests without a query string.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// The only parameter in the path.
pub(crate) struct Segment(pub(crate) String);

impl FromRequestParts<State> for Segment {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(text) = path.map_err(|_| {
            Problem::new(400, "bad-path", "the name in the path is not valid UTF-8")
        })?;
        Ok(Self(text))
    }
}

/// The id of a worker in the path.
pub(crate) struct Worker(pub(crate) WorkerId);

impl FromRequestParts<State> for Worker {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Failure> {
        let Segment(text) = Segment::from_request_parts(parts, state).await?;
        let worker = id::read_worker(&text).ok_or_else(|| {
            Problem::new(400, "bad-id", format!("{text:?} is not a worker id"))
                .help("an id has sixteen hexadecimal digits; list workers with `filch worker list`")
        })?;
        Ok(Self(worker))
    }
}

/// A job in the path: a full id, or its last digits.
pub(crate) struct Named(pub(crate) JobId);

/// How many digits of an id are needed at least.
const SUFFIX_MIN: usize = 4;

/// With as many digits, a match among the newest jobs is accepted although older jobs were not
/// examined: of a million of those, one has the same digits in 1 of 4,000 cases.
const SUFFIX_SURE: usize = 8;

impl FromRequestParts<State> for Named {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Failure> {
        let Segment(text) = Segment::from_request_parts(parts, state).await?;
        let caller = parts.extensions.get::<Caller>();
        if let Some(job) = id::read_job(&text) {
            return narrow(caller, job, state).await.map(Self);
        }
        if caller.is_some_and(|caller| caller.role == Role::Submit) {
            let title = "a token with role submit may not search for jobs";
            let problem = Problem::new(403, "wrong-role", title);
            return Err(problem.help("use the full id that the submit returned").into());
        }
        let digits: String = text.to_ascii_lowercase().chars().filter(|c| *c != '-').collect();
        if digits.len() < SUFFIX_MIN
            || digits.len() > 32
            || !digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        {
            let problem = Problem::new(400, "bad-id", format!("{text:?} is not a job id"));
            return Err(problem.help("use a UUID, or at least the last 4 digits of one").into());
        }
        let length = digits.len();
        let found = match caller.filter(|caller| caller.is_narrowed()) {
            None => state.read(move |store| store.ids_ending(&digits, 2)).await?,
            Some(caller) => find_own(caller, digits, state).await?,
        };
        match found.ids[..] {
            // Another job with the same last digits may be among those that were not examined.
            [_] if found.may_be_more && length < SUFFIX_SURE => {
                let title =
                    format!("several jobs may end with {text}: there are too many to check");
                let help = format!("use at least {SUFFIX_SURE} digits");
                Err(Problem::new(409, "ambiguous-id", title).help(help).into())
            }
            [job] => Ok(Self(job)),
            [] if found.may_be_more => {
                let title = format!("none of the newest {EXAMINED_ROWS_MAX} jobs ends with {text}");
                Err(Problem::not_found(title).help("use the full id for an older job").into())
            }
            [] => Err(no_job(&text)),
            _ => Err(Problem::new(409, "ambiguous-id", format!("several jobs end with {text}"))
                .help("use more digits")
                .into()),
        }
    }
}

/// How many jobs with the same last digits are examined for a client that may not see all of them.
const SUFFIX_EXAMINED: usize = 100;

/// Those of the jobs with these last digits that the client may see: the others do not exist for
/// it, so that they make no digits ambiguous.
async fn find_own(caller: &Caller, digits: String, state: &State) -> Result<FoundIds, Failure> {
    let caller = caller.clone();
    let find = move |store: &dyn Store| {
        let mut found = store.ids_ending(&digits, SUFFIX_EXAMINED)?;
        let rows = store.find(&found.ids, &[], &[])?;
        let own = rows.iter().filter(|row| caller.may_use(&row.spec.queue));
        found.may_be_more |= found.ids.len() == SUFFIX_EXAMINED;
        found.ids = own.map(|row| row.spec.id).collect();
        Ok(found)
    };
    state.read(find).await
}

/// The job, if it is in a queue that the caller may use. Otherwise it is treated as if it did not
/// exist.
async fn narrow(caller: Option<&Caller>, job: JobId, state: &State) -> Result<JobId, Failure> {
    if let Some(caller) = caller.filter(|caller| caller.is_narrowed()) {
        let found = state.read(move |store| store.find(&[job], &[], &[])).await?;
        if !found.iter().any(|row| caller.may_use(&row.spec.queue)) {
            return Err(no_job(&id::job(job)));
        }
    }
    Ok(job)
}

fn no_job(text: &str) -> Failure {
    let problem = Problem::not_found(format!("no job {text}"));
    problem
        .help("list jobs with `filch job list`; ended jobs are purged after the retention period")
        .into()
}
