//! The integrity check: whether the stored rows tell a history in which every promise was kept.
//!
//! [`IntegrityCheck`] reads everything that is stored, record by record, and reports
//! contradictions. It knows no database: every store passes its rows as [`DumpRecord`]s
//! ([`StoreDump`]), so the same rules apply to the simulator's memory and to a file on a disk. It
//! uses only the rows, and nothing that the scheduler computes.
//!
//! Memory holds only what a later row may contradict: an ended job is checked as soon as the ledger
//! has passed its end, and a job that was never claimed takes one bit.
//!
//! The other files: `job` has the history of one job, `owners` the checks of its owners and of the
//! resulting state, `parents` the checks of what it waited for, `numbers` which jobs must exist,
//! `report` the result.

mod job;
mod numbers;
mod owners;
mod parents;
mod report;

use std::collections::{BTreeMap, HashMap};

use filch_scheduler::id::{CommitNo, Fence, JobId, LeaseNo, Seq};
use filch_scheduler::record::{JobRow, LeaseRow, Note};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;

use self::job::{Change, JobHistory};
use self::numbers::{Absent, Bits, Purged};
use self::parents::Blocked;
pub use self::report::{IntegrityCounts, IntegrityReport, IntegrityRule, IntegrityViolation};
use crate::rules;
use crate::store::{PurgeCause, StoreError};

/// A store that can pass on everything that it has.
pub trait StoreDump {
    /// Passes everything to `each`, as one consistent snapshot, in the order that [`DumpRecord`]
    /// requires. Damage is passed on as a record as well.
    ///
    /// # Errors
    /// If the store cannot be read, which says nothing about its content.
    fn dump(&self, each: &mut dyn FnMut(DumpRecord)) -> Result<(), StoreError>;

    /// The id of the job with this number, if it is stored and can be read.
    fn id_of(&self, job: Seq) -> Option<JobId>;
}

/// One stored record. Records come in this order, except that damage may come at any time, and that
/// jobs and rows of the ledger are interleaved: each ordered by its own number, and a job before
/// the first row of the ledger that was written after it.
#[derive(Clone, Debug)]
pub enum DumpRecord {
    /// The newest numbers.
    Numbers {
        /// The last commit.
        commit: CommitNo,
        /// The last job.
        seq: Seq,
        /// The last row of the ledger.
        lease: LeaseNo,
    },
    /// All jobs with these numbers were purged, both ends included. Ranges are ascending.
    Purged(Seq, Seq),
    /// Why jobs were purged.
    Purge(PurgeRecord),
    /// A job.
    Job(Box<StoredJob>),
    /// A row of the ledger.
    Lease {
        /// The row.
        row: LeaseRow,
        /// Whether a starting server would read it.
        is_open: bool,
    },
    /// Damage that was found while reading.
    Damage {
        /// Which rule it breaks.
        rule: IntegrityRule,
        /// The job that it concerns.
        job: Option<Seq>,
        /// What was found, and where.
        what: String,
    },
}

/// Jobs that were purged for the same cause within a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeRecord {
    /// Why.
    pub cause: PurgeCause,
    /// When the last of them were purged.
    pub at: Wall,
    /// How many.
    pub jobs: u64,
    /// The shortest time between the end and the purge of one of them, in milliseconds, and its
    /// number. Negative if the clock was set back in between.
    pub waited_least: (i64, Seq),
}

/// Everything that is stored about one job, except for its changes of owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    /// The job itself.
    pub row: JobRow,
    /// The newest row of the ledger when it was submitted.
    pub lease_before: LeaseNo,
    /// If it has ended: the newest row of the ledger at its end, before rows of the same event.
    pub lease_ended: LeaseNo,
    /// If it has ended: no row of the ledger after this one names it.
    pub lease_last: LeaseNo,
    /// The notes about it, in order.
    pub notes: Vec<Note>,
    /// The fences under which there is output.
    pub outputs: Vec<Fence>,
    /// Whether it has a payload.
    pub has_payload: bool,
    /// Whether a starting server would load it.
    pub is_live: bool,
    /// The jobs that it waits for, in the order of its submission; `None` for one that is not
    /// stored.
    pub parents: Vec<Option<ParentJob>>,
}

