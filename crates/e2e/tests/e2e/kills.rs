//! `kill -9` of the server and of workers, again and again, while clients submit without a pause.
//!
//! The victims, and how much work is done before each strike, are drawn from a seed; some strikes
//! kill several at once. Each victim is frozen first, and is killed only if at that moment a job
//! runs whose client waits for it: so no kill falls into a quiet moment, and what was observed
//! still holds when the kill comes. While the server is the target, more clients submit jobs for
//! the next day, as fast as they can: these cost nothing but their acknowledgement.
//!
//! In the end every acknowledged job has succeeded, none ran twice at once, and the store is sound.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use filch_api::client::{Client, Error};
use filch_api::job::{Job, Receipt};
use filch_api::submission::Submission;
use filch_e2e::client_log::ClientLog;
use filch_e2e::faults;
use filch_e2e::jobs::{id, jobs, tomorrow};
use filch_e2e::process::Process;
use filch_e2e::random::TestRandom;
use filch_e2e::test_env::{JobMaker, TestEnv, TestServer};
use filch_e2e::until::{until, when};
use tokio::task::JoinHandle;

use crate::test_env;

const KILLS: usize = 60;
const LEASE: &str = "3s";
const WORKERS: usize = 4;
const SLOTS: u32 = 2;
/// Clients that submit a job, wait for its end, and begin again. Enough of them that some are
/// served while others wait for leases to end.
const CLIENTS: usize = 32;
/// Clients that submit jobs for the next day, but only while the server is the target.
const PLANNERS: usize = 4;

