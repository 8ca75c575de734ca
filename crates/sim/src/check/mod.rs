//! The checkers: rules that must hold of every run, checked by its observable events only.
//!
//! The safety rules S1-S19 must always hold, the liveness rules L1-L10 once there are no more
//! faults. [`Checkers`] passes each event to the rules, with the facts that follow from all earlier
//! events.
//!
//! The other files: `facts` has the state that follows from the events, `ownership` the rules S2 S4
//! S7 S8 S10, `outcome` S1 S3 S5 S6 S9, `order` S11 S12 S13 L5 L6, `cancel` S14, `timeout` S15,
//! `liveness` L1-L4 and L7, `retention` S1 and L9, `shell` S16-S18 and L8, `charge` S19,
//! `turns` L10.

mod cancel;
mod charge;
mod facts;
mod liveness;
mod order;
mod outcome;
mod ownership;
mod retention;
mod shell;
#[cfg(test)]
mod tests;
mod timeout;
mod turns;

use std::collections::BTreeMap;
use std::time::Duration;

use filch_scheduler::id::{CommitNo, Hold, Seq, WorkerId};
use filch_scheduler::record::{JobRow, LeaseCause, Mutation, Note};
use filch_scheduler::time::{Monotonic, Now};

use self::cancel::Cancels;
use self::charge::Charges;
use self::facts::Facts;
use self::liveness::Liveness;
use self::order::Order;
pub use self::order::shortest_wait;
use self::outcome::Outcomes;
use self::ownership::Ownership;
use self::retention::Purges;
use self::shell::Shell;
use self::timeout::Timeouts;
use self::turns::Turns;
use crate::log::{Observed, Observer};

/// A rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// No acknowledged job is lost.
    S1,
    /// Executions of one job overlap only while the older one is suspended or past its own
    /// deadline.
    S2,
    /// At most one success is accepted; none after dead or cancelled.
    S3,
    /// Every accepted report, renewal and transfer carries the current fence and owner.
    S4,
    /// An ended job never starts again, except by an operator's retry.
    S5,
    /// The same id or key means the same job; the same key with another body is a conflict.
    S6,
    /// Fences grow strictly, also across restarts.
    S7,
    /// No job is reclaimed before the lease has expired.
    S8,
    /// Exactly the attempts that ran and failed are charged; each execution is accounted for.
    S9,
    /// A steal neither loses nor duplicates jobs; running jobs are not stolen.
    S10,
    /// No job starts before its time.
    S11,
    /// A child starts only when its parents' condition holds, and is released once; no cycle is
    /// stored.
    S12,
    /// Concurrency limits hold.
    S13,
    /// After a cancel is acknowledged the job does not start; a running job is cancelled within one
    /// heartbeat.
    S14,
    /// An execution is stopped at its timeout, and not before.
    S15,
    /// Payloads and results arrive as they were sent; a success has its result.
    S16,
    /// A change that was acknowledged to an operator is stored.
    S17,
    /// No client can act for the worker of another.
    S18,
    /// A failure is charged, and a lost worker to the only job that can have caused the loss.
    S19,
    /// Every job ends.
    L1,
    /// The jobs of a lost worker are reclaimed within a lease and a second.
    L2,
    /// An idle worker gets work within 100 ms while any worker holds two unstarted jobs.
    L3,
    /// A restarted server assigns jobs within 5 s.
    L4,
    /// No starvation: no job is passed over in its queue.
    L5,
    /// A job that was stolen twice is stolen again only for a free slot.
    L6,
    /// A worker that is told to stop drains within the grace period.
    L7,
    /// A renewal is sent as soon as the heartbeat has arrived.
    L8,
    /// Jobs whose retention is over are purged.
    L9,
    /// Queues take turns.
    L10,
    /// An audit of the scheduler or the store failed.
    Audit,
    /// An assertion failed.
    Panic,
    /// Two runs of the same plan differ.
    Twice,
}

