//! The engine of a worker, without a shell.

use filch_scheduler::id::{CommitNo, Fence, JobId, MessageNo, QuestionNo, Seq, SessionNo};
use filch_scheduler::message::{
    Assignment, Ending, Placement, Report, Serves, StartMode, Suspects,
};
use filch_scheduler::name::Name;
use filch_scheduler::time::Wall;

use super::*;

const LEASE: Duration = Duration::from_secs(10);

struct Bench {
    engine: WorkerEngine<&'static str>,
    actions: Vec<WorkerAction<&'static str>>,
    /// In seconds.
    now: u64,
    session: u64,
    number: u64,
}

impl Bench {
    /// A worker with one slot and a reserve of two, that the server has answered at second 1.
    fn connected() -> Self {
        Self::with(AgentConfig {
            reserve: filch_scheduler::agent::Reserve::Fixed(2),
            ..AgentConfig::default()
        })
    }

    fn with(config: AgentConfig) -> Self {
        let mut actions = Vec::new();
        let engine = WorkerEngine::new(config, moment(0), &mut actions);
        assert_eq!(actions, [WorkerAction::Connect { wait: Duration::ZERO }]);
        let mut bench = Self { engine, actions, now: 0, session: 0, number: 0 };
        bench.connect(1);
        bench
    }

    fn connect(&mut self, at: u64) {
        let actions = self.give(at, WorkerInput::Connected);
        assert!(matches!(actions[..], [WorkerAction::Send(_)]), "{actions:?}");
        (self.session, self.number) = (self.session + 1, 0);
        let reconcile = ToWorker::Reconcile { lease: LEASE, keep: Vec::new() };
        self.receive(at, vec![ToWorker::Renewed(MessageNo(1)), reconcile], &[]);
    }

    fn give(
        &mut self,
        at: u64,
        input: WorkerInput<&'static str>,
    ) -> Vec<WorkerAction<&'static str>> {
        self.now = at;
        self.actions.clear();
        self.engine.handle(moment(at), input, &mut self.actions);
        self.engine.audit().expect("the engine is sound");
        std::mem::take(&mut self.actions)
    }

    fn receive(
        &mut self,
        at: u64,
        messages: Vec<ToWorker>,
        works: &[(Hold, &str)],
    ) -> Vec<WorkerAction<&'static str>> {
        self.number += 1;
        let delivery = Delivery {
            session: SessionNo(self.session),
            number: MessageNo(self.number),
            messages,
            works: works.iter().map(|(hold, text)| (*hold, Arc::from(*text))).collect(),
            grace: None,
        };
        self.give(at, WorkerInput::Received(delivery))
    }

    fn assign(&mut self, at: u64, jobs: &[u64]) -> Vec<WorkerAction<&'static str>> {
        let assignments = jobs.iter().map(|&job| assignment(job)).collect();
        let works: Vec<_> = jobs.iter().map(|&job| (hold(job), "[7]")).collect();
        self.receive(at, vec![ToWorker::Assign(assignments)], &works)
    }
}

fn moment(seconds: u64) -> Now {
    Now { monotonic: Monotonic(seconds * 1_000_000), wall: Wall(seconds * 1_000) }
}

fn hold(job: u64) -> Hold {
    Hold { job: Seq(job), fence: Fence(1) }
}

fn assignment(job: u64) -> Assignment {
    Assignment {
        hold: hold(job),
        id: JobId(u128::from(job)),
        queue: Name::from("default"),
        kind: Name::from("work"),
        era: CommitNo(0),
        rank: 0,
        attempt: 1,
        start: StartMode::Freely,
        place: Placement::Anywhere,
        timeout: None,
    }
}

fn started<'a, O>(actions: &'a [WorkerAction<O>]) -> Vec<(u64, &'a str)> {
    let start = |action: &'a WorkerAction<O>| match action {
        WorkerAction::Start { assignment, payload } => {
            Some((assignment.hold.job.0, payload.as_ref()))
        }
        _ => None,
    };
    actions.iter().filter_map(start).collect()
}

