//! The server's engine, fed by hand: a store that confirms commits when the test lets it, and
//! workers that are only batches.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use filch_engine::server::{
    HangUp, HttpAsk, HttpClaim, HttpRefusal, HttpReply, HttpWorker, LinkNo, LinkScope,
    ServerAction, ServerEngine, ServerInput, Ticket,
};
use filch_scheduler::dispatch::{Answer, Dispatch, DispatchConfig, Limits, Request};
use filch_scheduler::id::{CommitNo, Fence, Hold, JobId, MessageNo, Seq, SessionNo, WorkerId};
use filch_scheduler::message::{
    Delivery, Ending, FromWorker, Hello, HelloKind, Report, Serves, ToWorker, WorkerBatch,
};
use filch_scheduler::name::Name;
use filch_scheduler::record::StoredText;
use filch_scheduler::spec::JobSpec;
use filch_scheduler::time::{Monotonic, Now, Wall};
use filch_store::{JobText, Memory, Store as _, Transient};

const ONE: WorkerId = WorkerId::apart(1);
const TWO: WorkerId = WorkerId::apart(2);

/// An engine, its store, and what it did.
struct Rig {
    engine: ServerEngine,
    now: Now,
    store: Transient,
    /// Inputs that come of actions.
    follow: VecDeque<ServerInput>,
    /// Commits that are not durable yet.
    commits: VecDeque<filch_store::Commit>,
    is_stalled: bool,
    sent: Vec<(LinkNo, Delivery, bool)>,
    hung_up: Vec<(LinkNo, HangUp)>,
    answers: Vec<(Ticket, Answer)>,
    lost_links: Vec<LinkNo>,
    /// Workers whose connections were announced to be over.
    disconnected: Vec<WorkerId>,
    released: Vec<Ticket>,
    responses: BTreeMap<Ticket, Result<HttpReply, HttpRefusal>>,
    asked: u64,
    numbers: BTreeMap<(WorkerId, SessionNo), u64>,
    jobs: u32,
}

impl Rig {
    fn new(config: DispatchConfig) -> Self {
        let now = Now { monotonic: Monotonic(0), wall: Wall(1_000) };
        let mut actions = Vec::new();
        let dispatch = Dispatch::new(config, now);
        let engine = ServerEngine::new(dispatch, Vec::new(), None, now, now, &mut actions);
        let mut rig = Self {
            engine,
            now,
            store: Transient::default(),
            follow: VecDeque::new(),
            commits: VecDeque::new(),
            is_stalled: false,
            sent: Vec::new(),
            hung_up: Vec::new(),
            answers: Vec::new(),
            lost_links: Vec::new(),
            disconnected: Vec::new(),
            released: Vec::new(),
            responses: BTreeMap::new(),
            asked: 0,
            numbers: BTreeMap::new(),
            jobs: 0,
        };
        rig.perform(actions);
        rig
    }

    fn feed(&mut self, input: ServerInput) {
        self.follow.push_back(input);
        loop {
            while let Some(input) = self.follow.pop_front() {
                let mut actions = Vec::new();
                self.engine.handle(self.now, input, &mut actions);
                self.perform(actions);
            }
            if self.is_stalled {
                return;
            }
            let Some(commit) = self.commits.pop_front() else { return };
            self.store.commit(&commit).expect("decisions can be stored");
            self.follow.push_back(ServerInput::Committed(commit.last));
        }
    }

    fn perform(&mut self, actions: Vec<ServerAction>) {
        for action in actions {
            match action {
                ServerAction::Commit(commit) => self.commits.push_back(commit),
                ServerAction::Fetch { fetch, ids, keys, seqs } => {
                    let found = self.store.find(&ids, &keys, &seqs).expect("memory can be read");
                    self.follow.push_back(ServerInput::Fetched { fetch, found });
                }
                ServerAction::ReadPayloads { link, jobs } => {
                    let texts =
                        self.store.texts(JobText::Payload, &jobs).expect("memory can be read");
                    self.follow.push_back(ServerInput::PayloadsRead { link, jobs, texts });
                }
                ServerAction::Send { link, .. } if self.lost_links.contains(&link) => {
                    self.follow.push_back(ServerInput::LinkClosed(link));
                }
                ServerAction::Send { link, delivery, tell } => {
                    self.sent.push((link, delivery, tell));
                }
                ServerAction::HangUp { link, why } => self.hung_up.push((link, why)),
                ServerAction::Answer { ticket, answer } => self.answers.push((ticket, answer)),
                ServerAction::Release(ticket) => self.released.push(ticket),
                ServerAction::Respond { ticket, response } => {
                    let before = self.responses.insert(ticket, response);
                    assert!(before.is_none(), "{ticket:?} is answered twice");
                }
                ServerAction::Disconnected { worker } => self.disconnected.push(worker),
                _ => {}
            }
        }
    }

