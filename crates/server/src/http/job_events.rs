//! The history of one job, from everything that is stored of it: its submission, its owners, notes
//! about it, and its end.

use axum::Json;
use axum::extract::State as Given;
use filch_api::event::{JobEvent, JobEvents};
use filch_api::id;
use filch_api::job::Ownership;
use filch_api::time::Moment;
use filch_scheduler::record::{AttemptOutcome, Note, OperatorAct};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use filch_store::History;

use super::extract::{Named, Nothing, Params};
use super::{Failure, State, jobs};

/// Show the history of a job
///
/// In order. To follow new events, use `/v1/events?job=ID`.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/events",
    operation_id = "jobEvents",
    tag = "jobs",
    params(("id" = String, Path, pattern = "^[0-9a-fA-F-]{4,36}$", description = "A UUID, or at least its last 4 digits")),
    responses((status = 200, body = JobEvents))
)]
pub(crate) async fn show(
    Given(state): Given<State>,
    Named(id): Named,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<JobEvents>, Failure> {
    let live = state.handle.look(move |dispatch, _| dispatch.job_view(id)).await?;
    let history = state.read(move |store| store.history(id)).await?;
    let history = history.ok_or_else(|| jobs::unknown(id))?;
    let kept = history.row.now.state;
    let state = live.filter(|_| !kept.is_ended()).map_or(kept, |view| view.state);
    Ok(Json(JobEvents {
        id: id::job(id),
        state: state.to_string(),
        ended: kept.is_ended(),
        events: events(&history),
        older_left_out: history.may_be_more,
    }))
}

fn events(history: &History) -> Vec<JobEvent> {
    let row = &history.row;
    let mut events = vec![plain(row.submitted_at, "submitted")];
    for owner in &history.owners {
        let Ownership { fence, worker, cause, from, at, .. } =
            Ownership::new(owner.hold.fence.0, owner.worker, owner.cause, owner.at);
        let event = match cause.as_str() {
            "claim" => "claimed",
            "steal" => "stolen",
            other => other,
        };
        events.push(JobEvent {
            at,
            event: event.into(),
            fence: Some(fence),
            worker,
            from,
            error: None,
        });
    }
    let now = &row.now;
    for (at, note) in &history.notes {
        events.extend(noted(happened_at(history, *at, note), note));
    }
    if now.state == JobState::Running || now.state.is_ended() {
        events.push(JobEvent {
            fence: Some(now.fence.0),
            worker: now.holder.map(id::worker),
            ..plain(now.at, &now.state.to_string())
        });
    }
    // Events with the same time are sorted by owner. The sort is stable, and the events of each
    // owner were pushed in order, from its beginning to its end.
    events[1..].sort_by_key(|event| (event.at, event.fence));
    events
}

/// Notes are dated when they are stored, a little after the event: at the latest when the job got
/// its next owner, or ended.
fn happened_at(history: &History, kept: Wall, note: &Note) -> Wall {
    let now = &history.row.now;
    let end = now.state.is_ended().then_some(now.at);
    let next = match note {
        Note::Attempt { hold, .. } => {
            let later = history.owners.iter().filter(|owner| owner.hold.fence > hold.fence);
            later.map(|owner| owner.at).min()
        }
        _ => None,
    };
    [end, next].into_iter().flatten().fold(kept, Wall::min)
}

fn plain(at: Wall, event: &str) -> JobEvent {
    JobEvent {
        at: Moment(at),
        event: event.to_owned(),
        fence: None,
        worker: None,
        from: None,
        error: None,
    }
}

fn noted(at: Wall, note: &Note) -> Option<JobEvent> {
    Some(match note {
        Note::Attempt { hold, worker, outcome } => {
            let (event, error) = match outcome {
                AttemptOutcome::Failed(error) => ("attempt-failed", Some(error.to_string())),
                AttemptOutcome::Snoozed => ("attempt-snoozed", None),
                AttemptOutcome::Interrupted => ("attempt-interrupted", None),
                AttemptOutcome::Unstarted(error) => ("attempt-unstarted", Some(error.to_string())),
                AttemptOutcome::LostAlone | AttemptOutcome::LostAmongOthers => {
                    ("attempt-lost", None)
                }
            };
            let (fence, worker) = (Some(hold.fence.0), Some(id::worker(*worker)));
            JobEvent { fence, worker, error, ..plain(at, event) }
        }
        Note::Act { act: OperatorAct::Cancel(_), .. } => plain(at, "cancel-asked"),
        Note::Act { act: OperatorAct::Retry(_), .. } => plain(at, "retried"),
        Note::Act { act: OperatorAct::SetPriority { .. }, .. } => plain(at, "prioritised"),
        Note::Act { .. } | Note::WorkerLost { .. } => return None,
    })
}
