//! Tests of HTTP sessions, without a network and without a scheduler.

use filch_api::session::WireEnding;
use filch_api::submission::Span;
use filch_scheduler::time::Millis;
use serde_json::value::RawValue;
use tokio::sync::oneshot::Receiver;

use super::*;

const LEASE: Duration = Duration::from_secs(10);

/// An HTTP session, the time, and its effects since the last look.
struct Player {
    http_session: HttpSession,
    now: Instant,
    effects: Vec<Effect>,
}

impl Player {
    fn new() -> Self {
        let now = Instant::now();
        Self { http_session: HttpSession::new(now, LEASE), now, effects: Vec::new() }
    }

    /// One that has claimed and was reconciled.
    fn claiming(wait: Duration) -> (Self, Receiver<Answer>) {
        let mut player = Self::new();
        let answer = player.claim(1, &[], wait);
        player.hear(vec![truth(&[])]);
        (player, answer)
    }

    fn handle(&mut self, event: Event) {
        self.effects.extend(self.http_session.handle(self.now, event));
    }

    fn ask(&mut self, ask: Ask) -> Receiver<Answer> {
        let (reply, answer) = oneshot::channel();
        self.handle(Event::Asked(Call { ask, reply }));
        answer
    }

    fn claim(&mut self, number: u64, holds: &[WireHold], wait: Duration) -> Receiver<Answer> {
        let wait = Some(Span(Millis(wait.as_millis() as u32)));
        let holds = holds.to_vec();
        self.ask(Ask::Claim(Claim {
            instance: "one".into(),
            number,
            slots: 2,
            queues: None,
            holds,
            wait,
        }))
    }

    fn beat(&mut self, holds: &[WireHold]) -> Receiver<Answer> {
        self.ask(Ask::Beat(Heartbeat {
            instance: "one".into(),
            holds: holds.to_vec(),
            stopping: Vec::new(),
        }))
    }

    fn hear(&mut self, messages: Vec<Down>) {
        self.handle(Event::Heard(messages));
    }

    /// Everything that was asked to be settled is.
    fn settle(&mut self) {
        for number in self.effects.iter().filter_map(settled).collect::<Vec<_>>() {
            self.handle(Event::Settled(number));
        }
    }

    fn pass(&mut self, span: Duration) {
        self.now += span;
        self.handle(Event::Tick);
    }

    /// Messages and requests since the last look, in short form.
    fn said(&mut self) -> Vec<String> {
        self.effects.drain(..).flat_map(words).collect()
    }
}

fn settled(effect: &Effect) -> Option<u64> {
    if let Effect::Settle(number) = effect { Some(*number) } else { None }
}

fn words(effect: Effect) -> Vec<String> {
    let job = |WireHold(job, fence): WireHold| format!("{job}.{fence}");
    let jobs = |jobs: &[WireHold]| jobs.iter().copied().map(job).collect::<Vec<_>>().join(" ");
    match effect {
        Effect::Open(hello) => {
            let kind = match hello.kind {
                WireHelloKind::New => "new",
                WireHelloKind::Resume => "resume",
                WireHelloKind::Replace(_) => "replace",
                WireHelloKind::ReportFor(_) => "report-for",
            };
            let reports = hello.reports.len();
            let holds = jobs(&hello.holds);
            vec![format!("hello {kind} want {} reports {reports} [{holds}]", hello.want)]
        }
        Effect::Say(messages) => {
            let word = |message| match message {
                Up::Heartbeat => "heartbeat".to_owned(),
                Up::Want(count) => format!("want {count}"),
                Up::Start(hold) => format!("start {}", job(hold)),
                Up::Started(hold) => format!("started {}", job(hold)),
                Up::Report(report) => match report.ending {
                    WireEnding::Dropped => format!("dropped {}", job(report.job)),
                    other => format!("{other:?} {}", job(report.job)),
                },
                Up::Given { question, jobs: given } => {
                    format!("given {question} [{}]", jobs(&given))
                }
                Up::Stopping(hold) => format!("stopping {}", job(hold)),
                Up::Goodbye => "goodbye".to_owned(),
                other => format!("{other:?}"),
            };
            messages.into_iter().map(word).collect()
        }
        Effect::Settle(_) => vec!["settle".to_owned()],
        Effect::Leave => vec!["leave".to_owned()],
    }
}

