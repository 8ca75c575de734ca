//! IntegrityCheck by ledger: whether what is kept tells of a history in which every promise was kept.
//!
//! [`IntegrityCheck`] is given everything that is kept, piece by piece, and says what cannot be. It knows no
//! database: whatever keeps jobs hands out its rows as [`DumpRecord`]s ([`StoreDump`]), and is judged by the same
//! rules, the simulator's memory and a file on a disk alike. It decides from what rows say and from
//! nothing that the scheduler computes.
//!
//! Of a job only that is held in memory which a later row may contradict: one that has ended is judged when
//! the ledger has passed its end, and one that nobody has touched is one bit.
//!
//! The files next door: `life` what is known of one job, `owners` who had it and in which state that left
//! it, `children` what it waited for, `numbers` which jobs there must be, `report` what was found.

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

/// Whatever keeps jobs and can show all that it keeps.
pub trait StoreDump {
    /// Hands out everything, as it was at one moment, in the order that [`DumpRecord`] asks for. What cannot
    /// be because the keeping is damaged is a piece as well.
    ///
    /// # Errors
    /// If it cannot be read, which says nothing about what is kept.
    fn dump(&self, each: &mut dyn FnMut(DumpRecord)) -> Result<(), StoreError>;

    /// The id of the job of this number, if it is kept and can be read.
    fn id_of(&self, job: Seq) -> Option<JobId>;
}

/// One of the things that are kept. They come in this order, but for damage, which may come at any time,
/// and for jobs and rows of the ledger, which come in turn: each by its own number, and a job before the
/// first row that came after it.
#[derive(Clone, Debug)]
pub enum DumpRecord {
    /// Where numbering stands.
    Numbers {
        /// The last commit.
        commit: CommitNo,
        /// The last job.
        seq: Seq,
        /// The last row of the ledger.
        lease: LeaseNo,
    },
    /// All jobs with these numbers were purged, both ends included. Ranges come upwards.
    Purged(Seq, Seq),
    /// Why jobs were purged.
    Purge(PurgeRecord),
    /// A job.
    Job(Box<StoredJob>),
    /// A row of the ledger.
    Lease {
        /// The row.
        row: LeaseRow,
        /// Whether a load would read it.
        is_open: bool,
    },
    /// Something that cannot be.
    Damage {
        /// Which rule it breaks.
        rule: IntegrityRule,
        /// The job it is about.
        job: Option<Seq>,
        /// What stands there, and where.
        what: String,
    },
}

/// Jobs that were purged for one cause, within a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeRecord {
    /// Why.
    pub cause: PurgeCause,
    /// When the last of them were purged.
    pub at: Wall,
    /// How many.
    pub jobs: u64,
    /// The shortest time for which one of them had been over, in milliseconds, and which: less than
    /// nothing if the clock was set back in between.
    pub waited_least: (i64, Seq),
}

/// Everything that is kept of one job but for its changes of owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    /// The job itself.
    pub row: JobRow,
    /// The newest row of the ledger when it was put.
    pub lease_before: LeaseNo,
    /// If it has ended: the newest row of the ledger when it did, before what the same event added.
    pub lease_ended: LeaseNo,
    /// If it has ended: it is in no row of the ledger after this one.
    pub lease_last: LeaseNo,
    /// What is noted about it, in order.
    pub notes: Vec<Note>,
    /// The fences under which there is output.
    pub outputs: Vec<Fence>,
    /// Whether there is a payload.
    pub has_payload: bool,
    /// Whether it is among those that a server loads.
    pub is_live: bool,
    /// What became of the jobs that it waits for, in the order in which it names them; `None` for one that
    /// is not kept.
    pub parents: Vec<Option<ParentJob>>,
}

/// What became of a job that another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParentJob {
    /// Its number.
    pub seq: Seq,
    /// When it came.
    pub submitted_at: Wall,
    /// Its state, as its row says it.
    pub state: JobState,
    /// As of [`StoredJob`].
    pub lease_ended: LeaseNo,
    /// Whether somebody gave it new attempts after it had died.
    pub is_retried: bool,
}

/// Judges everything that is kept.
///
/// # Errors
/// If it cannot be read, which says nothing about what is kept.
pub fn check(evidence: &dyn StoreDump) -> Result<IntegrityReport, StoreError> {
    let mut proof = IntegrityCheck::default();
    evidence.dump(&mut |piece| proof.add(piece))?;
    let mut report = proof.finish();
    for violation in &mut report.violations {
        violation.id = violation.job.and_then(|job| evidence.id_of(job));
    }
    Ok(report)
}

/// A proof under way.
#[derive(Default)]
pub struct IntegrityCheck {
    report: IntegrityReport,
    purged: Purged,
    /// Jobs of which there is only what was submitted, and that nobody has had.
    untouched: Bits,
    /// All others that a later row of the ledger may be about.
    lives: HashMap<Seq, JobHistory>,
    /// The ended ones among them, by the last row that may be about them.
    ends: BTreeMap<LeaseNo, Vec<Seq>>,
    /// The newest row of the ledger before the last job.
    lease_before: LeaseNo,
    /// Open rows, and whether each says more about some job than that job's own row.
    open: BTreeMap<LeaseNo, bool>,
    lease_last: LeaseNo,
    /// Changes of owner that one event may have made.
    changes: Vec<Change>,
    blocked: Blocked,
}

