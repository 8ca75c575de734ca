//! Jobs: show one, list many, cancel, retry, change the priority.

use std::time::Duration;

use axum::extract::State as Given;
use axum::{Extension, Json};
use filch_api::act::Act;
use filch_api::job::{Details, Failure as Failed, Job, Reasoning, command_of, states};
use filch_api::problem::Problem;
use filch_api::submission::COMMAND;
use filch_api::time::Moment;
use filch_api::turn::Traffic;
use filch_api::{limits, span};
use filch_scheduler::dispatch::{Dispatch, JobView, Request, Takers, Why};
use filch_scheduler::id::{JobId, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::state::JobState;
use filch_store::{Filter, History, JobText, ListOrder, Listed, Store};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body::Object;
use super::cluster::{Done, done};
use super::extract::{Named, Nothing, Params};
use super::{Failure, State};
use crate::tokens::Caller;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShowQuery {
    /// Wait until the job has ended, at most this long: `30s`, at most a minute.
    wait: Option<String>,
}

/// The longest wait for a response.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Show a job
///
/// With everything that is stored of it: the submission, its owners, how attempts ended, and why it
/// is in its state.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}",
    operation_id = "showJob",
    tag = "jobs",
    params(
        ("id" = String, Path, pattern = "^[0-9a-fA-F-]{4,36}$", description = "A UUID, or at least its last 4 digits"),
        ShowQuery
    ),
    responses((status = 200, body = Job))
)]
pub(crate) async fn show(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Named(id): Named,
    Params(query): Params<ShowQuery>,
) -> Result<Json<Job>, Failure> {
    if let Some(wait) = query.wait {
        let wait = span::read(&wait).map_err(|why| Problem::invalid(why).at("wait"))?;
        // A timeout is not a failure: the job is shown as it is then.
        if let Ok(ended) = tokio::time::timeout(wait.min(WAIT_MAX), state.handle.end_of(id)).await {
            ended?;
        }
    }
    find(&state, &caller, id).await.map(Json)
}

/// A job with everything that is stored of it, as far as this client may see it.
pub(crate) async fn find(state: &State, caller: &Caller, id: JobId) -> Result<Job, Failure> {
    let seen = caller.clone();
    let look = move |dispatch: &Dispatch, _| {
        let mut why = dispatch.why(id);
        if let Some(Why::Blocked { waiting_for, .. }) = &mut why {
            waiting_for.retain(|parent| {
                let parent = dispatch.job_view(parent.id);
                parent.is_some_and(|parent| seen.may_use(&parent.queue))
            });
        }
        (dispatch.job_view(id).map(|view| (view, why)), dispatch.takers(id))
    };
    let (live, takers) = state.handle.look(look).await?;
    let history = state.read(move |store| store.history(id)).await?;
    let history = history.ok_or_else(|| unknown(id))?;
    // An end is durable, and only the store has its time and reason; before the end, the
    // scheduler's state is newer.
    let mut job = match &live {
        Some((view, _)) if !history.row.now.state.is_ended() => Job::live(view),
        _ => Job::kept(&history.row),
    };
    let mut details = details(&history);
    let no_handler = takers.as_ref().and_then(|Takers { workers, alike, .. }| {
        let kinds = state.services.roster.kinds(workers).filter(|_| !workers.is_empty())?;
        let is_handled = kinds.contains(&job.kind);
        (!is_handled).then(|| Reasoning::no_handler(&job.kind, *alike, &kinds))
    });
    let traffic = || Traffic {
        leased: takers.as_ref().map_or(0, |takers| takers.leased),
        per_second: state.metrics.per_second(&job.queue),
    };
    let why = live.and_then(|(_, why)| why).map(|why| match why {
        // Kinds of workers do not matter as long as the queue is paused.
        Why::Queued { paused: true, .. } => Reasoning::of(&why, traffic()),
        _ => no_handler.unwrap_or_else(|| Reasoning::of(&why, traffic())),
    });
    details.why = why.map(|why| why.after(details.failures.last()));
    job.details = Some(Box::new(details));
    Ok(job)
}

