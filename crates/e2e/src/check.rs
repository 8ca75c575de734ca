//! The check after a test: every job's history against the simulator's rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use filch_api::id::{job, read_job};
use filch_scheduler::id::JobId;
use filch_scheduler::spec::{Condition, JobSpec, Otherwise};
use filch_store::{History, OwnerNote, Store, open};

use crate::client_log::{ClientRecords, ReportedEnd};
use crate::constraints::{ClockReading, ConstraintSet};
use crate::job_history::JobHistory;
use crate::queue_runs::QueueRuns;
use crate::runs::{self, JobRun, RunOutcome};

/// How much was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckedHistories {
    /// Jobs that were acknowledged or ran.
    pub jobs: usize,
    /// How often they were started.
    pub runs: usize,
    /// Jobs that were started more than once.
    pub repeated: usize,
}

/// Checks the histories of all jobs in this store, which no server has open.
///
/// # Panics
/// If a rule is broken. The message names the rule and the job.
#[must_use]
pub fn check(
    database: &Path,
    runs: &Path,
    records: &ClientRecords,
    constraints: &ConstraintSet,
) -> CheckedHistories {
    let store = open(&database.into(), &OwnerNote::this_process());
    let store = store.unwrap_or_else(|error| panic!("{}: {error}", database.display()));
    let id = |name: String| read_job(&name).expect("runs are named after jobs");
    let runs: BTreeMap<JobId, Vec<JobRun>> =
        runs::all(runs).into_iter().map(|(name, runs)| (id(name), runs)).collect();
    let ids: BTreeSet<JobId> = records.acknowledged.keys().chain(runs.keys()).copied().collect();
    let ids = &ids - &records.operated;
    let mut ends: BTreeMap<JobId, Vec<ReportedEnd>> = BTreeMap::new();
    for end in &records.ends {
        ends.entry(end.job).or_default().push(*end);
    }
    let mut queues: BTreeMap<String, Vec<&JobRun>> = BTreeMap::new();
    for &id in &ids {
        let kept = kept(&*store, id, runs.contains_key(&id));
        let acknowledged = records.acknowledged.get(&id).copied();
        let is_there =
            |reading: &&ClockReading| acknowledged.is_none_or(|since| reading.at >= since);
        let readings: Vec<ClockReading> =
            constraints.readings.iter().filter(is_there).copied().collect();
        let history = JobHistory {
            id,
            is_acknowledged: acknowledged.is_some(),
            ends: ends.get(&id).map_or(&[], Vec::as_slice),
            runs: runs.get(&id).map_or(&[], Vec::as_slice),
            kept: kept.as_ref(),
            readings: &readings,
        };
        if let Some(violation) = history.violation() {
            let (rule, what) = (violation.rule.name(), violation.what);
            panic!("job {} breaks {rule}: {what}\n{history:#?}", job(id));
        }
        let spec = kept.as_ref().map(|kept| &kept.row.spec);
        if let Some(parent) = spec.and_then(|spec| unfinished_parent(spec, history.runs, &runs)) {
            let (child, parent) = (job(id), job(parent));
            panic!(
                "job {child} breaks S12: it started before {parent} had succeeded\n{history:#?}"
            );
        }
        if let Some(spec) = spec {
            let queue = queues.entry(spec.queue.to_string()).or_default();
            queue.extend(runs.get(&id).into_iter().flatten());
        }
    }
    for (queue, runs) in queues {
        check_queue(&queue, runs, constraints);
    }
    CheckedHistories {
        jobs: ids.len(),
        runs: runs.values().map(Vec::len).sum(),
        repeated: runs.values().filter(|runs| runs.len() > 1).count(),
    }
}

