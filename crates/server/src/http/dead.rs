//! Jobs that ended badly: looked at, tried again, forgotten; one by one or all that are alike.
//!
//! Whatever their number, they are worked through in slices, so that memory stays bounded and others get
//! their turn in between. A request that breaks off has done a part of its work; repeated, it does the
//! rest.

use axum::Json;
use axum::extract::State as Given;
use filch_api::dead::{Count, Refusal, Selection};
use filch_api::id;
use filch_api::limits;
use filch_api::problem::Problem;
use filch_api::submission::name;
use filch_api::time::Moment;
use filch_scheduler::dispatch::{Answer, Refused, Request};
use filch_scheduler::id::{JobId, Seq};
use filch_scheduler::record::JobRow;
use filch_scheduler::state::State as JobState;
use filch_scheduler::time::Wall;
use filch_store::{Filter, Order};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;

use super::body::Object;
use super::extract::{Nothing, Params};
use super::jobs::Page;
use super::{Failure, State};
use crate::brain::Input;

/// So many rows are read, tried again or forgotten in one go.
const SLICE: usize = 1_000;

/// So many retries are under way at once.
const TOGETHER: usize = 256;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadQuery {
    /// Of this queue.
    queue: Option<String>,
    /// Of this kind.
    kind: Option<String>,
    /// Died at this moment or later.
    since: Option<String>,
    /// The `next` of the page before.
    after: Option<u64>,
    /// The newest first: the `next` of the page before, or 0 to begin.
    before: Option<u64>,
    /// At most so many; 100 if missing, and never more than 1,000.
    limit: Option<usize>,
}

/// List dead jobs
///
/// Jobs whose attempts are used up, in the order in which they were submitted.
#[utoipa::path(
    get,
    path = "/v1/dead",
    operation_id = "listDead",
    tag = "dead",
    params(DeadQuery),
    responses((status = 200, body = Page))
)]
pub(crate) async fn list(
    Given(state): Given<State>,
    Params(query): Params<DeadQuery>,
) -> Result<Json<Page>, Failure> {
    let limit = query.limit.unwrap_or(100).clamp(1, limits::PAGE_JOBS);
    let since = query.since.as_deref().map(Moment::read).transpose();
    let since = since.map_err(|why| Problem::invalid(why).at("since"))?;
    let filter = filter(query.queue.as_deref(), query.kind.as_deref());
    let mut order = super::jobs::order(query.after, query.before)?;
    let mut rows = Vec::new();
    loop {
        let (read, is_last) = slice(&state, &filter, &mut order).await?;
        for row in read.into_iter().filter(|row| died_since(row, since)) {
            rows.push(row);
            if rows.len() == limit {
                return Ok(Json(Page::kept(&rows, true)));
            }
        }
        if is_last {
            return Ok(Json(Page::kept(&rows, false)));
        }
    }
}

/// Try dead jobs again
///
/// Gives each of them all its attempts anew.
#[utoipa::path(
    post,
    path = "/v1/dead/retry",
    operation_id = "retryDead",
    tag = "dead",
    request_body = Selection,
    responses((status = 200, body = Count))
)]
pub(crate) async fn retry(
    Given(state): Given<State>,
    Params(Nothing {}): Params<Nothing>,
    Object(selection): Object<Selection>,
) -> Result<Json<Count>, Failure> {
    work_through(&state, selection, Verb::Retry).await.map(Json)
}

/// Forget dead jobs
///
/// With all that is kept of them. A job that others still wait for stays.
#[utoipa::path(
    post,
    path = "/v1/dead/discard",
    operation_id = "discardDead",
    tag = "dead",
    request_body = Selection,
    responses((status = 200, body = Count))
)]
pub(crate) async fn discard(
    Given(state): Given<State>,
    Params(Nothing {}): Params<Nothing>,
    Object(selection): Object<Selection>,
) -> Result<Json<Count>, Failure> {
    work_through(&state, selection, Verb::Discard).await.map(Json)
}

#[derive(Clone, Copy)]
enum Verb {
    Retry,
    Discard,
}

fn filter(queue: Option<&str>, kind: Option<&str>) -> Filter {
    Filter {
        states: vec![JobState::Dead],
        queue: queue.map(Into::into),
        kind: kind.map(Into::into),
        since: None,
    }
}

fn died_since(row: &JobRow, since: Option<Moment>) -> bool {
    since.is_none_or(|Moment(Wall(since))| row.now.at.0 >= since)
}

/// The next rows, and whether they are the last.
async fn slice(
    state: &State,
    filter: &Filter,
    order: &mut Order,
) -> Result<(Vec<JobRow>, bool), Failure> {
    let (reading, from) = (filter.clone(), *order);
    let rows = state.read(move |store| store.list(&reading, from, SLICE)).await?;
    if let Some(last) = rows.last() {
        *order = match *order {
            Order::After(_) => Order::After(last.seq),
            Order::Before(_) => Order::Before(last.seq),
        };
    }
    let is_last = rows.len() < SLICE;
    Ok((rows, is_last))
}

