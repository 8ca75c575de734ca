//! Every event and effect can be written as text and read again without change.

use filch_scheduler::agent::{self, StopReason, Verdict};
use filch_scheduler::dispatch::{
    self, Ahead, Answer, Bound, Novelty, Parent, QueueChange, Refused, Request, Steal, Submitted,
    Why,
};
use filch_scheduler::id::{
    CommitNo, Digest, Fence, FetchNo, Hold, JobId, LeaseNo, MessageNo, QuestionNo, RequestNo, Seq,
    SessionNo, WorkerId,
};
use filch_scheduler::message::{
    Again, Assignment, Ending, FromWorker, Hello, HelloKind, Placement, Report, Serves, StartMode,
    Suspects, ToWorker,
};
use filch_scheduler::name::Name;
use filch_scheduler::record::{
    AttemptOutcome, AttemptOutput, JobRow, JobWrite, LastReport, LeaseCause, LeaseRow, Loaded,
    Mutation, Note, OperatorAct, QueueSettings, Reason, ReportKind, StoredText, Strategy,
};
use filch_scheduler::spec::{Backoff, Condition, JobSpec, Otherwise, QueueKey, Retry};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Millis, Monotonic, Now, Wall};
use filch_scheduler::trace::{Context, Readable, Traced, parse, parse_line, print, print_line};
use proptest::prelude::*;

/// Generates any value from a seed. Small numbers are likely, so that values refer to each other.
struct Maker(u64);

