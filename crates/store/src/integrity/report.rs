//! The result of an integrity check: what was checked, and the violations.

use filch_scheduler::id::{JobId, Seq};
use filch_scheduler::record::LeaseCause;

/// How many violations are reported in full; all are counted.
const VIOLATIONS_MAX: usize = 100;

/// What must hold of everything that is stored.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum IntegrityRule {
    /// No acknowledged job is lost: it is stored, or was purged after its retention.
    S1,
    /// A job has one owner at a time.
    S2,
    /// At most one success is accepted, and only from the owner.
    S3,
    /// An ended job never starts again, except by an operator's retry.
    S5,
    /// Fences and other numbers grow.
    S7,
    /// Exactly the failed attempts are charged.
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

    /// A description in one sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::S1 => "every acknowledged job is stored, or was purged after its retention",
            Self::S2 => "every job had one owner at a time",
            Self::S3 => "every job succeeded at most once, reported by its owner",
            Self::S5 => "no ended job started again, except by an operator's retry",
            Self::S7 => "fences and numbers only grew",
            Self::S9 => "exactly the failed attempts are charged",
            Self::S12 => "every child started after its parents' condition held",
            Self::Index => "every index and derived table matches the rows",
            Self::File => "the file is readable and undamaged",
        }
    }
}

/// A violation of a rule, with the rows that show it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IntegrityViolation {
    /// The violated rule.
    pub rule: IntegrityRule,
    /// The job that it concerns.
    pub job: Option<Seq>,
    /// Its id, if it is stored.
    pub id: Option<JobId>,
    /// What the rows show.
    pub what: String,
}

/// How much was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IntegrityCounts {
    /// The number of the newest commit.
    pub commits: u64,
    /// Jobs that were ever acknowledged.
    pub submitted: u64,
    /// Those that are stored.
    pub jobs: u64,
    /// Those that have not ended.
    pub unfinished: u64,
    /// Those that succeeded.
    pub succeeded: u64,
    /// Those that are dead.
    pub dead: u64,
    /// Those that were cancelled.
    pub cancelled: u64,
    /// Those that were purged after their retention.
    pub expired: u64,
    /// Those that an operator discarded.
    pub discarded: u64,
    /// How often a worker claimed a job from a queue.
    pub claims: u64,
    /// How often a worker stole a job from another one.
    pub steals: u64,
    /// How often a job was taken back from a lost worker.
    pub losses: u64,
    /// How often a worker returned a job.
    pub returns: u64,
    /// Attempts that did not succeed.
    pub failures: u64,
    /// Children whose condition was checked.
    pub children: u64,
    /// Children that could not be checked because a parent was purged.
    pub orphans: u64,
    /// The number of the newest row of the ledger.
    pub ledger_rows: u64,
    /// Rows of the ledger that are stored.
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

    /// How often a job was assigned to a worker.
    #[must_use]
    pub const fn owners(&self) -> u64 {
        self.claims + self.steals
    }

    /// How many rows of the ledger were removed.
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

/// The result of an integrity check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IntegrityReport {
    /// How much was checked.
    pub counts: IntegrityCounts,
    /// The first hundred violations, by rule.
    pub violations: Vec<IntegrityViolation>,
    /// How many more there are.
    pub more: u64,
}

impl IntegrityReport {
    /// Whether there are no violations.
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
