//! Concurrency limits, scheduled jobs and backoff, while workers and the server are killed: of one
//! queue two jobs may run at once, of another none; a worker serves only its own queues; some jobs
//! are scheduled for a time that comes soon, and some fail and wait longer each time.
//!
//! Whether all of this was respected is checked in the end, by what the runs have recorded
//! themselves.

use filch_api::submission::{Growth, RetryPolicy, Span, Submission};
use filch_api::time::Moment;
use filch_e2e::jobs::{id, jobs, until_state};
use filch_e2e::process::Process;
use filch_e2e::test_env::{LONG_LEASE, TestEnv, TestServer, retry};
use filch_e2e::until::{until, when};
use filch_e2e::{faults, runs, wall};
use filch_scheduler::time::{Millis, Wall};
use rustix::process::{Pid, Signal, kill_process};

use crate::test_env;

const KILLS: usize = 6;
const LEASE: &str = "4s";
/// Each third one hits the server.
const SERVER_EVERY: usize = 3;

/// The queue with a limit, the one without, and the one that is paused.
const NARROW: &str = "narrow";
const WIDE: &str = "wide";
const SHUT: &str = "shut";

const LIMIT: u32 = 2;

/// The queues that each worker serves. The last worker does not serve the limited queue.
const SERVES: [&str; 3] = ["narrow,wide,shut", "narrow,wide,shut", "wide,shut"];
/// More than the limit allows.
const SLOTS: u32 = 3;
/// How many of them serve the limited queue. These are killed.
const NARROW_WORKERS: usize = 2;

struct Cluster {
    env: TestEnv,
    server: TestServer,
    workers: Vec<Process>,
}

impl Cluster {
    async fn start() -> Self {
        let env = test_env();
        let server = env.server(Some(LEASE)).await;
        env.limit(&server, NARROW, LIMIT).await;
        env.limit(&server, SHUT, 0).await;
        let mut cluster = Self { env, server, workers: Vec::new() };
        cluster.workers = SERVES.map(|queues| cluster.worker(queues)).into();
        cluster
    }

    fn worker(&self, queues: &str) -> Process {
        self.env.worker(&self.server.url, SLOTS, &["--queues", queues])
    }

    fn job(&self, queue: &str, words: &[&str]) -> Submission {
        Submission { queue: Some(queue.to_owned()), ..self.env.job(words) }
    }

    /// A job that is scheduled for a time that comes soon.
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

    /// Jobs of every kind, more of them than the limit allows at once.
    async fn submit(&self) {
        let mut work: Vec<Submission> =
            (0..6).map(|number| self.job(NARROW, &["run", &(number * 20).to_string()])).collect();
        work.extend([NARROW, WIDE].map(|queue| self.soon(queue, 300)));
        work.extend([NARROW, WIDE].map(|queue| self.failing(queue)));
        work.push(self.job(WIDE, &["run", "20"]));
        work.push(self.job(SHUT, &["run", "0"]));
        self.env.submit(&self.server, &work).await;
    }

    /// Submits jobs that occupy the limited queue until they are killed or their gate is opened,
    /// one more than may run. Returns when as many run as may.
    async fn fill(&self, gate: &str) {
        let work = [(); LIMIT as usize + 1].map(|()| self.job(NARROW, &["until", gate]));
        self.env.submit(&self.server, &work).await;
        let ids = work.each_ref().map(id);
        until("as many run as may", async || {
            let jobs = self.workers.iter().flat_map(Process::jobs);
            when(jobs.filter(|job| ids.contains(&job.id)).count() >= LIMIT as usize)
        })
        .await;
    }

    async fn round(&mut self, number: usize) {
        self.submit().await;
        let gate = self.env.path(&format!("gate-{number}"));
        self.fill(gate.to_str().unwrap()).await;
        if number.is_multiple_of(SERVER_EVERY) {
            self.server.process.kill();
            self.server.restart(&self.env).await;
        } else {
            let victim = number % NARROW_WORKERS;
            self.workers[victim].kill();
            self.workers[victim] = self.worker(SERVES[victim]);
        }
        std::fs::write(gate, "").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_schedules_and_backoff_hold_while_workers_and_the_server_are_killed() {
    let mut cluster = Cluster::start().await;
    let kills = faults::scaled(KILLS);
    for number in 0..kills {
        cluster.round(number).await;
    }
    until("all jobs that may run are done", async || {
        let jobs = jobs(&cluster.server.client).await;
        when(jobs.iter().all(|job| job.ended_at.is_some() || job.queue == SHUT))
    })
    .await;
    let known = jobs(&cluster.server.client).await;
    for job in &known {
        let tries = runs::of(&cluster.env.runs(), &job.id).len();
        if job.queue == SHUT {
            assert_eq!((job.state.as_str(), tries), ("queued", 0), "{job:?}");
        } else {
            cluster.env.client_log.shown(job);
        }
    }
    drop(cluster.workers);
    let checked = cluster.env.stop_and_check(cluster.server).await;
    eprintln!("{checked:?}");
    assert_eq!(checked.jobs, known.len());
    assert!(checked.repeated > kills, "failing jobs are tried again: {checked:?}");
    faults::injected(kills, "kills within limits");
}

/// Nothing may run without a guardian: the job is stopped, and is tried again a second later.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_guardian_dies_runs_again_after_a_second() {
    let env = test_env();
    let server = env.server(Some(LONG_LEASE)).await;
    let worker = env.worker(&server.url, 1, &[]);
    let gate = env.path("gate");
    let job = env.job(&["until", gate.to_str().unwrap()]);
    env.submit(&server, std::slice::from_ref(&job)).await;
    let runs = || runs::of(&env.runs(), &id(&job));
    for tries in 1..=3 {
        until("it runs", async || when(runs().len() >= tries)).await;
        let guardian = worker.guardian().expect("no job runs without a guardian");
        kill_process(Pid::from_raw(guardian).unwrap(), Signal::KILL).unwrap();
    }
    until("it runs once more", async || when(runs().len() >= 4)).await;
    std::fs::write(&gate, "").unwrap();
    let (done, _) = until_state(&server.client, &id(&job), "succeeded").await;
    env.client_log.shown(&done);
    drop(worker);
    let checked = env.stop_and_check(server).await;
    assert_eq!((checked.jobs, checked.runs), (1, 4), "{checked:?}");
}
