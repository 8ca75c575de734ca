//! A minute of load, or up to ten in a soak: four fifths of what the same set-up can do at most, with a kill every
//! ten seconds.
//!
//! What is measured is compared only with what else was measured in the same run. The server's memory does not
//! grow from the first half to the second; what it may hold in its caches it holds from the beginning. That
//! jobs take no longer than at first cannot be told from the two halves: near its peak, a machine that has a
//! little else to do makes them wait several times as long. So a newcomer, a server with workers of its own that has
//! seen nothing yet, is put beside the one that has borne the load, and they are driven by turns.
//!
//! The first and the last kill hit the server, and between them lies what is compared; the others hit a
//! worker in the middle of a job.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use filch_api::client::{Client, Error};
use filch_api::submission::Submission;
use filch_api::time::Moment;
use filch_e2e::clients::Clients;
use filch_e2e::judge::Judged;
use filch_e2e::process::Process;
use filch_e2e::stage::{Maker, Server, Stage};
use filch_e2e::until::until;
use filch_e2e::{faults, wall};
use filch_scheduler::time::Wall;

use crate::{id, stage, until_state};

const WORKERS: usize = 3;
const SLOTS: u32 = 2;
/// So many clients submit a job, wait for its end, and begin again.
const CLIENTS: usize = 24;

/// The peak is measured over so long, after a while in which caches fill.
const WARM_UP: Duration = Duration::from_secs(3);
const PEAK: Duration = Duration::from_secs(6);
/// Of the peak.
const LOAD: f64 = 0.8;
const KILL_EVERY: Duration = Duration::from_secs(10);

/// The second half against the first.
const MEMORY_RATIO_MAX: f64 = 1.2;

/// Jobs that only lie there, large enough and so many that the server's caches are full of them.
const BALLAST: usize = 2_000;
const BALLAST_TOGETHER: usize = 25;
const BALLAST_BYTES: usize = 16 << 10;
const DAY_MS: u64 = 24 * 3_600_000;

/// The server that has borne the load against one that has not.
const LATENCY_RATIO_MAX: f64 = 2.0;
/// Each is driven so often and for so long; what counts is the turn in the middle.
const TURNS: usize = 9;
const TURN: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread")]
async fn under_load_and_kills_memory_is_flat_and_latency_stable() {
    let mut site = Site::open(stage()).await;
    site.drive(WARM_UP, None).await;
    let started = Instant::now();
    let peak = site.drive(PEAK, None).await.len() as f64 / started.elapsed().as_secs_f64();
    let pace = Duration::from_secs_f64(CLIENTS as f64 / (peak * LOAD));
    eprintln!("at most {peak:.0} jobs a second; from now on {:.0}", peak * LOAD);

    let span = faults::load() / 2;
    let blows = (span.as_secs() / KILL_EVERY.as_secs()) as usize;
    let mut halves = [vec![Victim::Worker; blows], vec![Victim::Worker; blows]];
    halves[0][0] = Victim::Server;
    let first = site.drive_and_kill(&halves[0], pace).await;
    eprintln!("{first}");
    let second = site.drive_and_kill(&halves[1], pace).await;
    eprintln!("{second}");
    let ratios = site.against_newcomer(pace).await;
    site.kill_server().await;
    let judged = site.close().await;
    eprintln!("{judged:?}");

    let memory = second.memory as f64 / first.memory as f64;
    let figures = format!(
        "{:.0} of {peak:.0} jobs a second; then {second}, memory {memory:.2} times as much; \
         against a newcomer: {ratios}",
        peak * LOAD
    );
    faults::measured(&format!("{:?} of load", 2 * span), figures);
    faults::brought_about(2 * blows + 1, "kills under load");
    assert!(memory < MEMORY_RATIO_MAX, "memory grew {memory:.2} times");
    let Ratios { median, slow } = ratios;
    assert!(median < LATENCY_RATIO_MAX, "jobs take {median:.2} times as long as at first");
    assert!(slow < LATENCY_RATIO_MAX, "the slow ones take {slow:.2} times as long as at first");
    assert!(judged.repeated > 0, "kills fell into runs");
}

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Server,
    Worker,
}

