//! Up to ten minutes of load: four fifths of the peak throughput of the same setup, with a kill
//! every ten seconds.
//!
//! Figures are compared only with others of the same run. The server's memory does not grow from
//! the first half to the second; its caches are filled at the beginning. Whether latency has grown
//! cannot be seen from the two halves: near the peak, a little other load on the machine makes jobs
//! wait several times as long. So a fresh server with its own workers is started beside the one
//! that was under load, and they are measured in turns.
//!
//! The first and the last kill hit the server, and the comparison is made between them; the others
//! hit a worker in the middle of a job.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use filch_api::client::{Client, Error};
use filch_api::submission::Submission;
use filch_e2e::check::CheckedHistories;
use filch_e2e::client_log::ClientLog;
use filch_e2e::faults;
use filch_e2e::jobs::{id, tomorrow, until_state};
use filch_e2e::process::Process;
use filch_e2e::test_env::{JobMaker, TestEnv, TestServer};
use filch_e2e::until::until;

use crate::test_env;

const WORKERS: usize = 3;
const SLOTS: u32 = 2;
/// Clients that submit a job, wait for its end, and begin again.
const CLIENTS: usize = 24;

/// The peak is measured after a while in which caches fill.
const WARM_UP: Duration = Duration::from_secs(3);
const PEAK: Duration = Duration::from_secs(6);
/// The load, as a share of the peak.
const LOAD: f64 = 0.8;
const KILL_EVERY: Duration = Duration::from_secs(10);

/// The second half compared with the first.
const MEMORY_RATIO_MAX: f64 = 1.2;

/// Scheduled jobs that fill the server's caches.
const BALLAST: usize = 2_000;
const BALLAST_TOGETHER: usize = 25;
const BALLAST_BYTES: usize = 16 << 10;

/// The server that was under load compared with a fresh one.
const LATENCY_RATIO_MAX: f64 = 2.0;
/// Each is measured this often, for this long; the median counts.
const TURNS: usize = 9;
const TURN: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread")]
async fn under_load_and_kills_memory_is_flat_and_latency_stable() {
    let mut cluster = Cluster::open(test_env()).await;
    cluster.drive(WARM_UP, None).await;
    let started = Instant::now();
    let peak = cluster.drive(PEAK, None).await.len() as f64 / started.elapsed().as_secs_f64();
    let pace = Duration::from_secs_f64(CLIENTS as f64 / (peak * LOAD));
    eprintln!("at most {peak:.0} jobs a second; from now on {:.0}", peak * LOAD);

    let span = faults::load() / 2;
    let kills = (span.as_secs() / KILL_EVERY.as_secs()) as usize;
    let mut halves = [vec![Victim::Worker; kills], vec![Victim::Worker; kills]];
    halves[0][0] = Victim::TestServer;
    let first = cluster.drive_and_kill(&halves[0], pace).await;
    eprintln!("{first}");
    let second = cluster.drive_and_kill(&halves[1], pace).await;
    eprintln!("{second}");
    let ratios = cluster.against_fresh(pace).await;
    cluster.kill_server().await;
    let checked = cluster.close().await;
    eprintln!("{checked:?}");

    let memory = second.memory as f64 / first.memory as f64;
    let figures = format!(
        "{:.0} of {peak:.0} jobs a second; then {second}, memory {memory:.2} times as much; \
         against a fresh server: {ratios}",
        peak * LOAD
    );
    faults::measured(&format!("{:?} of load", 2 * span), figures);
    faults::injected(2 * kills + 1, "kills under load");
    assert!(memory < MEMORY_RATIO_MAX, "memory grew {memory:.2} times");
    let Ratios { median, slow } = ratios;
    assert!(
        median < LATENCY_RATIO_MAX,
        "the median latency is {median:.2} times that of a fresh server"
    );
    assert!(slow < LATENCY_RATIO_MAX, "the p90 latency is {slow:.2} times that of a fresh server");
    assert!(checked.repeated > 0, "kills hit running jobs");
}

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    TestServer,
    Worker,
}

/// The figures of one half.
struct Half {
    took: Took,
    /// The server's memory before the last kill.
    memory: u64,
}

impl fmt::Display for Half {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { took, memory } = self;
        write!(formatter, "{took}, {} MiB", memory >> 20)
    }
}

/// How long jobs took from submit to end.
struct Took {
    jobs: usize,
    median: Duration,
    /// p90. Higher percentiles depend on the kills.
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
        write!(formatter, "{jobs} jobs, median {median:.1?}, p90 {slow:.1?}")
    }
}

/// Latencies compared with those of another server.
struct Ratios {
    median: f64,
    slow: f64,
}

impl fmt::Display for Ratios {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, slow } = self;
        write!(formatter, "median {median:.2}, p90 {slow:.2}")
    }
}

struct Cluster {
    env: TestEnv,
    server: TestServer,
    workers: Vec<Process>,
}

impl Cluster {
    async fn open(env: TestEnv) -> Self {
        let server = env.server(Some("2s")).await;
        let workers = (0..WORKERS).map(|_| env.worker(&server.url, SLOTS, &[])).collect();
        Self { env, server, workers }
    }

    async fn close(self) -> CheckedHistories {
        drop(self.workers);
        self.env.stop_and_check(self.server).await
    }