#[test]
fn the_deadline_is_a_moment_that_comes_before_the_first_start() {
    let mut bench = Bench::connected();
    // Sent at second 1 and acknowledged later: seven tenths of the lease count from then.
    let at = |action: &WorkerAction<_>| matches!(action, WorkerAction::Deadline(_));
    let actions = bench.give(1, WorkerInput::Tick);
    assert!(!actions.iter().any(at), "it was told already: {actions:?}");
    assert_eq!(bench.engine.deadline, Some(Monotonic(8_000_000)));
    bench.give(2, WorkerInput::Tick);
    let actions = bench.receive(4, vec![ToWorker::Renewed(MessageNo(2))], &[]);
    assert_eq!(actions, [WorkerAction::Deadline(Some(Monotonic(9_000_000)))]);
    // Renewed and assigned in one batch.
    bench.give(5, WorkerInput::Tick);
    let messages = vec![ToWorker::Renewed(MessageNo(3)), ToWorker::Assign(vec![assignment(1)])];
    let actions = bench.receive(6, messages, &[(hold(1), "[7]")]);
    let moments: Vec<bool> = actions.iter().map(at).collect();
    let deadline = moments.iter().position(|is| *is).expect("it has moved");
    let start = actions.iter().position(|action| matches!(action, WorkerAction::Start { .. }));
    assert!(deadline < start.expect("a slot is free"), "{actions:?}");
    assert_eq!(actions[deadline], WorkerAction::Deadline(Some(Monotonic(12_000_000))));
}

#[test]
fn a_job_starts_with_its_payload_and_the_payload_is_forgotten_then() {
    let mut bench = Bench::connected();
    let actions = bench.assign(2, &[1, 2]);
    assert_eq!(started(&actions), [(1, "[7]")]);
    assert_eq!(bench.engine.payloads.len(), 1, "the second one waits");
    // A job that is here already comes again.
    bench.assign(2, &[1]);
    assert_eq!(bench.engine.payloads.len(), 1);
    let report = Report::plain(hold(1), Ending::Finished);
    let actions = bench.give(3, WorkerInput::Ended(report));
    assert_eq!(started(&actions), [(2, "[7]")]);
    assert!(bench.engine.payloads.is_empty());
}

#[test]
fn the_payloads_of_jobs_that_are_given_away_or_cancelled_are_forgotten() {
    let mut bench = Bench::connected();
    bench.assign(2, &[1, 2, 3]);
    assert_eq!(bench.engine.payloads.len(), 2);
    let question = ToWorker::AskToGive {
        question: QuestionNo(1),
        most: 1,
        most_bound: 1,
        suspects: Suspects::Move,
        serves: Serves::All,
    };
    bench.receive(2, vec![question], &[]);
    assert_eq!(bench.engine.payloads.len(), 1);
    bench.receive(2, vec![ToWorker::Cancel(hold(2))], &[]);
    assert!(bench.engine.payloads.is_empty());
}

#[test]
fn a_failed_send_ends_the_connection_once() {
    let mut bench = Bench::connected();
    let actions = bench.give(2, WorkerInput::SendFailed);
    let [WorkerAction::Disconnect, WorkerAction::Log(_), WorkerAction::Connect { .. }] =
        actions[..]
    else {
        panic!("{actions:?}");
    };
    assert_eq!(bench.give(2, WorkerInput::SendFailed), [], "there is no connection any more");
    bench.connect(3);
}