fn truth(keep: &[WireHold]) -> Down {
    Down::Reconcile { lease_ms: LEASE.as_millis() as u64, keep: keep.to_vec() }
}

fn assigned(job: u64, fence: u64, confirm: bool) -> WireAssignment {
    WireAssignment {
        job: WireHold(job, fence),
        id: "id".into(),
        queue: "q".into(),
        kind: "k".into(),
        era: 0,
        rank: 0,
        attempt: 1,
        confirm,
        free_slot: false,
        timeout_ms: None,
        work: RawValue::from_string("{}".into()).unwrap(),
    }
}

fn assign(jobs: &[u64]) -> Down {
    Down::Assign(jobs.iter().map(|&job| assigned(job, 1, false)).collect())
}

#[track_caller]
fn brought(mut answer: Receiver<Answer>) -> Vec<u64> {
    match answer.try_recv().expect("it is answered") {
        Ok(Reply::Claimed(claimed)) => claimed.jobs.iter().map(|job| job.job.0).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn jobs_are_wanted_only_while_a_claim_waits() {
    let (mut player, answer) = Player::claiming(LEASE);
    assert_eq!(player.said(), ["hello new want 0 reports 0 []", "want 2"]);
    player.hear(vec![assign(&[7, 8])]);
    assert_eq!(player.said(), ["want 0", "settle"]);
    player.effects.push(Effect::Settle(1));
    player.settle();
    assert_eq!(brought(answer), [7, 8]);
}

#[test]
fn a_claim_without_waiting_gets_jobs_that_are_decided_at_once() {
    let (mut player, answer) = Player::claiming(Duration::ZERO);
    player.hear(vec![assign(&[7])]);
    player.settle();
    assert_eq!(brought(answer), [7]);
    assert_eq!(player.said()[1..], ["want 2", "want 0", "settle"]);
}

#[test]
fn a_claim_of_a_silent_worker_ends_after_a_quarter_of_a_lease() {
    let (mut player, mut answer) = Player::claiming(LEASE);
    player.pass(LEASE / SILENCE - Duration::from_millis(1));
    assert!(!player.said().contains(&"want 0".to_owned()));
    // After another heartbeat, the claim goes on waiting.
    drop(player.beat(&[]));
    player.pass(LEASE / SILENCE - Duration::from_millis(1));
    player.pass(Duration::from_millis(1));
    player.settle();
    assert!(matches!(answer.try_recv(), Ok(Ok(Reply::Claimed(_)))));
}

#[test]
fn a_heartbeat_is_answered_once_the_scheduler_has_received_it() {
    let (mut player, _answer) = Player::claiming(LEASE);
    let mut beat = player.beat(&[]);
    player.hear(vec![Down::Renewed(2)]);
    assert!(beat.try_recv().is_err(), "that was the claim");
    player.hear(vec![Down::Renewed(3)]);
    assert!(matches!(beat.try_recv(), Ok(Ok(Reply::Beaten(_)))));
}

#[test]
fn a_heartbeat_that_crosses_a_response_takes_nothing_away() {
    let (mut player, answer) = Player::claiming(Duration::ZERO);
    player.hear(vec![assign(&[7])]);
    player.settle();
    assert_eq!(brought(answer), [7]);
    player.said();
    drop(player.beat(&[]));
    assert_eq!(player.said(), ["heartbeat"]);
    // The next claim does: jobs of the last response, which never arrived, are assigned again.
    let again = player.claim(2, &[], Duration::ZERO);
    player.settle();
    assert_eq!(brought(again), [7]);
    // Jobs of an older response are not, because the worker has read that one.
    let held = player.claim(3, &[WireHold(7, 1)], Duration::ZERO);
    player.settle();
    assert_eq!(brought(held), [0; 0]);
    player.said();
    drop(player.claim(4, &[], Duration::ZERO));
    assert_eq!(player.said()[0], "dropped 7.1");
}

#[test]
fn a_suspect_is_assigned_once_its_start_is_granted() {
    let (mut player, mut answer) = Player::claiming(LEASE);
    player.said();
    player.hear(vec![Down::Assign(vec![assigned(7, 1, true)])]);
    assert_eq!(player.said(), ["start 7.1", "want 0", "settle"]);
    assert!(answer.try_recv().is_err());
    player.hear(vec![Down::StartGranted(WireHold(7, 1))]);
    player.handle(Event::Settled(1));
    assert_eq!(brought(answer), [7]);
    drop(player.beat(&[WireHold(7, 1)]));
    assert_eq!(player.said(), ["heartbeat"], "that it runs is known");
}

#[test]
fn no_job_is_ever_stolen_from_it() {
    let (mut player, _answer) = Player::claiming(LEASE);
    player.said();
    player.hear(vec![Down::AskToGive {
        question: 3,
        most: 5,
        most_bound: 5,
        suspects_stay: false,
        queues: None,
    }]);
    assert_eq!(player.said(), ["given 3 []"]);
}

#[test]
fn a_job_cancelled_before_its_assignment_is_dropped_and_after_it_is_stopped() {
    let (mut player, answer) = Player::claiming(LEASE);
    player.hear(vec![assign(&[7, 8])]);
    player.said();
    player.hear(vec![Down::Cancel(WireHold(8, 1))]);
    assert_eq!(player.said(), ["dropped 8.1"]);
    player.handle(Event::Settled(1));
    assert_eq!(brought(answer), [7]);
    player.hear(vec![Down::Cancel(WireHold(7, 1))]);
    let mut beat = player.beat(&[WireHold(7, 1)]);
    player.hear(vec![Down::Renewed(99)]);
    match beat.try_recv() {
        Ok(Ok(Reply::Beaten(beaten))) => assert_eq!(beaten.cancel, [WireHold(7, 1)]),
        other => panic!("{other:?}"),
    }
    assert_eq!(player.said(), ["heartbeat"], "it is not said to have started");
}

#[test]
fn after_a_broken_session_everything_unanswered_is_sent_again() {
    let (mut player, answer) = Player::claiming(Duration::ZERO);
    player.hear(vec![assign(&[7])]);
    player.settle();
    assert_eq!(brought(answer), [7]);
    let mut report =
        player.ask(Ask::Report(vec![WireReport::plain(WireHold(7, 1), WireEnding::Dropped)]));
    let mut beat = player.beat(&[WireHold(7, 1)]);
    let mut claim = player.claim(2, &[WireHold(7, 1)], LEASE);
    player.said();
    player.handle(Event::HungUp);
    assert_eq!(player.said(), ["hello resume want 0 reports 1 [7.1]"]);
    player.hear(vec![truth(&[]), Down::Accepted(vec![WireHold(7, 1)])]);
    assert!(matches!(report.try_recv(), Ok(Ok(Reply::Answered(_)))));
    assert_eq!(player.said(), ["heartbeat", "want 2"]);
    player.hear(vec![Down::Renewed(2)]);
    assert!(matches!(beat.try_recv(), Ok(Ok(Reply::Beaten(_)))));
    assert!(claim.try_recv().is_err());
    player.hear(vec![Down::Gone]);
    assert_eq!(player.said(), ["leave"]);
    assert_eq!(claim.try_recv().unwrap().unwrap_err().code, "gone");
}

#[test]
fn a_change_of_slots_opens_another_session() {
    let (mut player, answer) = Player::claiming(Duration::ZERO);
    player.settle();
    assert_eq!(brought(answer), [0; 0]);
    player.said();
    let claim = Claim {
        instance: "one".into(),
        number: 2,
        slots: 5,
        queues: None,
        holds: Vec::new(),
        wait: None,
    };
    let answer = player.ask(Ask::Claim(claim));
    assert_eq!(player.said(), ["hello resume want 0 reports 0 []"]);
    player.hear(vec![truth(&[])]);
    assert_eq!(player.said(), ["want 5", "want 0", "settle"]);
    player.handle(Event::Settled(2));
    assert_eq!(brought(answer), [0; 0]);
}

#[test]
fn a_silent_worker_is_dropped() {
    let (mut player, _answer) = Player::claiming(Duration::ZERO);
    player.settle();
    player.said();
    player.pass(LEASE * FORGOTTEN);
    assert_eq!(player.said(), ["leave"]);
    let mut late = player.beat(&[]);
    assert_eq!(late.try_recv().unwrap().unwrap_err().code, "gone");
}
