//! Limits, moments and waits, while workers and the server are killed: of one queue two jobs may run at once, of
//! another none; a worker serves only what it was told to; jobs for a moment that comes soon, and jobs that fail
//! and wait longer each time.
//!
//! That none of this was broken is for the judgement to say, by what the runs have written down themselves.

use filch_api::submission::{Growth, RetryPolicy, Span, Submission};
use filch_api::time::Moment;
use filch_e2e::process::Process;
use filch_e2e::stage::{Server, Stage, retry};
use filch_e2e::until::{until, when};
use filch_e2e::{faults, runs, wall};
use filch_scheduler::time::{Millis, Wall};
use rustix::process::{Pid, Signal, kill_process};

use crate::{id, jobs, stage, until_state};

const KILLS: usize = 12;
/// Each third one hits the server.
const SERVER_EVERY: usize = 3;

/// The queue with a limit, the one without, and the one that is paused.
const NARROW: &str = "narrow";
const WIDE: &str = "wide";
const SHUT: &str = "shut";

const LIMIT: u32 = 2;

/// What the workers serve. One of them has nothing to do with the limit.
const SERVES: [&str; 3] = ["narrow,wide,shut", "narrow,wide,shut", "wide,shut"];
/// More than the limit allows.
const SLOTS: u32 = 3;
/// So many of them serve the queue with the limit, and are killed.
const NARROW_WORKERS: usize = 2;

struct Play {
    stage: Stage,
    server: Server,
    workers: Vec<Process>,
}

impl Play {
    async fn start() -> Self {
        let stage = stage();
        let server = stage.server(Some("1s")).await;
        stage.limit(&server, NARROW, LIMIT).await;
        stage.limit(&server, SHUT, 0).await;
        let mut play = Self { stage, server, workers: Vec::new() };
        play.workers = SERVES.map(|queues| play.worker(queues)).into();
        play
    }

    fn worker(&self, queues: &str) -> Process {
        self.stage.worker(&self.server.url, SLOTS, &["--queues", queues])
    }

    fn job(&self, queue: &str, words: &[&str]) -> Submission {
        Submission { queue: Some(queue.to_owned()), ..self.stage.job(words) }
    }

    /// A job for a moment that comes soon.
    fn soon(&self, queue: &str, millis: u64) -> Submission {
        let at = Some(Moment(Wall(wall().0 + millis)));
        Submission { at, ..self.job(queue, &["run", "5"]) }
    }

    /// A job that fails three times.
    fn failing(&self, queue: &str) -> Submission {
        let (base, cap) = (Span(Millis(100)), Span(Millis(1_000)));
        let retry = RetryPolicy { backoff: Growth::Exponential, base, cap, ..retry(3) };
        Submission { retry: Some(retry), ..self.job(queue, &["refuse", "5"]) }
    }

    /// Work of every kind, more of it than the limit allows at once.
    async fn submit(&self) {
        let mut work: Vec<Submission> =
            (0..6).map(|number| self.job(NARROW, &["run", &(number * 20).to_string()])).collect();
        work.extend([NARROW, WIDE].map(|queue| self.soon(queue, 300)));
        work.extend([NARROW, WIDE].map(|queue| self.failing(queue)));
        work.push(self.job(WIDE, &["run", "20"]));
        work.push(self.job(SHUT, &["run", "0"]));
        self.stage.submit(&self.server, &work).await;
    }

    /// Jobs that hold the queue with the limit until they are killed or their gate is opened, and one more than
    /// may run. Returns when as many run as may.
    async fn fill(&self, gate: &str) {
        let work = [(); LIMIT as usize + 1].map(|()| self.job(NARROW, &["until", gate]));
        self.stage.submit(&self.server, &work).await;
        let ids = work.each_ref().map(id);
        until("as many run as may", async || {
            let jobs = self.workers.iter().flat_map(Process::jobs);
            let running = jobs.filter(|job| ids.contains(&job.id)).count();
            assert!(running <= LIMIT as usize, "{running} run");
            when(running == LIMIT as usize)
        })
        .await;
    }

    async fn round(&mut self, number: usize) {
        self.submit().await;
        let gate = self.stage.path(&format!("gate-{number}"));
        self.fill(gate.to_str().unwrap()).await;
        if number.is_multiple_of(SERVER_EVERY) {
            self.server.process.kill();
            self.server.restart(&self.stage).await;
        } else {
            let victim = number % NARROW_WORKERS;
            self.workers[victim].kill();
            self.workers[victim] = self.worker(SERVES[victim]);
        }
        std::fs::write(gate, "").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_moments_and_waits_hold_while_workers_and_the_server_are_killed() {
    let mut play = Play::start().await;
    let kills = faults::scaled(KILLS);
    for number in 0..kills {
        play.round(number).await;
    }
    until("all is done that may be", async || {
        let jobs = jobs(&play.server.client).await;
        when(jobs.iter().all(|job| job.ended_at.is_some() || job.queue == SHUT))
    })
    .await;
    let known = jobs(&play.server.client).await;
    for job in &known {
        let tries = runs::of(&play.stage.runs(), &job.id).len();
        if job.queue == SHUT {
            assert_eq!((job.state.as_str(), tries), ("queued", 0), "{job:?}");
        } else {
            play.stage.clients.shown(job);
        }
    }
    drop(play.workers);
    let judged = play.stage.judge(play.server).await;
    eprintln!("{judged:?}");
    assert_eq!(judged.jobs, known.len());
    assert!(judged.repeated > kills, "those that fail are tried again: {judged:?}");
    faults::brought_about(kills, "kills within limits");
}

/// Without a guardian nothing may run: what ran is stopped, and is tried again a second later.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_loses_its_guardian_waits_for_a_second() {
    let stage = stage();
    let server = stage.server(None).await;
    let worker = stage.worker(&server.url, 1, &[]);
    let gate = stage.path("gate");
    let job = stage.job(&["until", gate.to_str().unwrap()]);
    stage.submit(&server, std::slice::from_ref(&job)).await;
    let runs = || runs::of(&stage.runs(), &id(&job));
    for tries in 1..=3 {
        until("it runs", async || when(runs().len() == tries)).await;
        let guardian = worker.guardian().expect("nothing runs without one");
        kill_process(Pid::from_raw(guardian).unwrap(), Signal::KILL).unwrap();
    }
    until("it runs once more", async || when(runs().len() == 4)).await;
    std::fs::write(&gate, "").unwrap();
    let (done, _) = until_state(&server.client, &id(&job), "succeeded").await;
    stage.clients.shown(&done);
    drop(worker);
    let judged = stage.judge(server).await;
    assert_eq!((judged.jobs, judged.runs), (1, 4), "{judged:?}");
}