impl Maker {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound
    }

    fn number(&mut self) -> u64 {
        match self.below(8) {
            0 => self.bits(),
            1 => u64::MAX,
            _ => self.below(5),
        }
    }

    fn some<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(2) == 0).then(|| make(self))
    }

    fn list<T>(&mut self, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(4)).map(|_| make(self)).collect()
    }

    fn one<T: Clone, const N: usize>(&mut self, of: [T; N]) -> T {
        of[self.below(N as u64) as usize].clone()
    }

    fn text(&mut self) -> String {
        let pieces =
            ["", "mail", "-", "a b", "\"", "\\", "\n", "\u{7}", "é", "[;]", "x.y/z", "after"];
        self.list(|it| it.one(pieces)).concat()
    }

    fn stored(&mut self) -> StoredText {
        self.text().into()
    }

    fn name(&mut self) -> Name {
        self.text().as_str().into()
    }

    fn id(&mut self) -> JobId {
        match self.below(4) {
            0 => JobId(u128::from(self.bits()) << 64 | u128::from(self.bits())),
            1 => JobId::named("a", Wall(self.below(3))).expect("a good name"),
            _ => JobId::named(self.one(["b", "after-7", "c_3", "w1", "r1"]), Wall(0))
                .expect("a good name"),
        }
    }

    fn seq(&mut self) -> Seq {
        Seq(self.number())
    }

    fn hold(&mut self) -> Hold {
        Hold { job: self.seq(), fence: Fence(self.number()) }
    }

    fn worker(&mut self) -> WorkerId {
        let random = self.number();
        self.one([WorkerId::apart(random), WorkerId::embedded(random)])
    }

    fn session(&mut self) -> SessionNo {
        SessionNo(self.number())
    }

    fn message_no(&mut self) -> MessageNo {
        MessageNo(self.number())
    }

    fn wall(&mut self) -> Wall {
        Wall(self.number())
    }

    fn millis(&mut self) -> Millis {
        Millis(self.number() as u32)
    }

    fn duration(&mut self) -> Duration {
        Duration::from_micros(self.number())
    }

    fn state(&mut self) -> JobState {
        self.one(JobState::ALL)
    }

    fn strategy(&mut self) -> Strategy {
        let aging = self.duration();
        self.one([
            Strategy::Fifo,
            Strategy::Priority { aging },
            Strategy::RoundRobin,
            Strategy::Fair,
        ])
    }

    fn spec(&mut self) -> JobSpec {
        let mut spec = JobSpec::new(self.id());
        if self.below(2) == 0 {
            spec.body = Digest(u128::from(self.number()));
            spec.key = self.some(Self::name);
            spec.queue = self.name();
            spec.kind = self.name();
            spec.priority = self.number() as i16;
            spec.parents = self.list(Self::id);
            use Condition::{AllDone, AllSucceeded, AnyFailed, AnySucceeded};
            spec.condition = self.one([AllSucceeded, AnySucceeded, AllDone, AnyFailed]);
            spec.otherwise = self.one([Otherwise::Cancel, Otherwise::Hold, Otherwise::Run]);
            spec.not_before = self.some(Self::wall);
            let (base, cap) = (self.millis(), self.millis());
            let factor_percent = self.number() as u16;
            let backoff = self.one([
                Backoff::None,
                Backoff::Fixed(base),
                Backoff::Exponential { base, factor_percent, cap },
            ]);
            let (max, jitter_percent) = (self.number() as u16, self.number() as u8);
            spec.retry = Retry { max, backoff, jitter_percent };
            spec.timeout = self.some(Self::millis);
            spec.payload = self.some(Self::stored);
        }
        spec
    }

    fn write(&mut self, job: Seq) -> JobWrite {
        use Reason::{Condition, Failed, Request, WorkerLost};
        JobWrite {
            job,
            state: self.state(),
            fence: Fence(self.number()),
            attempts: self.number() as u16,
            suspicions: self.number() as u8,
            priority: self.number() as i16,
            due: self.wall(),
            holder: self.some(Self::worker),
            last: self.some(|it| LastReport {
                worker: it.worker(),
                kind: it.one([ReportKind::Finished, ReportKind::Failed, ReportKind::Snoozed]),
            }),
            reason: self.some(|it| it.one([Request, Condition, Failed, WorkerLost])),
            at: self.wall(),
        }
    }

    fn row(&mut self) -> JobRow {
        let seq = self.seq();
        JobRow { seq, spec: self.spec(), submitted_at: self.wall(), now: self.write(seq) }
    }

    fn lease(&mut self) -> LeaseRow {
        let worker = self.worker();
        LeaseRow {
            number: LeaseNo(self.number()),
            worker: self.some(Self::worker),
            cause: self.one([
                LeaseCause::Claim,
                LeaseCause::Steal(worker),
                LeaseCause::Lost(worker),
                LeaseCause::Returned(worker),
            ]),
            jobs: self.list(Self::hold),
            at: self.wall(),
        }
    }

    fn settings(&mut self) -> QueueSettings {
        QueueSettings {
            queue: self.name(),
            paused: self.below(2) == 0,
            limit: self.some(|it| it.number() as u32),
            weight: self.number() as u32,
        }
    }

    fn operator_act(&mut self) -> OperatorAct {
        match self.request() {
            Request::Cancel(job) => OperatorAct::Cancel(job),
            Request::Retry(job) => OperatorAct::Retry(job),
            Request::SetPriority { job, priority } => OperatorAct::SetPriority { job, priority },
            Request::SetQueue { queue, change } => OperatorAct::SetQueue { queue, change },
            Request::SetStrategy(strategy) => OperatorAct::SetStrategy(strategy),
            Request::DrainWorker(worker) => OperatorAct::DrainWorker(worker),
            Request::Submit(_) | Request::SubmitWithin { .. } => OperatorAct::Cancel(self.id()),
        }
    }

    fn note(&mut self) -> Note {
        let worker = self.worker();
        match self.below(6) {
            0 => Note::WorkerLost { worker, jobs: self.number() as u32 },
            1..=4 => Note::Act { by: self.some(Self::name), act: self.operator_act() },
            _ => {
                let (error, reason) = (self.text().into(), self.text().into());
                let outcome = self.one([
                    AttemptOutcome::Failed(error),
                    AttemptOutcome::Unstarted(reason),
                    AttemptOutcome::Snoozed,
                    AttemptOutcome::Interrupted,
                    AttemptOutcome::LostAlone,
                    AttemptOutcome::LostAmongOthers,
                ]);
                Note::Attempt { hold: self.hold(), worker, outcome }
            }
        }
    }

    fn mutation(&mut self) -> Mutation {
        match self.below(12) {
            0 => Mutation::Put(self.row()),
            1 => {
                let job = self.seq();
                Mutation::Write(self.write(job))
            }
            2 => Mutation::Priority { job: self.seq(), priority: self.number() as i16 },
            3 => Mutation::Lease(self.lease()),
            4 => Mutation::Close(LeaseNo(self.number())),
            5 => Mutation::Queue(self.settings()),
            6 => Mutation::Strategy(self.strategy()),
            7 => Mutation::Purge(self.list(Self::seq)),
            8 => Mutation::LeaseLength(self.duration()),
            9 => Mutation::Trim {
                leases: self.list(|it| LeaseNo(it.number())),
                notes_before: self.wall(),
            },
            10 => Mutation::Output(AttemptOutput {
                hold: self.hold(),
                result: self.some(Self::stored),
                log: self.some(Self::stored),
            }),
            _ => Mutation::Note(self.note()),
        }
    }

    fn loaded(&mut self) -> Loaded {
        match self.below(7) {
            0 => Loaded::Numbers {
                commit: CommitNo(self.number()),
                seq: self.seq(),
                lease: LeaseNo(self.number()),
                newest_id: self.some(Self::wall),
            },
            1 => Loaded::Strategy(self.strategy()),
            2 => Loaded::Queue(self.settings()),
            3 => Loaded::Job(self.row()),
            4 => Loaded::LeaseLength(self.duration()),
            5 => Loaded::FormerOwner { renews_for: self.duration() },
            _ => Loaded::Lease(self.lease()),
        }
    }

    fn again(&mut self) -> Again {
        self.one([Again::ByPolicy, Again::Never])
    }

    fn report(&mut self) -> Report {
        let (again, error, wait) = (self.again(), self.text().into(), self.millis());
        let reason = self.text().into();
        let ending = self.one([
            Ending::Finished,
            Ending::Unstarted(reason),
            Ending::Failed { again, error },
            Ending::Snoozed(wait),
            Ending::Interrupted,
            Ending::Dropped,
            Ending::Stopped,
        ]);
        Report {
            hold: self.hold(),
            ending,
            result: self.some(Self::stored),
            log: self.some(Self::stored),
        }
    }

    fn serves(&mut self) -> Serves {
        let names = self.list(Self::name);
        self.one([Serves::All, Serves::Named(names)])
    }

    fn worker_says(&mut self) -> FromWorker {
        match self.below(11) {
            0 => {
                let older = self.worker();
                FromWorker::Hello(Hello {
                    kind: self.one([
                        HelloKind::New,
                        HelloKind::Replace(older),
                        HelloKind::ReportFor(older),
                        HelloKind::Resume,
                    ]),
                    slots: self.number() as u32,
                    want: self.number() as u32,
                    serves: self.serves(),
                    reports: self.list(Self::report),
                    started: self.list(Self::hold),
                    holds: self.list(Self::hold),
                })
            }
            1 => FromWorker::Heartbeat,
            2 => FromWorker::Want(self.number() as u32),
            3 => FromWorker::Start(self.hold()),
            4 => FromWorker::Started(self.hold()),
            5 => FromWorker::Report(self.report()),
            6 => FromWorker::Given {
                question: QuestionNo(self.number()),
                jobs: self.list(Self::hold),
            },
            7 => FromWorker::Stopping(self.hold()),
            8 => FromWorker::Progress { hold: self.hold(), percent: self.number() as u8 },
            9 => FromWorker::Drain,
            _ => FromWorker::Goodbye,
        }
    }

    fn assignment(&mut self) -> Assignment {
        Assignment {
            hold: self.hold(),
            id: self.id(),
            queue: self.name(),
            kind: self.name(),
            era: CommitNo(self.number()),
            rank: self.number() as i64,
            attempt: self.number() as u16,
            start: self.one([StartMode::Freely, StartMode::Confirmed]),
            place: self.one([Placement::Anywhere, Placement::FreeSlot]),
            timeout: self.some(Self::millis),
        }
    }

    fn server_says(&mut self) -> ToWorker {
        match self.below(10) {
            0 => ToWorker::Reconcile { lease: self.duration(), keep: self.list(Self::hold) },
            1 => ToWorker::Assign(self.list(Self::assignment)),
            2 => ToWorker::AskToGive {
                question: QuestionNo(self.number()),
                most: self.number() as u32,
                most_bound: self.number() as u32,
                suspects: self.one([Suspects::Move, Suspects::Stay]),
                serves: self.serves(),
            },
            3 => ToWorker::StartGranted(self.hold()),
            4 => ToWorker::Cancel(self.hold()),
            5 => ToWorker::DrainNow,
            6 => ToWorker::Renewed(self.message_no()),
            7 => ToWorker::Accepted(self.list(Self::hold)),
            8 => {
                ToWorker::Refused { hold: self.hold(), current: self.some(|it| Fence(it.number())) }
            }
            _ => ToWorker::Gone,
        }
    }

    fn request(&mut self) -> Request {
        match self.below(7) {
            0 => Request::Submit(self.list(Self::spec)),
            1 => Request::Cancel(self.id()),
            2 => Request::Retry(self.id()),
            3 => Request::SetPriority { job: self.id(), priority: self.number() as i16 },
            4 => {
                let (limit, weight) = (self.some(|it| it.number() as u32), self.number() as u32);
                let change = self.one([
                    QueueChange::Pause,
                    QueueChange::Resume,
                    QueueChange::Limit(limit),
                    QueueChange::Weight(weight),
                ]);
                Request::SetQueue { queue: self.name(), change }
            }
            5 => Request::SetStrategy(self.strategy()),
            _ => Request::DrainWorker(self.worker()),
        }
    }

    fn refused(&mut self) -> Refused {
        let (child, parent) = (self.id(), self.id());
        match self.below(11) {
            0 => Refused::UnknownJob(child),
            1 => Refused::UnknownWorker(self.worker()),
            2 => Refused::IdConflict(child),
            3 => Refused::KeyConflict { key: self.name(), holder: child },
            4 => Refused::Cycle(self.list(Self::id)),
            5 => Refused::OwnParent(child),
            6 => Refused::ParentTwice { child, parent },
            7 => Refused::UnknownParent { child, parent },
            8 => Refused::WrongState { job: child, state: self.state() },
            9 => Refused::OutOfBounds {
                what: self.one([
                    Bound::Jobs,
                    Bound::Edges,
                    Bound::LiveJobs,
                    Bound::NameBytes,
                    Bound::Attempts,
                    Bound::Weight,
                    Bound::Queues,
                ]),
                asked: self.number(),
                bound: self.number(),
            },
            _ => Refused::Busy,
        }
    }

    fn answer(&mut self) -> Answer {
        match self.below(3) {
            0 => Answer::Submitted(self.list(|it| Submitted {
                id: it.id(),
                seq: it.seq(),
                novelty: it.one([Novelty::New, Novelty::Known]),
            })),
            1 => Answer::Done,
            _ => Answer::Refused(self.refused()),
        }
    }

    fn why(&mut self) -> Why {
        use Condition::{AllDone, AllSucceeded, AnyFailed, AnySucceeded};
        let count = self.number() as u32;
        match self.below(5) {
            0 => Why::Blocked {
                condition: self.one([AllSucceeded, AnySucceeded, AllDone, AnyFailed]),
                waiting_for: self.list(|it| Parent { id: it.id(), state: it.state() }),
                pending: count,
                held: self.below(2) == 0,
            },
            1 => Why::NotBefore { due: self.wall(), attempts: self.number() as u16 },
            2 => Why::Queued {
                queue: self.name(),
                paused: self.below(2) == 0,
                limit: self.some(|it| (it.number() as u32, it.number() as u32)),
                ahead: self.one([Ahead::Exactly(count), Ahead::AtLeast(count)]),
                workers: count,
            },
            3 => Why::Owned {
                worker: self.worker(),
                since: Monotonic(self.number()),
                started: self.below(2) == 0,
                connected: self.below(2) == 0,
            },
            _ => Why::Ended { state: self.state(), held_by: self.some(Self::worker) },
        }
    }

    fn dispatch_event(&mut self) -> dispatch::DispatchEvent {
        match self.below(8) {
            0 | 1 => dispatch::DispatchEvent::Request {
                from: RequestNo(self.number()),
                by: self.some(Self::name),
                request: self.request(),
            },
            2 | 3 => dispatch::DispatchEvent::Worker {
                worker: self.worker(),
                session: self.session(),
                number: self.message_no(),
                messages: self.list(Self::worker_says),
            },
            4 => dispatch::DispatchEvent::Closed { worker: self.worker(), session: self.session() },
            5 => dispatch::DispatchEvent::Fetched {
                fetch: FetchNo(self.number()),
                found: self.list(Self::row),
            },
            6 => dispatch::DispatchEvent::Expired(self.list(|it| (it.seq(), it.id()))),
            _ => {
                let committed = dispatch::DispatchEvent::Committed(CommitNo(self.number()));
                self.one([committed, dispatch::DispatchEvent::Tick])
            }
        }
    }

    fn dispatch_effect(&mut self) -> dispatch::DispatchEffect {
        match self.below(6) {
            0 | 1 => dispatch::DispatchEffect::Commit {
                number: CommitNo(self.number()),
                mutations: self.list(Self::mutation),
            },
            2 => dispatch::DispatchEffect::Fetch {
                fetch: FetchNo(self.number()),
                ids: self.list(Self::id),
                keys: self.list(|it| QueueKey { queue: it.name(), key: it.name() }),
                seqs: self.list(Self::seq),
            },
            3 => dispatch::DispatchEffect::Send {
                after: self.some(|it| CommitNo(it.number())),
                worker: self.worker(),
                session: self.session(),
                messages: self.list(Self::server_says),
            },
            4 => dispatch::DispatchEffect::Reply {
                after: self.some(|it| CommitNo(it.number())),
                to: RequestNo(self.number()),
                answer: self.answer(),
            },
            _ => {
                dispatch::DispatchEffect::HangUp { worker: self.worker(), session: self.session() }
            }
        }
    }

    fn agent_event(&mut self) -> agent::AgentEvent {
        match self.below(8) {
            0 => agent::AgentEvent::Connected,
            1 => agent::AgentEvent::Disconnected,
            2 => agent::AgentEvent::Received {
                session: self.session(),
                number: self.message_no(),
                messages: self.list(Self::server_says),
            },
            3 => agent::AgentEvent::Ended(self.report()),
            4 => agent::AgentEvent::Progressed { hold: self.hold(), percent: self.number() as u8 },
            5 => agent::AgentEvent::Drain { grace: self.duration() },
            6 => agent::AgentEvent::Idle,
            _ => agent::AgentEvent::Tick,
        }
    }

    fn agent_effect(&mut self) -> agent::AgentEffect {
        use StopReason::{Cancelled, Drained, Fenced, TimedOut};
        match self.below(7) {
            0 => agent::AgentEffect::Connect { wait: self.duration() },
            1 => agent::AgentEffect::Disconnect { session: self.session() },
            2 => agent::AgentEffect::Send {
                worker: self.worker(),
                session: self.session(),
                number: self.message_no(),
                messages: self.list(Self::worker_says),
            },
            3 => agent::AgentEffect::Start(self.assignment()),
            4 => agent::AgentEffect::Stop {
                hold: self.hold(),
                why: self.one([Cancelled, TimedOut, Drained, Fenced]),
            },
            5 => agent::AgentEffect::Answered {
                hold: self.hold(),
                verdict: self.one([Verdict::Accepted, Verdict::Refused]),
            },
            _ => agent::AgentEffect::Leave,
        }
    }
}

