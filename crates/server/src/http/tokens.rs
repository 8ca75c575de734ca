//! Endpoints for tokens, for admins: create, list, revoke.

use std::sync::Arc;

use axum::extract::State as Given;
use axum::http::StatusCode;
use axum::{Extension, Json};
use filch_api::problem::Problem;
use filch_api::token::{Made, Token, TokenRequest};
use filch_store::Store;
use serde::Serialize;

use super::body::Object;
use super::cluster::Done;
use super::extract::{Nothing, Params, Segment};
use super::{Failure, State};
use crate::shell::Urgent;
use crate::tokens::{self, Caller};

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Tokens {
    tokens: Vec<Token>,
}

/// List tokens
///
/// Including revoked and expired ones; never the secrets.
#[utoipa::path(
    get,
    path = "/v1/tokens",
    operation_id = "listTokens",
    tag = "tokens",
    responses((status = 200, body = Tokens))
)]
pub(crate) async fn list(
    Given(state): Given<State>,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Tokens>, Failure> {
    let tokens = keep(&state, tokens::list).await?;
    Ok(Json(Tokens { tokens }))
}

/// Create a token
///
/// The response contains the secret, which is never shown again. The first token must have role
/// admin: once it exists, every request needs a token, except `/healthz`, `/readyz` and
/// `/openapi.json`.
#[utoipa::path(
    post,
    path = "/v1/tokens",
    operation_id = "makeToken",
    tag = "tokens",
    request_body = TokenRequest,
    responses((status = 201, body = Made, description = "The token is valid from now on"))
)]
pub(crate) async fn make(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Params(Nothing {}): Params<Nothing>,
    Object(wanted): Object<TokenRequest>,
) -> Result<(StatusCode, Json<Made>), Failure> {
    let judged = wanted.validate()?;
    let made = keep(&state, move |store| tokens::make(store, judged, caller.label())).await?;
    // No await from here on, so that this request, which may have no token, is still answered.
    state.tokens.add(&made);
    Ok((StatusCode::CREATED, Json(made)))
}

/// Revoke a token
///
/// It stops working at once: clients that use it are disconnected.
#[utoipa::path(
    post,
    path = "/v1/tokens/{id}/revoke",
    operation_id = "revokeToken",
    tag = "tokens",
    params(("id" = String, Path, pattern = "^[0-9a-f]{8}$", description = "Eight hexadecimal digits")),
    responses((status = 200, body = Done))
)]
pub(crate) async fn revoke(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Segment(id): Segment,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Done>, Failure> {
    let ending = id.clone();
    keep(&state, move |store| tokens::revoke(store, &ending, caller.label())).await?;
    state.tokens.end(&id);
    // Workers that it introduced may come back with another token.
    state.handle.urgent(Urgent::TokenEnded(id.into())).await?;
    Ok(Json(Done::YES))
}

/// Uses the store on a thread that may wait for the disk.
async fn keep<T: Send + 'static>(
    state: &State,
    act: impl FnOnce(&dyn Store) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Failure> {
    let store = Arc::clone(&state.store);
    let done = tokio::task::spawn_blocking(move || act(&*store)).await;
    Ok(done.map_err(|_| Failure::ended())??)
}
