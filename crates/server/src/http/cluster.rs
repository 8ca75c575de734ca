//! Queues, workers, the scheduling strategy, and the server itself.

use axum::extract::State as Given;
use axum::{Extension, Json};
use filch_api::cluster::{Order, Queue, QueueUpdate, Status, Worker, WorkerStop};
use filch_api::problem::Problem;
use filch_api::session::About;
use filch_api::submission::{Span, name};
use filch_scheduler::dispatch::{self, Answer, QueueView, Request, WorkerView};
use filch_scheduler::name::Name;
use filch_scheduler::record::QueueSettings;
use filch_scheduler::state::JobState;
use serde::Serialize;

use super::body::Object;
use super::extract::{self, Nothing, Params, Segment};
use super::{Failure, State};
use crate::shell::Input;
use crate::tokens::Caller;

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Queues {
    queues: Vec<Queue>,
}

/// List queues
///
/// Every queue that has jobs or settings, or that a worker serves by name.
#[utoipa::path(
    get,
    path = "/v1/queues",
    operation_id = "listQueues",
    tag = "queues",
    responses((status = 200, body = Queues))
)]
pub(crate) async fn queues(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Queues>, Failure> {
    let look = move |dispatch: &dispatch::Dispatch, _| {
        let views = dispatch.queue_views().filter(|view| caller.may_use(&view.settings.queue));
        views.map(|view| Queue::from(&view)).collect()
    };
    Ok(Json(Queues { queues: state.handle.look(look).await? }))
}

/// Change a queue
///
/// Pause or resume it, or set its concurrency limit or weight.
#[utoipa::path(
    patch,
    path = "/v1/queues/{name}",
    operation_id = "setQueue",
    tag = "queues",
    params(("name" = String, Path, min_length = 1, max_length = 200, description = "The queue; it need not exist yet")),
    request_body = QueueUpdate,
    responses((status = 200, body = Queue))
)]
pub(crate) async fn set_queue(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Segment(text): Segment,
    Params(Nothing {}): Params<Nothing>,
    Object(change): Object<QueueUpdate>,
) -> Result<Json<Queue>, Failure> {
    let queue = name("queue", &text)?;
    caller.check(&queue)?;
    let changes = [
        change.paused.map(|paused| {
            if paused { dispatch::QueueChange::Pause } else { dispatch::QueueChange::Resume }
        }),
        change.limit.map(|limit| dispatch::QueueChange::Limit((limit > 0).then_some(limit))),
        change.weight.map(dispatch::QueueChange::Weight),
    ];
    if change.weight == Some(0) {
        let problem = Problem::invalid("the weight of a queue must be at least 1");
        return Err(problem.at("/weight").into());
    }
    for change in changes.into_iter().flatten() {
        let request = Request::SetQueue { queue: queue.clone(), change };
        done(state.handle.ask(&caller, request).await?)?;
    }
    let look = move |dispatch: &dispatch::Dispatch, _| {
        let view = dispatch.queue_views().find(|view| view.settings.queue == queue);
        // A queue that does not exist has default settings.
        let view = view.unwrap_or_else(|| QueueView {
            settings: QueueSettings::new(queue),
            ready: 0,
            owned: 0,
        });
        Queue::from(&view)
    };
    Ok(Json(state.handle.look(look).await?))
}

/// The scheduling strategy.
#[derive(Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Strategy {
    strategy: Order,
}

/// Show the scheduling strategy
#[utoipa::path(
    get,
    path = "/v1/strategy",
    operation_id = "strategy",
    tag = "queues",
    responses((status = 200, body = Strategy))
)]
pub(crate) async fn strategy(
    Given(state): Given<State>,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Strategy>, Failure> {
    let strategy = state.handle.look(|dispatch, _| dispatch.strategy()).await?;
    Ok(Json(Strategy { strategy: strategy.into() }))
}

/// Change the scheduling strategy
#[utoipa::path(
    put,
    path = "/v1/strategy",
    operation_id = "setStrategy",
    tag = "queues",
    request_body = Strategy,
    responses((status = 200, body = Strategy))
)]
pub(crate) async fn set_strategy(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Params(Nothing {}): Params<Nothing>,
    Object(wanted): Object<Strategy>,
) -> Result<Json<Strategy>, Failure> {
    let request = Request::SetStrategy(wanted.strategy.into());
    done(state.handle.ask(&caller, request).await?)?;
    Ok(Json(wanted))
}

#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
}

