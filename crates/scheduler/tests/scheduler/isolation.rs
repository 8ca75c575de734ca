//! Heavy jobs do not starve light ones: a thousand jobs of 100 ms, then a hundred of 1 ms, on four
//! single-slot workers, in virtual time.

use std::collections::{BTreeMap, BTreeSet};

use filch_scheduler::dispatch::{
    Dispatch, DispatchConfig, DispatchEffect, DispatchEvent, QueueChange, Request,
};
use filch_scheduler::id::{Hold, JobId, MessageNo, RequestNo, SessionNo, WorkerId};
use filch_scheduler::message::{Ending, FromWorker, Hello, HelloKind, Report, Serves, ToWorker};
use filch_scheduler::record::Strategy;
use filch_scheduler::spec::JobSpec;
use filch_scheduler::time::{Monotonic, Now, Wall};

const HEAVY: u64 = 100_000;
const LIGHT: u64 = 1_000;

/// Workers that finish each job after exactly its duration.
struct Shop {
    dispatch: Dispatch,
    now: u64,
    /// When each worker finishes which job.
    ends: BTreeSet<(u64, WorkerId, Hold)>,
    numbers: BTreeMap<WorkerId, MessageNo>,
    waits: Vec<u64>,
}

impl Shop {
    fn new(strategy: Strategy) -> Self {
        let config = DispatchConfig { strategy, ..DispatchConfig::default() };
        Self {
            dispatch: Dispatch::new(config, Now::default()),
            now: 0,
            ends: BTreeSet::new(),
            numbers: BTreeMap::new(),
            waits: Vec::new(),
        }
    }

    fn event(&mut self, event: DispatchEvent) {
        let now = Now { monotonic: Monotonic(self.now), wall: Wall(self.now / 1_000) };
        let mut effects = Vec::new();
        self.dispatch.handle(now, event, &mut effects);
        for effect in effects {
            match effect {
                DispatchEffect::Commit { number, .. } => {
                    self.event(DispatchEvent::Committed(number));
                }
                DispatchEffect::Send { worker, messages, .. } => {
                    for message in messages {
                        self.told(worker, message);
                    }
                }
                DispatchEffect::Fetch { .. }
                | DispatchEffect::Reply { .. }
                | DispatchEffect::HangUp { .. } => {}
            }
        }
    }

    fn told(&mut self, worker: WorkerId, message: ToWorker) {
        if let ToWorker::Assign(assignments) = message {
            for assignment in assignments {
                let is_light = assignment.queue.as_str() == "light";
                if is_light {
                    self.waits.push(self.now);
                }
                let end = self.now + if is_light { LIGHT } else { HEAVY };
                self.ends.insert((end, worker, assignment.hold));
            }
        }
    }

    fn say(&mut self, worker: WorkerId, message: FromWorker) {
        let number = self.numbers.entry(worker).or_default();
        *number = number.next();
        let (session, number) = (SessionNo(1), *number);
        self.event(DispatchEvent::Worker { worker, session, number, messages: vec![message] });
    }

    fn request(&mut self, request: Request) {
        self.event(DispatchEvent::Request { from: RequestNo(0), by: None, request });
    }

    /// Submits everything at time 0 and works it off. Returns how long the 99th of the hundred
    /// light jobs had to wait, in microseconds.
    fn work(mut self, serves: [Serves; 4]) -> u64 {
        for (queue, count) in [("heavy", 1_000), ("light", 100)] {
            let job = |number: u64| {
                let id = JobId::named(&format!("{queue}{number}"), Wall(1)).expect("a short name");
                JobSpec { queue: queue.into(), ..JobSpec::new(id) }
            };
            self.request(Request::Submit((0..count).map(job).collect()));
        }
        for (worker, serves) in (1..).map(WorkerId::apart).zip(serves) {
            let hello = Hello {
                kind: HelloKind::New,
                slots: 1,
                want: 1,
                serves,
                reports: Vec::new(),
                started: Vec::new(),
                holds: Vec::new(),
            };
            self.say(worker, FromWorker::Hello(hello));
        }
        let mut sent_at = 0;
        while let Some((end, worker, hold)) = self.ends.pop_first() {
            self.now = end;
            // Idle workers stay alive by heartbeats.
            if self.now > sent_at + 5_000_000 {
                sent_at = self.now;
                for worker in self.numbers.keys().copied().collect::<Vec<_>>() {
                    self.say(worker, FromWorker::Heartbeat);
                }
            }
            let report = Report::plain(hold, Ending::Finished);
            self.say(worker, FromWorker::Report(report));
        }
        assert_eq!(self.dispatch.job_count(), 0, "everything has run");
        assert_eq!(self.waits.len(), 100);
        self.waits.sort_unstable();
        self.waits[98]
    }
}

fn all() -> [Serves; 4] {
    [const { Serves::All }; 4]
}

#[test]
fn under_fifo_light_jobs_wait_for_all_heavy_ones() {
    let wait = Shop::new(Strategy::Fifo).work(all());
    assert!(wait > 10_000_000, "{wait}");
}

#[test]
fn a_limit_on_the_heavy_queue_keeps_a_worker_free_for_light_jobs() {
    let mut shop = Shop::new(Strategy::Fifo);
    let change = QueueChange::Limit(Some(3));
    shop.request(Request::SetQueue { queue: "heavy".into(), change });
    let wait = shop.work(all());
    assert!(wait < 200_000, "{wait}");
}

#[test]
fn a_worker_that_serves_light_jobs_only_keeps_them_moving() {
    let light = Serves::Named(vec!["light".into()]);
    let wait = Shop::new(Strategy::Fifo).work([Serves::All, Serves::All, Serves::All, light]);
    assert!(wait < 200_000, "{wait}");
}

#[test]
fn round_robin_and_fair_let_light_jobs_pass() {
    let by_turns = Shop::new(Strategy::RoundRobin).work(all());
    assert!(by_turns < 4_000_000, "{by_turns}");
    let mut shop = Shop::new(Strategy::Fair);
    let change = QueueChange::Weight(16);
    shop.request(Request::SetQueue { queue: "light".into(), change });
    let by_weight = shop.work(all());
    assert!(by_weight < by_turns / 4, "{by_weight} {by_turns}");
}
