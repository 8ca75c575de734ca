//! A plan: everything that is decided about a run before it starts.
//!
//! A plan has the requests of clients and operators and the faults, each with its time. The rest
//! (how long a message takes, whether another is lost) is drawn from the seed during the run.

use std::time::Duration;

use filch_scheduler::agent::{Home, Reserve};
use filch_scheduler::dispatch::{Request, Steal};
use filch_scheduler::message::Serves;
use filch_scheduler::record::Strategy;

/// The plan of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Determines everything that the plan leaves open.
    pub seed: u64,
    /// The lease of workers.
    pub lease: Duration,
    /// The order in which jobs are claimed.
    pub strategy: Strategy,
    /// How much an idle worker steals from a busy one.
    pub steal: Steal,
    /// How long a commit takes, at least and at most.
    pub commit: (Duration, Duration),
    /// The retention of ended jobs.
    pub retention: Option<Duration>,
    /// How many mutations may wait to be durable before the server takes no more requests.
    pub unreceipted: Option<usize>,
    /// How many bytes of payloads the server sends in one batch, if not as many as a real one.
    pub batch_bytes: Option<usize>,
    /// When everything is repaired; `None` if there are no faults and the run ends with its last
    /// job.
    pub heals_at: Option<Duration>,
    /// The network between clients and the server.
    pub clients: NetworkConditions,
    /// The nodes, each with one worker process.
    pub members: Vec<Member>,
    /// The nodes with a worker over plain HTTP. They are numbered after the others.
    pub http_members: Vec<HttpMember>,
    /// The planned events, by time.
    pub acts: Vec<(Duration, PlannedEvent)>,
}

/// A node that runs a worker; when its process ends, another one is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// How many jobs it runs at once.
    pub slots: u32,
    /// How many jobs it holds beyond that.
    pub reserve: Reserve,
    /// Whether it runs in the server's process.
    pub home: Home,
    /// Whether it also sends reports that contradict what was recorded: see `world::hostile`.
    pub is_hostile: bool,
    /// Which queues it serves.
    pub serves: Serves,
    /// The rate of its clock in millionths of the server's.
    pub rate: u32,
    /// The network between it and the server.
    pub network: NetworkConditions,
}

/// A node that runs a worker over plain HTTP; when its process ends, another one is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpMember {
    /// How many jobs it runs at once.
    pub slots: u32,
    /// Which worker id its processes begin with: the same for members with the same number.
    pub id: u32,
    /// Which queues it serves.
    pub serves: Serves,
    /// The rate of its clock in millionths of the server's.
    pub rate: u32,
    /// The network between it and the server. Requests overtake each other anyway.
    pub network: NetworkConditions,
}

/// Network conditions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkConditions {
    /// How long messages take, at least and at most.
    pub delay: (Duration, Duration),
    /// How many of a million messages are lost.
    pub lost: u32,
    /// How many of a million messages arrive twice.
    pub repeated: u32,
    /// How many of a million messages are overtaken by later ones.
    pub overtaken: u32,
}

impl NetworkConditions {
    /// A reliable network in which every message takes this long.
    #[must_use]
    pub const fn fair(delay: Duration) -> Self {
        Self { delay: (delay, delay), lost: 0, repeated: 0, overtaken: 0 }
    }
}

/// An event of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlannedEvent {
    /// A client or operator sends a request, and repeats it until it is answered.
    Ask {
        /// The request.
        request: Request,
        /// How often it is sent at most, before everything is repaired.
        tries: u32,
    },
    /// An operator drains the worker of this node.
    OperatorDrain {
        /// Which node.
        place: usize,
    },
    /// The worker's process is told to stop: it drains within the grace period.
    Drain {
        /// Which node.
        place: usize,
        /// The grace period of running jobs.
        grace: Duration,
    },
    /// The worker's process is killed, with all jobs that run in it.
    Crash {
        /// Which node.
        place: usize,
        /// How long until the next process starts.
        away: Duration,
    },
    /// The worker's process is suspended.
    Pause {
        /// Which node.
        place: usize,
        /// For how long.
        span: Duration,
        /// What its jobs do meanwhile.
        jobs: Paused,
    },
    /// The network is cut.
    Cut {
        /// Which node.
        place: usize,
        /// In which direction.
        direction: CutDirection,
        /// For how long.
        span: Duration,
        /// What happens to messages meanwhile.
        messages: CutMessages,
    },
    /// The connection breaks.
    Break {
        /// Which node.
        place: usize,
        /// Which side notices.
        seen_by: SeenBy,
    },
    /// The connections of all nodes break in the same moment.
    BreakAll {
        /// Which side notices.
        seen_by: SeenBy,
    },
    /// The network of this node changes for a while.
    NetworkConditions {
        /// Which node.
        place: usize,
        /// For how long.
        span: Duration,
        /// The new conditions.
        network: NetworkConditions,
    },
    /// A wall clock jumps.
    JumpWall {
        /// The node; `None` for the server.
        place: Option<usize>,
        /// How far, in milliseconds; backwards if negative.
        by_ms: i64,
    },
    /// The server's process is killed. A commit in progress is stored or not, at random.
    CrashServer {
        /// How long until the next one starts.
        away: Duration,
        /// Whether workers notice that their connections are closed.
        noticed: bool,
        /// At which point.
        when: CrashMoment,
    },
    /// The server's process is suspended; its clocks go on.
    SuspendServer {
        /// For how long.
        span: Duration,
    },
    /// The server's process is killed, and starts again with other settings.
    Reconfigure {
        /// How long until the next one starts.
        away: Duration,
        /// The new lease.
        lease: Duration,
        /// The new strategy, which applies only if none was set at run time.
        strategy: Strategy,
        /// The new retention.
        retention: Option<Duration>,
    },
    /// The worker's process is killed, and starts again with other settings.
    Reshape {
        /// Which node.
        place: usize,
        /// How many jobs it runs at once.
        slots: u32,
        /// Which queues it serves.
        serves: Serves,
    },
    /// Something happens to a node over plain HTTP.
    Http {
        /// Which of them.
        member: usize,
        /// What happens.
        fault: HttpFault,
    },
    /// A stranger connects and claims to be the worker of this node.
    Intrude {
        /// Which node.
        place: usize,
        /// What it does.
        deed: Intrusion,
    },
    /// Every commit and every read takes this much longer for a while.
    SlowStore {
        /// For how long.
        span: Duration,
        /// How much longer.
        by: Duration,
    },
    /// Some reads of retention fail for a while.
    FailingRetention {
        /// For how long.
        span: Duration,
        /// How many of a million reads.
        failed: u32,
    },
    /// The result of some commits is unknown for a while.
    UnreliableStore {
        /// For how long.
        span: Duration,
        /// How many of a million commits.
        unknown: u32,
    },
}