impl IntegrityCheck {
    /// Takes the next piece.
    pub fn add(&mut self, piece: DumpRecord) {
        match piece {
            DumpRecord::Numbers { commit, seq, lease } => {
                let counts = &mut self.report.counts;
                (counts.commits, counts.submitted, counts.ledger_rows) = (commit.0, seq.0, lease.0);
            }
            DumpRecord::Purged(first, last) => self.purged.add(first, last, &mut self.report),
            DumpRecord::Purge(purge) => self.purged.explain(&purge, &mut self.report),
            DumpRecord::Job(kept) => self.add_job(&kept),
            DumpRecord::Lease { row, is_open } => self.add_lease(&row, is_open),
            DumpRecord::Damage { rule, job, what } => self.report.add(rule, job, what),
        }
    }

    /// What was found.
    #[must_use]
    pub fn finish(mut self) -> IntegrityReport {
        self.settle();
        let submitted = Seq(self.report.counts.submitted);
        self.purged.finish(submitted, &mut self.report);
        let mut lives: Vec<(Seq, JobHistory)> = self.lives.drain().collect();
        lives.sort_unstable_by_key(|&(seq, _)| seq);
        for (seq, life) in lives {
            self.judge(seq, &life);
        }
        for (number, speaks) in &self.open {
            self.report.ensure(*speaks, IntegrityRule::Index, None, || {
                let number = number.0;
                format!(
                    "lease row {number} is open, but says nothing that its jobs' own rows do not say"
                )
            });
        }
        let (last, numbered) = (self.lease_last.0, self.report.counts.ledger_rows);
        self.report.ensure(last <= numbered, IntegrityRule::S7, None, || {
            format!("there is a lease row {last}, and numbering stands at {numbered}")
        });
        self.blocked.finish(&mut self.report);
        self.report.finish()
    }

    fn add_job(&mut self, kept: &StoredJob) {
        let seq = kept.row.seq;
        self.purged.meet(seq, &mut self.report);
        let before = std::mem::replace(&mut self.lease_before, kept.lease_before);
        self.report.ensure(before <= kept.lease_before, IntegrityRule::S7, Some(seq), || {
            let (earlier, later) = (before.0, kept.lease_before.0);
            format!(
                "it was submitted when the ledger stood at row {later}, and an earlier job when it \
                 stood at row {earlier}"
            )
        });
        self.count(kept);
        self.check_row(kept);
        if job::is_untouched(kept) {
            self.untouched.insert(seq);
            return;
        }
        let life = JobHistory::new(kept);
        if life.now.state.is_ended() {
            self.ends.entry(kept.lease_last).or_default().push(seq);
        }
        self.lives.insert(seq, life);
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

    /// What a job's own row says, and the rows that belong to it.
    fn check_row(&mut self, kept: &StoredJob) {
        let (seq, now) = (kept.row.seq, &kept.row.now);
        let report = &mut self.report;
        if let Err(misfit) = rules::check_holder(now) {
            report.add(IntegrityRule::Index, Some(seq), misfit.to_string());
        }
        report.ensure(kept.has_payload, IntegrityRule::S1, Some(seq), || {
            "its payload is gone".to_owned()
        });
        let lives = rules::is_live(now);
        report.ensure(kept.is_live == lives, IntegrityRule::Index, Some(seq), || {
            let (is, says) = if lives { ("lives", "has ended") } else { ("has ended", "lives") };
            let state = now.state;
            format!("it is {state} and {is}, but the table of live jobs says that it {says}")
        });
    }

    fn add_lease(&mut self, row: &LeaseRow, is_open: bool) {
        self.report.ensure(row.number > self.lease_last, IntegrityRule::S7, None, || {
            format!("lease row {} comes after row {}", row.number.0, self.lease_last.0)
        });
        // One event may hand a job on more than once, and puts what goes to one worker into one row: its
        // rows are taken together. They have one time.
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

    /// Judges the changes that were gathered, and the jobs that have ended by then.
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
                if let Some(life) = self.lives.remove(&seq) {
                    self.judge(seq, &life);
                }
            }
        }
    }

    fn change(&mut self, change: &Change) {
        let seq = change.hold.job;
        self.report.counts.count(change.cause);
        if self.untouched.remove(seq) {
            self.lives.insert(seq, JobHistory::untouched(seq));
        }
        if let Some(life) = self.lives.get_mut(&seq) {
            life.change(change, &mut self.report);
        } else {
            let (rule, what) = match self.purged.absent(seq) {
                Absent::Purged => return,
                Absent::Missing => (IntegrityRule::S1, "it is neither kept nor purged"),
                Absent::Ended => (IntegrityRule::S5, "it had ended before"),
                Absent::Unborn => (IntegrityRule::S7, "it was not submitted by then"),
            };
            self.report.add(rule, Some(seq), format!("{}, but {what}", owners::show(change)));
        }
    }

    /// No later row is about the job.
    fn judge(&mut self, seq: Seq, life: &JobHistory) {
        life.judge_end(seq, &mut self.report);
        if let Some(row) = life.speaking_row() {
            let speaks = self.open.get_mut(&row).map(|speaks| *speaks = true);
            self.report.ensure(speaks.is_some(), IntegrityRule::Index, Some(seq), || {
                format!(
                    "lease row {} says who owns it, but is not among the open ones: a server that \
                     starts would not read it",
                    row.0
                )
            });
        }
        self.blocked.judge(seq, life, &mut self.report);
    }
}
