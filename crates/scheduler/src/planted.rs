//! Planted bugs: a test can switch one on to see whether the checkers find it.
//!
//! Each is a plausible mistake in this protocol. A checker that does not find them when they are
//! present proves nothing when it finds nothing. They exist only in a build with the feature
//! `planted`, which no crate enables; in any other build `planted` is a constant `false` and they
//! are compiled away.

#[cfg(feature = "planted")]
use core::sync::atomic::{AtomicU8, Ordering};

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal;)*) => {
        /// A mistake that can be switched on.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Bug {
            $($(#[$doc])* $bug,)*
        }

        #[cfg(feature = "planted")]
        impl Bug {
            /// All of them.
            pub const ALL: [Self; [$(Self::$bug),*].len()] = [$(Self::$bug),*];

            /// The bug's name on a command line.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$bug => $name,)*
                }
            }
        }
    };
}

bugs! {
    /// A report that a job is finished is applied with any fence, as long as the job has an owner.
    FinishWithoutFence = "finish-without-fence";
    /// A stolen job keeps its fence.
    StealWithoutNewFence = "steal-without-new-fence";
    /// A worker counts its lease from when the acknowledgement came, not from when it sent the
    /// acknowledged batch.
    LeaseFromAcknowledgement = "lease-from-acknowledgement";
    /// The server judges leases by its wall clock.
    WallClockLease = "wall-clock-lease";
    /// A job is taken back by its id alone, from its current owner: when a former owner reports
    /// that it has dropped it, and by a lease row when the server is loaded.
    ReclaimById = "reclaim-by-id";
    /// Messages and answers do not wait for their commit.
    SentBeforeReceipt = "sent-before-receipt";
    /// Every hello is accepted, also from a lost worker under its old id.
    LostIncarnationRevived = "lost-incarnation-revived";
    /// A batch of an older session is taken for the next one of the current session.
    OldSessionAccepted = "old-session-accepted";
    /// A worker that is asked to give also gives a job that it runs, and continues to run it.
    GiveOfARunningJob = "give-of-a-running-job";
    /// Jobs that were assigned but never arrived are not sent again when their worker resumes.
    ForgottenResumeAnswer = "forgotten-resume-answer";
    /// A child that has an owner already is put into its queue again when its parents are judged
    /// once more: when another of them ends, and when the server is loaded.
    ChildReleasedTwice = "child-released-twice";
    /// A child that meets a parent which has ended goes on waiting for it.
    ChildOfFinishedParentNeverReleased = "child-of-finished-parent-never-released";
    /// A job that was stolen does not count against its queue's limit any more.
    LimitNotCountedOnSteal = "limit-not-counted-on-steal";
    /// A steal is charged to the job as an attempt.
    AttemptChargedOnSteal = "attempt-charged-on-steal";
    /// Idempotency keys are ignored, so the same key makes another job.
    IdempotencyIgnored = "idempotency-ignored";
    /// A client that sees some queues may name parents in others.
    ParentOfAnotherTenant = "parent-of-another-tenant";
    /// An idempotency key is taken in all queues.
    KeyOfAnotherQueue = "key-of-another-queue";
    /// An ended job leaves memory before its end is durable, when the store does not know of it
    /// yet.
    EvictedBeforeReceipt = "evicted-before-receipt";
    /// A cancel is answered once it is stored, though the job's owner may still start it.
    CancelAcknowledgedEarly = "cancel-acknowledged-early";
    /// A worker past its own deadline continues to run and start jobs.
    NoSelfFencing = "no-self-fencing";
    /// When a job is cancelled because of its parents, its own children are not updated.
    ChildrenNotUpdated = "children-not-updated";
    /// After a restart of the server every scheduled job is due at once.
    StartedBeforeDue = "started-before-due";
    /// A child is released when the first of its parents ends, however it ends.
    ConditionIgnored = "condition-ignored";
    /// Waiting is worth no priority, so the lowest waits for ever while higher ones come.
    PriorityNeverAges = "priority-never-ages";
    /// A worker that drains forgets its unstarted jobs instead of handing them back, and does not
    /// stop running jobs when its grace period is over.
    DrainForgets = "drain-forgets";
    /// A job may be stolen any number of times without ever getting a free slot.
    StolenWithoutEnd = "stolen-without-end";
    /// An attempt that a drain has interrupted is charged.
    InterruptedCharged = "interrupted-charged";
    /// An idle worker whose question is not answered asks no other worker.
    SilentThief = "silent-thief";
    /// The owner of a running job learns of its cancel only when it opens its next session.
    CancelNotSent = "cancel-not-sent";
    /// Reports that do not fit into a batch count as sent, and are never sent.
    ReportsBeyondBoundForgotten = "reports-beyond-bound-forgotten";
    /// A report counts as a repeat of the accepted one if the job's state and fence allow it,
    /// whoever sends it and whatever it says.
    RepeatByFenceAlone = "repeat-by-fence-alone";
    /// A worker on which jobs could not be started never takes another.
    RestWithoutEnd = "rest-without-end";
    /// An attempt that could not be started on its worker is charged.
    UnstartedCharged = "unstarted-charged";
    /// If several jobs may have caused the loss of their worker, the first of them is charged.
    OneOfSeveralCharged = "one-of-several-charged";
    /// A job that alone may have caused the loss of its worker is not charged for it.
    LoneSuspectNotCharged = "lone-suspect-not-charged";
    /// A queue that was served keeps its turn under `round-robin`.
    TurnNotTaken = "turn-not-taken";
    /// Under `fair`, every queue counts as one of weight 1.
    WeightIgnored = "weight-ignored";
    /// The server treats a lease as expired after half of its length.
    ReclaimEarly = "reclaim-early";
}

/// The bug that is switched on, by its place among all plus one; 0 for none.
#[cfg(feature = "planted")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Switches one bug on for the whole process, or none. Not while anything runs: decisions made
/// without the bug may not fit decisions made with it.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    // Relaxed: no other data is published with it.
    PLANTED.store(bug.map_or(0, |bug| bug as u8 + 1), Ordering::Relaxed);
}

/// Whether this bug is switched on.
#[cfg(feature = "planted")]
pub(crate) fn planted(bug: Bug) -> bool {
    // Relaxed: as in `plant`.
    PLANTED.load(Ordering::Relaxed) == bug as u8 + 1
}

/// No bug is ever switched on here.
#[cfg(not(feature = "planted"))]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}
