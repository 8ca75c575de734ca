//! Jobs: one, many, and what can be done to them.

use std::time::Duration;

use axum::Json;
use axum::extract::State as Given;
use filch_api::job::{Details, Failure as Failed, Job, Ownership, Reasoning, states};
use filch_api::problem::Problem;
use filch_api::time::Moment;
use filch_api::{limits, span};
use filch_scheduler::dispatch::{Dispatch, Request};
use filch_scheduler::id::{JobId, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::JobRow;
use filch_scheduler::state::State as JobState;
use filch_store::{Filter, History, Order};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body::Object;
use super::cluster::{Done, done};
use super::extract::{Named, Nothing, Params};
use super::{Failure, State};

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShowQuery {
    /// Answer only when the job has ended, or after this span: `30s`, at most a minute.
    wait: Option<String>,
}

/// The longest that anybody waits for an answer.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// One job
///
/// With everything that is kept of it: what was submitted, who owned it, how attempts ended, and why it is
/// where it is.
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
    Named(id): Named,
    Params(query): Params<ShowQuery>,
) -> Result<Json<Job>, Failure> {
    if let Some(wait) = query.wait {
        let wait = span::read(&wait).map_err(|why| Problem::invalid(why).at("wait"))?;
        // A timeout is no failure: the job is shown as it is then.
        if let Ok(ended) = tokio::time::timeout(wait.min(WAIT_MAX), state.doorbell.end_of(id)).await
        {
            ended?;
        }
    }
    find(&state, id).await.map(Json)
}

/// A job with everything that is kept of it.
pub(crate) async fn find(state: &State, id: JobId) -> Result<Job, Failure> {
    let look =
        move |dispatch: &Dispatch, _| dispatch.job_view(id).map(|view| (view, dispatch.why(id)));
    let live = state.doorbell.look(look).await?;
    let history = state.read(move |store| store.history(id)).await?;
    let Some(history) = history else {
        let problem = Problem::not_found(format!("no job {}", filch_api::id::job(id)));
        return Err(problem
            .help("look for it with `filch job list`; ended jobs are forgotten after a while")
            .into());
    };
    // What has ended is durable, and the store knows when and why; before that the brain knows better.
    let mut job = match &live {
        Some((view, _)) if !history.row.now.state.is_ended() => Job::live(view),
        _ => Job::kept(&history.row),
    };
    let mut details = details(&history);
    details.why = live.and_then(|(_, why)| why).as_ref().map(Reasoning::of);
    job.details = Some(Box::new(details));
    Ok(job)
}

fn details(history: &History) -> Details {
    let mut details = Details::kept(&history.row, &history.payload);
    details.ledger = history
        .owners
        .iter()
        .map(|owner| Ownership::new(owner.hold.fence.0, owner.worker, owner.cause, owner.at))
        .collect();
    details.failures =
        history.notes.iter().filter_map(|(at, note)| Failed::noted(*at, note)).collect();
    details.error = details.failures.last().and_then(|failure| failure.error.clone());
    if history.row.now.state == JobState::Succeeded {
        details.error = None;
        let result = history.remains.iter().rev().find_map(|remains| remains.result.as_ref());
        details.result = result.and_then(|text| RawValue::from_string(text.to_string()).ok());
    }
    details
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// A state, or several with commas between them.
    state: Option<String>,
    /// Of this queue.
    queue: Option<String>,
    /// Of this kind.
    kind: Option<String>,
    /// Submitted at this moment or later.
    since: Option<String>,
    /// The `next` of the page before.
    after: Option<u64>,
    /// The newest first: the `next` of the page before, or 0 to begin.
    before: Option<u64>,
    /// At most so many; 100 if missing, and never more than 1,000.
    limit: Option<usize>,
}

/// A part of a list.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct Page {
    jobs: Vec<Job>,
    /// Where the next page begins, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

impl Page {
    /// These ended jobs, and whether there may be more after the last of them.
    pub(crate) fn kept(rows: &[JobRow], has_more: bool) -> Self {
        let next = rows.last().filter(|_| has_more).map(|row| row.seq.0);
        Self { jobs: rows.iter().map(Job::kept).collect(), next }
    }
}