impl Rule {
    /// The rule's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::S1 => "S1",
            Self::S2 => "S2",
            Self::S3 => "S3",
            Self::S4 => "S4",
            Self::S5 => "S5",
            Self::S6 => "S6",
            Self::S7 => "S7",
            Self::S8 => "S8",
            Self::S9 => "S9",
            Self::S10 => "S10",
            Self::S11 => "S11",
            Self::S12 => "S12",
            Self::S13 => "S13",
            Self::S14 => "S14",
            Self::S15 => "S15",
            Self::S16 => "S16",
            Self::S17 => "S17",
            Self::S18 => "S18",
            Self::S19 => "S19",
            Self::L1 => "L1",
            Self::L2 => "L2",
            Self::L3 => "L3",
            Self::L4 => "L4",
            Self::L5 => "L5",
            Self::L6 => "L6",
            Self::L7 => "L7",
            Self::L8 => "L8",
            Self::L9 => "L9",
            Self::L10 => "L10",
            Self::Audit => "audit",
            Self::Panic => "panic",
            Self::Twice => "twice",
        }
    }
}

/// A rule was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// When, in true time.
    pub at: Monotonic,
    /// What was observed.
    pub what: String,
}

/// A broken rule, and why.
type Broken = (Rule, String);

/// Whether a rule holds.
type Holds = Result<(), Broken>;

/// Fails with the rule and a description unless it holds.
fn ensure(holds: bool, rule: Rule, what: impl FnOnce() -> String) -> Holds {
    if holds { Ok(()) } else { Err((rule, what())) }
}

/// One commit, as the rules see it.
struct Commit<'a> {
    number: CommitNo,
    /// True time, and the server's clocks.
    decided: (Monotonic, Now),
    mutations: &'a [Mutation],
    /// Every change of owner, for each job in the order of fences.
    changes: Vec<Change>,
    notes: Vec<&'a Note>,
}

/// A job changes owner.
#[derive(Clone, Copy, Debug)]
struct Change {
    hold: Hold,
    worker: Option<WorkerId>,
    cause: LeaseCause,
}

impl<'a> Commit<'a> {
    fn new(number: CommitNo, decided: (Monotonic, Now), mutations: &'a [Mutation]) -> Self {
        let (mut changes, mut notes) = (Vec::new(), Vec::new());
        for mutation in mutations {
            match mutation {
                Mutation::Lease(row) => {
                    let change = |&hold| Change { hold, worker: row.worker, cause: row.cause };
                    changes.extend(row.jobs.iter().map(change));
                }
                Mutation::Note(note) => notes.push(note),
                _ => {}
            }
        }
        in_order_of_fences(&mut changes);
        Self { number, decided, mutations, changes, notes }
    }

    fn puts(&self) -> impl Iterator<Item = &'a JobRow> {
        self.mutations.iter().filter_map(|mutation| match mutation {
            Mutation::Put(row) => Some(row),
            _ => None,
        })
    }

    fn notes(&self) -> impl Iterator<Item = &'a Note> {
        self.notes.iter().copied()
    }
}

/// One event may move a job more than once, and rows collect all jobs for one worker.
fn in_order_of_fences(changes: &mut [Change]) {
    let mut jobs: Vec<Seq> = changes.iter().map(|change| change.hold.job).collect();
    jobs.sort_unstable();
    if jobs.windows(2).all(|pair| pair[0] != pair[1]) {
        return;
    }
    let mut places: BTreeMap<Seq, Vec<usize>> = BTreeMap::new();
    for (at, change) in changes.iter().enumerate() {
        places.entry(change.hold.job).or_default().push(at);
    }
    for places in places.into_values().filter(|places| places.len() > 1) {
        let mut same: Vec<Change> = places.iter().map(|&at| changes[at]).collect();
        same.sort_by_key(|change| change.hold.fence);
        for (at, change) in places.into_iter().zip(same) {
            changes[at] = change;
        }
    }
}

/// All rules, and the first violation.
pub struct Checkers {
    facts: Facts,
    ownership: Ownership,
    outcomes: Outcomes,
    purges: Purges,
    order: Order,
    cancels: Cancels,
    timeouts: Timeouts,
    liveness: Liveness,
    shell: Shell,
    charges: Charges,
    turns: Turns,
    violation: Option<Violation>,
}