/// List workers
///
/// Every worker whose lease has not expired.
#[utoipa::path(
    get,
    path = "/v1/workers",
    operation_id = "listWorkers",
    tag = "workers",
    responses((status = 200, body = Workers))
)]
pub(crate) async fn workers(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Workers>, Failure> {
    let views = state.handle.look(move |dispatch, _| {
        let views = dispatch.worker_views();
        views.filter_map(|view| narrow(&caller, dispatch, view)).collect::<Vec<_>>()
    });
    let workers = views.await?.into_iter().map(|view| {
        let about = state.services.roster.about(view.id).unwrap_or_default();
        let About { name, kinds, pid, .. } = about;
        Worker { name, kinds, pid, ..Worker::from(&view) }
    });
    Ok(Json(Workers { workers: workers.collect() }))
}

/// What a caller may see of a worker: only its own queues, and their jobs. `None` if the worker
/// serves none of them.
fn narrow(
    caller: &Caller,
    dispatch: &dispatch::Dispatch,
    mut view: WorkerView,
) -> Option<WorkerView> {
    let Some(own) = caller.queues() else {
        return Some(view);
    };
    let is_served =
        |queue: &&Name| view.queues.as_ref().is_none_or(|served| served.contains(queue));
    let queues: Vec<Name> = own.iter().filter(is_served).cloned().collect();
    let jobs = dispatch.held_by(view.id).filter_map(|job| dispatch.job_at(job));
    let states: Vec<JobState> =
        jobs.filter(|job| caller.may_use(&job.queue)).map(|job| job.state).collect();
    view.held = states.len();
    view.leased = states.iter().filter(|state| **state == JobState::Leased).count() as u32;
    view.queues = Some(queues);
    view.queues.as_ref().is_some_and(|queues| !queues.is_empty()).then_some(view)
}

/// Drain a worker
///
/// It finishes its running jobs, hands back those that have not started, and takes no more.
#[utoipa::path(
    post,
    path = "/v1/workers/{id}/drain",
    operation_id = "drainWorker",
    tag = "workers",
    params(("id" = String, Path, pattern = "^[0-9a-fA-F]{16}$", description = "Sixteen hexadecimal digits")),
    responses((status = 200, body = Done))
)]
pub(crate) async fn drain(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    extract::Worker(id): extract::Worker,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Done>, Failure> {
    done(state.handle.ask(&caller, Request::DrainWorker(id)).await?)?;
    Ok(Json(Done { done: true }))
}

/// Stop a worker
///
/// Like a drain, but running jobs get at most the grace period. Then they are stopped and handed
/// back without losing an attempt. The worker's process ends.
#[utoipa::path(
    post,
    path = "/v1/workers/{id}/stop",
    operation_id = "stopWorker",
    tag = "workers",
    params(("id" = String, Path, pattern = "^[0-9a-fA-F]{16}$", description = "Sixteen hexadecimal digits")),
    request_body = WorkerStop,
    responses((status = 200, body = Done))
)]
pub(crate) async fn stop(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    extract::Worker(id): extract::Worker,
    Params(Nothing {}): Params<Nothing>,
    Object(WorkerStop { grace }): Object<WorkerStop>,
) -> Result<Json<Done>, Failure> {
    if let Some(Span(grace)) = grace {
        // In this order: the grace period is sent together with the request to drain.
        state.handle.send(Input::Grace { worker: id, grace: grace.duration() }).await?;
    }
    done(state.handle.ask(&caller, Request::DrainWorker(id)).await?)?;
    Ok(Json(Done::YES))
}

/// Show the status of the server
#[utoipa::path(
    get,
    path = "/v1/status",
    operation_id = "status",
    tag = "server",
    responses((status = 200, body = Status))
)]
pub(crate) async fn status(
    Given(state): Given<State>,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Status>, Failure> {
    let (lease_ms, syncs) = (state.lease_ms, state.store.status().syncs);
    let look = move |dispatch: &dispatch::Dispatch, _| {
        let counters = dispatch.counters();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            jobs: dispatch.job_count() as u64,
            workers: dispatch.worker_views().filter(|view| view.connected).count() as u64,
            strategy: dispatch.strategy().into(),
            lease_ms,
            steals: counters.steals,
            stolen: counters.stolen,
            stale: counters.stale,
            lost: counters.lost,
            syncs,
        }
    };
    Ok(Json(state.handle.look(look).await?))
}

/// The request was carried out.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Done {
    done: bool,
}

impl Done {
    pub(crate) const YES: Self = Self { done: true };
}

/// Turns a refusal into a failure.
pub(crate) fn done(answer: Answer) -> Result<(), Failure> {
    match answer {
        Answer::Done | Answer::Submitted(_) => Ok(()),
        Answer::Refused(refused) => Err(Problem::from(refused).into()),
    }
}