/// What one half of the time was like.
struct Half {
    took: Took,
    /// The server's, before the last kill.
    memory: u64,
}

impl fmt::Display for Half {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { took, memory } = self;
        write!(formatter, "{took}, {} MiB", memory >> 20)
    }
}

/// How long jobs took, from submit to the end.
struct Took {
    jobs: usize,
    median: Duration,
    /// The tenth that took longest took at least so long. Kills decide how long the slowest of them take.
    slow: Duration,
}

impl Took {
    fn of(took: &[Duration]) -> Self {
        Self { jobs: took.len(), median: place_in(took, 0.5), slow: place_in(took, 0.9) }
    }
}

impl fmt::Display for Took {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jobs, median, slow } = self;
        write!(formatter, "{jobs} jobs, median {median:.1?}, slow {slow:.1?}")
    }
}

/// How many times as long jobs take as elsewhere.
struct Ratios {
    median: f64,
    slow: f64,
}

impl fmt::Display for Ratios {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, slow } = self;
        write!(formatter, "median {median:.2}, slow tenth {slow:.2}")
    }
}

struct Site {
    stage: Stage,
    server: Server,
    workers: Vec<Process>,
}

impl Site {
    async fn open(stage: Stage) -> Self {
        let server = stage.server(Some("2s")).await;
        let workers = (0..WORKERS).map(|_| stage.worker(&server.url, SLOTS, &[])).collect();
        Self { stage, server, workers }
    }

    async fn close(self) -> Judged {
        drop(self.workers);
        self.stage.judge(self.server).await
    }

    async fn drive_and_kill(&mut self, victims: &[Victim], pace: Duration) -> Half {
        let clients = Drivers::start(&self.stage, &self.server, Some(pace));
        let mut ticks = tokio::time::interval(KILL_EVERY);
        ticks.tick().await;
        let mut memory = 0;
        for victim in victims {
            ticks.tick().await;
            memory = self.server.process.memory();
            match victim {
                Victim::Server => {
                    self.kill_server().await;
                    self.fill_caches().await;
                }
                Victim::Worker => self.kill_in_mid_job().await,
            }
        }
        Half { took: Took::of(&clients.stop().await), memory }
    }

    /// What lies in the caches by and by is no growth, so it lies there at once.
    async fn fill_caches(&self) {
        let tomorrow = Moment(Wall(wall().0 + DAY_MS));
        let ballast = "b".repeat(BALLAST_BYTES);
        for _ in 0..BALLAST / BALLAST_TOGETHER {
            let job =
                |_| Submission { at: Some(tomorrow), ..self.stage.job(&["run", "0", &ballast]) };
            let jobs: Vec<_> = (0..BALLAST_TOGETHER).map(job).collect();
            for receipt in self.stage.submit(&self.server, &jobs).await {
                self.server.client.job(&receipt.id).await.unwrap();
            }
        }
    }

    /// Drives this one and a newcomer by turns.
    async fn against_newcomer(&self, pace: Duration) -> Ratios {
        let newcomer = Self::open(self.stage.beside()).await;
        newcomer.drive(WARM_UP, None).await;
        let (mut medians, mut slows) = (Vec::new(), Vec::new());
        for turn in 0..TURNS {
            let mut turns = [self, &newcomer];
            if turn % 2 == 1 {
                turns.reverse();
            }
            let mut took = Vec::new();
            for site in turns {
                took.push(Took::of(&site.drive(TURN, Some(pace)).await));
            }
            if turn % 2 == 1 {
                took.reverse();
            }
            let [own, new] = &took[..] else { panic!("two took turns") };
            eprintln!("{own}; the newcomer: {new}");
            medians.push(own.median.as_secs_f64() / new.median.as_secs_f64());
            slows.push(own.slow.as_secs_f64() / new.slow.as_secs_f64());
        }
        newcomer.close().await;
        let middle = |mut ratios: Vec<f64>| {
            ratios.sort_unstable_by(f64::total_cmp);
            ratios[TURNS / 2]
        };
        Ratios { median: middle(medians), slow: middle(slows) }
    }