async fn work_through(state: &State, selection: Selection, verb: Verb) -> Result<Count, Failure> {
    selection.check()?;
    for (field, text) in [("queue", &selection.queue), ("kind", &selection.kind)] {
        text.as_deref().map(|text| name(field, text)).transpose()?;
    }
    let mut count = Count::default();
    if let Some(ids) = &selection.ids {
        let ids = read_ids(ids)?;
        for ids in ids.chunks(SLICE) {
            let reading = ids.to_vec();
            let found = state.read(move |store| store.find(&reading, &[], &[])).await?;
            let (dead, others): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|row| row.now.state == JobState::Dead);
            count.refused.extend(others.iter().map(|row| {
                refusal(row.spec.id, Refused::WrongState { job: row.spec.id, state: row.now.state })
            }));
            let known = |id: &&JobId| dead.iter().chain(&others).any(|row| row.spec.id == **id);
            let unknown = ids.iter().filter(|id| !known(id));
            count.refused.extend(unknown.map(|&id| refusal(id, Refused::UnknownJob(id))));
            carry_out(state, verb, selection.dry_run, &dead, &mut count).await?;
        }
        return Ok(count);
    }
    let filter = filter(selection.queue.as_deref(), selection.kind.as_deref());
    let mut order = Order::After(Seq(0));
    loop {
        let (mut rows, is_last) = slice(state, &filter, &mut order).await?;
        rows.retain(|row| died_since(row, selection.since));
        carry_out(state, verb, selection.dry_run, &rows, &mut count).await?;
        if is_last {
            // Nobody named them, so nobody asks what became of each.
            count.refused.clear();
            return Ok(count);
        }
        count.refused.clear();
    }
}

fn read_ids(texts: &[String]) -> Result<Vec<JobId>, Failure> {
    let ids = texts.iter().enumerate().map(|(index, text)| {
        id::read_job(text).ok_or_else(|| {
            Problem::new(400, "bad-id", format!("{text:?} is no id of a job"))
                .help("write whole UUIDs")
                .at(format!("/ids/{index}"))
        })
    });
    let mut ids = ids.collect::<Result<Vec<_>, _>>()?;
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

fn refusal(job: JobId, refused: Refused) -> Refusal {
    let problem = Problem::from(refused);
    Refusal { id: id::job(job), code: problem.code, title: problem.title }
}

async fn carry_out(
    state: &State,
    verb: Verb,
    is_dry: bool,
    dead: &[JobRow],
    count: &mut Count,
) -> Result<(), Failure> {
    match verb {
        _ if is_dry => count.count += dead.len() as u64,
        Verb::Retry => {
            for some in dead.chunks(TOGETHER) {
                retry_some(state, some, count).await?;
            }
        }
        Verb::Discard => discard_some(state, dead, count).await?,
    }
    Ok(())
}

/// Asked for together, they are stored together.
async fn retry_some(state: &State, dead: &[JobRow], count: &mut Count) -> Result<(), Failure> {
    let asked = dead.iter().map(|row| async {
        let job = row.spec.id;
        (job, state.doorbell.ask(Request::Retry(job), Vec::new()).await)
    });
    let mut asked: FuturesUnordered<_> = asked.collect();
    while let Some((job, answer)) = asked.next().await {
        match answer? {
            Answer::Done | Answer::Submitted(_) => count.count += 1,
            // Somebody else was quicker, or too much waits for the store.
            Answer::Refused(refused) => count.refused.push(refusal(job, refused)),
        }
    }
    Ok(())
}

/// Proposes jobs as if their time were over, and looks which of them are gone.
async fn discard_some(state: &State, dead: &[JobRow], count: &mut Count) -> Result<(), Failure> {
    let mut left: Vec<(Seq, JobId)> = dead.iter().map(|row| (row.seq, row.spec.id)).collect();
    // A job that died just now is let go of when the brain has its receipt, which may be a moment later
    // than the store has it.
    for _ in 0..2 {
        if left.is_empty() {
            return Ok(());
        }
        state.doorbell.ring(Input::Expired(left.clone())).await?;
        // Told once everything that was decided by then is durable.
        state.doorbell.look(|_, _| ()).await?;
        let ids: Vec<JobId> = left.iter().map(|&(_, id)| id).collect();
        let found = state.read(move |store| store.find(&ids, &[], &[])).await?;
        let before = left.len();
        // What was submitted anew under an old id is another job.
        left.retain(|(seq, _)| found.iter().any(|row| row.seq == *seq));
        count.count += (before - left.len()) as u64;
    }
    count.refused.extend(left.iter().map(|&(_, job)| Refusal {
        id: id::job(job),
        code: "needed".into(),
        title: format!(
            "other jobs wait for job {}, or somebody is about to retry it",
            id::job(job)
        ),
    }));
    Ok(())
}
