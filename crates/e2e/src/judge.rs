//! The judgement after a test: every job's story against the rules, and the store against itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use filch_api::id::{job, read_job};
use filch_scheduler::id::JobId;
use filch_scheduler::spec::{Condition, JobSpec, Otherwise};
use filch_store::{History, OwnerNote, Sqlite, Store as _};

use crate::clients::{End, Heard};
use crate::limits::Line;
use crate::runs::{self, Outcome, Run};
use crate::story::Story;
use crate::terms::{Reading, Set};

/// What there was to judge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Jobs that clients were told of, or that ran.
    pub jobs: usize,
    /// How often they were begun.
    pub runs: usize,
    /// Jobs that were begun more than once.
    pub repeated: usize,
}

/// Judges all that was seen of the jobs in this store, whose server is gone.
///
/// # Panics
/// If a rule is broken: it says which, and by what.
#[must_use]
pub fn judge(database: &Path, runs: &Path, heard: &Heard, terms: &Set) -> Judged {
    let store = Sqlite::open(database, &OwnerNote::this_process());
    let store = store.unwrap_or_else(|error| panic!("{}: {error}", database.display()));
    let id = |name: String| read_job(&name).expect("runs are named after jobs");
    let runs: BTreeMap<JobId, Vec<Run>> =
        runs::all(runs).into_iter().map(|(name, runs)| (id(name), runs)).collect();
    let ids: BTreeSet<JobId> = heard.acknowledged.keys().chain(runs.keys()).copied().collect();
    let ids = &ids - &heard.operated;
    let mut ends: BTreeMap<JobId, Vec<End>> = BTreeMap::new();
    for end in &heard.ends {
        ends.entry(end.job).or_default().push(*end);
    }
    let mut lines: BTreeMap<String, Vec<&Run>> = BTreeMap::new();
    for &id in &ids {
        let kept = kept(&store, id, runs.contains_key(&id));
        let acknowledged = heard.acknowledged.get(&id).copied();
        let is_there = |reading: &&Reading| acknowledged.is_none_or(|since| reading.at >= since);
        let readings: Vec<Reading> = terms.readings.iter().filter(is_there).copied().collect();
        let story = Story {
            id,
            is_acknowledged: acknowledged.is_some(),
            ends: ends.get(&id).map_or(&[], Vec::as_slice),
            runs: runs.get(&id).map_or(&[], Vec::as_slice),
            kept: kept.as_ref(),
            readings: &readings,
        };
        if let Some(violation) = story.violation() {
            let (rule, what) = (violation.rule.name(), violation.what);
            panic!("job {} breaks {rule}: {what}\n{story:#?}", job(id));
        }
        let spec = kept.as_ref().map(|kept| &kept.row.spec);
        if let Some(parent) = spec.and_then(|spec| unfinished_parent(spec, story.runs, &runs)) {
            let (child, parent) = (job(id), job(parent));
            panic!("job {child} breaks S12: it began before {parent} had ended\n{story:#?}");
        }
        if let Some(spec) = spec {
            let line = lines.entry(spec.queue.to_string()).or_default();
            line.extend(runs.get(&id).into_iter().flatten());
        }
    }
    for (queue, runs) in lines {
        hold_to_terms(&queue, runs, terms);
    }
    Judged {
        jobs: ids.len(),
        runs: runs.values().map(Vec::len).sum(),
        repeated: runs.values().filter(|runs| runs.len() > 1).count(),
    }
}

/// Limits and who serves whom, of one queue.
fn hold_to_terms(queue: &str, runs: Vec<&Run>, terms: &Set) {
    let (limit, serves) = (terms.limits.get(queue).copied(), &terms.serves);
    if limit.is_none() && serves.is_empty() {
        return;
    }
    let line = Line { queue, limit, serves, runs };
    if let Some(violation) = line.violation() {
        let (rule, what, at) = (violation.rule.name(), violation.what, violation.at.0);
        let ends_later = |run: &Run| run.end.is_none_or(|end| end.at >= at);
        let then = line.runs.iter().filter(|run| run.start <= at && ends_later(run));
        let then: Vec<&&Run> = then.collect();
        panic!("queue {queue} breaks {rule}: {what}\n{terms:#?}\n{then:#?}");
    }
}

/// A parent that had not done its work when its child began. No story has two jobs, so this is looked at
/// here: by what both wrote down themselves, on one clock.
fn unfinished_parent(
    child: &JobSpec,
    child_runs: &[Run],
    runs: &BTreeMap<JobId, Vec<Run>>,
) -> Option<JobId> {
    let begin = child_runs.first()?.start;
    if child.condition != Condition::AllSucceeded || child.otherwise == Otherwise::Run {
        return None;
    }
    let is_success =
        |run: &Run| run.end.is_some_and(|end| end.outcome == Outcome::Done && end.at <= begin);
    let has_succeeded =
        |parent: &JobId| runs.get(parent).is_some_and(|runs| runs.iter().any(is_success));
    child.parents.iter().copied().find(|parent| !has_succeeded(parent))
}

/// All that is kept of a job. Who owned it is looked up only if it ran: of a job that waits for another
/// day, the whole ledger would have to be read to find nothing.
fn kept(store: &Sqlite, id: JobId, has_run: bool) -> Option<History> {
    if has_run {
        return store.history(id).expect("the store can be read");
    }
    let row = store.find(&[id], &[], &[]).expect("the store can be read").pop()?;
    let payload = "".into();
    Some(History { row, payload, owners: Vec::new(), notes: Vec::new(), outputs: Vec::new() })
}

#[cfg(test)]
mod tests {
    use filch_scheduler::time::Wall;

    use super::*;
    use crate::process::Known;
    use crate::runs::End as RunEnd;

    const PARENT: JobId = JobId(1);

    fn run(start: u64, end: Option<(Outcome, u64)>) -> Run {
        Run {
            fence: 1,
            attempt: 1,
            process: Known { pid: 1, born: 0 },
            worker: 1,
            start,
            wall: Wall(0),
            end: end.map(|(outcome, at)| RunEnd { outcome, at, wall: Wall(0) }),
            beside: None,
        }
    }

    #[test]
    fn a_child_that_begins_too_early_breaks_s12() {
        let mut child = JobSpec::new(JobId(2));
        child.parents = vec![PARENT];
        let early = |spec: &JobSpec, parent: Vec<Run>| {
            unfinished_parent(spec, &[run(200, None)], &BTreeMap::from([(PARENT, parent)]))
        };
        let done = |at| Some((Outcome::Done, at));
        assert_eq!(early(&child, vec![run(90, None), run(100, done(200))]), None);
        assert_eq!(early(&child, vec![run(100, done(201))]), Some(PARENT));
        assert_eq!(early(&child, vec![run(100, Some((Outcome::Failed, 150)))]), Some(PARENT));
        assert_eq!(early(&child, vec![run(100, None)]), Some(PARENT), "it was killed");
        assert_eq!(unfinished_parent(&child, &[run(9, None)], &BTreeMap::new()), Some(PARENT));
        assert_eq!(unfinished_parent(&child, &[], &BTreeMap::new()), None, "it never ran");
        child.otherwise = Otherwise::Run;
        assert_eq!(early(&child, vec![run(100, done(201))]), None, "it is to run anyway");
    }
}
