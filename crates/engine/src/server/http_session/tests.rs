//! Tests of HTTP sessions, without a network and without a scheduler.

use filch_scheduler::id::{CommitNo, JobId, MessageNo, QuestionNo, Seq, SessionNo};
use filch_scheduler::message::{Again, Ending, Placement, Suspects};

use super::*;

const LEASE: Duration = Duration::from_secs(10);

/// An HTTP session, the time, and its effects since the last look.
struct Player {
    http_session: HttpSession,
    now: Monotonic,
    tickets: u64,
    effects: Vec<HttpEffect>,
    responses: BTreeMap<Ticket, HttpResponse>,
}

impl Player {
    fn new() -> Self {
        Self::holding(&[])
    }

    /// One that the scheduler knows to have these jobs.
    fn holding(held: &[Hold]) -> Self {
        let now = Monotonic(0);
        Self {
            http_session: HttpSession::new(now, LEASE, held.to_vec()),
            now,
            tickets: 0,
            effects: Vec::new(),
            responses: BTreeMap::new(),
        }
    }

    /// One that has claimed and was reconciled.
    fn claiming(wait: Duration) -> (Self, Ticket) {
        let mut player = Self::new();
        let ticket = player.claim(1, &[], wait);
        player.hear(vec![reconcile(&[])]);
        (player, ticket)
    }

    fn handle(&mut self, event: HttpEvent) {
        for effect in self.http_session.handle(self.now, event) {
            if let HttpEffect::Respond(ticket, response) = effect {
                let before = self.responses.insert(ticket, response);
                assert!(before.is_none(), "{ticket:?} is answered twice");
            } else {
                self.effects.push(effect);
            }
        }
    }

