//! What a proof has found: how much it has looked at, and what cannot be.

use filch_scheduler::id::{JobId, Seq};
use filch_scheduler::record::LeaseCause;

/// So many violations are kept word by word; all are counted.
const VIOLATIONS_MAX: usize = 100;

/// What must hold of everything that is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum IntegrityRule {
    /// No acknowledged job is lost: it is there, or was purged after its time.
    S1,
    /// A job has one owner at a time.
    S2,
    /// At most one success is accepted, and only of the owner.
    S3,
    /// What has ended stays so, but for an operator's retry.
    S5,
    /// Fences and other numbers grow.
    S7,
    /// Attempts are charged for what failed, and for nothing else.
    S9,
    /// A child starts only when its parents' condition holds; no job waits for itself.
    S12,
    /// Every index and every derived table agrees with the rows.
    Index,
    /// The file can be read.
    File,
}

impl IntegrityRule {
    /// All rules.
    pub const ALL: [Self; 9] = [
        Self::S1,
        Self::S2,
        Self::S3,
        Self::S5,
        Self::S7,
        Self::S9,
        Self::S12,
        Self::Index,
        Self::File,
    ];

    /// The rule's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::S1 => "S1",
            Self::S2 => "S2",
            Self::S3 => "S3",
            Self::S5 => "S5",
            Self::S7 => "S7",
            Self::S9 => "S9",
            Self::S12 => "S12",
            Self::Index => "index",
            Self::File => "file",
        }
    }

    /// What it says, in a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::S1 => "every acknowledged job is there, or was purged after its time",
            Self::S2 => "no two owners of a job overlapped",
            Self::S3 => "every success is its owner's, and there is one at most",
            Self::S5 => "what has ended stays so, but for an operator's retry",
            Self::S7 => "fences and numbers only grow",
            Self::S9 => "attempts are charged for what failed, and for nothing else",
            Self::S12 => "every child started after its condition held",
            Self::Index => "every index and derived table agrees with the rows",
            Self::File => "the file is whole",
        }
    }
}

/// Something that cannot be, if every promise was kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IntegrityViolation {
    /// Which rule does not hold.
    pub rule: IntegrityRule,
    /// Of which job.
    pub job: Option<Seq>,
    /// Its id, if it is kept.
    pub id: Option<JobId>,
    /// What the rows say.
    pub what: String,
}

/// How much was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IntegrityCounts {
    /// The number of the newest commit.
    pub commits: u64,
    /// Jobs that were ever acknowledged.
    pub submitted: u64,
    /// Those that are there.
    pub jobs: u64,
    /// Those that have not ended.
    pub unfinished: u64,
    /// Those that succeeded.
    pub succeeded: u64,
    /// Those that died.
    pub dead: u64,
    /// Those that were cancelled.
    pub cancelled: u64,
    /// Those that were purged after their retention.
    pub expired: u64,
    /// Those that somebody discarded.
    pub discarded: u64,
    /// Times that a worker took a job from a queue.
    pub claims: u64,
    /// Times that a worker took a job from another one.
    pub steals: u64,
    /// Times that a job was taken back from a lost worker.
    pub losses: u64,
    /// Times that a worker handed a job back.
    pub returns: u64,
    /// Attempts that did not succeed.
    pub failures: u64,
    /// Children whose condition was judged.
    pub children: u64,
    /// Children that were not judged because a parent was purged.
    pub orphans: u64,
    /// The number of the newest row of the ledger.
    pub ledger_rows: u64,
    /// Rows of the ledger that are there.
    pub ledger_rows_kept: u64,
}

impl IntegrityCounts {
    pub(super) const fn count(&mut self, cause: LeaseCause) {
        let count = match cause {
            LeaseCause::Claim => &mut self.claims,
            LeaseCause::Steal(_) => &mut self.steals,
            LeaseCause::Lost(_) => &mut self.losses,
            LeaseCause::Returned(_) => &mut self.returns,
        };
        *count += 1;
    }

    /// How often a job was given to a worker.
    #[must_use]
    pub const fn owners(&self) -> u64 {
        self.claims + self.steals
    }

    /// How many rows of the ledger are not there any more.
    #[must_use]
    pub const fn ledger_rows_trimmed(&self) -> u64 {
        self.ledger_rows.saturating_sub(self.ledger_rows_kept)
    }

    /// How many jobs were purged.
    #[must_use]
    pub const fn purged(&self) -> u64 {
        self.expired + self.discarded
    }
}

/// What a proof has come to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IntegrityReport {
    /// How much was looked at.
    pub counts: IntegrityCounts,
    /// What cannot be, by rule; the first hundred.
    pub violations: Vec<IntegrityViolation>,
    /// How much more there is.
    pub more: u64,
}

impl IntegrityReport {
    /// Whether every promise was kept.
    #[must_use]
    pub const fn holds(&self) -> bool {
        self.violations.is_empty()
    }

    pub(super) fn add(&mut self, rule: IntegrityRule, job: Option<Seq>, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(IntegrityViolation { rule, job, id: None, what });
        } else {
            self.more += 1;
        }
    }

    pub(super) fn ensure(
        &mut self,
        holds: bool,
        rule: IntegrityRule,
        job: Option<Seq>,
        what: impl FnOnce() -> String,
    ) {
        if !holds {
            self.add(rule, job, what());
        }
    }

    pub(super) fn finish(mut self) -> Self {
        self.violations.sort_by_key(|violation| violation.rule);
        self
    }
}
