//! Dead jobs: list, group, retry and discard them, one by one or by filter.
//!
//! However many there are, they are processed in slices, so that memory stays bounded and other
//! requests run in between. A request that breaks off has done a part of its work; if it is
//! repeated, it does the rest.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use axum::extract::State as Given;
use axum::{Extension, Json};
use filch_api::dead::{Count, DeadJob, Group, Groups, Refusal, Selection, check_group};
use filch_api::job::Job;
use filch_api::problem::Problem;
use filch_api::submission::name;
use filch_api::time::Moment;
use filch_api::{fingerprint, id, limits};
use filch_scheduler::dispatch::{Answer, Refused, Request};
use filch_scheduler::id::{JobId, Seq};
use filch_scheduler::record::{JobRow, Reason};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use filch_store::{Filter, JobText, ListOrder, Listed, PurgeCause, Store, StoreError, StoredText};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde::{Deserialize, Serialize};

use super::body::Object;
use super::extract::{Nothing, Params};
use super::jobs::SLICES_MAX;
use super::{Failure, State};
use crate::shell::Input;
use crate::tokens::Caller;

/// How many rows are read, retried or discarded at once.
const SLICE: usize = 1_000;

/// How many retries run at once.
const TOGETHER: usize = 256;

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeadQuery {
    /// Only jobs of this queue.
    queue: Option<String>,
    /// Only jobs of this kind.
    kind: Option<String>,
    /// Only jobs that died at this time or later.
    since: Option<String>,
    /// Only jobs of the group with this fingerprint.
    group: Option<String>,
    /// Oldest first: the `next` of the previous page.
    after: Option<u64>,
    /// Newest first: the `next` of the previous page, or 0 for the first page.
    before: Option<u64>,
    /// Page size: 100 by default, at most 1,000.
    limit: Option<usize>,
}

/// List dead jobs
///
/// Jobs whose attempts are used up (dead letters), in order of submission.
#[utoipa::path(
    get,
    path = "/v1/dead",
    operation_id = "listDead",
    tag = "dead",
    params(DeadQuery),
    responses((status = 200, body = DeadPage))
)]
pub(crate) async fn list(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<DeadQuery>,
) -> Result<Json<DeadPage>, Failure> {
    let limit = query.limit.unwrap_or(100).clamp(1, limits::PAGE_JOBS);
    query.group.as_deref().map(check_group).transpose()?;
    let since = moment(query.since.as_deref())?;
    let filter = filter(query.queue.as_deref(), query.kind.as_deref());
    filter.queue.as_ref().map_or(Ok(()), |queue| caller.check(queue))?;
    let mut order = super::jobs::order(query.after, query.before)?;
    let mut jobs = Vec::new();
    let mut next = None;
    for _ in 0..SLICES_MAX {
        let (dead, last) = slice(&state, &caller, &filter, &mut order).await?;
        for dead in dead.into_iter().filter(|dead| dead.row.now.at >= since) {
            let fingerprint = dead.fingerprint();
            if query.group.as_ref().is_some_and(|group| *group != fingerprint) {
                continue;
            }
            let error = shortened(&dead.error).to_owned();
            jobs.push(DeadJob { job: Job::kept(&dead.row), error, fingerprint });
            if jobs.len() == limit {
                return Ok(Json(DeadPage { next: jobs.last().map(|last| last.job.seq), jobs }));
            }
        }
        next = last;
        if last.is_none() {
            break;
        }
    }
    Ok(Json(DeadPage { jobs, next: next.map(|seq| seq.0) }))
}

/// A page of dead jobs.
#[derive(Serialize, utoipa::ToSchema)]
pub(crate) struct DeadPage {
    jobs: Vec<DeadJob>,
    /// Where the next page starts, if there is one. A page may have fewer jobs than `limit`, even
    /// none, although there is a next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// How many bytes of an error a list shows.
const ERROR_BYTES: usize = 1_024;

fn shortened(error: &str) -> &str {
    &error[..error.floor_char_boundary(ERROR_BYTES)]
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct GroupsQuery {
    /// Only jobs of this queue.
    queue: Option<String>,
    /// Only jobs of this kind.
    kind: Option<String>,
    /// Only jobs that died at this time or later.
    since: Option<String>,
    /// How many groups: 100 by default, at most 1,000.
    limit: Option<usize>,
}

/// How many groups are distinguished; other jobs are only counted.
const GROUPS_MAX: usize = 10_000;

/// Group dead jobs by error
///
/// A group has the dead jobs of one queue and one kind whose errors differ only in numbers, ids,
/// paths, addresses and times. The largest group comes first.
#[utoipa::path(
    get,
    path = "/v1/dead/groups",
    operation_id = "deadGroups",
    tag = "dead",
    params(GroupsQuery),
    responses((status = 200, body = Groups))
)]
pub(crate) async fn groups(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Params(query): Params<GroupsQuery>,
) -> Result<Json<Groups>, Failure> {
    let since = moment(query.since.as_deref())?;
    let filter = filter(query.queue.as_deref(), query.kind.as_deref());
    filter.queue.as_ref().map_or(Ok(()), |queue| caller.check(queue))?;
    let mut order = ListOrder::After(Seq(0));
    let mut found: BTreeMap<String, Group> = BTreeMap::new();
    let mut jobs = 0;
    loop {
        let (dead, last) = slice(&state, &caller, &filter, &mut order).await?;
        for dead in dead.into_iter().filter(|dead| dead.row.now.at >= since) {
            jobs += 1;
            dead.join(&mut found);
        }
        if last.is_none() {
            break;
        }
    }
    let mut groups: Vec<Group> = found.into_values().collect();
    groups.sort_by_key(|group| Reverse((group.count, group.newest)));
    groups.truncate(query.limit.unwrap_or(100).clamp(1, 1_000));
    let shown: u64 = groups.iter().map(|group| group.count).sum();
    Ok(Json(Groups { groups, jobs, rest: jobs - shown }))
}

