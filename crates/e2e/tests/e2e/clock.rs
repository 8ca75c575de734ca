//! The wall clock jumps, on the server's machine and on the worker's: an hour ahead, an hour back.
//! Leases use a monotonic clock and are not affected; scheduled jobs wait until the wall clock
//! shows their time.

use std::path::PathBuf;

use filch_api::client::Error;
use filch_api::submission::{RetryPolicy, Span, Submission};
use filch_api::time::Moment;
use filch_e2e::jobs::{id, show, until_state};
use filch_e2e::process::Process;
use filch_e2e::test_env::{LaunchOptions, TestEnv, TestServer, retry};
use filch_e2e::until::{until, when};
use filch_e2e::{runs, shim, since_boot, wall};
use filch_scheduler::time::{Millis, Wall};

use crate::test_env;

/// Far shorter than the jumps, and long enough that no worker loses it on a slow machine.
const LEASE_SECONDS: u64 = 15;
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// A machine whose clock is set by the test.
struct Machine {
    env: TestEnv,
    server: TestServer,
    worker: Process,
    /// The environment variables of programs that use this clock.
    environment: Vec<(String, String)>,
    /// By how many seconds its clock is ahead.
    ahead: PathBuf,
}

impl Machine {
    async fn start() -> Self {
        let env = test_env();
        let ahead = env.path("ahead");
        std::fs::write(&ahead, "0").unwrap();
        let library = shim::build(shim::CLOCK, &env.path(""));
        let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
        let environment = vec![
            (shim::PRELOAD.to_owned(), text(&library)),
            ("FILCH_CLOCK_AHEAD".to_owned(), text(&ahead)),
        ];
        let options =
            LaunchOptions { environment: environment.clone(), ..LaunchOptions::default() };
        let server = env.server_with(&options, Some(&format!("{LEASE_SECONDS}s"))).await;
        let worker = env.worker_with(&options, &server.url, 4, &[]);
        Self { env, server, worker, environment, ahead }
    }

    /// Sets the clock, in one step.
    fn jump(&self, ahead: i64) {
        let before = std::fs::read_to_string(&self.ahead).unwrap();
        self.env.constraints.clock_is_about_to_be_set(before.parse().unwrap());
        let next = self.ahead.with_extension("next");
        std::fs::write(&next, ahead.to_string()).unwrap();
        std::fs::rename(next, &self.ahead).unwrap();
    }

    /// Submits a job whose command uses this machine's clock, too.
    async fn submit(&self, mut job: Submission) -> String {
        job.env.extend(self.environment.iter().cloned());
        self.env.submit(&self.server, std::slice::from_ref(&job)).await;
        id(&job)
    }

    /// Submits a job that is scheduled this many seconds from now, by the clock that was never set.
    async fn submit_at(&self, seconds: i64) -> String {
        let mut job = self.env.job(&["run", "0"]);
        job.at = Some(Moment(Wall(wall().0.saturating_add_signed(1_000 * seconds))));
        self.submit(job).await
    }

    async fn is(&self, job: &str, state: &str) {
        let (job, details) = show(&self.server.client, job).await;
        assert_eq!(job.state, state, "{job:?} {details:?}");
    }

    /// Waits for longer than any lease.
    async fn outwait_leases(&self) {
        let now = since_boot();
        let span = LEASE_SECONDS * 1_100_000;
        until("leases would be over", async || when(since_boot() - now > span)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_jumps_of_an_hour_end_no_lease_and_shift_scheduled_jobs() {
    let machine = Machine::start().await;
    let gate = machine.env.path("gate");
    let running = machine.submit(machine.env.job(&["until", gate.to_str().unwrap()])).await;
    let soon = machine.submit_at(HOUR / 2).await;
    let late = machine.submit_at(3 * HOUR / 2).await;
    until("it runs", async || when(machine.worker.jobs().len() == 1)).await;

    // Ahead: jobs that are due by then run, and no others.
    machine.jump(HOUR);
    until_state(&machine.server.client, &soon, "succeeded").await;
    machine.is(&late, "scheduled").await;
    machine.outwait_leases().await;

    // Back, and further back than it ever was: a job that was due in half an hour is due later, and
    // so is a second attempt.
    let failing = machine.submit(failing(&machine.env)).await;
    until("its first attempt has failed", async || {
        let (job, details) = show(&machine.server.client, &failing).await;
        when(job.state == "scheduled" && details.failures.len() == 1)
    })
    .await;
    machine.jump(-HOUR);
    let now = machine.submit(machine.env.job(&["run", "0"])).await;
    until_state(&machine.server.client, &now, "succeeded").await;
    machine.outwait_leases().await;
    machine.is(&late, "scheduled").await;
    machine.is(&failing, "scheduled").await;
    machine.jump(2 * HOUR);
    until_state(&machine.server.client, &late, "succeeded").await;
    until_state(&machine.server.client, &failing, "dead").await;

    machine.jump(0);
    std::fs::write(gate, "").unwrap();
    until_state(&machine.server.client, &running, "succeeded").await;
    for (job, runs) in runs::all(&machine.env.runs()) {
        let tries = if job == failing { 2 } else { 1 };
        assert_eq!(runs.len(), tries, "job {job}: {runs:?}");
    }
    let status = machine.server.client.status().await.unwrap();
    assert_eq!((status.lost, status.stale, status.workers), (0, 0, 1), "{status:?}");
    drop(machine.worker);
    let _ = machine.env.stop_and_check(machine.server).await;
}

/// A job that fails, and fails again half an hour later.
fn failing(env: &TestEnv) -> Submission {
    let mut job = env.job(&["refuse", "0"]);
    let half = Span(Millis(HOUR as u32 / 2 * 1_000));
    job.retry = Some(RetryPolicy { base: half, cap: half, ..retry(2) });
    job
}

/// Ended jobs are kept for seven days, however the clock jumps. Only a server that starts has
/// nothing but its wall clock to tell how old they are.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_jump_purges_nothing_until_the_server_restarts() {
    let mut machine = Machine::start().await;
    let old = machine.submit(machine.env.job(&["run", "0"])).await;
    until_state(&machine.server.client, &old, "succeeded").await;
    machine.jump(7 * DAY + HOUR / 2);
    // Retention may run after each few of these commits, and in idle moments between them.
    let mut young = String::new();
    for _ in 0..30 {
        young = machine.submit(machine.env.job(&["run", "0"])).await;
        until_state(&machine.server.client, &young, "succeeded").await;
    }
    machine.is(&old, "succeeded").await;

    machine.server.process.kill();
    machine.server.restart(&machine.env).await;
    until("the old job is purged", async || match machine.server.client.job(&old).await {
        Ok(_) => None,
        Err(Error::Refused(problem)) => when(problem.status == 404),
        Err(other) => panic!("{other}"),
    })
    .await;
    machine.is(&young, "succeeded").await;
    drop(machine.worker);
    machine.env.stop(machine.server).await;
}