/// What happens to a node over plain HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HttpFault {
    /// Its process is killed, with all jobs that run in it.
    Crash {
        /// How long until the next process starts.
        away: Duration,
    },
    /// Its process is suspended, with its jobs.
    Pause {
        /// For how long.
        span: Duration,
    },
    /// No request and no response gets through.
    Cut {
        /// For how long.
        span: Duration,
    },
    /// An operator drains its worker.
    Drain,
}

/// What a stranger tries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intrusion {
    /// With another token, to resume the worker's session.
    Resume,
    /// With another token, to send the worker's goodbye.
    Goodbye,
    /// With a token for other queues, to report on the worker's job under an id of its own.
    Report,
    /// With the same token, to send over a second connection in the worker's session.
    SameSession,
    /// With the same token, to report a success in an older session.
    OldSession,
    /// To introduce several workers over one connection.
    ManyIds,
}

/// When a server crashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CrashMoment {
    /// Immediately.
    Now,
    /// During its next commit.
    DuringCommit,
    /// When its next read of the store fails.
    DuringRead,
}

/// What the jobs of a suspended process do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paused {
    /// They are suspended too.
    Frozen,
    /// They are separate processes and continue, until a guardian kills them at the worker's
    /// deadline.
    GoOn,
}

/// The direction of a network cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutDirection {
    /// From the worker to the server.
    ToServer,
    /// From the server to the worker.
    ToWorker,
    /// Both.
    Both,
}

/// What happens to messages during a network cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CutMessages {
    /// They are lost.
    Lost,
    /// They arrive when the cut ends.
    Late,
    /// They arrive when the cut ends, but only the present connection is affected; a new one works.
    Stuck,
}

/// Which side notices that a connection broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeenBy {
    /// Both ends.
    Both,
    /// The server alone.
    Server,
    /// The worker alone.
    Worker,
}

/// How long a process takes to start again with other settings.
pub(crate) const RESTARTS_WITHIN: Duration = Duration::from_millis(500);

impl Plan {
    /// The shortest and the longest lease of a run.
    #[must_use]
    pub fn leases(&self) -> (Duration, Duration) {
        let others = self.acts.iter().filter_map(|(_, act)| match act {
            PlannedEvent::Reconfigure { lease, .. } => Some(*lease),
            _ => None,
        });
        others.fold((self.lease, self.lease), |(least, most), it| (least.min(it), most.max(it)))
    }
}

impl PlannedEvent {
    /// The node of a fault (`None` for the server or its store), and its duration.
    #[must_use]
    pub const fn trouble(&self) -> (Option<usize>, Duration) {
        match self {
            Self::Crash { place, away } => (Some(*place), *away),
            Self::Reshape { place, .. } => (Some(*place), RESTARTS_WITHIN),
            Self::Pause { place, span, .. }
            | Self::Cut { place, span, .. }
            | Self::NetworkConditions { place, span, .. } => (Some(*place), *span),
            Self::Break { place, .. }
            | Self::Intrude { place, .. }
            | Self::OperatorDrain { place }
            | Self::Drain { place, .. } => (Some(*place), Duration::ZERO),
            // No rule asks for the troubles of these nodes.
            Self::Http { .. } => (Some(usize::MAX), Duration::ZERO),
            Self::JumpWall { place, .. } => (*place, Duration::ZERO),
            Self::CrashServer { away, .. } | Self::Reconfigure { away, .. } => (None, *away),
            Self::SuspendServer { span } | Self::SlowStore { span, .. } => (None, *span),
            Self::UnreliableStore { span, .. } | Self::FailingRetention { span, .. } => {
                (None, *span)
            }
            Self::Ask { .. } | Self::BreakAll { .. } => (None, Duration::ZERO),
        }
    }

    /// Whether this is a fault, and not a request.
    #[must_use]
    pub const fn is_fault(&self) -> bool {
        !matches!(self, Self::Ask { .. } | Self::OperatorDrain { .. } | Self::Drain { .. })
    }
}
