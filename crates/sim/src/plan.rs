//! A plan: everything that is decided about a run before it begins.
//!
//! What clients and operators ask for and what breaks, and when. The rest (how long this message takes,
//! whether that one is lost) is drawn from the seed as the run goes.

use std::time::Duration;

use filch_scheduler::agent::{Home, Reserve};
use filch_scheduler::dispatch::{Request, Steal};
use filch_scheduler::message::Serves;
use filch_scheduler::record::Strategy;

/// A run before it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Decides everything that is not written here.
    pub seed: u64,
    /// How long a worker may be silent.
    pub lease: Duration,
    /// The order of work.
    pub strategy: Strategy,
    /// What idle workers may take from busy ones.
    pub steal: Steal,
    /// How long a commit takes, at the least and at the most.
    pub commit: (Duration, Duration),
    /// How long ended jobs are kept.
    pub retention: Option<Duration>,
    /// When everything heals; `None` if nothing breaks and the run is over when every job is.
    pub heals_at: Option<Duration>,
    /// What the messages of clients go through.
    pub clients: NetworkConditions,
    /// The workers, by place.
    pub members: Vec<Member>,
    /// What happens, in order of time.
    pub acts: Vec<(Duration, PlannedEvent)>,
}

/// A place where a worker runs; when its process ends, another takes its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// How many jobs it runs at once.
    pub slots: u32,
    /// How many jobs it holds beyond that.
    pub reserve: Reserve,
    /// Whether it lives in the server's process.
    pub home: Home,
    /// Which queues it serves.
    pub serves: Serves,
    /// How fast its clock runs against the server's: a million is as fast.
    pub rate: u32,
    /// What its messages go through.
    pub network: NetworkConditions,
}

/// What messages go through on their way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkConditions {
    /// How long they take, at the least and at the most.
    pub delay: (Duration, Duration),
    /// How many of a million are lost.
    pub lost: u32,
    /// How many of a million arrive twice.
    pub repeated: u32,
    /// How many of a million are overtaken by later ones.
    pub overtaken: u32,
}

impl NetworkConditions {
    /// Nothing goes wrong, and every message takes this long.
    #[must_use]
    pub const fn fair(delay: Duration) -> Self {
        Self { delay: (delay, delay), lost: 0, repeated: 0, overtaken: 0 }
    }
}

/// Something that happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlannedEvent {
    /// A client or operator asks, and asks again until it is answered or has asked so often.
    Ask {
        /// What for.
        request: Request,
        /// How often at most, before everything heals.
        tries: u32,
    },
    /// An operator tells the worker in this place to drain.
    OperatorDrain {
        /// Which place.
        place: usize,
    },
    /// The worker's process is told to end: it drains within the grace.
    Drain {
        /// Which place.
        place: usize,
        /// How long running jobs may take.
        grace: Duration,
    },
    /// The worker's process ends at once, with all that runs in it.
    Crash {
        /// Which place.
        place: usize,
        /// When the next process starts.
        away: Duration,
    },
    /// The worker's process stands still.
    Pause {
        /// Which place.
        place: usize,
        /// For how long.
        span: Duration,
        /// What its jobs do meanwhile.
        jobs: Paused,
    },
    /// Messages do not get through.
    Cut {
        /// Which place.
        place: usize,
        /// In which direction.
        direction: CutDirection,
        /// For how long.
        span: Duration,
        /// What becomes of them.
        messages: CutMessages,
    },
    /// The connection breaks.
    Break {
        /// Which place.
        place: usize,
        /// Who hears of it.
        seen_by: SeenBy,
    },
    /// The messages of this place go through other network for a while.
    NetworkConditions {
        /// Which place.
        place: usize,
        /// For how long.
        span: Duration,
        /// Through what.
        network: NetworkConditions,
    },
    /// A wall clock jumps.
    JumpWall {
        /// Whose: a place's, or the server's.
        place: Option<usize>,
        /// How far, in milliseconds; back if negative.
        by_ms: i64,
    },
    /// The server's process ends at once. What was being stored is stored or not, as chance has it.
    CrashServer {
        /// When the next one starts.
        away: Duration,
        /// Whether workers notice that their connections are gone.
        noticed: bool,
        /// At which moment.
        when: CrashMoment,
    },
    /// Every commit takes this much longer for a while.
    SlowStore {
        /// For how long.
        span: Duration,
        /// How much longer.
        by: Duration,
    },
    /// The outcome of so many commits in a million is unknown, for a while.
    UnreliableStore {
        /// For how long.
        span: Duration,
        /// How many of a million.
        unknown: u32,
    },
}

/// When a server crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashMoment {
    /// Now.
    Now,
    /// While its next commit is under way.
    DuringCommit,
}

/// What the jobs of a paused process do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paused {
    /// They stand still too.
    Frozen,
    /// They are processes of their own and go on, until a guardian ends them at the worker's deadline.
    GoOn,
}

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutDirection {
    /// What the worker sends.
    ToServer,
    /// What the server sends.
    ToWorker,
    /// Both.
    Both,
}

/// What becomes of messages that do not get through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutMessages {
    /// They are gone.
    Lost,
    /// They arrive when the direction is free again.
    Late,
    /// So do these; but it is the present connection that is stuck, and a new one is not.
    Stuck,
}

/// Who hears that a connection broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeenBy {
    /// Both ends.
    Both,
    /// The server alone.
    Server,
    /// The worker alone.
    Worker,
}

impl PlannedEvent {
    /// Where a fault is, `None` for the server or its store, and for how long.
    #[must_use]
    pub const fn trouble(&self) -> (Option<usize>, Duration) {
        match self {
            Self::Crash { place, away } => (Some(*place), *away),
            Self::Pause { place, span, .. }
            | Self::Cut { place, span, .. }
            | Self::NetworkConditions { place, span, .. } => (Some(*place), *span),
            Self::Break { place, .. }
            | Self::OperatorDrain { place }
            | Self::Drain { place, .. } => (Some(*place), Duration::ZERO),
            Self::JumpWall { place, .. } => (*place, Duration::ZERO),
            Self::CrashServer { away, .. } => (None, *away),
            Self::SlowStore { span, .. } | Self::UnreliableStore { span, .. } => (None, *span),
            Self::Ask { .. } => (None, Duration::ZERO),
        }
    }

    /// Whether something breaks, and nobody asked for it.
    #[must_use]
    pub const fn is_fault(&self) -> bool {
        !matches!(self, Self::Ask { .. } | Self::OperatorDrain { .. } | Self::Drain { .. })
    }
}
