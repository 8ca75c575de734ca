//! A submitted job, and the pure rules that follow from it: when a condition on
//! parents holds, and how long to wait before another attempt.

use alloc::vec::Vec;

use crate::id::{Digest, JobId};
use crate::name::Name;
use crate::planted::{Bug, planted};
use crate::random::mix;
use crate::record::StoredText;
use crate::time::{Millis, Wall};

/// One job as it is submitted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JobSpec {
    /// Made by the client, so that a submit can be repeated.
    pub id: JobId,
    /// A digest of everything that was submitted except the id: the same id or key with another
    /// digest is a conflict.
    pub body: Digest,
    /// The idempotency key, for clients that cannot keep an id. Unique in the job's queue.
    pub key: Option<Name>,
    /// The queue that the job waits in.
    pub queue: Name,
    /// The kind of work, as registered with the worker.
    pub kind: Name,
    /// Jobs with a higher priority start sooner, under the strategies that use it.
    pub priority: i16,
    /// The jobs that must end first.
    pub parents: Vec<JobId>,
    /// How they must end.
    pub condition: Condition,
    /// What happens if they can no longer end that way.
    pub otherwise: Otherwise,
    /// The job does not start before this moment.
    pub not_before: Option<Wall>,
    /// What happens after an attempt that failed.
    pub retry: Retry,
    /// How long one attempt may take.
    pub timeout: Option<Millis>,
    /// What the job is about, for its worker. Passed on to the store unread; a row that comes from
    /// the store has none.
    pub payload: Option<StoredText>,
}

impl JobSpec {
    /// A job with default settings: queue and kind `default`, no parents.
    #[must_use]
    pub fn new(id: JobId) -> Self {
        Self {
            id,
            body: Digest::default(),
            key: None,
            queue: Name::from("default"),
            kind: Name::from("default"),
            priority: 0,
            parents: Vec::new(),
            condition: Condition::default(),
            otherwise: Otherwise::default(),
            not_before: None,
            retry: Retry::default(),
            timeout: None,
            payload: None,
        }
    }

    /// Its idempotency key, if it has one, with its queue.
    #[must_use]
    pub fn queue_key(&self) -> Option<QueueKey> {
        let key = self.key.clone()?;
        Some(QueueKey { queue: self.queue.clone(), key })
    }
}

/// An idempotency key with the queue that it belongs to: together they name one job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct QueueKey {
    /// The queue.
    pub queue: Name,
    /// The key.
    pub key: Name,
}

/// How the parents must have ended before a child may start. A cancelled parent counts as failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Condition {
    /// Every parent succeeded.
    #[default]
    AllSucceeded,
    /// At least one parent succeeded; the others need not have ended.
    AnySucceeded,
    /// Every parent ended, however it ended.
    AllDone,
    /// At least one parent died or was cancelled.
    AnyFailed,
}

/// What happens to a child whose condition can no longer be met.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Otherwise {
    /// It is cancelled, and so are its own children in turn.
    #[default]
    Cancel,
    /// It stays blocked until an operator cancels it or retries a parent.
    Hold,
    /// It runs anyway.
    Run,
}

/// How many of a child's parents are in which state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) pending: u32,
    pub(crate) succeeded: u32,
    pub(crate) failed: u32,
}

/// What a tally means for a child's condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The condition may still be met.
    Open,
    /// The condition is met, and stays so unless an operator retries a parent.
    Holds,
    /// The condition can no longer be met.
    Never,
}

impl Condition {
    pub(crate) fn judge(self, tally: Tally) -> Verdict {
        let Tally { pending, succeeded, failed } = tally;
        if planted(Bug::ConditionIgnored) && succeeded + failed > 0 {
            return Verdict::Holds;
        }
        let (holds, never) = match self {
            Self::AllSucceeded => (pending == 0 && failed == 0, failed > 0),
            Self::AnySucceeded => (succeeded > 0, pending == 0),
            Self::AllDone => (pending == 0, false),
            Self::AnyFailed => (failed > 0, pending == 0),
        };
        match (holds, never) {
            (true, _) => Verdict::Holds,
            (false, true) => Verdict::Never,
            (false, false) => Verdict::Open,
        }
    }
}

