//! A minute of load, or up to ten in a soak: four fifths of what the same set-up can do at most, with a kill every
//! ten seconds.
//!
//! What is measured is compared only with what was measured before it in the same run: the server's memory
//! does not grow, and jobs do not take longer and longer. A machine may have much else to do in one half of
//! the time and not in the other; so it is measured too, by how long a program takes that does nothing, and
//! that much longer jobs may take.
//!
//! The first and the last kill hit the server, and between them lies what is compared; the others hit a
//! worker in the middle of a job.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use filch_api::client::{Client, Error};
use filch_e2e::clients::Clients;
use filch_e2e::faults;
use filch_e2e::process::Process;
use filch_e2e::stage::{Maker, Server, Stage};
use filch_e2e::until::until;

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
const LATENCY_RATIO_MAX: f64 = 2.5;
const MEMORY_RATIO_MAX: f64 = 1.3;

/// How often the machine is measured.
const PROBE_EVERY: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread")]
async fn under_load_and_kills_memory_is_flat_and_latency_stable() {
    let stage = stage();
    let server = stage.server(Some("2s")).await;
    let workers = (0..WORKERS).map(|_| stage.worker(&server.url, SLOTS, &[])).collect();
    let mut site = Site { stage, server, workers };

    site.drive(WARM_UP, None).await;
    let started = Instant::now();
    let peak = site.drive(PEAK, None).await.len() as f64 / started.elapsed().as_secs_f64();
    let pace = Duration::from_secs_f64(CLIENTS as f64 / (peak * LOAD));
    eprintln!("at most {peak:.0} jobs a second; from now on {:.0}", peak * LOAD);

    let span = faults::load() / 2;
    let blows = (span.as_secs() / KILL_EVERY.as_secs()) as usize;
    let mut victims = [vec![Victim::Worker; blows], vec![Victim::Worker; blows]];
    victims[0][0] = Victim::Server;
    victims[1][blows - 1] = Victim::Server;
    let mut halves = Vec::new();
    for victims in &victims {
        let half = site.drive_and_kill(victims, pace).await;
        eprintln!("{half}");
        halves.push(half);
    }
    drop(site.workers);
    let judged = site.stage.judge(site.server).await;
    eprintln!("{judged:?}");
    let [first, second] = &halves[..] else { panic!("two halves") };
    let ratio = |second: Duration, first: Duration| second.as_secs_f64() / first.as_secs_f64();
    let memory = second.memory as f64 / first.memory as f64;
    let median = ratio(second.median, first.median);
    let slow = ratio(second.slow, first.slow);
    let machine = ratio(second.machine, first.machine);
    let figures = format!(
        "{:.0} of {peak:.0} jobs a second; then {second}, \
         ratios: memory {memory:.2}, median {median:.2}, slow tenth {slow:.2}, \
         the machine itself {machine:.2}",
        peak * LOAD
    );
    faults::measured(&format!("{:?} of load", 2 * span), figures);
    faults::brought_about(2 * blows, "kills under load");
    assert!(memory < MEMORY_RATIO_MAX, "memory grew {memory:.2} times");
    let allowed = LATENCY_RATIO_MAX * machine.max(1.0);
    assert!(median < allowed, "jobs took {median:.2} times as long, not {allowed:.2}");
    assert!(slow < allowed, "the slow ones took {slow:.2} times as long, not {allowed:.2}");
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
    jobs: usize,
    /// From submit to the end.
    median: Duration,
    /// The tenth that took longest took at least so long. Kills decide how long the slowest of them take.
    slow: Duration,
    /// What a program took that does nothing.
    machine: Duration,
    /// The server's, before the last kill.
    memory: u64,
}

impl fmt::Display for Half {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { jobs, median, slow, machine, memory } = self;
        let memory = memory >> 20;
        write!(
            formatter,
            "{jobs} jobs, median {median:.1?}, slow {slow:.1?}, machine {machine:.1?}, {memory} MiB"
        )
    }
}

struct Site {
    stage: Stage,
    server: Server,
    workers: Vec<Process>,
}

impl Site {
    async fn drive_and_kill(&mut self, victims: &[Victim], pace: Duration) -> Half {
        let clients = Drivers::start(&self.stage, &self.server, Some(pace));
        let probe = tokio::spawn(probe(Arc::clone(&clients.is_over)));
        let mut ticks = tokio::time::interval(KILL_EVERY);
        ticks.tick().await;
        let mut memory = 0;
        for victim in victims {
            ticks.tick().await;
            memory = self.server.process.memory();
            match victim {
                Victim::Server => self.kill_server().await,
                Victim::Worker => self.kill_in_mid_job().await,
            }
        }
        let took = clients.stop().await;
        let machine = place_in(&probe.await.unwrap(), 0.5);
        let (median, slow) = (place_in(&took, 0.5), place_in(&took, 0.9));
        Half { jobs: took.len(), median, slow, machine, memory }
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

/// How long a program takes that does nothing, again and again.
async fn probe(is_over: Arc<AtomicBool>) -> Vec<Duration> {
    let mut took = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let started = Instant::now();
        let status = tokio::process::Command::new("true").status().await;
        assert!(status.unwrap().success());
        took.push(started.elapsed());
        tokio::time::sleep(PROBE_EVERY).await;
    }
    took
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