#[test]
fn output_is_sent_before_the_end_of_its_job_and_dropped_beyond_its_bound() {
    let mut bench = Bench::connected();
    bench.assign(2, &[1]);
    let printed = |bytes| WorkerInput::Printed { piece: "hello", bytes };
    for _ in 0..9 {
        assert_eq!(bench.give(2, printed(1 << 20)), [], "it waits for more");
    }
    let actions = bench.give(3, WorkerInput::Ended(Report::plain(hold(1), Ending::Finished)));
    let worker = bench.engine.agent().id();
    let output = vec!["hello"; 2];
    assert_eq!(actions[0], WorkerAction::SendOutput { worker, output });
    assert!(matches!(actions[1..], [WorkerAction::Send(_)]), "{actions:?}");

    bench.give(3, printed(1));
    let actions = bench.give(3, WorkerInput::Flush);
    assert!(matches!(actions[..], [WorkerAction::SendOutput { .. }]));
    bench.give(3, WorkerInput::Disconnected);
    bench.give(3, printed(1));
    assert_eq!(bench.give(3, WorkerInput::Flush), [], "there is no connection");
}

#[test]
fn a_drain_by_the_server_has_its_grace_period_or_the_worker_s() {
    for (grace, expected) in [(None, 30), (Some(Duration::from_secs(4)), 4)] {
        let mut bench = Bench::connected();
        bench.assign(2, &[1]);
        let delivery = Delivery {
            session: SessionNo(1),
            number: MessageNo(bench.number + 1),
            messages: vec![ToWorker::DrainNow],
            works: Vec::new(),
            grace,
        };
        let actions = bench.give(2, WorkerInput::Received(delivery));
        let grace = Duration::from_secs(expected);
        assert!(actions.contains(&WorkerAction::ToldToDrain { grace }), "{actions:?}");
        let log = WorkerLog::Draining { running: 1, waiting: 0, grace };
        assert!(actions.contains(&WorkerAction::Log(log)), "{actions:?}");
    }
}

#[test]
fn a_worker_that_was_fenced_logs_its_new_id() {
    let mut bench = Bench::connected();
    let before = bench.engine.agent().id();
    let actions = bench.give(9, WorkerInput::Tick);
    let worker = bench.engine.agent().id();
    assert_ne!(worker, before);
    let log = WorkerAction::Log(WorkerLog::Replaced { before, worker });
    assert!(actions.contains(&log), "{actions:?}");
}

#[test]
fn a_worker_that_reports_in_parts_logs_one_connection() {
    let mut bench =
        Bench::with(AgentConfig { slots: 2, report_bytes_max: 200, ..AgentConfig::default() });
    bench.assign(1, &[1, 2]);
    let mut logs = Vec::new();
    let mut note = |actions: Vec<WorkerAction<_>>| {
        logs.extend(actions.into_iter().filter_map(|action| match action {
            WorkerAction::Log(log) => Some(log),
            _ => None,
        }));
    };
    let before = bench.engine.agent().id();
    note(bench.give(2, WorkerInput::Disconnected));
    for job in [1, 2] {
        let result = Some("x".repeat(100).into());
        let report = Report { result, ..Report::plain(hold(job), Ending::Finished) };
        note(bench.give(3, WorkerInput::Ended(report)));
    }
    note(bench.give(9, WorkerInput::Tick));
    let worker = bench.engine.agent().id();
    // The sessions of a new incarnation start again.
    bench.session = 0;
    for job in [1, 2] {
        bench.give(9, WorkerInput::Connected);
        (bench.session, bench.number) = (bench.session + 1, 0);
        let reconcile = ToWorker::Reconcile { lease: LEASE, keep: Vec::new() };
        let accepted = ToWorker::Accepted(vec![hold(job)]);
        let messages = vec![ToWorker::Renewed(MessageNo(1)), reconcile, accepted];
        let actions = bench.receive(10, messages, &[]);
        assert_eq!(actions.contains(&WorkerAction::Disconnect), job == 1, "{actions:?}");
        note(actions);
    }
    let after = Some(Duration::from_secs(8));
    let expected = [
        WorkerLog::Disconnected { worker: before },
        WorkerLog::Replaced { before, worker },
        WorkerLog::Connected { worker, after },
    ];
    assert_eq!(logs, expected);
}