pub(crate) fn unknown(id: JobId) -> Problem {
    Problem::not_found(format!("no job {}", filch_api::id::job(id)))
        .help("list jobs with `filch job list`; ended jobs are purged after the retention period")
}

fn details(history: &History) -> Details {
    let mut details = Details::kept(&history.row, &history.payload);
    details.failures =
        history.notes.iter().filter_map(|(at, note)| Failed::noted(*at, note)).collect();
    details.ledger = super::ledger::ledger(history, &details.failures);
    details.acts = history.notes.iter().filter_map(|(at, note)| Act::noted(*at, note)).collect();
    details.older_left_out = history.may_be_more;
    details.error = details.failures.last().and_then(|failure| failure.error.clone());
    if history.row.now.state == JobState::Succeeded {
        details.error = None;
        let result = history.outputs.iter().rev().find_map(|output| output.result.as_ref());
        details.result = result.and_then(|text| RawValue::from_string(text.to_string()).ok());
    }
    details
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Only jobs in these states, separated by commas.
    state: Option<String>,
    /// Only jobs of this queue.
    queue: Option<String>,
    /// Only jobs of this kind.
    kind: Option<String>,
    /// Only jobs that were submitted at this time or later.
    since: Option<String>,
    /// Oldest first: the `next` of the previous page.
    after: Option<u64>,
    /// Newest first: the `next` of the previous page, or 0 for the first page.
    before: Option<u64>,
    /// Page size: 100 by default, at most 1,000.
    limit: Option<usize>,
    /// Include the command lines of commands; long ones are truncated.
    command: Option<bool>,
}

/// A page of jobs.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Page {
    jobs: Vec<Job>,
    /// Where the next page starts, if there is one. A page may have fewer jobs than `limit`, even
    /// none, although there is a next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// List jobs
///
/// In order of submission, or newest first. If a filter excludes nearly all jobs, a page may have
/// fewer jobs than `limit`, even none, although there is a next one.
#[utoipa::path(
    get,
    path = "/v1/jobs",
    operation_id = "listJobs",
    tag = "jobs",
    params(ListQuery),
    responses((status = 200, body = Page))
)]
pub(crate) async fn list(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<ListQuery>,
) -> Result<Json<Page>, Failure> {
    let limit = query.limit.unwrap_or(100).clamp(1, limits::PAGE_JOBS);
    let filter = filter(&query)?;
    let order = order(query.after, query.before)?;
    filter.queue.as_ref().map_or(Ok(()), |queue| caller.check(queue))?;
    let (mut jobs, next) = page(&state, &caller, &filter, order, limit).await?;
    if query.command == Some(true) {
        jobs = with_commands(&state, jobs).await?;
    }
    Ok(Json(Page { jobs, next: next.map(|seq| seq.0) }))
}

/// Adds the command lines of commands.
async fn with_commands(state: &State, mut jobs: Vec<Job>) -> Result<Vec<Job>, Failure> {
    let read = move |store: &dyn Store| {
        // One after the other: payloads may be large, and only a part is returned.
        for job in jobs.iter_mut().filter(|job| job.kind == COMMAND) {
            let payload = store.texts(JobText::Payload, &[Seq(job.seq)])?.pop().flatten();
            job.command = payload.map(|payload| command_of(&payload)).unwrap_or_default();
        }
        Ok(jobs)
    };
    state.read(read).await
}

/// The direction of a list, and where it starts.
pub(crate) fn order(after: Option<u64>, before: Option<u64>) -> Result<ListOrder, Problem> {
    match (after, before) {
        (Some(_), Some(_)) => Err(Problem::invalid("`after` and `before` cannot be combined")
            .help("use one of them")
            .at("before")),
        (_, Some(0)) => Ok(ListOrder::Before(Seq(u64::MAX))),
        (_, Some(seq)) => Ok(ListOrder::Before(Seq(seq))),
        (after, None) => Ok(ListOrder::After(Seq(after.unwrap_or(0)))),
    }
}

