//! Known bugs, one of which a test can switch on to see whether it is found.
//!
//! Each is a mistake that somebody could make in this protocol. A checker that finds none of them when
//! they are there proves nothing when it finds nothing. They can be switched on only in a build with the
//! feature `planted`, which no crate enables; in any other the answer is a plain `false`, and nothing of
//! them is left in the program.

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

            /// What the bug is called on a command line.
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
    /// A report that a job is finished is applied whatever its fence, as long as anybody owns the job.
    FinishWithoutFence = "finish-without-fence";
    /// A stolen job keeps its fence.
    StealWithoutNewFence = "steal-without-new-fence";
    /// A worker counts its lease from when the acknowledgement came, not from when it sent what was
    /// acknowledged.
    LeaseFromAcknowledgement = "lease-from-acknowledgement";
    /// The server judges leases by its wall clock.
    WallClockLease = "wall-clock-lease";
    /// What a worker once had is taken by its id alone from whoever has got it since: when the worker
    /// says that it has dropped it, and by a lease row when the server is loaded.
    ReclaimById = "reclaim-by-id";
    /// Nothing that is told waits for its receipt.
    ToldBeforeReceipt = "told-before-receipt";
    /// Whoever greets is let in, also a worker that was lost, under its old id.
    LostIncarnationRevived = "lost-incarnation-revived";
    /// A batch of an older session is taken for the next one of the present session.
    OldSessionAccepted = "old-session-accepted";
    /// A worker that is asked to give gives a job that it runs, too, and goes on running it.
    GiveOfARunningJob = "give-of-a-running-job";
    /// What was assigned and never arrived is not sent again when its worker resumes.
    ForgottenResumeAnswer = "forgotten-resume-answer";
    /// A child that has an owner already is put into its queue again when its parents are judged once
    /// more: when another of them ends, and when the server is loaded.
    ChildReleasedTwice = "child-released-twice";
    /// A child that meets a parent which has ended goes on waiting for it.
    ChildOfFinishedParentNeverReleased = "child-of-finished-parent-never-released";
    /// A job that was stolen does not count against its queue's limit any more.
    LimitNotCountedOnSteal = "limit-not-counted-on-steal";
    /// A theft is charged to the job as an attempt.
    AttemptChargedOnSteal = "attempt-charged-on-steal";
    /// Idempotency keys are not looked at, so the same key makes another job.
    IdempotencyIgnored = "idempotency-ignored";
    /// An ended job leaves memory before its end is durable, when the store does not know of it yet.
    EvictedBeforeReceipt = "evicted-before-receipt";
    /// A cancel is answered once it is stored, though the job's owner may still start it.
    CancelAcknowledgedEarly = "cancel-acknowledged-early";
    /// A worker past its own deadline goes on running and starting.
    NoSelfFencing = "no-self-fencing";
    /// When a job is cancelled because of its parents, its own children do not hear of it.
    ChildrenNotTold = "children-not-told";
    /// After a restart of the server every scheduled job is due at once.
    StartedBeforeDue = "started-before-due";
    /// A child is released when the first of its parents ends, in whatever way.
    ConditionIgnored = "condition-ignored";
    /// Waiting is worth no priority, so the lowest waits for ever while higher ones come.
    PriorityNeverAges = "priority-never-ages";
    /// A worker that drains forgets what it has not started instead of handing it back, and does not
    /// stop what still runs when its grace is over.
    DrainForgets = "drain-forgets";
    /// A job may be stolen any number of times without ever getting a free slot.
    StolenWithoutEnd = "stolen-without-end";
    /// An attempt that a drain has interrupted is charged.
    InterruptedCharged = "interrupted-charged";
    /// An idle worker whose question is not answered asks nobody else.
    SilentThief = "silent-thief";
    /// The owner of a running job hears of its cancel only when it opens its next session.
    CancelNotTold = "cancel-not-told";
    /// The server takes a lease to be over after half of its length.
    ReclaimEarly = "reclaim-early";
}

/// The bug that is switched on, by its place among all plus one; 0 for none.
#[cfg(feature = "planted")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Switches one bug on for the whole process, or none. Not while anything runs: what was decided without
/// the bug may not fit to what is decided with it.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    // Relaxed: nothing else is handed over with it.
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