/// What clients have requested, and the result.
#[derive(Default)]
struct Traffic {
    requests: Mutex<Vec<(Request, RequestState)>>,
    /// The jobs for the next day.
    planned: Mutex<BTreeSet<String>>,
    /// What the server has confirmed.
    client_log: Arc<ClientLog>,
    is_server_target: AtomicBool,
    /// How many jobs are known to have ended.
    done: AtomicU64,
    is_over: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestState {
    Open,
    Answered,
    /// The connection broke, or the time for which the server waits was over.
    Unanswered,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Request {
    Submit,
    /// For the end of this job.
    Wait(String),
}

impl Traffic {
    /// Waits for the response; `None` if there is none, and the request has to be repeated.
    async fn ask<T>(
        &self,
        what: Request,
        asking: impl Future<Output = Result<T, Error>>,
        is_final: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let number = {
            let mut requests = self.requests.lock().unwrap();
            requests.push((what, RequestState::Open));
            requests.len() - 1
        };
        let answer = asking.await;
        let state = match &answer {
            Ok(answer) if is_final(answer) => RequestState::Answered,
            _ => RequestState::Unanswered,
        };
        self.requests.lock().unwrap()[number].1 = state;
        match answer {
            Ok(answer) => return Some(answer),
            Err(Error::Unreachable { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        // The server is down: do not retry in a busy loop.
        tokio::time::sleep(Duration::from_millis(5)).await;
        None
    }

    /// The open requests for which this holds.
    fn open(&self, is_such: impl Fn(&Request) -> bool) -> Vec<usize> {
        let requests = self.requests.lock().unwrap();
        let is_open =
            |at: &usize| requests[*at].1 == RequestState::Open && is_such(&requests[*at].0);
        (0..requests.len()).filter(is_open).collect()
    }

    /// How many of these are in this state.
    fn count(&self, these: &[usize], state: RequestState) -> usize {
        let requests = self.requests.lock().unwrap();
        these.iter().filter(|&&at| requests[at].1 == state).count()
    }
}

/// Submits a job until it is acknowledged.
async fn submit(client: &Client, traffic: &Traffic, job: &Submission) -> Receipt {
    loop {
        if let Some(receipt) = traffic.ask(Request::Submit, client.submit(job), |_| true).await {
            assert_eq!(receipt.id, id(job));
            traffic.client_log.acknowledged(&receipt.id);
            return receipt;
        }
    }
}

/// A job for the next day.
fn planned(maker: &JobMaker) -> Submission {
    Submission { at: Some(tomorrow()), ..maker.job(&["run", "0"]) }
}

async fn submit_planned(client: &Client, traffic: &Traffic, job: &Submission) {
    let receipt = submit(client, traffic, job).await;
    traffic.planned.lock().unwrap().insert(receipt.id);
}

/// A client whose jobs are for the next day.
async fn plan(maker: JobMaker, client: Client, traffic: Arc<Traffic>) {
    while !traffic.is_over.load(Ordering::Relaxed) {
        if traffic.is_server_target.load(Ordering::Relaxed) {
            submit_planned(&client, &traffic, &planned(&maker)).await;
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// A client that submits one job after the other and waits for each.
async fn submit_and_wait(
    maker: JobMaker,
    client: Client,
    traffic: Arc<Traffic>,
    mut random: TestRandom,
) {
    while !traffic.is_over.load(Ordering::Relaxed) {
        let millis = match random.below(20) {
            // Longer than a lease: if it is not killed with its worker, it meets its successor.
            0 => 3_500 + random.below(1_000),
            1 | 2 => 200 + random.below(200),
            _ => random.below(60),
        };
        let job = maker.job(&["run", &millis.to_string()]);
        let receipt = submit(&client, &traffic, &job).await;
        loop {
            let wait = client.wait(&receipt.id, Duration::from_secs(30));
            let is_final = |job: &Job| job.ended_at.is_some();
            let job = traffic.ask(Request::Wait(receipt.id.clone()), wait, is_final).await;
            if let Some(job) = job.filter(is_final) {
                traffic.client_log.shown(&job);
                assert_eq!(job.state, "succeeded", "{job:?}");
                break;
            }
        }
        traffic.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Which processes are killed at once, and when the server is restarted.
#[derive(Clone, Debug)]
struct Strike {
    server: Option<Back>,
    workers: Vec<usize>,
}

/// When a killed server is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Back {
    AtOnce,
    /// When its workers have stopped all jobs.
    Late,
}

impl Strike {
    fn draw(random: &mut TestRandom) -> Self {
        let first = random.below(WORKERS as u64) as usize;
        let some = |count: usize| (0..count).map(|it| (first + it) % WORKERS).collect();
        let (server, workers) = match random.below(20) {
            0..=5 => (Some(Back::AtOnce), Vec::new()),
            6 => (Some(Back::Late), Vec::new()),
            7 => (Some(Back::AtOnce), some(1)),
            8 => (Some(Back::AtOnce), some(WORKERS)),
            9..=11 => (None, some(2)),
            12 => (None, some(WORKERS)),
            _ => (None, some(1)),
        };
        Self { server, workers }
    }

    const fn hits_server(&self) -> bool {
        self.server.is_some()
    }

    fn count(&self) -> usize {
        usize::from(self.hits_server()) + self.workers.len()
    }
}

/// The open requests at the moment of a strike.
struct Caught {
    /// Requests that wait for running jobs.
    waits: Vec<usize>,
    submits: Vec<usize>,
}

struct Cluster {
    env: TestEnv,
    server: TestServer,
    workers: Vec<Process>,
    traffic: Arc<Traffic>,
    clients: Vec<JoinHandle<()>>,
}

impl Cluster {
    /// Freezes the victims at a moment at which jobs run and requests are open.
    async fn freeze_victims(&self, strike: &Strike) -> Caught {
        let is_hit = |index: &usize| strike.workers.is_empty() || strike.workers.contains(index);
        let workers: Vec<&Process> =
            (0..WORKERS).filter(is_hit).map(|index| &self.workers[index]).collect();
        let mut victims: Vec<&Process> =
            strike.workers.iter().map(|&victim| &self.workers[victim]).collect();
        victims.extend(strike.hits_server().then_some(&self.server.process));
        let is_submit = |request: &Request| *request == Request::Submit;
        until("a moment at which jobs run and requests are open", async || {
            if strike.hits_server() && self.traffic.open(is_submit).is_empty() {
                return None;
            }
            for victim in &victims {
                victim.freeze();
            }
            // A job that runs now has not been reported as ended, nor can it be: its worker or the
            // server is frozen. So it is leased, and clients that wait for it are not answered yet.
            let running: BTreeSet<String> =
                workers.iter().flat_map(|worker| worker.jobs()).map(|job| job.id).collect();
            let waits = self
                .traffic
                .open(|request| matches!(request, Request::Wait(job) if running.contains(job)));
            let submits = self.traffic.open(is_submit);
            if waits.is_empty() || (strike.hits_server() && submits.is_empty()) {
                for victim in &victims {
                    victim.thaw();
                }
                return None;
            }
            Some(Caught { waits, submits })
        })
        .await
    }

    /// Submits a job while the server is frozen: this request is certainly not answered before the
    /// kill. The client repeats it until it is.
    async fn submit_to_frozen_server(&mut self) -> usize {
        let (client, traffic) = (self.server.client.clone(), Arc::clone(&self.traffic));
        let number = self.traffic.requests.lock().unwrap().len();
        let job = planned(&self.env.maker());
        self.clients
            .push(tokio::spawn(async move { submit_planned(&client, &traffic, &job).await }));
        let is_submit = |request: &Request| *request == Request::Submit;
        until("a client submits to the frozen server", async || {
            self.traffic.open(is_submit).into_iter().find(|&open| open >= number)
        })
        .await
    }

    /// Returns how many submits were never answered.
    async fn kill(&mut self, strike: &Strike) -> usize {
        self.traffic.is_server_target.store(strike.hits_server(), Ordering::Relaxed);
        let Caught { waits, mut submits } = self.freeze_victims(strike).await;
        if strike.hits_server() {
            submits.push(self.submit_to_frozen_server().await);
        }
        for &victim in &strike.workers {
            self.workers[victim].kill();
        }
        if strike.hits_server() {
            self.server.process.kill();
        }
        assert!(!waits.is_empty(), "requests were open");
        let mut lost = 0;
        if strike.hits_server() {
            let requests = [&waits[..], &submits].concat();
            until("clients have noticed", async || {
                when(self.traffic.count(&requests, RequestState::Open) == 0)
            })
            .await;
            let answered = self.traffic.count(&waits, RequestState::Answered);
            assert_eq!(answered, 0, "{strike:?}: these jobs had not ended");
            lost = self.traffic.count(&submits, RequestState::Unanswered);
        }
        if strike.server == Some(Back::Late) {
            until("workers without a server stop what they run", async || {
                when(self.workers.iter().all(|worker| worker.jobs().is_empty()))
            })
            .await;
        }
        self.traffic.is_server_target.store(false, Ordering::Relaxed);
        if strike.hits_server() {
            self.server.restart(&self.env).await;
        }
        for &victim in &strike.workers {
            self.workers[victim] = self.env.worker(&self.server.url, SLOTS, &[]);
        }
        lost
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_lose_no_job_and_run_none_twice_at_once() {
    let mut random = TestRandom::seeded();
    let env = test_env();
    let server = env.server(Some(LEASE)).await;
    let workers = (0..WORKERS).map(|_| env.worker(&server.url, SLOTS, &[])).collect();
    let client_log = Arc::clone(&env.client_log);
    let traffic = Arc::new(Traffic { client_log, ..Traffic::default() });
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (client, random) = (server.client.clone(), TestRandom::new(random.draw()));
            tokio::spawn(submit_and_wait(env.maker(), client, Arc::clone(&traffic), random))
        })
        .collect();

    clients.extend(
        (0..PLANNERS)
            .map(|_| tokio::spawn(plan(env.maker(), server.client.clone(), Arc::clone(&traffic)))),
    );

    let mut cluster = Cluster { env, server, workers, traffic, clients };
    let (mut kills, mut server_kills, mut lost) = (0, 0, 0);
    while kills < faults::scaled(KILLS) {
        let strike = Strike::draw(&mut random);
        let goal = cluster.traffic.done.load(Ordering::Relaxed) + 1 + random.below(10);
        until(&format!("work goes on after {kills} kills"), async || {
            when(cluster.traffic.done.load(Ordering::Relaxed) >= goal)
        })
        .await;
        lost += cluster.kill(&strike).await;
        kills += strike.count();
        server_kills += usize::from(strike.hits_server());
    }
    cluster.traffic.is_over.store(true, Ordering::Relaxed);
    for client in std::mem::take(&mut cluster.clients) {
        client.await.unwrap();
    }
    eprintln!("{server_kills} of {kills} kills hit the server; {lost} submits had no answer");
    assert!(lost >= server_kills, "each kill of the server hits a submit");
    expect_done(&cluster).await;

    drop(cluster.workers);
    let checked = cluster.env.stop_and_check(cluster.server).await;
    eprintln!("{checked:?}");
    faults::injected(kills, "kills");
    assert!(checked.repeated > 0, "some kills hit running jobs");
}

/// Each job has succeeded, except those for the next day, and there is no job that was not
/// submitted.
async fn expect_done(cluster: &Cluster) {
    let known = jobs(&cluster.server.client).await;
    let planned = cluster.traffic.planned.lock().unwrap();
    let count = cluster.traffic.client_log.records().acknowledged.len();
    assert_eq!(known.len(), count, "a submit that was repeated made one job");
    for job in &known {
        let state = if planned.contains(&job.id) { "scheduled" } else { "succeeded" };
        assert_eq!(job.state, state, "{job:?}");
    }
}