/// Retry dead jobs
///
/// Resets the attempts of each job and queues it again.
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
    Extension(caller): Extension<Caller>,
    Params(Nothing {}): Params<Nothing>,
    Object(selection): Object<Selection>,
) -> Result<Json<Count>, Failure> {
    work_through(&state, &caller, selection, Verb::Retry).await.map(Json)
}

/// Discard dead jobs
///
/// Purges them with everything that is stored of them. Jobs that other jobs wait for are kept.
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
    Extension(caller): Extension<Caller>,
    Params(Nothing {}): Params<Nothing>,
    Object(selection): Object<Selection>,
) -> Result<Json<Count>, Failure> {
    work_through(&state, &caller, selection, Verb::Discard).await.map(Json)
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

/// The start of the time range; the beginning of time if not given.
fn moment(since: Option<&str>) -> Result<Wall, Problem> {
    let since = since.map(Moment::read).transpose();
    let since = since.map_err(|why| Problem::invalid(why).at("since"))?;
    Ok(since.map_or(Wall(0), |Moment(since)| since))
}

/// A dead job with its error.
struct Dead {
    row: JobRow,
    error: StoredText,
}

impl Dead {
    fn fingerprint(&self) -> String {
        fingerprint::of(self.row.spec.queue.as_str(), self.row.spec.kind.as_str(), &self.error)
    }

    /// Counts it in its group, unless there are too many groups.
    fn join(&self, groups: &mut BTreeMap<String, Group>) {
        let fingerprint = self.fingerprint();
        let (died, count) = (Moment(self.row.now.at), groups.len());
        let group = match groups.entry(fingerprint) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(_) if count >= GROUPS_MAX => return,
            Entry::Vacant(free) => {
                let fingerprint = free.key().clone();
                let retry = format!("filch dead retry --group {fingerprint}");
                free.insert(Group {
                    fingerprint,
                    queue: self.row.spec.queue.to_string(),
                    kind: self.row.spec.kind.to_string(),
                    count: 0,
                    oldest: died,
                    newest: died,
                    example: String::new(),
                    error: String::new(),
                    retry,
                })
            }
        };
        group.count += 1;
        group.oldest = group.oldest.min(died);
        if group.example.is_empty() || died > group.newest {
            group.newest = died;
            group.example = id::job(self.row.spec.id);
            group.error = shortened(&self.error).to_owned();
        }
    }
}

/// The next dead jobs, and where to go on if they are not the last.
async fn slice(
    state: &State,
    caller: &Caller,
    filter: &Filter,
    order: &mut ListOrder,
) -> Result<(Vec<Dead>, Option<Seq>), Failure> {
    let (reading, from) = (filter.clone(), *order);
    let dead = state.read(move |store| {
        let Listed { rows, last } = store.list(&reading, from, SLICE)?;
        Ok((with_errors(store, rows)?, last))
    });
    let (mut dead, last) = dead.await?;
    if let Some(last) = last {
        *order = order.from(last);
    }
    dead.retain(|dead| caller.may_use(&dead.row.spec.queue));
    Ok((dead, last))
}

fn with_errors(store: &dyn Store, rows: Vec<JobRow>) -> Result<Vec<Dead>, StoreError> {
    let seqs: Vec<Seq> = rows.iter().map(|row| row.seq).collect();
    let errors = store.texts(JobText::LastError, &seqs)?;
    // A job whose worker was lost each time has no error message.
    let nothing = |row: &JobRow| match row.now.reason {
        Some(Reason::WorkerLost) => StoredText::from("the worker was lost"),
        _ => StoredText::from("no error was reported"),
    };
    let dead = rows.into_iter().zip(errors);
    Ok(dead
        .map(|(row, error)| Dead { error: error.unwrap_or_else(|| nothing(&row)), row })
        .collect())
}