/// Writes and reads one value, in a context that both sides share.
fn round<T: Readable + PartialEq + std::fmt::Debug>(value: &T, context: &Context) {
    let text = print(value, context);
    assert!(!text.contains('\n') && !text.contains("->"), "one line: {text}");
    match parse::<T>(&text, context) {
        Ok(read) => assert_eq!(&read, value, "{text}"),
        Err(error) => panic!("{error} in {text}"),
    }
}

fn round_and_learn<T: Traced + PartialEq + std::fmt::Debug>(value: &T, context: &mut Context) {
    round(value, context);
    value.learn(context);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// A server's and an agent's trace, line by line: a line may leave out facts that an earlier
    /// line gave.
    #[test]
    fn what_is_written_can_be_read(seed: u64) {
        let mut maker = Maker(seed);
        let (mut server, mut worker) = (Context::default(), Context::default());
        for _ in 0..12 {
            round_and_learn(&maker.dispatch_event(), &mut server);
            round_and_learn(&maker.dispatch_effect(), &mut server);
            round_and_learn(&maker.loaded(), &mut server);
            round(&maker.why(), &server);
            round(&maker.one([Steal::Half, Steal::One, Steal::Never]), &server);
            round_and_learn(&maker.agent_event(), &mut worker);
            round_and_learn(&maker.agent_effect(), &mut worker);
        }
    }

    /// Moments too, also when the wall clock jumps.
    #[test]
    fn moments_can_be_read(moments in proptest::collection::vec((any::<u64>(), any::<u64>()), 1..9)) {
        let (mut written, mut read) = (Context::default(), Context::default());
        for (monotonic, wall) in moments {
            let now = Now { monotonic: Monotonic(monotonic), wall: Wall(wall) };
            let line = print_line(now, "tick", &mut written);
            prop_assert_eq!(parse_line(&line, &mut read), Ok((now, "tick")));
        }
    }

    /// Bad input gets an error, never a panic.
    #[test]
    fn nonsense_is_refused(text in ".{0,80}") {
        let context = Context::default();
        let _ = parse::<dispatch::DispatchEvent>(&text, &context);
        let _ = parse::<dispatch::DispatchEffect>(&text, &context);
        let _ = parse::<agent::AgentEvent>(&text, &context);
        let _ = parse::<agent::AgentEffect>(&text, &context);
        let _ = parse_line(&text, &mut Context::default());
    }

    /// Also if the input is nearly valid.
    #[test]
    fn half_a_line_is_refused_or_read(seed: u64, cut in 0_usize..200) {
        let text = print(&Maker(seed).dispatch_event(), &Context::default());
        let half: String = text.chars().take(cut).collect();
        let _ = parse::<dispatch::DispatchEvent>(&half, &Context::default());
    }
}