impl Checkers {
    /// Rules for a cluster with this retention.
    #[must_use]
    pub fn new(retention: Option<Duration>) -> Self {
        Self {
            facts: Facts::default(),
            ownership: Ownership::default(),
            outcomes: Outcomes::default(),
            purges: Purges::new(retention),
            order: Order::default(),
            cancels: Cancels::default(),
            timeouts: Timeouts::default(),
            liveness: Liveness::default(),
            shell: Shell::default(),
            charges: Charges::default(),
            turns: Turns::default(),
            violation: None,
        }
    }

    /// The first violation, if there is one.
    #[must_use]
    pub const fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    fn check(&mut self, at: Monotonic, seen: &Observed<'_>) -> Holds {
        self.ownership.time_passes(at, &self.facts)?;
        self.cancels.time_passes(at)?;
        self.timeouts.time_passes(at)?;
        self.liveness.time_passes(at, &self.facts)?;
        self.shell.time_passes(at)?;
        self.purges.time_passes(at, &self.facts)?;
        if let Observed::Stored { number, decided, mutations } = *seen {
            self.stored(&Commit::new(number, decided, mutations))
        } else {
            self.outcomes.observe(seen, &self.facts)?;
            self.purges.observe(at, seen);
            self.shell.observe(at, seen, &self.facts)?;
            self.ownership.observe(at, seen, &self.facts)?;
            self.order.observe(at, seen);
            self.cancels.observe(at, seen, &self.facts)?;
            self.timeouts.observe(at, seen)?;
            self.turns.observe(seen);
            self.facts.observe(at, seen);
            self.charges.observe(seen, &self.facts)?;
            self.liveness.observe(at, seen, &self.facts)
        }
    }

    /// A commit: first the new jobs, then the writes, then every change of owner.
    fn stored(&mut self, commit: &Commit<'_>) -> Holds {
        self.shell.stored = commit.number;
        let charged = self.charges.stored(commit, &self.facts);
        for row in commit.puts() {
            self.outcomes.put(row, &self.facts)?;
            self.order.put(commit, row);
            self.facts.put(row, commit.decided.0);
            self.purges.written(None, self.facts.known(row.seq)?);
        }
        for row in commit.puts() {
            self.facts.resolve_parents(row);
        }
        for mutation in commit.mutations {
            match mutation {
                Mutation::Write(write) => {
                    let job = self.facts.known(write.job)?;
                    self.ownership.written(commit, write, job)?;
                    self.outcomes.written(commit, write, job)?;
                    self.order.written(commit, write, &self.facts)?;
                    self.cancels.written(commit.number, write, &self.facts);
                    let before = self.facts.write(write, commit.decided.0);
                    self.purges.written(before, self.facts.known(write.job)?);
                }
                Mutation::Purge(jobs) => {
                    for &seq in jobs {
                        self.purges.purged(commit, self.facts.known(seq)?)?;
                        self.facts.purge(seq);
                    }
                }
                Mutation::Priority { job, priority } => self.facts.prioritise(*job, *priority),
                Mutation::Queue(settings) => self.facts.set_queue(settings),
                Mutation::Strategy(strategy) => {
                    self.facts.set_strategy(*strategy);
                    self.facts.is_strategy_kept = true;
                }
                Mutation::Note(note) => self.ownership.noted(commit, note, &self.facts)?,
                Mutation::LeaseLength(lease) => self.facts.lease_kept = *lease,
                Mutation::Put(_)
                | Mutation::Lease(_)
                | Mutation::Close(_)
                | Mutation::Output(_)
                | Mutation::Trim { .. } => {}
            }
        }
        for change in &commit.changes {
            let job = self.facts.known(change.hold.job)?;
            self.ownership.changed(commit, change, job, &self.facts)?;
            self.outcomes.changed(change, job)?;
            self.order.changed(change, job, &self.facts)?;
            self.liveness.changed(change);
            self.facts.change(change);
        }
        self.order.commit_ends(commit, &self.facts)?;
        self.turns.commit_ends(commit, &self.facts)?;
        charged
    }
}

impl Observer for Checkers {
    fn observe(&mut self, at: Monotonic, seen: Observed<'_>) {
        if self.violation.is_none()
            && let Err((rule, what)) = self.check(at, &seen)
        {
            self.violation = Some(Violation { rule, at, what });
        }
    }

    fn is_done(&self) -> bool {
        self.violation.is_some()
    }
}
