//! The audit trail: who changed what, when, and with which token.

use axum::extract::State as Given;
use axum::{Extension, Json};
use filch_api::act::{Act, Acts};
use filch_api::limits;
use filch_api::submission::name;
use filch_api::token::Role;
use filch_scheduler::record::OperatorAct;
use filch_store::{ActFilter, StoredAct};
use serde::Deserialize;

use super::extract::Params;
use super::{Failure, State};
use crate::tokens::Caller;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ActsQuery {
    /// Only changes of the settings of this queue.
    queue: Option<String>,
    /// The `next` of the previous page.
    before: Option<u64>,
    /// Page size: 100 by default, at most 1,000.
    limit: Option<usize>,
}

/// List what operators did
///
/// The newest first: cancelled, retried and prioritised jobs, changes of queues and of the
/// strategy, drained workers, created and revoked tokens; each with its time and the name of the
/// token. Acts on a job are stored as long as the job, others as long as the history. A page may
/// have fewer entries than `limit`, even none, although there is a next one.
#[utoipa::path(
    get,
    path = "/v1/acts",
    operation_id = "listActs",
    tag = "server",
    params(ActsQuery),
    responses((status = 200, body = Acts))
)]
pub(crate) async fn list(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<ActsQuery>,
) -> Result<Json<Acts>, Failure> {
    let limit = query.limit.unwrap_or(100).clamp(1, limits::PAGE_JOBS);
    let queue = query.queue.as_deref().map(|text| name("queue", text)).transpose()?;
    queue.as_ref().map_or(Ok(()), |queue| caller.check(queue))?;
    let before = query.before.unwrap_or(u64::MAX);
    let filter = ActFilter { queue };
    let stored = state.read(move |store| store.acts(&filter, before, limit)).await?;
    let next = stored.last().filter(|_| stored.len() == limit).map(|last| last.number);
    let seen = stored.iter().filter(|act| may_see(&caller, act));
    Ok(Json(Acts { acts: seen.map(shown).collect(), next }))
}

/// Clients that may not list tokens do not see entries about tokens; clients that are limited to
/// some queues see entries about these.
fn may_see(caller: &Caller, stored: &StoredAct) -> bool {
    match &stored.act {
        OperatorAct::CreateToken(_) | OperatorAct::RevokeToken(_) => caller.role == Role::Admin,
        OperatorAct::SetQueue { queue, .. } => caller.may_use(queue),
        OperatorAct::SetStrategy(_) | OperatorAct::DrainWorker(_) => !caller.is_narrowed(),
        OperatorAct::Cancel(_) | OperatorAct::Retry(_) | OperatorAct::SetPriority { .. } => {
            match &stored.job_queue {
                Some(queue) => caller.may_use(queue),
                None => !caller.is_narrowed(),
            }
        }
    }
}

/// An act as it is stored.
pub(super) fn shown(stored: &StoredAct) -> Act {
    let act = Act::new(stored.at, stored.by.as_ref(), &stored.act);
    let queue = stored.job_queue.as_ref().map(ToString::to_string).or(act.queue);
    Act { queue, ..act }
}
