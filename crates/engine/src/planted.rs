//! Planted bugs of the engines: a test can switch one on to see whether the simulator finds it.
//!
//! Like those of `filch-scheduler`: each is a plausible mistake, they exist only in a build with
//! the feature `planted`, and are compiled away in any other.

#[cfg(feature = "planted")]
use std::sync::atomic::{AtomicU8, Ordering};

macro_rules! bugs {
    ($($(#[$doc:meta])* $bug:ident = $name:literal;)*) => {
        /// A mistake of an engine that can be switched on.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum EngineBug {
            $($(#[$doc])* $bug,)*
        }

        #[cfg(feature = "planted")]
        impl EngineBug {
            /// All of them.
            pub const ALL: [Self; [$(Self::$bug),*].len()] = [$(Self::$bug),*];

            /// The bug's name.
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
    /// Time while the process is suspended counts for leases.
    SuspendedTimeCounts = "suspended-time-counts";
    /// Time while the scheduler is full counts for leases.
    FullTimeCounts = "full-time-counts";
    /// What a worker's successor reports is stored without its results.
    SuccessorLosesResults = "successor-loses-results";
    /// A batch is accepted over a second connection in the session of the first.
    SecondLinkAccepted = "second-link-accepted";
    /// Any token may use the id of any worker.
    IdTakenOver = "id-taken-over";
    /// A narrowed token may report on jobs of any queue.
    QueueOfJobNotChecked = "queue-of-job-not-checked";
    /// A renewal waits behind jobs whose payloads are being read.
    RenewalWaitsForPayloads = "renewal-waits-for-payloads";
    /// A connection that breaks does not end its session.
    SessionOutlivesLink = "session-outlives-link";
    /// A read of the live state is released before what it saw is durable.
    BarrierReleasedEarly = "barrier-released-early";
    /// The end of a job is announced before it is durable.
    EndAnnouncedEarly = "end-announced-early";
    /// Changes by operators are acknowledged before they are durable.
    ActAcknowledgedEarly = "act-acknowledged-early";
    /// If some payloads have to be read, the job gets that of another.
    PayloadOfAnotherJob = "payload-of-another-job";
    /// A worker that loses its connection forgets the payloads of jobs that it has not started.
    PayloadForgotten = "payload-forgotten";
    /// The guardian gets the worker's deadline some seconds late.
    DeadlineLate = "deadline-late";
    /// All jobs of an assignment are sent in one batch, however large it is.
    BatchWithoutBound = "batch-without-bound";
    /// What is old is decided by the wall clock, also after it has jumped.
    WallJumpPurges = "wall-jump-purges";
    /// A slice of retention never ends if the store cannot be read.
    RetentionStallsAfterFailedRead = "retention-stalls-after-failed-read";
    /// What is left for a worker after a full batch is not sent when that batch has been sent.
    SentForgotten = "sent-forgotten";
    /// Two processes over plain HTTP may use the same worker id.
    InstanceNotChecked = "instance-not-checked";
    /// A repeated claim over plain HTTP is a new claim.
    ClaimAnswerNotKept = "claim-answer-not-kept";
    /// A job that a worker over plain HTTP does not list in its claim stays with it.
    UnlistedJobNotReturned = "unlisted-job-not-returned";
}

/// The bug that is switched on, by its place among all plus one; 0 for none.
#[cfg(feature = "planted")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Switches one bug on for the whole process, or none.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<EngineBug>) {
    // Relaxed: no other data is published with it.
    PLANTED.store(bug.map_or(0, |bug| bug as u8 + 1), Ordering::Relaxed);
}

/// Whether this bug is switched on.
#[cfg(feature = "planted")]
pub(crate) fn planted(bug: EngineBug) -> bool {
    // Relaxed: as in `plant`.
    PLANTED.load(Ordering::Relaxed) == bug as u8 + 1
}

/// No bug is ever switched on here.
#[cfg(not(feature = "planted"))]
pub(crate) const fn planted(_: EngineBug) -> bool {
    false
}