    fn open(&mut self, link: u64, scope: LinkScope) -> LinkNo {
        self.feed(ServerInput::LinkOpened { link: LinkNo(link), scope });
        LinkNo(link)
    }

    fn say(&mut self, link: LinkNo, worker: WorkerId, session: u64, messages: Vec<FromWorker>) {
        let session = SessionNo(session);
        let number = self.numbers.entry((worker, session)).or_default();
        *number += 1;
        let number = MessageNo(*number);
        let batch = WorkerBatch { worker, session, number, messages };
        self.feed(ServerInput::Batch { link, batch });
    }

    fn hello(&mut self, link: LinkNo, worker: WorkerId, session: u64, hello: Hello) {
        self.say(link, worker, session, vec![FromWorker::Hello(hello)]);
    }

    fn submit(&mut self, count: usize, queue: &str, bytes: usize) -> Vec<JobId> {
        let payload = StoredText::from(format!("\"{}\"", "x".repeat(bytes)));
        let mut ids = Vec::new();
        let jobs = (0..count).map(|_| {
            self.jobs += 1;
            let id = JobId::named(&format!("j{}", self.jobs), Wall(1)).expect("a short name");
            ids.push(id);
            JobSpec { queue: Name::from(queue), payload: Some(payload.clone()), ..JobSpec::new(id) }
        });
        let request = Request::Submit(jobs.collect());
        self.feed(ServerInput::Request { ticket: Ticket(0), by: None, request });
        ids
    }

    /// A request over plain HTTP, of this process with this token.
    fn ask(&mut self, instance: &str, scope: LinkScope, ask: HttpAsk) -> Ticket {
        self.asked += 1;
        let ticket = Ticket(1_000 + self.asked);
        let from = HttpWorker { worker: ONE, instance: instance.into(), scope };
        self.feed(ServerInput::Ask { ticket, from, ask });
        ticket
    }

    #[track_caller]
    fn refusal(&self, ticket: Ticket) -> &HttpRefusal {
        self.responses[&ticket].as_ref().expect_err("it is refused")
    }

