//! When a job may be claimed: S11 not before its time, S12 after its parents, S13 within limits, L5
//! in its turn, L6 not stolen over and over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use filch_scheduler::id::{Hold, JobId, Seq};
use filch_scheduler::message::{Ending, FromWorker};
use filch_scheduler::name::Name;
use filch_scheduler::record::{
    AttemptOutcome, DEFAULT_AGING, JobRow, JobWrite, LeaseCause, Note, Reason, Strategy,
};
use filch_scheduler::spec::{Backoff, Condition, Otherwise, Retry};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Millis, Monotonic, Wall};

use super::facts::{Facts, Job};
use super::ownership::who;
use super::{Change, Commit, Holds, Rule, ensure};
use crate::log::Observed;

/// The state of these rules.
#[derive(Default)]
pub(super) struct Order {
    /// Since when a job waits, and for which time of the wall clock.
    due: BTreeMap<Seq, (Monotonic, Wall)>,
    /// The requested delays of snoozed executions.
    snoozed: BTreeMap<Hold, Millis>,
    /// Readings of the server's wall clock: for each period that ends now, the latest time.
    walls: VecDeque<(Monotonic, Wall)>,
    /// Children whose condition held before a parent was retried.
    released: BTreeSet<Seq>,
    /// How often each job was stolen since it was last queued.
    thefts: BTreeMap<Seq, u32>,
}

/// A job that was stolen this often is stolen again only for a free slot.
const THEFTS_FREE: u32 = 2;

impl Order {
    pub(super) fn observe(&mut self, at: Monotonic, seen: &Observed<'_>) {
        match seen {
            Observed::ServerRead(now) => {
                while self.walls.back().is_some_and(|&(_, wall)| wall <= now.wall) {
                    self.walls.pop_back();
                }
                self.walls.push_back((at, now.wall));
            }
            Observed::Arrived { messages, .. } => {
                let reports = messages.iter().flat_map(FromWorker::reports);
                for report in reports {
                    if let Ending::Snoozed(wait) = report.ending {
                        self.snoozed.insert(report.hold, wait);
                    }
                }
            }
            // The server does not remember steals across a restart.
            Observed::ServerCrashed => self.thefts.clear(),
            _ => {}
        }
    }

    /// The latest time that the wall clock has shown since then.
    fn latest_wall(&self, since: Monotonic) -> Option<Wall> {
        self.walls.iter().find(|&&(at, _)| at >= since).map(|&(_, wall)| wall)
    }

    pub(super) fn put(&mut self, commit: &Commit<'_>, row: &JobRow) {
        if let Some(due) = row.spec.not_before {
            self.due.insert(row.seq, (commit.decided.0, due));
        }
    }

    pub(super) fn written(
        &mut self,
        commit: &Commit<'_>,
        write: &JobWrite,
        facts: &Facts,
    ) -> Holds {
        let job = facts.known(write.job)?;
        if write.state == JobState::Scheduled {
            let hold = Hold { job: write.job, fence: write.fence };
            let outcome = commit.notes().find_map(|note| match note {
                Note::Attempt { hold: it, outcome, .. } if *it == hold => Some(outcome),
                _ => None,
            });
            let wait = match outcome {
                Some(AttemptOutcome::Snoozed) => {
                    self.snoozed.get(&hold).map_or(0, |wait| u64::from(wait.0))
                }
                Some(AttemptOutcome::Failed(_)) => shortest_wait(&job.spec.retry, write.attempts),
                // It is written for another reason, and goes on waiting.
                _ => 0,
            };
            let earliest = commit.decided.1.wall.0 + wait;
            ensure(wait == 0 || write.due.0 >= earliest, Rule::S11, || {
                let (name, due) = (job.name(), write.due.0);
                format!("{name} is due at {due} ms, but should wait until {earliest} ms")
            })?;
            let longest = match outcome {
                Some(AttemptOutcome::Snoozed) => Some(wait),
                Some(AttemptOutcome::Failed(_)) => {
                    Some(longest_wait(&job.spec.retry, write.attempts))
                }
                _ => None,
            };
            let latest = longest.map(|wait| commit.decided.1.wall.0 + wait);
            ensure(latest.is_none_or(|latest| write.due.0 <= latest), Rule::S11, || {
                let (name, due) = (job.name(), write.due.0);
                format!("{name} is due at {due} ms, later than its policy allows")
            })?;
            self.due.insert(write.job, (commit.decided.0, write.due));
        }
        let is_hopeless = write.reason == Some(Reason::Condition) && !job.is_ended();
        let is_to_end = job.spec.otherwise == Otherwise::Cancel;
        let is_right = is_to_end && judge(job, facts) == Verdict::Never;
        ensure(!is_hopeless || is_right, Rule::S12, || {
            format!("{} is cancelled, but its parents' condition can still hold", job.name())
        })?;
        if job.is_ended() && !write.state.is_ended() {
            self.thefts.remove(&write.job);
            // Children that its end has released stay released.
            let children = facts.children_of(job.spec.id);
            let allowed = children.filter(|child| may_start(child, facts));
            self.released.extend(allowed.map(|child| child.seq));
        }
        Ok(())
    }