    async fn kill_server(&mut self) {
        self.server.process.kill();
        self.server.restart(&self.stage).await;
    }

    /// Kills whichever worker has got a job that does not end before somebody wants it to; another one
    /// takes its place, and the job runs again.
    async fn kill_in_mid_job(&mut self) {
        let gate = self.stage.path("gate");
        let job = self.stage.job(&["until", gate.to_str().unwrap()]);
        self.stage.submit(&self.server, std::slice::from_ref(&job)).await;
        let runs_it = |worker: &Process| worker.jobs().iter().any(|it| it.id == id(&job));
        let victim =
            until("a worker runs it", async || self.workers.iter().position(runs_it)).await;
        self.workers[victim].kill();
        self.workers[victim] = self.stage.worker(&self.server.url, SLOTS, &[]);
        std::fs::write(&gate, "").unwrap();
        until_state(&self.server.client, &id(&job), "succeeded").await;
        std::fs::remove_file(&gate).unwrap();
    }

    /// Lets clients work for so long; returns how long each job took.
    async fn drive(&self, span: Duration, pace: Option<Duration>) -> Vec<Duration> {
        let clients = Drivers::start(&self.stage, &self.server, pace);
        tokio::time::sleep(span).await;
        clients.stop().await
    }
}

/// What so great a share of these does not exceed.
fn place_in(took: &[Duration], share: f64) -> Duration {
    let mut took = took.to_vec();
    took.sort_unstable();
    took[(took.len() as f64 * share) as usize]
}

/// Clients at work.
struct Drivers {
    is_over: Arc<AtomicBool>,
    took: Arc<Mutex<Vec<Duration>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drivers {
    fn start(stage: &Stage, server: &Server, pace: Option<Duration>) -> Self {
        let (is_over, took) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let tasks = (0..CLIENTS as u32).map(|index| {
            let driver = Driver {
                maker: stage.maker(),
                client: server.client.clone(),
                clients: Arc::clone(&stage.clients),
                is_over: Arc::clone(&is_over),
                took: Arc::clone(&took),
            };
            // They take turns.
            let first = pace.unwrap_or_default() * index / CLIENTS as u32;
            tokio::spawn(driver.drive(first, pace))
        });
        Self { tasks: tasks.collect(), is_over, took }
    }

    async fn stop(self) -> Vec<Duration> {
        self.is_over.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.await.unwrap();
        }
        std::mem::take(&mut self.took.lock().unwrap())
    }
}

struct Driver {
    maker: Maker,
    client: Client,
    clients: Arc<Clients>,
    is_over: Arc<AtomicBool>,
    took: Arc<Mutex<Vec<Duration>>>,
}

impl Driver {
    /// One job after the other, each at its time or, if the one before took longer, at once.
    async fn drive(self, first: Duration, pace: Option<Duration>) {
        let mut due = tokio::time::Instant::now() + first;
        while !self.is_over.load(Ordering::Relaxed) {
            tokio::time::sleep_until(due).await;
            due = (due + pace.unwrap_or_default()).max(tokio::time::Instant::now());
            let started = Instant::now();
            self.job().await;
            self.took.lock().unwrap().push(started.elapsed());
        }
    }

    async fn job(&self) {
        let job = self.maker.job(&["run", "0"]);
        let receipt = insist(|| self.client.submit(&job)).await;
        self.clients.acknowledged(&receipt.id);
        loop {
            let job = insist(|| self.client.wait(&receipt.id, Duration::from_secs(30))).await;
            if job.ended_at.is_some() {
                self.clients.shown(&job);
                assert_eq!(job.state, "succeeded", "{job:?}");
                return;
            }
        }
    }
}

/// Asks until there is an answer: a server that was killed is soon back.
async fn insist<T, F: Future<Output = Result<T, Error>>>(ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(Error::Unreachable { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(other) => panic!("{other}"),
        }
    }
}