/// The state of a job that another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentJob {
    /// Its number.
    pub seq: Seq,
    /// When it was submitted.
    pub submitted_at: Wall,
    /// Its state.
    pub state: JobState,
    /// As in [`StoredJob`].
    pub lease_ended: LeaseNo,
    /// Whether an operator retried it after it was dead.
    pub is_retried: bool,
}

/// Checks everything in a store.
///
/// # Errors
/// If the store cannot be read, which says nothing about its content.
pub fn check(store: &dyn StoreDump) -> Result<IntegrityReport, StoreError> {
    let mut check = IntegrityCheck::default();
    store.dump(&mut |record| check.add(record))?;
    let mut report = check.finish();
    for violation in &mut report.violations {
        violation.id = violation.job.and_then(|job| store.id_of(job));
    }
    Ok(report)
}

/// An integrity check in progress.
#[derive(Default)]
pub struct IntegrityCheck {
    report: IntegrityReport,
    purged: Purged,
    /// Jobs that were submitted and never claimed.
    untouched: Bits,
    /// All other jobs that a later row of the ledger may name.
    jobs: HashMap<Seq, JobHistory>,
    /// The ended ones among them, by the last row that may name them.
    ends: BTreeMap<LeaseNo, Vec<Seq>>,
    /// The newest row of the ledger before the last job.
    lease_before: LeaseNo,
    /// Open rows, and whether each is newer than the row of one of its jobs.
    open: BTreeMap<LeaseNo, bool>,
    lease_last: LeaseNo,
    /// Changes of owner that may belong to the same event.
    changes: Vec<Change>,
    blocked: Blocked,
}

impl IntegrityCheck {
    /// Takes the next record.
    pub fn add(&mut self, record: DumpRecord) {
        match record {
            DumpRecord::Numbers { commit, seq, lease } => {
                let counts = &mut self.report.counts;
                (counts.commits, counts.submitted, counts.ledger_rows) = (commit.0, seq.0, lease.0);
            }
            DumpRecord::Purged(first, last) => self.purged.add(first, last, &mut self.report),
            DumpRecord::Purge(purge) => self.purged.add_cause(&purge, &mut self.report),
            DumpRecord::Job(kept) => self.add_job(&kept),
            DumpRecord::Lease { row, is_open } => self.add_lease(&row, is_open),
            DumpRecord::Damage { rule, job, what } => self.report.add(rule, job, what),
        }
    }

    /// The result.
    #[must_use]
    pub fn finish(mut self) -> IntegrityReport {
        self.settle();
        let submitted = Seq(self.report.counts.submitted);
        self.purged.finish(submitted, &mut self.report);
        let mut jobs: Vec<(Seq, JobHistory)> = self.jobs.drain().collect();
        jobs.sort_unstable_by_key(|&(seq, _)| seq);
        for (seq, history) in jobs {
            self.check_job(seq, &history);
        }
        for (number, is_newer) in &self.open {
            self.report.ensure(*is_newer, IntegrityRule::Index, None, || {
                let number = number.0;
                format!("lease row {number} is open, but the rows of all its jobs are newer")
            });
        }
        let (last, numbered) = (self.lease_last.0, self.report.counts.ledger_rows);
        self.report.ensure(last <= numbered, IntegrityRule::S7, None, || {
            format!("lease row {last} exists, but the newest number is {numbered}")
        });
        self.blocked.finish(&mut self.report);
        self.report.finish()
    }

    fn add_job(&mut self, kept: &StoredJob) {
        let seq = kept.row.seq;
        self.purged.add_job(seq, &mut self.report);
        let before = std::mem::replace(&mut self.lease_before, kept.lease_before);
        self.report.ensure(before <= kept.lease_before, IntegrityRule::S7, Some(seq), || {
            let (earlier, later) = (before.0, kept.lease_before.0);
            format!(
                "it was submitted after lease row {later}, but an earlier job after lease row \
                 {earlier}"
            )
        });
        self.count(kept);
        self.check_row(kept);
        if job::is_untouched(kept) {
            self.untouched.insert(seq);
            return;
        }
        let history = JobHistory::new(kept);
        if history.now.state.is_ended() {
            self.ends.entry(kept.lease_last).or_default().push(seq);
        }
        self.jobs.insert(seq, history);
    }