    pub(super) fn changed(&mut self, change: &Change, job: &Job, facts: &Facts) -> Holds {
        let Some(worker) = change.worker else {
            return Ok(());
        };
        let id = job.name();
        if let Some(&(since, due)) = self.due.get(&job.seq) {
            let shown = self.latest_wall(since);
            ensure(shown.is_some_and(|wall| wall >= due), Rule::S11, || {
                format!("{id} is assigned before its time, {} ms", due.0)
            })?;
            self.due.remove(&job.seq);
        }
        let is_allowed = self.released.contains(&job.seq) || may_start(job, facts);
        ensure(is_allowed, Rule::S12, || {
            format!("{id} is assigned, but its parents' condition does not hold")
        })?;
        let queue = facts.queues.get(&job.spec.queue);
        let limit = queue.and_then(|queue| queue.limit);
        let owned = queue.map_or(0, |queue| queue.owned);
        let after = owned + u32::from(job.owner.is_none() && job.held_by.is_none());
        let is_more = job.owner.is_none();
        let is_open = queue.is_none_or(|queue| !queue.is_paused);
        ensure(!is_more || is_open, Rule::S13, || {
            format!("{id} is claimed from its queue, which is paused")
        })?;
        let is_served = facts.place_of(worker).is_none_or(|place| place.serves(&job.spec.queue));
        ensure(is_served, Rule::S13, || {
            format!("{id} goes to {}, which does not serve its queue", who(worker))
        })?;
        ensure(!is_more || limit.is_none_or(|limit| after <= limit), Rule::S13, || {
            let limit = limit.unwrap_or_default();
            format!("{id} is number {after} of its queue to be owned, but the limit is {limit}")
        })?;
        if let LeaseCause::Steal(_) = change.cause {
            let thefts = self.thefts.entry(job.seq).or_default();
            *thefts += 1;
            let slots = facts.place_of(worker).map_or(u32::MAX, |place| place.slots);
            let has_free_slot = facts.owned_by(worker) < slots;
            ensure(*thefts <= THEFTS_FREE || has_free_slot, Rule::L6, || {
                format!(
                    "{id} is stolen {thefts} times, now by {}, which has no free slot",
                    who(worker)
                )
            })?;
        }
        Ok(())
    }

    /// S12 for new jobs, and L5 for claimed ones.
    pub(super) fn commit_ends(&self, commit: &Commit<'_>, facts: &Facts) -> Holds {
        check_graph(commit, facts)?;
        check_turns(commit, facts)
    }
}

/// The shortest delay of a job after this many charged attempts, in milliseconds.
#[must_use]
pub fn shortest_wait(retry: &Retry, attempts: u16) -> u64 {
    let plain = plain_wait(retry, attempts);
    plain - plain * u64::from(retry.jitter_percent.min(100)) / 100
}

/// The longest one.
fn longest_wait(retry: &Retry, attempts: u16) -> u64 {
    let plain = plain_wait(retry, attempts);
    plain + plain * u64::from(retry.jitter_percent.min(100)) / 100
}

fn plain_wait(retry: &Retry, attempts: u16) -> u64 {
    match retry.backoff {
        Backoff::None => 0,
        Backoff::Fixed(wait) => u64::from(wait.0),
        Backoff::Exponential { base, factor_percent, cap } => {
            let longer = |wait: u64| (wait * u64::from(factor_percent) / 100).min(u64::from(cap.0));
            let first = u64::from(base.0).min(u64::from(cap.0));
            (1..attempts).fold(first, |wait, _| longer(wait))
        }
    }
}