fn filter(query: &ListQuery) -> Result<Filter, Failure> {
    let mut filter = Filter::default();
    for word in query.state.iter().flat_map(|words| words.split(',')) {
        let meant = states(word).ok_or_else(|| {
            Problem::invalid(format!("unknown job state {word:?}")).at("state").help(
                "blocked, scheduled, queued, leased, running, succeeded, dead, cancelled; or \
                 PENDING, QUEUED, RUNNING, SUCCESS, COMPLETED, FAILED",
            )
        })?;
        filter.states.extend(meant);
    }
    filter.queue = query.queue.as_deref().map(Name::from);
    filter.kind = query.kind.as_deref().map(Name::from);
    if let Some(since) = &query.since {
        let since = Moment::read(since).map_err(|why| Problem::invalid(why).at("since"))?;
        filter.since = Some(since.0);
    }
    Ok(filter)
}

/// How many rows are read at once while a filter excludes most of them.
const READ_TOGETHER: usize = 1_000;

/// How many times a page reads from the store; then it ends early, with a cursor that goes on.
pub(crate) const SLICES_MAX: usize = 20;

/// Reads a page: the jobs from the store, their live state from the scheduler. It may have fewer
/// jobs than `limit`, although there are more. Owned jobs are read from the scheduler alone.
pub(crate) async fn page(
    state: &State,
    caller: &Caller,
    filter: &Filter,
    mut order: ListOrder,
    limit: usize,
) -> Result<(Vec<Job>, Option<Seq>), Failure> {
    let is_owned = |state: &JobState| matches!(state, JobState::Leased | JobState::Running);
    if !filter.states.is_empty() && filter.states.iter().all(is_owned) {
        return owned(state, caller, filter, order, limit).await;
    }
    // Rows do not record whether a job is leased or running: only the scheduler knows those states.
    let mut wide = filter.clone();
    if filter.states.iter().any(|state| !state.is_ended()) {
        wide.states.retain(|state| state.is_ended());
        wide.states.extend(JobState::ALL.into_iter().filter(|state| !state.is_ended()));
    }
    let is_exact = wide.states == filter.states && !caller.is_narrowed();
    let mut jobs = Vec::new();
    let mut next = None;
    for _ in 0..SLICES_MAX {
        let reading = wide.clone();
        let rows_max = rows_max(is_exact, limit - jobs.len());
        let listed = state.read(move |store| store.list(&reading, order, rows_max)).await?;
        let Listed { rows, last } = listed;
        let ids: Vec<JobId> =
            rows.iter().filter(|row| !row.now.state.is_ended()).map(|row| row.spec.id).collect();
        let look = move |dispatch: &Dispatch, _| {
            ids.into_iter().map(|id| dispatch.job_view(id)).collect::<Vec<_>>()
        };
        let mut views = state.handle.look(look).await?.into_iter();
        for row in rows {
            let view = if row.now.state.is_ended() { None } else { views.next().flatten() };
            let job_state = view.as_ref().map_or(row.now.state, |view| view.state);
            let is_in_state = filter.states.is_empty() || filter.states.contains(&job_state);
            if !is_in_state || !caller.may_use(&row.spec.queue) {
                continue;
            }
            jobs.push(view.map_or_else(|| Job::kept(&row), |view| Job::live(&view)));
            if jobs.len() == limit {
                return Ok((jobs, Some(row.seq)));
            }
        }
        next = last;
        match last {
            Some(last) => order = order.from(last),
            None => break,
        }
    }
    Ok((jobs, next))
}

