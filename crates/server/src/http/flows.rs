//! Flows: jobs that depend on one another, submitted all or none.

use axum::extract::{Request as Incoming, State as Given};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use filch_api::flow::{Flow, FlowReceipts, ValidatedFlow};
use filch_api::{json, limits};
use filch_scheduler::dispatch::Answer;

use super::extract::{Nothing, Params};
use super::{Failure, State, body, submit};
use crate::tokens::Caller;

/// Submit a flow
///
/// A DAG of jobs, submitted all or none. A job's `after` names other jobs of the flow, or existing
/// jobs by id. With an `Idempotency-Key`, submitting again with the same key returns the same jobs.
#[utoipa::path(
    post,
    path = "/v1/flows",
    operation_id = "submitFlow",
    tag = "jobs",
    params(("idempotency-key" = Option<String>, Header, description = "Idempotency key: \
        jobs without an id get one derived from it, so that the request can be repeated safely")),
    request_body = Flow,
    responses(
        (status = 201, body = FlowReceipts, description = "At least one job is new"),
        (status = 200, body = FlowReceipts, description = "All jobs existed already")
    )
)]
pub(crate) async fn submit(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Params(Nothing {}): Params<Nothing>,
    request: Incoming,
) -> Result<Response, Failure> {
    let key = submit::idempotency_key(request.headers())?;
    let held = body::collect(&state, request, |_| limits::LIST_BYTES).await?;
    json::check_depth(&held.bytes)?;
    let ValidatedFlow { name, names, jobs } = Flow::read(&held.bytes)?.validate(key.as_deref())?;
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    let receipts = match submit::hand_over(&state, &caller, jobs).await? {
        Answer::Submitted(submitted) => submitted,
        Answer::Done => Vec::new(),
        Answer::Refused(refused) => {
            let names: Vec<_> = ids.into_iter().zip(names).collect();
            return Err(ValidatedFlow::explain(&names, refused).into());
        }
    };
    let jobs: Vec<_> = names.into_iter().zip(receipts.iter().map(Into::into)).collect();
    let is_new = jobs.iter().any(|(_, receipt): &(_, filch_api::job::Receipt)| receipt.new);
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(FlowReceipts { name, jobs })).into_response())
}