    fn count(&mut self, kept: &StoredJob) {
        let counts = &mut self.report.counts;
        counts.jobs += 1;
        match kept.row.now.state {
            JobState::Succeeded => counts.succeeded += 1,
            JobState::Dead => counts.dead += 1,
            JobState::Cancelled => counts.cancelled += 1,
            _ => counts.unfinished += 1,
        }
        let is_attempt = |note: &&Note| matches!(note, Note::Attempt { .. });
        counts.failures += kept.notes.iter().filter(is_attempt).count() as u64;
    }

    /// Checks a job's own row, and the rows that belong to it.
    fn check_row(&mut self, kept: &StoredJob) {
        let (seq, now) = (kept.row.seq, &kept.row.now);
        let report = &mut self.report;
        if let Err(rejection) = rules::check_holder(now) {
            report.add(IntegrityRule::Index, Some(seq), rejection.to_string());
        }
        report.ensure(kept.has_payload, IntegrityRule::S1, Some(seq), || {
            "its payload is missing".to_owned()
        });
        let lives = rules::is_live(now);
        report.ensure(kept.is_live == lives, IntegrityRule::Index, Some(seq), || {
            let (expected, state) = (if lives { "lacks it" } else { "has it" }, now.state);
            format!("it is {state}, but the table live {expected}")
        });
    }

    fn add_lease(&mut self, row: &LeaseRow, is_open: bool) {
        self.report.ensure(row.number > self.lease_last, IntegrityRule::S7, None, || {
            format!("lease row {} follows row {}", row.number.0, self.lease_last.0)
        });
        // One event may move a job more than once, and puts all jobs for one worker into one row.
        // So the rows of one event, which have the same time, are taken together.
        if self.changes.last().is_some_and(|change| change.at != row.at) {
            self.settle();
        }
        self.lease_last = self.lease_last.max(row.number);
        self.report.counts.ledger_rows_kept += 1;
        if is_open {
            self.open.insert(row.number, false);
        }
        let change = |&hold| Change {
            hold,
            worker: row.worker,
            cause: row.cause,
            at: row.at,
            row: row.number,
        };
        self.changes.extend(row.jobs.iter().map(change));
    }

    /// Checks the collected changes, and the jobs that have ended by then.
    fn settle(&mut self) {
        let mut changes = std::mem::take(&mut self.changes);
        changes.sort_by_key(|change| change.hold);
        for change in &changes {
            self.change(change);
        }
        changes.clear();
        self.changes = changes;
        while let Some(end) = self.ends.first_entry().filter(|end| *end.key() <= self.lease_last) {
            for seq in end.remove() {
                if let Some(history) = self.jobs.remove(&seq) {
                    self.check_job(seq, &history);
                }
            }
        }
    }

    fn change(&mut self, change: &Change) {
        let seq = change.hold.job;
        self.report.counts.count(change.cause);
        if self.untouched.remove(seq) {
            self.jobs.insert(seq, JobHistory::untouched(seq));
        }
        if let Some(history) = self.jobs.get_mut(&seq) {
            history.change(change, &mut self.report);
        } else {
            let (rule, what) = match self.purged.absent(seq) {
                Absent::Purged => return,
                Absent::Missing => (IntegrityRule::S1, "it is neither stored nor purged"),
                Absent::Ended => (IntegrityRule::S5, "it had ended before"),
                Absent::Unborn => (IntegrityRule::S7, "it was submitted later"),
            };
            self.report.add(rule, Some(seq), format!("{}, but {what}", owners::show(change)));
        }
    }

    /// Checks a job that no later row names.
    fn check_job(&mut self, seq: Seq, history: &JobHistory) {
        history.check_end(seq, &mut self.report);
        if let Some(row) = history.newer_row() {
            let is_open = self.open.get_mut(&row).map(|is_newer| *is_newer = true);
            self.report.ensure(is_open.is_some(), IntegrityRule::Index, Some(seq), || {
                format!(
                    "lease row {} names its owner, but is not open: a starting server would not \
                     read it",
                    row.0
                )
            });
        }
        self.blocked.check(seq, history, &mut self.report);
    }
}