/// List jobs
///
/// In the order in which they were submitted, or the newest first.
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
    Params(query): Params<ListQuery>,
) -> Result<Json<Page>, Failure> {
    let limit = query.limit.unwrap_or(100).clamp(1, limits::PAGE_JOBS);
    let filter = filter(&query)?;
    let order = order(query.after, query.before)?;
    let (jobs, next) = page(&state, &filter, order, limit).await?;
    Ok(Json(Page { jobs, next: next.map(|seq| seq.0) }))
}

/// Which way a list goes, and from where.
pub(crate) fn order(after: Option<u64>, before: Option<u64>) -> Result<Order, Problem> {
    match (after, before) {
        (Some(_), Some(_)) => Err(Problem::invalid("a list goes up or down")
            .help("write either `after` or `before`")
            .at("before")),
        (_, Some(0)) => Ok(Order::Before(Seq(u64::MAX))),
        (_, Some(seq)) => Ok(Order::Before(Seq(seq))),
        (after, None) => Ok(Order::After(Seq(after.unwrap_or(0)))),
    }
}

fn filter(query: &ListQuery) -> Result<Filter, Failure> {
    let mut filter = Filter::default();
    for word in query.state.iter().flat_map(|words| words.split(',')) {
        let meant = states(word).ok_or_else(|| {
            Problem::invalid(format!("{word:?} is no state of a job")).at("state").help(
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

/// How many rows are read in one go while a filter leaves out most of them.
const READ_TOGETHER: usize = 1_000;

/// One page. The store says which jobs there are, the brain what they are doing.
pub(crate) async fn page(
    state: &State,
    filter: &Filter,
    mut order: Order,
    limit: usize,
) -> Result<(Vec<Job>, Option<Seq>), Failure> {
    // The rows do not know what is leased or running: those states are the brain's to say.
    let mut wide = filter.clone();
    if filter.states.iter().any(|state| !state.is_ended()) {
        wide.states.retain(|state| state.is_ended());
        wide.states.extend(JobState::ALL.into_iter().filter(|state| !state.is_ended()));
    }
    let mut jobs = Vec::new();
    loop {
        let reading = wide.clone();
        let rows = state.read(move |store| store.list(&reading, order, READ_TOGETHER)).await?;
        let is_last = rows.len() < READ_TOGETHER;
        let ids: Vec<JobId> =
            rows.iter().filter(|row| !row.now.state.is_ended()).map(|row| row.spec.id).collect();
        let look = move |dispatch: &Dispatch, _| {
            ids.into_iter().map(|id| dispatch.job_view(id)).collect::<Vec<_>>()
        };
        let mut views = state.doorbell.look(look).await?.into_iter();
        for row in rows {
            order = match order {
                Order::After(_) => Order::After(row.seq),
                Order::Before(_) => Order::Before(row.seq),
            };
            let view = if row.now.state.is_ended() { None } else { views.next().flatten() };
            let job_state = view.as_ref().map_or(row.now.state, |view| view.state);
            if !filter.states.is_empty() && !filter.states.contains(&job_state) {
                continue;
            }
            jobs.push(view.map_or_else(|| Job::kept(&row), |view| Job::live(&view)));
            if jobs.len() == limit {
                return Ok((jobs, Some(row.seq)));
            }
        }
        if is_last {
            return Ok((jobs, None));
        }
    }
}

/// Cancel a job
///
/// Answered once nothing of it can start any more.
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
    Named(id): Named,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Done>, Failure> {
    done(state.doorbell.ask(Request::Cancel(id), Vec::new()).await?)?;
    Ok(Json(Done::YES))
}

/// Try a dead job again
///
/// With all its attempts anew.
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
    Named(id): Named,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Json<Done>, Failure> {
    done(state.doorbell.ask(Request::Retry(id), Vec::new()).await?)?;
    Ok(Json(Done::YES))
}

/// How soon a job is taken.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Priority {
    /// Higher is sooner.
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
    Named(id): Named,
    Params(Nothing {}): Params<Nothing>,
    Object(Priority { priority }): Object<Priority>,
) -> Result<Json<Done>, Failure> {
    let request = Request::SetPriority { job: id, priority };
    done(state.doorbell.ask(request, Vec::new()).await?)?;
    Ok(Json(Done::YES))
}
