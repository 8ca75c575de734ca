//! The wall clock jumps, on the server's machine and on the worker's: an hour ahead, an hour back. Leases
//! are counted by other clocks and do not notice; what waits for a moment of the day waits for that moment,
//! as the clock then tells it.

use std::path::PathBuf;

use filch_api::client::Error;
use filch_api::submission::{RetryPolicy, Span, Submission};
use filch_api::time::Moment;
use filch_e2e::process::Process;
use filch_e2e::stage::{Manner, Server, Stage, retry};
use filch_e2e::until::{until, when};
use filch_e2e::{runs, shim, since_boot, wall};
use filch_scheduler::time::{Millis, Wall};

use crate::{assert_sound, id, show, stage, until_state};

const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;

/// A machine whose clock is set by the test.
struct Machine {
    stage: Stage,
    server: Server,
    worker: Process,
    /// What a program finds in its environment that is told the time by this clock.
    environment: Vec<(String, String)>,
    /// By how many seconds its clock is ahead.
    ahead: PathBuf,
}

impl Machine {
    async fn start() -> Self {
        let stage = stage();
        let ahead = stage.path("ahead");
        std::fs::write(&ahead, "0").unwrap();
        let library = shim::build(shim::CLOCK, &stage.path(""));
        let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
        let environment = vec![
            (shim::PRELOAD.to_owned(), text(&library)),
            ("FILCH_CLOCK_AHEAD".to_owned(), text(&ahead)),
        ];
        let manner = Manner { environment: environment.clone(), ..Manner::default() };
        let server = stage.server_in(&manner, Some("3s")).await;
        let worker = stage.worker_in(&manner, &server.url, 4, &[]);
        Self { stage, server, worker, environment, ahead }
    }

    /// Sets the clock, in one step.
    fn jump(&self, ahead: i64) {
        let before = std::fs::read_to_string(&self.ahead).unwrap();
        self.stage.terms.clock_is_about_to_be_set(before.parse().unwrap());
        let next = self.ahead.with_extension("next");
        std::fs::write(&next, ahead.to_string()).unwrap();
        std::fs::rename(next, &self.ahead).unwrap();
    }

    /// A job of this machine goes by its clock, too.
    async fn submit(&self, mut job: Submission) -> String {
        job.env.extend(self.environment.iter().cloned());
        self.stage.submit(&self.server, std::slice::from_ref(&job)).await;
        id(&job)
    }

    /// A job that runs so many seconds from now, as the clock tells it that was never set.
    async fn submit_at(&self, seconds: i64) -> String {
        let mut job = self.stage.job(&["run", "0"]);
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
        until("leases would be over", async || when(since_boot() - now > 4_000_000)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jumps_of_an_hour_end_no_lease_and_move_what_waits_for_a_moment() {
    let machine = Machine::start().await;
    let gate = machine.stage.path("gate");
    let running = machine.submit(machine.stage.job(&["until", gate.to_str().unwrap()])).await;
    let soon = machine.submit_at(HOUR / 2).await;
    let late = machine.submit_at(3 * HOUR / 2).await;
    until("it runs", async || when(machine.worker.jobs().len() == 1)).await;

    // Ahead: what is due by then runs, and nothing else.
    machine.jump(HOUR);
    until_state(&machine.server.client, &soon, "succeeded").await;
    machine.is(&late, "scheduled").await;
    machine.outwait_leases().await;

    // Back, and further back than it ever was: what was due in half an hour is due in more, and so is
    // a second attempt.
    let failing = machine.submit(failing(&machine.stage)).await;
    until("its first attempt has failed", async || {
        let (job, details) = show(&machine.server.client, &failing).await;
        when(job.state == "scheduled" && details.failures.len() == 1)
    })
    .await;
    machine.jump(-HOUR);
    let now = machine.submit(machine.stage.job(&["run", "0"])).await;
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
    for (job, runs) in runs::all(&machine.stage.runs()) {
        let tries = if job == failing { 2 } else { 1 };
        assert_eq!(runs.len(), tries, "job {job}: {runs:?}");
    }
    let status = machine.server.client.status().await.unwrap();
    assert_eq!((status.lost, status.stale, status.workers), (0, 0, 1), "{status:?}");
    drop(machine.worker);
    let _ = machine.stage.judge(machine.server).await;
}

/// A job that fails, and once more half an hour later.
fn failing(stage: &Stage) -> Submission {
    let mut job = stage.job(&["refuse", "0"]);
    let half = Span(Millis(HOUR as u32 / 2 * 1_000));
    job.retry = Some(RetryPolicy { base: half, cap: half, ..retry(2) });
    job
}

/// What has ended is kept for seven days by the wall clock; a jump ahead shortens that by its own length.
#[tokio::test(flavor = "multi_thread")]
async fn retention_is_shortened_by_no_more_than_the_jump() {
    let mut machine = Machine::start().await;
    let old = machine.submit(machine.stage.job(&["run", "0"])).await;
    until_state(&machine.server.client, &old, "succeeded").await;
    machine.jump(HOUR);
    let young = machine.submit(machine.stage.job(&["run", "0"])).await;
    until_state(&machine.server.client, &young, "succeeded").await;

    // Seven days after the one has ended, and nearly so after the other. A server forgets when it
    // starts, and then every half minute.
    machine.jump(7 * DAY + HOUR / 2);
    machine.server.process.kill();
    machine.server.restart(&machine.stage).await;
    until("the old one is forgotten", async || match machine.server.client.job(&old).await {
        Ok(_) => None,
        Err(Error::Refused(problem)) => when(problem.status == 404),
        Err(other) => panic!("{other}"),
    })
    .await;
    machine.is(&young, "succeeded").await;
    drop(machine.worker);
    assert_sound(&machine.stage, machine.server).await;
}