    /// The jobs of an answered claim.
    #[track_caller]
    fn claimed(&self, ticket: Ticket) -> Vec<Hold> {
        match &self.responses[&ticket] {
            Ok(HttpReply::Claimed { jobs, .. }) => jobs.iter().map(|(job, _)| job.hold).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn wait(&mut self, span: Duration) {
        self.now.monotonic = self.now.monotonic.plus(span);
        self.now.wall = Wall(self.now.wall.0 + span.as_millis() as u64);
    }

    /// The jobs that were sent over a link so far.
    fn assigned(&self, link: LinkNo) -> Vec<Hold> {
        let over = self.sent.iter().filter(|(over, ..)| *over == link);
        over.flat_map(|(_, delivery, _)| holds(delivery)).collect()
    }

    fn lost(&self) -> u64 {
        self.engine.dispatch().counters().lost
    }
}

fn holds(delivery: &Delivery) -> Vec<Hold> {
    let jobs = delivery.messages.iter().flat_map(|message| match message {
        ToWorker::Assign(jobs) => jobs.as_slice(),
        _ => &[],
    });
    jobs.map(|job| job.hold).collect()
}

fn new(slots: u32) -> Hello {
    Hello {
        kind: HelloKind::New,
        slots,
        want: slots,
        serves: Serves::All,
        reports: Vec::new(),
        started: Vec::new(),
        holds: Vec::new(),
    }
}

fn token(id: &str, queues: &[&str]) -> LinkScope {
    let queues = queues.iter().map(|queue| Name::from(*queue)).collect::<Vec<_>>();
    LinkScope {
        token: Some(Arc::from(id)),
        queues: (!queues.is_empty()).then(|| queues.into()),
        is_embedded: false,
    }
}

#[test]
fn a_success_that_a_successor_reports_keeps_its_result_and_log() {
    let mut rig = Rig::new(DispatchConfig::default());
    let link = rig.open(1, LinkScope::default());
    rig.hello(link, ONE, 1, new(1));
    let id = rig.submit(1, "default", 1)[0];
    let hold = rig.assigned(link)[0];
    rig.feed(ServerInput::LinkClosed(link));
    let link = rig.open(2, LinkScope::default());
    let report = Report {
        hold,
        ending: Ending::Finished,
        result: Some("{\"answer\":42}".into()),
        log: Some("done".into()),
    };
    let hello = Hello { kind: HelloKind::Replace(ONE), reports: vec![report], ..new(1) };
    rig.hello(link, TWO, 1, hello);
    let history = rig.store.history(id).unwrap().unwrap();
    assert_eq!(history.outputs[0].result.as_deref(), Some("{\"answer\":42}"));
    assert_eq!(history.outputs[0].log.as_deref(), Some("done"));
}

#[test]
fn a_worker_that_reports_in_parts_disconnects_once() {
    let mut rig = Rig::new(DispatchConfig::default());
    let link = rig.open(1, LinkScope::default());
    rig.hello(link, ONE, 1, new(1));
    rig.feed(ServerInput::LinkClosed(link));
    assert_eq!(rig.disconnected, [ONE]);
    for (session, kind) in [HelloKind::ReportFor(ONE); 3].into_iter().enumerate() {
        let (link, session) = (rig.open(session as u64 + 2, LinkScope::default()), session + 1);
        rig.hello(link, TWO, session as u64, Hello { kind, ..new(1) });
        rig.feed(ServerInput::LinkClosed(link));
    }
    assert_eq!(rig.disconnected, [ONE]);
    let link = rig.open(9, LinkScope::default());
    rig.hello(link, TWO, 9, Hello { kind: HelloKind::Replace(ONE), ..new(1) });
    rig.feed(ServerInput::LinkClosed(link));
    assert_eq!(rig.disconnected, [ONE, TWO]);
}

#[test]
fn three_thousand_workers_vanish_beside_an_idle_thief() {
    const WORKERS: u64 = 3_000;
    let mut rig = Rig::new(DispatchConfig::default());
    for number in 1..=WORKERS {
        let link = rig.open(number, LinkScope::default());
        rig.hello(link, WorkerId::apart(number), 1, Hello { want: 4, ..new(1) });
    }
    rig.submit(WORKERS as usize * 4, "default", 1);
    // Nothing says so yet, but every connection is broken: each attempt to send finds out.
    rig.lost_links = (1..=WORKERS).map(LinkNo).collect();
    let thief = rig.open(WORKERS + 1, LinkScope::default());
    rig.hello(thief, WorkerId::apart(WORKERS + 1), 1, Hello { want: 4, ..new(4) });
    for _ in 0..WORKERS {
        // A question that is not answered goes to the next victim.
        rig.wait(Duration::from_millis(25));
        rig.feed(ServerInput::Tick);
    }
    let connected = rig.engine.dispatch().worker_views().filter(|view| view.connected).count();
    assert!(connected < WORKERS as usize, "{connected}");
}

#[test]
fn one_connection_is_one_worker_at_a_time() {
    let mut rig = Rig::new(DispatchConfig::default());
    let link = rig.open(1, LinkScope::default());
    for number in 1..=1_200 {
        rig.hello(link, WorkerId::apart(number), 1, new(1));
    }
    let connected = rig.engine.dispatch().worker_views().filter(|view| view.connected).count();
    assert_eq!(connected, 1);
    rig.feed(ServerInput::LinkClosed(link));
    assert!(rig.engine.dispatch().worker_views().all(|view| !view.connected));
}

#[test]
fn another_connection_cannot_speak_in_the_session_of_a_worker() {
    let mut rig = Rig::new(DispatchConfig::default());
    let link = rig.open(1, LinkScope::default());
    rig.hello(link, ONE, 5, new(1));
    rig.submit(1, "default", 1);
    let hold = rig.assigned(link)[0];
    let stranger = rig.open(2, LinkScope::default());
    let report = Report::plain(hold, Ending::Finished);
    rig.say(stranger, ONE, 5, vec![FromWorker::Report(report)]);
    assert!(matches!(rig.hung_up[..], [(LinkNo(2), HangUp::Invalid(_))]), "{:?}", rig.hung_up);
    assert!(rig.engine.dispatch().is_held(ONE, hold));
}

#[test]
fn a_full_server_takes_heartbeats_and_reports_and_loses_nobody() {
    let limits = Limits { unreceipted: 8, ..Limits::default() };
    let lease = Duration::from_secs(10);
    let mut rig = Rig::new(DispatchConfig { limits, lease, ..DispatchConfig::default() });
    let link = rig.open(1, LinkScope::default());
    rig.hello(link, ONE, 1, new(2));
    rig.submit(1, "default", 1);
    let hold = rig.assigned(link)[0];
    rig.is_stalled = true;
    rig.submit(20, "default", 1);
    assert!(!rig.engine.takes_requests());
    let sent = rig.sent.len();
    for second in 0..60 {
        rig.wait(Duration::from_secs(1));
        rig.say(link, ONE, 1, vec![FromWorker::Heartbeat]);
        let renewed = &rig.sent[sent + second].1.messages;
        assert!(matches!(renewed[..], [ToWorker::Renewed(_)]), "{renewed:?}");
    }
    rig.say(link, ONE, 1, vec![FromWorker::Report(Report::plain(hold, Ending::Finished))]);
    assert_eq!(rig.lost(), 0);
    // Without a word from the worker, too: the server could not have heard it.
    for _ in 0..60 {
        rig.wait(Duration::from_secs(1));
        rig.feed(ServerInput::Tick);
    }
    assert_eq!(rig.lost(), 0);
    rig.is_stalled = false;
    rig.feed(ServerInput::Tick);
    assert!(rig.engine.takes_requests() && rig.engine.is_settled());
    assert_eq!(rig.store.memory().job(hold.job).map(|row| row.now.state.is_ended()), Some(true));
}

#[test]
fn assignments_are_sent_in_batches_of_bounded_size() {
    const JOBS: usize = 190;
    let mut rig = Rig::new(DispatchConfig::default());
    rig.submit(JOBS, "default", 1 << 20);
    let link = rig.open(1, LinkScope::default());
    rig.hello(link, ONE, 1, new(JOBS as u32));
    let mut batches = 0;
    let mut heartbeats = 0;
    while rig.assigned(link).len() < JOBS {
        let bytes: usize =
            rig.sent.iter().flat_map(|it| &it.1.works).map(|work| work.1.len()).sum();
        assert!(bytes <= (batches + 1) * (5 << 20), "{bytes} bytes after {batches} batches");
        // A renewal does not wait behind them.
        rig.say(link, ONE, 1, vec![FromWorker::Heartbeat]);
        let last = &rig.sent.last().expect("something was sent").1.messages;
        assert!(matches!(last[..], [ToWorker::Renewed(_)]), "{last:?}");
        heartbeats += 1;
        assert!(rig.sent.iter().any(|(_, _, tell)| *tell));
        rig.feed(ServerInput::Sent(link));
        batches += 1;
    }
    assert!(batches > 40 && heartbeats == batches, "{batches}");
    let numbers: Vec<u64> = rig.sent.iter().map(|(_, delivery, _)| delivery.number.0).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    for (_, delivery, _) in &rig.sent {
        let works: Vec<Hold> = delivery.works.iter().map(|(hold, _)| *hold).collect();
        assert_eq!(works, holds(delivery));
    }
}

#[test]
fn a_worker_id_belongs_to_the_token_that_introduced_it() {
    let mut rig = Rig::new(DispatchConfig::default());
    let link = rig.open(1, token("mail", &["mail"]));
    rig.hello(link, ONE, 1, new(1));
    rig.submit(1, "mail", 1);
    let hold = rig.assigned(link)[0];
    rig.feed(ServerInput::LinkClosed(link));
    let resume = || Hello { kind: HelloKind::Resume, holds: vec![hold], ..new(1) };
    for (number, scope) in [(2, token("other", &["mail"])), (3, token("wide", &[]))] {
        let link = rig.open(number, scope);
        rig.hello(link, ONE, number, resume());
        let (refused, why) = rig.hung_up.last().expect("it is refused");
        assert_eq!(*refused, link);
        assert!(matches!(why, HangUp::NotPermitted(_)), "{why:?}");
        assert!(rig.assigned(link).is_empty());
    }
    // In place of it is no better.
    let link = rig.open(4, token("other", &["mail"]));
    rig.hello(link, TWO, 1, Hello { kind: HelloKind::Replace(ONE), ..new(1) });
    assert_eq!(rig.hung_up.last().map(|(link, _)| *link), Some(LinkNo(4)));
    assert!(rig.engine.dispatch().is_held(ONE, hold));
    // Its own token is as good as before, and another one once this one is no longer valid.
    let link = rig.open(5, token("mail", &["mail"]));
    rig.hello(link, ONE, 5, resume());
    rig.feed(ServerInput::TokenEnded("mail".into()));
    let link = rig.open(6, token("renewed", &["mail"]));
    rig.hello(link, ONE, 6, resume());
    assert_eq!(rig.hung_up.last(), Some(&(LinkNo(5), HangUp::Over)));
}

#[test]
fn a_narrowed_token_speaks_only_of_jobs_of_its_queues() {
    let mut rig = Rig::new(DispatchConfig::default());
    let link = rig.open(1, token("all", &[]));
    rig.hello(link, ONE, 1, new(1));
    rig.submit(1, "bank", 1);
    let hold = rig.assigned(link)[0];
    let narrow = rig.open(2, token("mail", &["mail"]));
    rig.hello(narrow, TWO, 1, new(1));
    let served = rig.engine.dispatch().worker_views().find(|view| view.id == TWO);
    assert_eq!(served.expect("it is known").queues, Some(vec![Name::from("mail")]));
    rig.say(narrow, TWO, 1, vec![FromWorker::Report(Report::plain(hold, Ending::Finished))]);
    assert!(matches!(rig.hung_up[..], [(LinkNo(2), HangUp::NotPermitted(_))]));
    let narrow = rig.open(3, token("mail", &["mail"]));
    rig.hello(narrow, TWO, 2, Hello { serves: Serves::Named(vec!["bank".into()]), ..new(1) });
    assert_eq!(rig.hung_up.len(), 2);
    assert!(rig.engine.dispatch().is_held(ONE, hold));
}

#[test]
fn a_read_waits_until_what_it_saw_is_durable() {
    let mut rig = Rig::new(DispatchConfig::default());
    rig.feed(ServerInput::Barrier { ticket: Ticket(1) });
    assert_eq!(rig.released, [Ticket(1)]);
    rig.is_stalled = true;
    rig.submit(1, "default", 1);
    rig.feed(ServerInput::Barrier { ticket: Ticket(2) });
    assert_eq!((rig.released.len(), rig.answers.len()), (1, 0));
    rig.is_stalled = false;
    rig.feed(ServerInput::Tick);
    assert_eq!((rig.released.len(), rig.answers.len()), (2, 1));
    assert_eq!(rig.engine.dispatch().last_commit(), CommitNo(1));
    assert_eq!(Memory::last_commit(&rig.store.memory()), CommitNo(1));
}

fn claim(number: u64, holds: &[Hold], wait: Duration) -> HttpAsk {
    let holds = holds.to_vec();
    HttpAsk::Claim(HttpClaim { number, slots: 4, serves: Serves::All, holds, wait })
}

fn heartbeat(holds: &[Hold]) -> HttpAsk {
    HttpAsk::Heartbeat { holds: holds.to_vec(), stopping: Vec::new() }
}

#[test]
fn a_worker_over_plain_http_claims_runs_and_reports() {
    let mut rig = Rig::new(DispatchConfig::default());
    let scope = LinkScope::default();
    let waiting = rig.ask("a", scope.clone(), claim(1, &[], Duration::from_secs(5)));
    assert!(rig.responses.is_empty());
    // More than a batch has.
    let id = rig.submit(3, "default", 3 << 20)[0];
    let holds = rig.claimed(waiting);
    assert_eq!(holds.len(), 3);
    let answer = rig.ask("a", scope.clone(), heartbeat(&holds));
    assert!(
        matches!(&rig.responses[&answer], Ok(HttpReply::HeartbeatDone { keep, .. }) if *keep == holds)
    );
    rig.is_stalled = true;
    let report = Report { result: Some("7".into()), ..Report::plain(holds[0], Ending::Finished) };
    let reported = rig.ask("a", scope.clone(), HttpAsk::Report(vec![report]));
    assert!(!rig.responses.contains_key(&reported), "it is not durable yet");
    rig.is_stalled = false;
    rig.feed(ServerInput::Tick);
    let accepted = HttpReply::Answered { accepted: vec![holds[0]], refused: Vec::new() };
    assert_eq!(rig.responses[&reported], Ok(accepted));
    let history = rig.store.history(id).unwrap().unwrap();
    assert_eq!(history.outputs[0].result.as_deref(), Some("7"));
    let left = rig.ask("a", scope, HttpAsk::Goodbye);
    assert_eq!(rig.responses[&left], Ok(HttpReply::Done));
    assert_eq!(rig.engine.http_worker_count(), 0);
    assert!(rig.sent.is_empty() && rig.hung_up.is_empty(), "its link ends in the engine");
}

#[test]
fn a_claim_over_plain_http_ends_after_its_wait() {
    let mut rig = Rig::new(DispatchConfig::default());
    let waiting = rig.ask("a", LinkScope::default(), claim(1, &[], Duration::from_millis(300)));
    let deadline = rig.engine.next_deadline();
    assert_eq!(deadline, rig.now.monotonic.plus(Duration::from_millis(300)));
    rig.now.monotonic = deadline;
    rig.feed(ServerInput::Tick);
    assert!(rig.claimed(waiting).is_empty());
}

#[test]
fn a_second_process_with_the_same_id_is_refused() {
    let mut rig = Rig::new(DispatchConfig::default());
    let scope = LinkScope::default;
    rig.submit(2, "default", 1);
    let first = rig.ask("a", scope(), claim(1, &[], Duration::ZERO));
    assert_eq!(rig.claimed(first).len(), 2);
    for ask in [claim(1, &[], Duration::ZERO), heartbeat(&[]), HttpAsk::Goodbye] {
        let other = rig.ask("b", scope(), ask);
        assert_eq!(*rig.refusal(other), HttpRefusal::IdInUse);
    }
}

/// What a process over plain HTTP is, is not stored: after a restart of the server, a process with
/// an id that holds jobs must not get them.
#[test]
fn the_first_claim_of_a_process_whose_id_has_jobs_is_refused() {
    let mut rig = Rig::new(DispatchConfig::default());
    let link = rig.open(1, LinkScope::default());
    rig.hello(link, ONE, 70, new(1));
    rig.submit(1, "default", 1);
    let hold = rig.assigned(link)[0];
    rig.feed(ServerInput::LinkClosed(link));
    let other = rig.ask("b", LinkScope::default(), claim(1, &[], Duration::ZERO));
    assert_eq!(*rig.refusal(other), HttpRefusal::IdInUse);
    // The process that has claimed before may not have got the response.
    let own = rig.ask("a", LinkScope::default(), claim(2, &[], Duration::ZERO));
    assert_eq!(rig.claimed(own), [hold]);
}

/// As after a restart of the server: the scheduler knows what the worker holds, the session does
/// not.
#[test]
fn a_worker_over_plain_http_keeps_jobs_that_only_the_scheduler_knows() {
    let mut rig = Rig::new(DispatchConfig::default());
    let link = rig.open(1, LinkScope::default());
    rig.hello(link, ONE, 1, new(2));
    rig.submit(2, "default", 1);
    let [kept, unread] = rig.assigned(link)[..] else { panic!("two jobs, two slots") };
    rig.feed(ServerInput::LinkClosed(link));
    let answer = rig.ask("a", LinkScope::default(), heartbeat(&[kept]));
    assert!(
        matches!(&rig.responses[&answer], Ok(HttpReply::HeartbeatDone { keep, .. }) if *keep == [kept])
    );
    let report = HttpAsk::Report(vec![Report::plain(kept, Ending::Finished)]);
    let reported = rig.ask("a", LinkScope::default(), report);
    let accepted = HttpReply::Answered { accepted: vec![kept], refused: Vec::new() };
    assert_eq!(rig.responses[&reported], Ok(accepted));
    // The response with the other job was lost with the server.
    let claimed = rig.ask("a", LinkScope::default(), claim(2, &[], Duration::ZERO));
    assert_eq!(rig.claimed(claimed), [unread], "under the same fence");
}

#[test]
fn a_worker_over_plain_http_may_change_its_token_once_the_old_one_has_ended() {
    let mut rig = Rig::new(DispatchConfig::default());
    let (old, renewed) = (|| token("old", &["mail"]), || token("new", &["mail"]));
    rig.submit(1, "mail", 1);
    let first = rig.ask("a", old(), claim(1, &[], Duration::ZERO));
    let holds = rig.claimed(first);
    let early = rig.ask("a", renewed(), heartbeat(&holds));
    assert_eq!(*rig.refusal(early), HttpRefusal::WrongToken);
    let waiting = rig.ask("a", old(), claim(2, &holds, Duration::from_secs(5)));
    rig.feed(ServerInput::TokenEnded("old".into()));
    assert_eq!(*rig.refusal(waiting), HttpRefusal::TokenEnded);
    // Meanwhile it gets no jobs.
    rig.submit(1, "mail", 1);
    let other = rig.ask("b", renewed(), heartbeat(&holds));
    assert_eq!(*rig.refusal(other), HttpRefusal::IdInUse, "still only for its own process");
    let answer = rig.ask("a", renewed(), heartbeat(&holds));
    assert!(
        matches!(&rig.responses[&answer], Ok(HttpReply::HeartbeatDone { keep, .. }) if *keep == holds)
    );
    let again = rig.ask("a", renewed(), claim(2, &holds, Duration::ZERO));
    assert_eq!(rig.claimed(again).len(), 1);
    let late = rig.ask("a", old(), heartbeat(&holds));
    assert_eq!(*rig.refusal(late), HttpRefusal::WrongToken);
}

#[test]
fn a_narrowed_token_claims_only_from_its_queues() {
    let mut rig = Rig::new(DispatchConfig::default());
    rig.submit(1, "bank", 1);
    rig.submit(1, "mail", 1);
    let narrow = || token("mail", &["mail"]);
    let serves = Serves::Named(vec!["bank".into()]);
    let wanted = HttpClaim { number: 1, slots: 4, serves, holds: Vec::new(), wait: Duration::ZERO };
    let foreign = rig.ask("a", narrow(), HttpAsk::Claim(wanted));
    assert_eq!(*rig.refusal(foreign), HttpRefusal::WrongQueue("bank".into()));
    let all = rig.ask("a", narrow(), claim(1, &[], Duration::ZERO));
    assert_eq!(rig.claimed(all).len(), 1);
}

#[test]
fn workers_on_closed_connections_are_not_remembered_for_ever() {
    const IDS: u64 = 200_000;
    let mut rig = Rig::new(DispatchConfig::default());
    let most = DispatchConfig::default().limits.absent;
    // One that holds a job is remembered until its lease is over.
    let link = rig.open(0, token("work", &[]));
    rig.submit(1, "default", 1);
    rig.hello(link, WorkerId::apart(IDS + 1), 1, new(1));
    let hold = rig.assigned(link)[0];
    rig.feed(ServerInput::LinkClosed(link));
    for number in 1..=IDS {
        let link = rig.open(number, token("work", &[]));
        rig.hello(link, WorkerId::apart(number), 1, new(1));
        rig.feed(ServerInput::LinkClosed(link));
        rig.sent.clear();
        rig.disconnected.clear();
        rig.numbers.clear();
    }
    assert!(rig.engine.dispatch().is_held(WorkerId::apart(IDS + 1), hold));
    let known = rig.engine.dispatch().worker_views().count();
    assert!(known <= most + 1, "{known} workers");
    let entries = rig.engine.worker_entries();
    assert!(entries <= 2 * most, "{entries} entries");
}

#[test]
fn leases_are_renewed_only_while_the_ownership_is_confirmed() {
    let second = Duration::from_secs(1);
    let mut rig = Rig::new(DispatchConfig::default());
    rig.engine.bind_to_ownership(10 * second);
    let link = rig.open(1, LinkScope::default());
    let renewed = |rig: &mut Rig| {
        let sent = rig.sent.drain(..).flat_map(|(_, delivery, _)| delivery.messages);
        let number = |message| match message {
            ToWorker::Renewed(number) => Some(number.0),
            _ => None,
        };
        sent.filter_map(number).collect::<Vec<_>>()
    };
    rig.hello(link, ONE, 1, new(1));
    assert_eq!(renewed(&mut rig), [1]);
    rig.wait(6 * second);
    rig.say(link, ONE, 1, vec![FromWorker::Heartbeat]);
    assert_eq!(renewed(&mut rig), [2]);
    // From 7 s on it may be that another server owns the store.
    rig.wait(second);
    rig.say(link, ONE, 1, vec![FromWorker::Heartbeat]);
    rig.say(link, ONE, 1, vec![FromWorker::Heartbeat]);
    assert_eq!(renewed(&mut rig), []);
    // An answer counts from the question.
    let asked = rig.now.monotonic;
    rig.wait(8 * second);
    rig.feed(ServerInput::Owned { asked });
    assert_eq!(renewed(&mut rig), []);
    rig.feed(ServerInput::Owned { asked: asked.plus(5 * second) });
    assert_eq!(renewed(&mut rig), [4], "the newest is enough");
    // While the whole process is suspended, another one can take over.
    rig.wait(60 * second);
    rig.say(link, ONE, 1, vec![FromWorker::Heartbeat]);
    assert_eq!(renewed(&mut rig), []);
    rig.feed(ServerInput::Owned { asked: rig.now.monotonic });
    assert_eq!(renewed(&mut rig), [5]);
}

#[test]
fn responses_over_plain_http_renew_leases_only_while_the_ownership_is_confirmed() {
    let second = Duration::from_secs(1);
    let mut rig = Rig::new(DispatchConfig::default());
    rig.engine.bind_to_ownership(10 * second);
    let scope = LinkScope::default();
    let first = rig.ask("a", scope.clone(), claim(1, &[], Duration::ZERO));
    assert!(rig.responses.contains_key(&first));
    rig.wait(8 * second);
    let unknown = Hold { job: Seq(99), fence: Fence(1) };
    let asks = [
        claim(2, &[], Duration::ZERO),
        heartbeat(&[]),
        HttpAsk::Report(vec![Report::plain(unknown, Ending::Finished)]),
    ];
    let tickets = asks.map(|ask| rig.ask("a", scope.clone(), ask));
    assert!(tickets.iter().all(|ticket| !rig.responses.contains_key(ticket)));
    rig.feed(ServerInput::Owned { asked: rig.now.monotonic });
    assert!(tickets.iter().all(|ticket| rig.responses[ticket].is_ok()), "{:?}", rig.responses);
}

#[test]
fn a_session_number_that_leaves_no_room_for_the_next_is_refused() {
    let mut rig = Rig::new(DispatchConfig::default());
    let link = rig.open(1, LinkScope::default());
    rig.hello(link, ONE, u64::MAX, new(1));
    let why = "the session number is too large";
    assert_eq!(rig.hung_up, [(link, HangUp::Invalid(why))]);
    let ticket = rig.ask("a", LinkScope::default(), claim(1, &[], Duration::ZERO));
    assert!(rig.responses[&ticket].is_ok());
}
