//! Health checks: liveness and readiness.

use axum::extract::State as Given;

use super::extract::{Nothing, Params};
use super::{Failure, State};

/// Liveness check
#[utoipa::path(
    get,
    path = "/healthz",
    operation_id = "alive",
    tag = "server",
    responses((status = 200, body = String, content_type = "text/plain"))
)]
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// Readiness check
///
/// 200 if the scheduler answers and everything it has decided is durable.
#[utoipa::path(
    get,
    path = "/readyz",
    operation_id = "ready",
    tag = "server",
    responses((status = 200, body = String, content_type = "text/plain"))
)]
pub(crate) async fn ready(
    Given(state): Given<State>,
    Params(Nothing {}): Params<Nothing>,
) -> Result<&'static str, Failure> {
    state.handle.look(|_, _| ()).await?;
    Ok("ok\n")
}