/// The state of a job's condition.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It can still hold.
    Open,
    /// It holds.
    Holds,
    /// It cannot hold any more.
    Never,
}

fn judge(job: &Job, facts: &Facts) -> Verdict {
    let states = job.parents.iter().filter_map(|&parent| facts.job(parent)).map(|it| it.state);
    let (mut pending, mut succeeded, mut failed) = (0, 0, 0);
    for state in states {
        match state {
            JobState::Succeeded => succeeded += 1,
            JobState::Dead | JobState::Cancelled => failed += 1,
            _ => pending += 1,
        }
    }
    let (holds, never) = match job.spec.condition {
        _ if job.parents.is_empty() => (true, false),
        Condition::AllSucceeded => (pending + failed == 0, failed > 0),
        Condition::AnySucceeded => (succeeded > 0, pending == 0),
        Condition::AllDone => (pending == 0, false),
        Condition::AnyFailed => (failed > 0, pending == 0),
    };
    match (holds, never) {
        (true, _) => Verdict::Holds,
        (false, true) => Verdict::Never,
        (false, false) => Verdict::Open,
    }
}

/// Whether a job's condition holds, or cannot hold and the job is to run all the same.
fn may_start(job: &Job, facts: &Facts) -> bool {
    match judge(job, facts) {
        Verdict::Holds => true,
        Verdict::Never => job.spec.otherwise == Otherwise::Run,
        Verdict::Open => false,
    }
}

/// Every parent is stored, and no job waits for itself.
fn check_graph(commit: &Commit<'_>, facts: &Facts) -> Holds {
    let put: BTreeMap<JobId, &JobRow> = commit.puts().map(|row| (row.spec.id, row)).collect();
    for row in put.values() {
        for parent in &row.spec.parents {
            ensure(facts.by_id(*parent).is_some(), Rule::S12, || {
                format!("{} is stored without its parent {parent}", row.spec.id)
            })?;
        }
    }
    // Only jobs of one submit can form a cycle.
    let mut waiting: BTreeMap<JobId, Vec<JobId>> = BTreeMap::new();
    for row in put.values() {
        let inside = row.spec.parents.iter().filter(|parent| put.contains_key(parent));
        let inside: Vec<JobId> = inside.copied().collect();
        if !inside.is_empty() {
            waiting.insert(row.spec.id, inside);
        }
    }
    loop {
        let before = waiting.len();
        let left: BTreeSet<JobId> = waiting.keys().copied().collect();
        waiting.retain(|_, parents| parents.iter().any(|parent| left.contains(parent)));
        if waiting.is_empty() {
            return Ok(());
        }
        ensure(waiting.len() < before, Rule::S12, || {
            let first = waiting.keys().next().map(ToString::to_string).unwrap_or_default();
            format!("{first} is stored in a cycle of jobs that wait for one another")
        })?;
    }
}

/// No waiting job was passed over by a later job of its own queue.
fn check_turns(commit: &Commit<'_>, facts: &Facts) -> Holds {
    let Some(strategy) = facts.strategy else {
        return Ok(());
    };
    let mut last: BTreeMap<&Name, &Job> = BTreeMap::new();
    for change in commit.changes.iter().filter(|change| change.cause == LeaseCause::Claim) {
        if let Some(job) = facts.job(change.hold.job)
            && job.suspicions == 0
        {
            let last = last.entry(&job.spec.queue).or_insert(job);
            if rank(strategy, job) > rank(strategy, last) {
                *last = job;
            }
        }
    }
    for (queue, last) in last {
        let first = facts.first_waiting(queue);
        if let Some(first) = first.filter(|first| rank(strategy, first) < rank(strategy, last)) {
            return Err((
                Rule::L5,
                format!("{} is passed over by {} in its queue", first.name(), last.name()),
            ));
        }
    }
    Ok(())
}

/// A job's position in its queue.
pub(super) type Rank = (i64, Seq);

pub(super) fn rank(strategy: Strategy, job: &Job) -> Rank {
    let aging = match strategy {
        Strategy::Fifo => return (0, job.seq),
        Strategy::Priority { aging } => aging,
        Strategy::RoundRobin | Strategy::Fair => DEFAULT_AGING,
    };
    let head_start = i64::from(job.priority) * aging.as_millis() as i64;
    (job.submitted_at.0 as i64 - head_start, job.seq)
}