    async fn drive_and_kill(&mut self, victims: &[Victim], pace: Duration) -> Half {
        let clients = Drivers::start(&self.env, &self.server, Some(pace));
        let mut ticks = tokio::time::interval(KILL_EVERY);
        ticks.tick().await;
        let mut memory = 0;
        for victim in victims {
            ticks.tick().await;
            memory = self.server.process.memory();
            match victim {
                Victim::TestServer => {
                    self.kill_server().await;
                    self.fill_caches().await;
                }
                Victim::Worker => self.kill_in_mid_job().await,
            }
        }
        Half { took: Took::of(&clients.stop().await), memory }
    }

    /// Caches that fill by and by would look like growth, so they are filled at once.
    async fn fill_caches(&self) {
        let ballast = "b".repeat(BALLAST_BYTES);
        for _ in 0..BALLAST / BALLAST_TOGETHER {
            let job =
                |_| Submission { at: Some(tomorrow()), ..self.env.job(&["run", "0", &ballast]) };
            let jobs: Vec<_> = (0..BALLAST_TOGETHER).map(job).collect();
            for receipt in self.env.submit(&self.server, &jobs).await {
                self.server.client.job(&receipt.id).await.unwrap();
            }
        }
    }

    /// Drives this server and a fresh one in turns.
    async fn against_fresh(&self, pace: Duration) -> Ratios {
        let fresh = Self::open(self.env.another()).await;
        fresh.drive(WARM_UP, None).await;
        let (mut medians, mut slows) = (Vec::new(), Vec::new());
        for turn in 0..TURNS {
            let mut turns = [self, &fresh];
            if turn % 2 == 1 {
                turns.reverse();
            }
            let mut took = Vec::new();
            for cluster in turns {
                took.push(Took::of(&cluster.drive(TURN, Some(pace)).await));
            }
            if turn % 2 == 1 {
                took.reverse();
            }
            let [own, new] = &took[..] else { panic!("there are two servers") };
            eprintln!("{own}; the fresh one: {new}");
            medians.push(own.median.as_secs_f64() / new.median.as_secs_f64());
            slows.push(own.slow.as_secs_f64() / new.slow.as_secs_f64());
        }
        fresh.close().await;
        let middle = |mut ratios: Vec<f64>| {
            ratios.sort_unstable_by(f64::total_cmp);
            ratios[TURNS / 2]
        };
        Ratios { median: middle(medians), slow: middle(slows) }
    }

    async fn kill_server(&mut self) {
        self.server.process.kill();
        self.server.restart(&self.env).await;
    }

    /// Kills the worker that runs a job which waits for a gate; another worker is started in its
    /// place, and the job runs again.
    async fn kill_in_mid_job(&mut self) {
        let gate = self.env.path("gate");
        let job = self.env.job(&["until", gate.to_str().unwrap()]);
        self.env.submit(&self.server, std::slice::from_ref(&job)).await;
        let runs_it = |worker: &Process| worker.jobs().iter().any(|it| it.id == id(&job));
        let victim =
            until("a worker runs it", async || self.workers.iter().position(runs_it)).await;
        self.workers[victim].kill();
        self.workers[victim] = self.env.worker(&self.server.url, SLOTS, &[]);
        std::fs::write(&gate, "").unwrap();
        until_state(&self.server.client, &id(&job), "succeeded").await;
        std::fs::remove_file(&gate).unwrap();
    }

    /// Lets clients work for this long; returns how long each job took.
    async fn drive(&self, span: Duration, pace: Option<Duration>) -> Vec<Duration> {
        let clients = Drivers::start(&self.env, &self.server, pace);
        tokio::time::sleep(span).await;
        clients.stop().await
    }
}

/// The value that this share does not exceed.
fn place_in(took: &[Duration], share: f64) -> Duration {
    let mut took = took.to_vec();
    took.sort_unstable();
    took[(took.len() as f64 * share) as usize]
}

/// ClientLog at work.
struct Drivers {
    is_over: Arc<AtomicBool>,
    took: Arc<Mutex<Vec<Duration>>>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Drivers {
    fn start(env: &TestEnv, server: &TestServer, pace: Option<Duration>) -> Self {
        let (is_over, took) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let tasks = (0..CLIENTS as u32).map(|index| {
            let driver = Driver {
                maker: env.maker(),
                client: server.client.clone(),
                client_log: Arc::clone(&env.client_log),
                is_over: Arc::clone(&is_over),
                took: Arc::clone(&took),
            };
            // Spread evenly over the first interval.
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
    maker: JobMaker,
    client: Client,
    client_log: Arc<ClientLog>,
    is_over: Arc<AtomicBool>,
    took: Arc<Mutex<Vec<Duration>>>,
}

impl Driver {
    /// Runs one job after the other, each at its time or, if the one before took longer, at once.
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
        let receipt = retry(|| self.client.submit(&job)).await;
        self.client_log.acknowledged(&receipt.id);
        loop {
            let job = retry(|| self.client.wait(&receipt.id, Duration::from_secs(30))).await;
            if job.ended_at.is_some() {
                self.client_log.shown(&job);
                assert_eq!(job.state, "succeeded", "{job:?}");
                return;
            }
        }
    }
}

/// Repeats a request until there is a response: a killed server is soon restarted.
async fn retry<T, F: Future<Output = Result<T, Error>>>(ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(Error::Unreachable { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            Err(other) => panic!("{other}"),
        }
    }
}
