//! One queue in detail, and purging a queue.

use axum::extract::State as Given;
use axum::{Extension, Json};
use filch_api::cluster::{Purge, QueueDetail};
use filch_api::dead::Count;
use filch_api::problem::Problem;
use filch_api::submission::name;
use filch_scheduler::dispatch::{Answer, Request};
use filch_scheduler::id::Seq;
use filch_scheduler::state::JobState;
use filch_store::{ActFilter, Filter, ListOrder};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::body::Object;
use super::extract::{Nothing, Params, Segment};
use super::jobs::page;
use super::{Failure, State};
use crate::tokens::Caller;

/// How many of the last changes of its settings are shown.
const ACTS_SHOWN: usize = 10;

/// How many jobs are read at once.
const SLICE: usize = 1_000;

/// How many cancels run at once.
const TOGETHER: usize = 256;

/// Show a queue
///
/// Its jobs by state, the workers that own them, its oldest job, its throughput over the last
/// minute, what limits it, and the last changes of its settings.
#[utoipa::path(
    get,
    path = "/v1/queues/{name}",
    operation_id = "showQueue",
    tag = "queues",
    params(("name" = String, Path, min_length = 1, max_length = 200, description = "The queue")),
    responses((status = 200, body = QueueDetail))
)]
pub(crate) async fn show(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Segment(text): Segment,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<QueueDetail>, Failure> {
    let queue = name("queue", &text)?;
    caller.check(&queue)?;
    let ended = state.metrics.ended_last_minute(&queue);
    let line = state.handle.look(move |dispatch, _| dispatch.queue_snapshot(&queue)).await?;
    let line = line.ok_or_else(|| {
        let title = format!("no queue {text:?}: it has no jobs and no settings");
        Problem::not_found(title).help("list queues with `filch queue list`")
    })?;
    let filter = ActFilter { queue: Some(line.view.settings.queue.clone()) };
    let acts = state.read(move |store| store.acts(&filter, u64::MAX, ACTS_SHOWN)).await?;
    let acts = acts.iter().map(super::acts::shown).collect();
    Ok(Json(QueueDetail { acts, ..QueueDetail::new(&line, ended) }))
}

/// Purge a queue
///
/// Cancels its jobs that have not started, or those in the given states; running jobs go on unless
/// `running` is given. Jobs that are submitted after the request are not affected. Children of
/// cancelled jobs follow their conditions, as after any cancel. Large queues are purged in slices:
/// if the connection breaks, repeat the request to cancel the rest.
#[utoipa::path(
    post,
    path = "/v1/queues/{name}/purge",
    operation_id = "purgeQueue",
    tag = "queues",
    params(("name" = String, Path, min_length = 1, max_length = 200, description = "The queue")),
    request_body = Purge,
    responses((status = 200, body = Count))
)]
pub(crate) async fn purge(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Segment(text): Segment,
    Params(Nothing {}): Params<Nothing>,
    Object(purge): Object<Purge>,
) -> Result<Json<Count>, Failure> {
    let queue = name("queue", &text)?;
    caller.check(&queue)?;
    let filter = Filter { states: states(&purge)?, queue: Some(queue), ..Filter::default() };
    let newest = Filter::default();
    let newest =
        state.read(move |store| store.list(&newest, ListOrder::Before(Seq(u64::MAX)), 1)).await?;
    let newest = newest.rows.first().map_or(Seq(0), |row| row.seq);
    let mut count = Count::default();
    let mut after = Seq(0);
    loop {
        let (mut jobs, next) =
            page(&state, &caller, &filter, ListOrder::After(after), SLICE).await?;
        jobs.retain(|job| job.seq <= newest.0);
        if purge.dry_run {
            count.count += jobs.len() as u64;
        } else {
            for some in jobs.chunks(TOGETHER) {
                count.count += cancel(&state, &caller, some).await?;
            }
        }
        match next.filter(|next| *next < newest) {
            Some(next) => after = next,
            None => return Ok(Json(count)),
        }
    }
}

fn states(purge: &Purge) -> Result<Vec<JobState>, Problem> {
    let Some(words) = &purge.states else {
        return Ok(vec![
            JobState::Blocked,
            JobState::Scheduled,
            JobState::Queued,
            JobState::Leased,
        ]);
    };
    let read = words.iter().enumerate().map(|(index, word)| {
        let meant = JobState::ALL.into_iter().find(|state| state.to_string() == *word);
        meant.filter(|state| !state.is_ended()).ok_or_else(|| {
            Problem::invalid(format!("jobs in state {word:?} cannot be cancelled"))
                .help("blocked, scheduled, queued, leased or running")
                .at(format!("/states/{index}"))
        })
    });
    let read = read.collect::<Result<Vec<_>, _>>()?;
    if read.is_empty() {
        return Err(Problem::invalid("`states` is empty").at("/states"));
    }
    Ok(read)
}

/// Concurrent requests share commits. Jobs that have ended meanwhile are not counted.
async fn cancel(
    state: &State,
    caller: &Caller,
    jobs: &[filch_api::job::Job],
) -> Result<u64, Failure> {
    let asked = jobs.iter().filter_map(|job| filch_api::id::read_job(&job.id));
    let asked = asked.map(|job| state.handle.ask(caller, Request::Cancel(job)));
    let mut asked: FuturesUnordered<_> = asked.collect();
    let mut count = 0;
    while let Some(answer) = asked.next().await {
        count += u64::from(matches!(answer?, Answer::Done | Answer::Submitted(_)));
    }
    Ok(count)
}