/// How often a job is tried, and how long filch waits in between.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Retry {
    /// The job is dead after this many charged attempts; at least 1.
    pub max: u16,
    /// The wait before another attempt.
    pub backoff: Backoff,
    /// The wait is made longer or shorter at random, by at most this many percent, so that jobs
    /// that failed together do not come back together.
    pub jitter_percent: u8,
}

impl Default for Retry {
    /// Three attempts, with a wait of one second and then of two.
    fn default() -> Self {
        let backoff = Backoff::Exponential {
            base: Millis::seconds(1),
            factor_percent: 200,
            cap: Millis::seconds(300),
        };
        Self { max: 3, backoff, jitter_percent: 0 }
    }
}

/// The wait before another attempt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Backoff {
    /// No wait.
    None,
    /// The same wait each time.
    Fixed(Millis),
    /// A wait that grows with each attempt, up to a cap.
    Exponential {
        /// The wait after the first attempt.
        base: Millis,
        /// The factor by which the wait grows each time, in percent: 200 doubles it.
        factor_percent: u16,
        /// The longest wait.
        cap: Millis,
    },
}

impl Retry {
    /// The wait after the `attempt`th charged attempt (from 1). `chance` decides the jitter: the
    /// same number gives the same wait.
    #[must_use]
    pub fn delay(&self, attempt: u16, chance: u64) -> Millis {
        let plain = match self.backoff {
            Backoff::None => 0,
            Backoff::Fixed(wait) => u64::from(wait.0),
            Backoff::Exponential { base, factor_percent, cap } => {
                let cap = u64::from(cap.0);
                let mut wait = u64::from(base.0).min(cap);
                for _ in 1..attempt {
                    let longer = wait * u64::from(factor_percent) / 100;
                    if longer == wait {
                        break;
                    }
                    wait = longer.min(cap);
                }
                wait
            }
        };
        let range = plain * u64::from(self.jitter_percent.min(100)) / 100;
        let shift = ((u128::from(mix(chance)) * u128::from(2 * range + 1)) >> 64) as u64;
        Millis(u32::try_from(plain - range + shift).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(pending: u32, succeeded: u32, failed: u32) -> Tally {
        Tally { pending, succeeded, failed }
    }

    #[test]
    fn conditions_on_parents_are_evaluated() {
        use Condition::{AllDone, AllSucceeded, AnyFailed, AnySucceeded};
        use Verdict::{Holds, Never, Open};
        // The columns: all-succeeded, any-succeeded, all-done, any-failed.
        let rows = [
            (tally(2, 0, 0), [Open, Open, Open, Open]),
            (tally(1, 1, 0), [Open, Holds, Open, Open]),
            (tally(1, 0, 1), [Never, Open, Open, Holds]),
            (tally(0, 2, 0), [Holds, Holds, Holds, Never]),
            (tally(0, 1, 1), [Never, Holds, Holds, Holds]),
            (tally(0, 0, 2), [Never, Never, Holds, Holds]),
        ];
        for (tally, verdicts) in rows {
            let conditions = [AllSucceeded, AnySucceeded, AllDone, AnyFailed];
            for (condition, verdict) in conditions.into_iter().zip(verdicts) {
                assert_eq!(condition.judge(tally), verdict, "{condition:?} of {tally:?}");
            }
        }
    }

    #[test]
    fn an_exponential_wait_doubles_up_to_its_cap() {
        let backoff =
            Backoff::Exponential { base: Millis(100), factor_percent: 200, cap: Millis(1_000) };
        let retry = Retry { max: 9, backoff, jitter_percent: 0 };
        let waits: Vec<u32> = (1..=6).map(|attempt| retry.delay(attempt, 1).0).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1_000, 1_000]);
        assert_eq!(retry.delay(u16::MAX, 1), Millis(1_000));
    }

    #[test]
    fn jitter_stays_in_its_range_and_comes_from_the_chance_alone() {
        let backoff = Backoff::Fixed(Millis(1_000));
        let retry = Retry { max: 9, backoff, jitter_percent: 25 };
        let waits: Vec<u32> = (0..1_000).map(|chance| retry.delay(1, chance).0).collect();
        assert!(waits.iter().all(|wait| (750..=1_250).contains(wait)));
        assert!(waits.iter().any(|&wait| wait < 800) && waits.iter().any(|&wait| wait > 1_200));
        assert_eq!(retry.delay(1, 77), retry.delay(1, 77));
    }
}