    fn ask(&mut self, ask: HttpAsk) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.handle(HttpEvent::Asked(Call { ask, ticket }));
        ticket
    }

    fn claim(&mut self, number: u64, holds: &[Hold], wait: Duration) -> Ticket {
        self.ask(claim(number, 2, holds, wait))
    }

    fn heartbeat(&mut self, holds: &[Hold]) -> Ticket {
        self.ask(HttpAsk::Heartbeat { holds: holds.to_vec(), stopping: Vec::new() })
    }

    /// What comes after a commit comes after the renewal.
    fn hear(&mut self, messages: Vec<ToWorker>) {
        let is_answer =
            |it: &ToWorker| matches!(it, ToWorker::Accepted(_) | ToWorker::Refused { .. });
        if messages.iter().any(is_answer) {
            self.deliver(vec![ToWorker::Renewed(MessageNo(self.http_session.said))]);
        }
        self.deliver(messages);
    }

    fn deliver(&mut self, messages: Vec<ToWorker>) {
        let assigned = messages.iter().flat_map(|message| match message {
            ToWorker::Assign(jobs) => jobs.as_slice(),
            _ => &[],
        });
        let works = assigned.map(|job| (job.hold, StoredText::from("{}"))).collect();
        let (session, number) = (SessionNo(1), MessageNo(1));
        let delivery = Delivery { session, number, messages, works, grace: None };
        self.handle(HttpEvent::Heard(delivery));
    }

    /// Everything that was asked to be settled is.
    fn settle(&mut self) {
        for number in self.effects.iter().filter_map(settled).collect::<Vec<_>>() {
            self.settled(number);
        }
    }

    /// What was said is renewed and durable.
    fn settled(&mut self, number: u64) {
        self.deliver(vec![ToWorker::Renewed(MessageNo(self.http_session.said))]);
        self.handle(HttpEvent::Settled(number));
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now.plus(span);
        self.handle(HttpEvent::Tick);
    }

    /// Messages and requests since the last look, in short form.
    fn said(&mut self) -> Vec<String> {
        self.effects.drain(..).flat_map(words).collect()
    }

    fn is_open(&self, ticket: Ticket) -> bool {
        !self.responses.contains_key(&ticket)
    }

    /// The jobs of an answered claim.
    #[track_caller]
    fn brought(&self, ticket: Ticket) -> Vec<u64> {
        match self.responses.get(&ticket).expect("it is answered") {
            Ok(HttpReply::Claimed { jobs, .. }) => {
                jobs.iter().map(|(job, _)| job.hold.job.0).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refusal(&self, ticket: Ticket) -> &HttpRefusal {
        let response = self.responses.get(&ticket).expect("it is answered");
        response.as_ref().expect_err("it is refused")
    }
}

fn claim(number: u64, slots: u32, holds: &[Hold], wait: Duration) -> HttpAsk {
    let (serves, holds) = (Serves::All, holds.to_vec());
    HttpAsk::Claim(HttpClaim { number, slots, serves, holds, wait })
}

const fn hold(job: u64, fence: u64) -> Hold {
    Hold { job: Seq(job), fence: Fence(fence) }
}

fn settled(effect: &HttpEffect) -> Option<u64> {
    if let HttpEffect::Settle(number) = effect { Some(*number) } else { None }
}

fn words(effect: HttpEffect) -> Vec<String> {
    let job = |hold: Hold| format!("{}.{}", hold.job.0, hold.fence.0);
    let jobs = |jobs: &[Hold]| jobs.iter().copied().map(job).collect::<Vec<_>>().join(" ");
    match effect {
        HttpEffect::Open(hello) => {
            let kind = match hello.kind {
                HelloKind::New => "new",
                HelloKind::Resume => "resume",
                HelloKind::Replace(_) => "replace",
                HelloKind::ReportFor(_) => "report-for",
            };
            let reports = hello.reports.len();
            let holds = jobs(&hello.holds);
            vec![format!("hello {kind} want {} reports {reports} [{holds}]", hello.want)]
        }
        HttpEffect::Say(messages) => {
            let word = |message| match message {
                FromWorker::Heartbeat => "heartbeat".to_owned(),
                FromWorker::Want(count) => format!("want {count}"),
                FromWorker::Start(hold) => format!("start {}", job(hold)),
                FromWorker::Started(hold) => format!("started {}", job(hold)),
                FromWorker::Report(report) => match report.ending {
                    Ending::Dropped => format!("dropped {}", job(report.hold)),
                    other => format!("{other:?} {}", job(report.hold)),
                },
                FromWorker::Given { question, jobs: given } => {
                    format!("given {} [{}]", question.0, jobs(&given))
                }
                FromWorker::Stopping(hold) => format!("stopping {}", job(hold)),
                FromWorker::Goodbye => "goodbye".to_owned(),
                other => format!("{other:?}"),
            };
            messages.into_iter().map(word).collect()
        }
        HttpEffect::Settle(_) => vec!["settle".to_owned()],
        HttpEffect::Respond(..) => Vec::new(),
        HttpEffect::Leave => vec!["leave".to_owned()],
    }
}

fn reconcile(keep: &[Hold]) -> ToWorker {
    ToWorker::Reconcile { lease: LEASE, keep: keep.to_vec() }
}

fn assigned(job: u64, fence: u64, start: StartMode) -> Assignment {
    Assignment {
        hold: hold(job, fence),
        id: JobId(7),
        queue: "q".into(),
        kind: "k".into(),
        era: CommitNo(0),
        rank: 0,
        attempt: 1,
        start,
        place: Placement::Anywhere,
        timeout: None,
    }
}

fn assign(jobs: &[u64]) -> ToWorker {
    ToWorker::Assign(jobs.iter().map(|&job| assigned(job, 1, StartMode::Freely)).collect())
}

#[test]
fn jobs_are_wanted_only_while_a_claim_waits() {
    let (mut player, claim) = Player::claiming(LEASE);
    assert_eq!(player.said(), ["hello new want 0 reports 0 []", "want 2"]);
    player.hear(vec![assign(&[7, 8])]);
    assert_eq!(player.said(), ["want 0", "settle"]);
    player.settled(1);
    assert_eq!(player.brought(claim), [7, 8]);
}

#[test]
fn a_claim_without_waiting_gets_jobs_that_are_decided_at_once() {
    let (mut player, claim) = Player::claiming(Duration::ZERO);
    player.hear(vec![assign(&[7])]);
    player.settle();
    assert_eq!(player.brought(claim), [7]);
    assert_eq!(player.said()[1..], ["want 2", "want 0", "settle"]);
}

#[test]
fn a_claim_of_a_silent_worker_ends_after_a_quarter_of_a_lease() {
    let (mut player, claim) = Player::claiming(LEASE);
    player.pass(LEASE / SILENCE - Duration::from_millis(1));
    assert!(!player.said().contains(&"want 0".to_owned()));
    // After another heartbeat, the claim goes on waiting.
    player.heartbeat(&[]);
    player.pass(LEASE / SILENCE - Duration::from_millis(1));
    assert!(player.is_open(claim));
    player.pass(Duration::from_millis(1));
    player.settle();
    assert_eq!(player.brought(claim), [0; 0]);
}

#[test]
fn a_heartbeat_is_answered_once_the_scheduler_has_received_it() {
    let (mut player, _) = Player::claiming(LEASE);
    let heartbeat = player.heartbeat(&[]);
    player.hear(vec![ToWorker::Renewed(MessageNo(2))]);
    assert!(player.is_open(heartbeat), "that was the claim");
    player.hear(vec![ToWorker::Renewed(MessageNo(3))]);
    assert!(matches!(player.responses[&heartbeat], Ok(HttpReply::HeartbeatDone { .. })));
}

#[test]
fn a_heartbeat_that_crosses_a_response_takes_nothing_away() {
    let (mut player, first) = Player::claiming(Duration::ZERO);
    player.hear(vec![assign(&[7])]);
    player.settle();
    assert_eq!(player.brought(first), [7]);
    player.said();
    player.heartbeat(&[]);
    assert_eq!(player.said(), ["heartbeat"]);
    // The next claim does: jobs of the last response, which never arrived, are assigned again.
    let again = player.claim(2, &[], Duration::ZERO);
    player.settle();
    assert_eq!(player.brought(again), [7]);
    // Jobs of an older response are not, because the worker has read that one.
    let held = player.claim(3, &[hold(7, 1)], Duration::ZERO);
    player.settle();
    assert_eq!(player.brought(held), [0; 0]);
    player.said();
    player.claim(4, &[], Duration::ZERO);
    assert_eq!(player.said()[0], "dropped 7.1");
}

#[test]
fn a_suspect_is_assigned_once_its_start_is_granted() {
    let (mut player, claim) = Player::claiming(LEASE);
    player.said();
    player.hear(vec![ToWorker::Assign(vec![assigned(7, 1, StartMode::Confirmed)])]);
    assert_eq!(player.said(), ["start 7.1", "want 0", "settle"]);
    assert!(player.is_open(claim));
    player.hear(vec![ToWorker::StartGranted(hold(7, 1))]);
    player.settled(1);
    assert_eq!(player.brought(claim), [7]);
    player.heartbeat(&[hold(7, 1)]);
    assert_eq!(player.said(), ["heartbeat"], "that it runs is known");
}

#[test]
fn no_job_is_ever_stolen_from_it() {
    let (mut player, _) = Player::claiming(LEASE);
    player.said();
    player.hear(vec![ToWorker::AskToGive {
        question: QuestionNo(3),
        most: 5,
        most_bound: 5,
        suspects: Suspects::Move,
        serves: Serves::All,
    }]);
    assert_eq!(player.said(), ["given 3 []"]);
}

#[test]
fn a_job_cancelled_before_its_assignment_is_dropped_and_after_it_is_stopped() {
    let (mut player, claim) = Player::claiming(LEASE);
    player.hear(vec![assign(&[7, 8])]);
    player.said();
    player.hear(vec![ToWorker::Cancel(hold(8, 1))]);
    assert_eq!(player.said(), ["dropped 8.1"]);
    player.settled(1);
    assert_eq!(player.brought(claim), [7]);
    player.hear(vec![ToWorker::Cancel(hold(7, 1))]);
    let heartbeat = player.heartbeat(&[hold(7, 1)]);
    player.hear(vec![ToWorker::Renewed(MessageNo(99))]);
    match &player.responses[&heartbeat] {
        Ok(HttpReply::HeartbeatDone { cancel, .. }) => assert_eq!(*cancel, [hold(7, 1)]),
        other => panic!("{other:?}"),
    }
    assert_eq!(player.said(), ["heartbeat"], "it is not said to have started");
}

#[test]
fn after_a_broken_session_everything_unanswered_is_sent_again() {
    let (mut player, first) = Player::claiming(Duration::ZERO);
    player.hear(vec![assign(&[7])]);
    player.settle();
    assert_eq!(player.brought(first), [7]);
    let report = player.ask(HttpAsk::Report(vec![Report::plain(hold(7, 1), Ending::Dropped)]));
    let heartbeat = player.heartbeat(&[hold(7, 1)]);
    let claim = player.claim(2, &[hold(7, 1)], LEASE);
    player.said();
    player.handle(HttpEvent::HungUp(HangUp::Over));
    assert_eq!(player.said(), ["hello resume want 0 reports 1 [7.1]"]);
    player.hear(vec![reconcile(&[]), ToWorker::Accepted(vec![hold(7, 1)])]);
    assert!(matches!(player.responses[&report], Ok(HttpReply::Answered { .. })));
    assert_eq!(player.said(), ["heartbeat", "want 2"]);
    player.hear(vec![ToWorker::Renewed(MessageNo(2))]);
    assert!(matches!(player.responses[&heartbeat], Ok(HttpReply::HeartbeatDone { .. })));
    assert!(player.is_open(claim));
    player.hear(vec![ToWorker::Gone]);
    assert_eq!(player.said(), ["leave"]);
    assert_eq!(*player.refusal(claim), HttpRefusal::Gone);
}

#[test]
fn a_change_of_slots_opens_another_session() {
    let (mut player, first) = Player::claiming(Duration::ZERO);
    player.settle();
    assert_eq!(player.brought(first), [0; 0]);
    player.said();
    let second = player.ask(claim(2, 5, &[], Duration::ZERO));
    assert_eq!(player.said(), ["hello resume want 0 reports 0 []"]);
    player.hear(vec![reconcile(&[])]);
    assert_eq!(player.said(), ["want 5", "want 0", "settle"]);
    player.settled(2);
    assert_eq!(player.brought(second), [0; 0]);
}

#[test]
fn a_silent_worker_is_dropped() {
    let (mut player, _) = Player::claiming(Duration::ZERO);
    player.settle();
    player.said();
    player.pass(LEASE * FORGOTTEN);
    assert_eq!(player.said(), ["leave"]);
    let late = player.heartbeat(&[]);
    assert_eq!(*player.refusal(late), HttpRefusal::Gone);
}

/// After a restart of the server the first request may be a report, which lists no other jobs.
#[test]
fn until_the_first_claim_of_a_session_the_worker_keeps_its_jobs() {
    let eight = [hold(8, 1)];
    for is_listed in [true, false] {
        let mut player = Player::holding(&eight);
        player.ask(HttpAsk::Report(vec![Report::plain(hold(7, 1), Ending::Finished)]));
        assert_eq!(player.said(), ["hello resume want 0 reports 1 [8.1]"]);
        player.hear(vec![reconcile(&eight), ToWorker::DrainNow]);
        let heartbeat = player.heartbeat(&eight);
        player.hear(vec![ToWorker::Renewed(MessageNo(2))]);
        match &player.responses[&heartbeat] {
            Ok(HttpReply::HeartbeatDone { keep, .. }) => assert_eq!(*keep, eight),
            other => panic!("{other:?}"),
        }
        assert_eq!(player.said(), ["started 8.1"], "it does not go back");
        player.claim(5, if is_listed { &eight } else { &[] }, Duration::ZERO);
        if is_listed {
            assert_eq!(player.said(), ["hello resume want 0 reports 1 [8.1]"]);
            player.hear(vec![reconcile(&eight), ToWorker::DrainNow]);
            assert_eq!(player.said(), ["heartbeat", "want 0", "settle"]);
        } else {
            assert_eq!(player.said(), ["hello resume want 0 reports 1 []"]);
            player.hear(vec![reconcile(&[]), ToWorker::DrainNow]);
            player.hear(vec![assign(&[8])]);
            assert!(player.said().contains(&"dropped 8.1".to_owned()), "it never arrived");
        }
    }
}

#[test]
fn only_the_reported_outcome_is_accepted() {
    let (mut player, _) = Player::claiming(Duration::ZERO);
    player.hear(vec![assign(&[7])]);
    player.settle();
    player.said();
    let failed = Ending::Failed { again: Again::ByPolicy, error: "no".into() };
    let first = player.ask(HttpAsk::Report(vec![Report::plain(hold(7, 1), failed.clone())]));
    let other = player.ask(HttpAsk::Report(vec![Report::plain(hold(7, 1), Ending::Finished)]));
    let same = player.ask(HttpAsk::Report(vec![Report::plain(hold(7, 1), failed)]));
    player.hear(vec![ToWorker::Accepted(vec![hold(7, 1)])]);
    let answered = |accepted: &[Hold], refused: &[Hold]| {
        let refused = refused.iter().map(|&hold| (hold, Some(hold.fence))).collect();
        Ok(HttpReply::Answered { accepted: accepted.to_vec(), refused })
    };
    let hold = [hold(7, 1)];
    assert_eq!(player.responses[&first], answered(&hold, &[]));
    assert_eq!(player.responses[&same], answered(&hold, &[]));
    assert_eq!(player.responses[&other], answered(&[], &hold));
}

/// A client may abandon a request and send it again and again.
#[test]
fn abandoned_requests_are_bounded() {
    let (mut player, first) = Player::claiming(LEASE);
    for _ in 0..REPEATS_MAX {
        player.claim(1, &[], LEASE);
    }
    assert_eq!(*player.refusal(first), HttpRefusal::Busy);
    assert_eq!(player.http_session.waiting_count(), REPEATS_MAX);
    let report = || HttpAsk::Report(vec![Report::plain(hold(7, 1), Ending::Finished)]);
    for _ in REPEATS_MAX..WAITING_MAX {
        player.ask(report());
    }
    assert_eq!(player.http_session.waiting_count(), WAITING_MAX);
    let last = player.ask(report());
    assert_eq!(*player.refusal(last), HttpRefusal::Busy);
    player.hear(vec![ToWorker::Accepted(vec![hold(7, 1)])]);
    assert_eq!(player.http_session.waiting_count(), REPEATS_MAX);
    let answered = player.responses.values().filter(|it| it.is_ok()).count();
    assert_eq!(answered, WAITING_MAX - REPEATS_MAX);
}

/// A worker can send any number; whatever becomes of it, nothing breaks.
#[test]
fn a_report_with_the_largest_fence_is_answered() {
    let largest = hold(7, u64::MAX);
    for ending in [Ending::Finished, Ending::Dropped, Ending::Interrupted, Ending::Stopped] {
        let (mut player, _) = Player::claiming(Duration::ZERO);
        player.settle();
        let ticket = player.ask(HttpAsk::Report(vec![Report::plain(largest, ending.clone())]));
        player.hear(vec![ToWorker::Refused { hold: largest, current: None }]);
        let expected = HttpReply::Answered { accepted: vec![], refused: vec![(largest, None)] };
        assert_eq!(player.responses[&ticket], Ok(expected), "{ending:?}");
    }
}

/// A response counts as a renewal for the worker, so it waits for one.
#[test]
fn claims_and_refused_reports_are_answered_after_the_renewal() {
    let (mut player, claim) = Player::claiming(Duration::ZERO);
    for number in player.effects.iter().filter_map(settled).collect::<Vec<_>>() {
        player.handle(HttpEvent::Settled(number));
    }
    assert!(player.is_open(claim));
    let said = MessageNo(player.http_session.said);
    player.deliver(vec![ToWorker::Renewed(said)]);
    assert_eq!(player.brought(claim), Vec::<u64>::new());
    let report = player.ask(HttpAsk::Report(vec![Report::plain(hold(7, 1), Ending::Finished)]));
    player.deliver(vec![ToWorker::Refused { hold: hold(7, 1), current: None }]);
    assert!(player.is_open(report));
    player.deliver(vec![ToWorker::Renewed(said.next())]);
    assert!(!player.is_open(report));
}