/// Checks the limit of one queue, and that its jobs ran on workers that serve it.
fn check_queue(queue: &str, runs: Vec<&JobRun>, constraints: &ConstraintSet) {
    let (limit, serves) = (constraints.limits.get(queue).copied(), &constraints.serves);
    if limit.is_none() && serves.is_empty() {
        return;
    }
    let queue_runs = QueueRuns { queue, limit, serves, runs };
    if let Some(violation) = queue_runs.violation() {
        let (rule, what, at) = (violation.rule.name(), violation.what, violation.at.0);
        let ends_later = |run: &JobRun| run.end.is_none_or(|end| end.at >= at);
        let then = queue_runs.runs.iter().filter(|run| run.start <= at && ends_later(run));
        let then: Vec<&&JobRun> = then.collect();
        panic!("queue {queue} breaks {rule}: {what}\n{constraints:#?}\n{then:#?}");
    }
}

/// A parent that had not succeeded when its child started. A history has only one job, so this is
/// checked here, by what both have recorded themselves, on one clock.
fn unfinished_parent(
    child: &JobSpec,
    child_runs: &[JobRun],
    runs: &BTreeMap<JobId, Vec<JobRun>>,
) -> Option<JobId> {
    let begin = child_runs.first()?.start;
    if child.condition != Condition::AllSucceeded || child.otherwise == Otherwise::Run {
        return None;
    }
    let is_success = |run: &JobRun| {
        run.end.is_some_and(|end| end.outcome == RunOutcome::Done && end.at <= begin)
    };
    let has_succeeded =
        |parent: &JobId| runs.get(parent).is_some_and(|runs| runs.iter().any(is_success));
    child.parents.iter().copied().find(|parent| !has_succeeded(parent))
}

/// Everything that is stored of a job. Its owners are looked up only if it ran: for a job that
/// waits for another day, the whole ownership ledger would have to be read to find nothing.
fn kept(store: &dyn Store, id: JobId, has_run: bool) -> Option<History> {
    if has_run {
        return store.history(id).expect("the store can be read");
    }
    let row = store.find(&[id], &[], &[]).expect("the store can be read").pop()?;
    let payload = "".into();
    Some(History {
        row,
        payload,
        owners: Vec::new(),
        notes: Vec::new(),
        outputs: Vec::new(),
        may_be_more: false,
    })
}

#[cfg(test)]
mod tests {
    use filch_scheduler::time::Wall;

    use super::*;
    use crate::process::ProcessIdentity;
    use crate::runs::RunEnd;

    const PARENT: JobId = JobId(1);

    fn run(start: u64, end: Option<(RunOutcome, u64)>) -> JobRun {
        JobRun {
            fence: 1,
            attempt: 1,
            process: ProcessIdentity { pid: 1, born: 0 },
            worker: 1,
            start,
            wall: Wall(0),
            end: end.map(|(outcome, at)| RunEnd { outcome, at, wall: Wall(0) }),
            beside: None,
        }
    }

    #[test]
    fn a_child_that_starts_before_its_parent_has_succeeded_breaks_s12() {
        let mut child = JobSpec::new(JobId(2));
        child.parents = vec![PARENT];
        let early = |spec: &JobSpec, parent: Vec<JobRun>| {
            unfinished_parent(spec, &[run(200, None)], &BTreeMap::from([(PARENT, parent)]))
        };
        let done = |at| Some((RunOutcome::Done, at));
        assert_eq!(early(&child, vec![run(90, None), run(100, done(200))]), None);
        assert_eq!(early(&child, vec![run(100, done(201))]), Some(PARENT));
        assert_eq!(early(&child, vec![run(100, Some((RunOutcome::Failed, 150)))]), Some(PARENT));
        assert_eq!(early(&child, vec![run(100, None)]), Some(PARENT), "it was killed");
        assert_eq!(unfinished_parent(&child, &[run(9, None)], &BTreeMap::new()), Some(PARENT));
        assert_eq!(unfinished_parent(&child, &[], &BTreeMap::new()), None, "it never ran");
        child.otherwise = Otherwise::Run;
        assert_eq!(early(&child, vec![run(100, done(201))]), None, "it runs anyway");
    }
}