/// How many rows to read for this many jobs: as many, if every row that the store returns is on the
/// page.
const fn rows_max(is_exact: bool, jobs: usize) -> usize {
    if is_exact && jobs < READ_TOGETHER { jobs } else { READ_TOGETHER }
}

/// Reads a page of jobs that workers own, however many others there are.
async fn owned(
    state: &State,
    caller: &Caller,
    filter: &Filter,
    order: ListOrder,
    limit: usize,
) -> Result<(Vec<Job>, Option<Seq>), Failure> {
    let (filter, caller) = (filter.clone(), caller.clone());
    let fits = move |view: &JobView| {
        filter.states.contains(&view.state)
            && filter.queue.as_ref().is_none_or(|queue| *queue == view.queue)
            && filter.kind.as_ref().is_none_or(|kind| *kind == view.kind)
            && filter.since.is_none_or(|since| view.submitted_at >= since)
            && caller.may_use(&view.queue)
    };
    // No job has the first or the last number, so it does not matter that they are included.
    let look = move |dispatch: &Dispatch, _| -> Vec<JobView> {
        match order {
            ListOrder::After(Seq(seq)) => {
                let views = dispatch.held_views(Seq(seq.saturating_add(1))..=Seq(u64::MAX));
                views.filter(fits).take(limit).collect()
            }
            ListOrder::Before(Seq(seq)) => {
                let views = dispatch.held_views(Seq(0)..=Seq(seq.saturating_sub(1)));
                views.rev().filter(fits).take(limit).collect()
            }
        }
    };
    let views = state.handle.look(look).await?;
    let next = views.last().filter(|_| views.len() == limit).map(|view| view.seq);
    Ok((views.iter().map(Job::live).collect(), next))
}

/// Cancel a job
///
/// The response comes once no attempt of the job can start any more.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/cancel",
    operation_id = "cancelJob",
    tag = "jobs",
    params(("id" = String, Path, pattern = "^[0-9a-fA-F-]{4,36}$", description = "A UUID, or at least its last 4 digits")),
    responses((status = 200, body = Done))
)]
pub(crate) async fn cancel(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Named(id): Named,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Done>, Failure> {
    done(state.handle.ask(&caller, Request::Cancel(id)).await?)?;
    Ok(Json(Done::YES))
}

/// Retry a dead job
///
/// Resets its attempts and queues it again.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/retry",
    operation_id = "retryJob",
    tag = "jobs",
    params(("id" = String, Path, pattern = "^[0-9a-fA-F-]{4,36}$", description = "A UUID, or at least its last 4 digits")),
    responses((status = 200, body = Done))
)]
pub(crate) async fn retry(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Named(id): Named,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Done>, Failure> {
    done(state.handle.ask(&caller, Request::Retry(id)).await?)?;
    Ok(Json(Done::YES))
}

/// A job's priority.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Priority {
    /// Jobs with a higher priority run first.
    priority: i16,
}

/// Change a job's priority
#[utoipa::path(
    put,
    path = "/v1/jobs/{id}/priority",
    operation_id = "setPriority",
    tag = "jobs",
    params(("id" = String, Path, pattern = "^[0-9a-fA-F-]{4,36}$", description = "A UUID, or at least its last 4 digits")),
    request_body = Priority,
    responses((status = 200, body = Done))
)]
pub(crate) async fn priority(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Named(id): Named,
    Params(Nothing {}): Params<Nothing>,
    Object(Priority { priority }): Object<Priority>,
) -> Result<Json<Done>, Failure> {
    let request = Request::SetPriority { job: id, priority };
    done(state.handle.ask(&caller, request).await?)?;
    Ok(Json(Done::YES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_filters_reads_as_many_rows_as_it_shows() {
        assert_eq!(rows_max(true, 1), 1);
        assert_eq!(rows_max(true, READ_TOGETHER + 1), READ_TOGETHER);
        assert_eq!(rows_max(false, 1), READ_TOGETHER);
    }
}