async fn work_through(
    state: &State,
    caller: &Caller,
    selection: Selection,
    verb: Verb,
) -> Result<Count, Failure> {
    selection.check()?;
    for (field, text) in [("queue", &selection.queue), ("kind", &selection.kind)] {
        text.as_deref().map(|text| name(field, text)).transpose()?;
    }
    let mut count = Count::default();
    if let Some(ids) = &selection.ids {
        let ids = read_ids(ids)?;
        for ids in ids.chunks(SLICE) {
            let reading = ids.to_vec();
            let mut found = state.read(move |store| store.find(&reading, &[], &[])).await?;
            // Jobs in queues that the caller may not use are treated as if they did not exist.
            found.retain(|row| caller.may_use(&row.spec.queue));
            let (dead, others): (Vec<JobRow>, Vec<JobRow>) =
                found.into_iter().partition(|row| row.now.state == JobState::Dead);
            count.refused.extend(others.iter().map(|row| {
                refusal(row.spec.id, Refused::WrongState { job: row.spec.id, state: row.now.state })
            }));
            let known = |id: &&JobId| dead.iter().chain(&others).any(|row| row.spec.id == **id);
            let unknown = ids.iter().filter(|id| !known(id));
            count.refused.extend(unknown.map(|&id| refusal(id, Refused::UnknownJob(id))));
            carry_out(state, caller, verb, selection.dry_run, &dead, &mut count).await?;
        }
        return Ok(count);
    }
    let filter = filter(selection.queue.as_deref(), selection.kind.as_deref());
    filter.queue.as_ref().map_or(Ok(()), |queue| caller.check(queue))?;
    let mut order = ListOrder::After(Seq(0));
    loop {
        let (dead, last) = slice(state, caller, &filter, &mut order).await?;
        let is_meant = |dead: &Dead| {
            let is_of_group = |group: &String| *group == dead.fingerprint();
            selection.since.is_none_or(|Moment(since)| dead.row.now.at >= since)
                && selection.group.as_ref().is_none_or(is_of_group)
        };
        let meant = dead.into_iter().filter(is_meant);
        let rows: Vec<JobRow> = meant.map(|dead| dead.row).collect();
        carry_out(state, caller, verb, selection.dry_run, &rows, &mut count).await?;
        if last.is_none() {
            // They were selected by a filter, so single failures do not matter.
            count.refused.clear();
            return Ok(count);
        }
        count.refused.clear();
    }
}

fn read_ids(texts: &[String]) -> Result<Vec<JobId>, Failure> {
    let ids = texts.iter().enumerate().map(|(index, text)| {
        id::read_job(text).ok_or_else(|| {
            Problem::new(400, "bad-id", format!("{text:?} is not a job id"))
                .help("use full UUIDs")
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
    caller: &Caller,
    verb: Verb,
    is_dry: bool,
    dead: &[JobRow],
    count: &mut Count,
) -> Result<(), Failure> {
    match verb {
        _ if is_dry => count.count += dead.len() as u64,
        Verb::Retry => {
            for some in dead.chunks(TOGETHER) {
                retry_some(state, caller, some, count).await?;
            }
        }
        Verb::Discard => discard_some(state, dead, count).await?,
    }
    Ok(())
}

/// Concurrent requests share commits.
async fn retry_some(
    state: &State,
    caller: &Caller,
    dead: &[JobRow],
    count: &mut Count,
) -> Result<(), Failure> {
    let asked = dead.iter().map(|row| async {
        let job = row.spec.id;
        (job, state.handle.ask(caller, Request::Retry(job)).await)
    });
    let mut asked: FuturesUnordered<_> = asked.collect();
    while let Some((job, answer)) = asked.next().await {
        match answer? {
            Answer::Done | Answer::Submitted(_) => count.count += 1,
            // Another request was first, or too many commits wait.
            Answer::Refused(refused) => count.refused.push(refusal(job, refused)),
        }
    }
    Ok(())
}

/// Proposes jobs for purging as if their retention were over, and checks which of them are gone.
async fn discard_some(state: &State, dead: &[JobRow], count: &mut Count) -> Result<(), Failure> {
    let mut left: Vec<(Seq, JobId)> = dead.iter().map(|row| (row.seq, row.spec.id)).collect();
    // The scheduler releases a job that has just died when it has the receipt of the commit, which
    // may be a moment after the store has the job. So a second try may succeed.
    for _ in 0..2 {
        if left.is_empty() {
            return Ok(());
        }
        state
            .handle
            .send(Input::Purge { jobs: left.clone(), cause: PurgeCause::Discarded })
            .await?;
        // This returns once everything that was decided so far is durable.
        state.handle.look(|_, _| ()).await?;
        let ids: Vec<JobId> = left.iter().map(|&(_, id)| id).collect();
        let found = state.read(move |store| store.find(&ids, &[], &[])).await?;
        let before = left.len();
        // A job that was submitted again under the same id is another job.
        left.retain(|(seq, _)| found.iter().any(|row| row.seq == *seq));
        count.count += (before - left.len()) as u64;
    }
    count.refused.extend(left.iter().map(|&(_, job)| Refusal {
        id: id::job(job),
        code: "needed".into(),
        title: format!("other jobs wait for job {}, or it is about to be retried", id::job(job)),
    }));
    Ok(())
}
