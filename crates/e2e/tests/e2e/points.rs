//! Kills at exact calls: the server is killed at each system call with which it changes or syncs
//! its store.
//!
//! There are five scenarios. Each is played once to the end, to see which calls there are; then
//! again for a sample of them, and the server is killed instead of making that call. What was
//! acknowledged before must hold afterwards. A soak of an hour or more tries them all. The sample
//! is spread evenly, and prefers syncs and renames, of which there are few.
//!
//! Which changes come together in one commit differs from time to time, and with it the number of
//! calls. A call that is not reached is replaced by the last one of its kind that was made, until
//! one is hit.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use filch_api::client::Error;
use filch_api::cluster::QueueUpdate;
use filch_api::dead::Selection;
use filch_api::flow::Flow;
use filch_api::submission::Submission;
use filch_e2e::disk::ReplayedDisk;
use filch_e2e::faults;
use filch_e2e::jobs::{id, jobs, tomorrow};
use filch_e2e::process::Process;
use filch_e2e::strace::{CallPoint, STORE, Strace, start_and_stop};
use filch_e2e::test_env::{LONG_LEASE, LaunchOptions, TestEnv, TestServer, retry};
use filch_e2e::until::{TIMEOUT, until, when};
use rustix::process::Signal;

use crate::test_env;

/// A page in the log with its header.
const PAGE_IN_LOG: u64 = 4_096 + 24;
/// Pages in the log when a scenario begins. There is a checkpoint when there are 2,000.
const PAGES_BEFORE: u64 = 1_980;
/// In the scenario in which a worker is lost, this is how long the others wait for it.
const SHORT_LEASE: &str = "4s";

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_jobs_are_submitted() {
    Cluster::new(Scenario::Submit).await.check(24).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_jobs_are_claimed_run_and_finished() {
    Cluster::new(Scenario::Work).await.check(16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_jobs_change_owners() {
    Cluster::new(Scenario::HandOver).await.check(6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_jobs_are_cancelled_retried_and_discarded() {
    Cluster::new(Scenario::Operate).await.check(16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_during_a_checkpoint_and_while_the_store_is_closed() {
    Cluster::new(Scenario::Close).await.check(8).await;
}

/// When there is nothing to lose but the store itself.
#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_store_is_made() {
    let env = test_env();
    let (is_killed, points) = start_and_stop(&env, &[]).await;
    assert!(!is_killed);
    let count = points.len();
    let chosen = choose(points, 8);
    for point in &chosen {
        let mut next = Some(point.clone());
        while let Some(point) = next.take() {
            filch_e2e::disk::write(&env.path("data"), &BTreeMap::new());
            let (is_killed, made) = start_and_stop(&env, &[point.kill()]).await;
            env.stop(env.server(None).await).await;
            if !is_killed {
                next = last_like(&point, &made);
            }
        }
    }
    report("making a store", chosen.len(), count);
}

fn report(what: &str, hits: usize, count: usize) {
    eprintln!("{what}: killed at {hits} of {count} calls");
    faults::injected(hits, "kills at exact calls");
}

/// The last call of the same kind that was made, where this one was not reached. Its number is
/// smaller, so the search comes to an end.
fn last_like(missed: &CallPoint, made: &[CallPoint]) -> Option<CallPoint> {
    let like = made.iter().filter(|it| it.call == missed.call && it.number < missed.number);
    like.max_by_key(|it| it.number).cloned()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// One job, an array, a job with an idempotency key, a flow.
    Submit,
    /// Jobs that succeed, and one that fails twice.
    Work,
    /// A worker claims more than it can run, another steals some of it, and the first one dies.
    HandOver,
    /// Jobs are cancelled, retried, discarded; a queue gets another limit.
    Operate,
    /// The log becomes long enough for a checkpoint, and begins anew; then the server is shut down.
    /// The log is made nearly long enough before.
    Close,
}

/// What the server has confirmed to clients.
#[derive(Default)]
struct Confirmed {
    acknowledged: BTreeSet<String>,
    ended: BTreeMap<String, &'static str>,
    discarded: BTreeSet<String>,
    limit: Option<u32>,
}

struct Cluster {
    scenario: Scenario,
    env: TestEnv,
    server: TestServer,
    workers: Vec<Process>,
    confirmed: Confirmed,
    round: u32,
    /// The store with which the scenario begins each time, if it does not go on with the last one.
    files: BTreeMap<String, Vec<u8>>,
}

type Step<T = ()> = Result<T, Error>;

impl Cluster {
    async fn new(scenario: Scenario) -> Self {
        let env = test_env();
        let lease = if scenario == Scenario::HandOver { SHORT_LEASE } else { LONG_LEASE };
        let server = env.server(Some(lease)).await;
        let workers = match scenario {
            Scenario::Work | Scenario::Operate => vec![env.worker(&server.url, 2, &[])],
            Scenario::Submit | Scenario::HandOver | Scenario::Close => Vec::new(),
        };
        let (confirmed, round, files) = (Confirmed::default(), 0, BTreeMap::new());
        let mut cluster = Self { scenario, env, server, workers, confirmed, round, files };
        if scenario == Scenario::Close {
            cluster.fill_log().await;
        }
        cluster
    }

    /// Makes the log so long that after a few more commits there is a checkpoint. It has many
    /// copies of few pages: each page is written once in the checkpoint. This is done once; the
    /// files are kept for each round.
    async fn fill_log(&mut self) {
        let log = self.env.path("data/filch.db-wal");
        let pages = || std::fs::metadata(&log).map_or(0, |log| log.len() / PAGE_IN_LOG);
        // A queue with default settings would not be stored.
        let mut weights = [2, 3].into_iter().cycle();
        while pages() < PAGES_BEFORE {
            let change = QueueUpdate { weight: weights.next(), ..QueueUpdate::default() };
            self.server.client.set_queue("default", &change).await.unwrap();
        }
        self.server.process.kill();
        self.files = ReplayedDisk::read(&self.env.path("data")).present();
        self.files.retain(|name, _| ["filch.db", "filch.db-wal"].contains(&name.as_str()));
        self.begin_anew().await;
    }

    /// Starts the server, which was killed, with the store with which this scenario begins.
    async fn begin_anew(&mut self) {
        filch_e2e::disk::write(&self.env.path("data"), &self.files);
        self.confirmed = Confirmed::default();
        self.env.client_log.clear();
        self.server.restart(&self.env).await;
    }

    /// Tries at most this many calls, if this is not a soak.
    async fn check(mut self, most: usize) {
        self.prepare().await;
        let trace = Strace::attach(&self.env, &self.server.process, STORE, &[]).await;
        self.play().await.unwrap();
        if self.scenario == Scenario::HandOver {
            let status = self.server.client.status().await.unwrap();
            assert!(status.steals >= 1 && status.lost >= 1, "{status:?}");
        }
        self.die();
        let points = trace.end().await;
        let count = points.len();
        self.come_back().await;
        let chosen = choose(points, most);
        for point in &chosen {
            let mut next = Some(point.clone());
            while let Some(point) = next.take() {
                let made = self.kill_at(&point).await;
                if !made.contains(&point) {
                    next = last_like(&point, &made);
                }
            }
        }
        report(&format!("{:?}", self.scenario), chosen.len(), count);
        self.finish().await;
        drop(self.workers);
        let checked = self.env.stop_and_check(self.server).await;
        eprintln!("{checked:?}");
    }

    /// Plays the scenario until this call is reached, which kills the server. Returns the calls
    /// that were made.
    async fn kill_at(&mut self, point: &CallPoint) -> Vec<CallPoint> {
        self.prepare().await;
        let kill = [point.kill()];
        let trace = Strace::attach(&self.env, &self.server.process, STORE, &kill).await;
        match self.play().await {
            Ok(()) | Err(Error::Unreachable { .. }) => {}
            Err(other) => panic!("at {point:?}: {other}"),
        }
        self.die();
        let made = trace.end().await;
        self.come_back().await;
        made
    }

    /// What happens before a scenario begins.
    async fn prepare(&mut self) {
        if self.scenario == Scenario::HandOver {
            self.workers.push(self.env.worker(&self.server.url, 1, &["--hold", "4"]));
            until("the worker is connected", async || {
                when(self.server.client.status().await.unwrap().workers == 1)
            })
            .await;
        }
    }

    /// Kills the server if it is still alive.
    fn die(&mut self) {
        if self.server.process.ended().is_none() {
            self.server.process.kill();
        }
    }

    async fn play(&mut self) -> Step {
        self.round += 1;
        let scenario = self.scenario;
        let play = async {
            match scenario {
                Scenario::Submit => self.submit_in_every_way().await,
                Scenario::Work => self.work().await,
                Scenario::HandOver => self.hand_over().await,
                Scenario::Operate => self.operate().await,
                Scenario::Close => self.close().await,
            }
        };
        let played = tokio::time::timeout(TIMEOUT, play).await;
        played.unwrap_or_else(|_| panic!("{scenario:?} does not end"))
    }

    /// Restarts the server and checks what was confirmed.
    async fn come_back(&mut self) {
        self.server.restart(&self.env).await;
        self.open_gate();
        self.confirmed.check(&self.server).await;
        self.env.verify(&LaunchOptions::default(), &self.env.path("data")).await;
        match self.scenario {
            Scenario::HandOver => {
                self.finish().await;
                for mut worker in self.workers.drain(..) {
                    worker.signal(Signal::TERM);
                    worker.end().await;
                }
            }
            Scenario::Close => {
                self.server.process.kill();
                let _ = self.env.check_data(&self.env.path("data"));
                self.begin_anew().await;
            }
            Scenario::Submit | Scenario::Work | Scenario::Operate => {}
        }
    }

    /// Waits until all jobs have ended that are not for tomorrow.
    async fn finish(&self) {
        until("all jobs have ended", async || {
            let jobs = jobs(&self.server.client).await;
            let waits = ["scheduled", "blocked"];
            when(jobs.iter().all(|job| job.ended_at.is_some() || waits.contains(&&*job.state)))
        })
        .await;
    }

    fn gate(&self) -> String {
        let gate = self.env.path(&format!("gate-{}", self.round));
        gate.to_str().unwrap().to_owned()
    }

    fn open_gate(&self) {
        std::fs::write(self.gate(), "").unwrap();
    }

    /// A job for the next day.
    fn planned(&self, bytes: usize) -> Submission {
        let mut job = self.env.job(&["run", "0"]);
        job.at = Some(tomorrow());
        job.env.insert("TEXT".into(), "x".repeat(bytes));
        job
    }

    async fn submit(&mut self, jobs: &[Submission]) -> Step {
        let receipts = self.server.client.submit_all(jobs).await?;
        self.acknowledge(receipts.into_iter().map(|receipt| receipt.id));
        Ok(())
    }

    fn acknowledge(&mut self, ids: impl Iterator<Item = String>) {
        for id in ids {
            self.env.client_log.acknowledged(&id);
            self.confirmed.acknowledged.insert(id);
        }
    }

    /// Waits for a job's end.
    async fn end_of(&mut self, job: &Submission, state: &'static str) -> Step {
        let id = id(job);
        loop {
            let job = self.server.client.wait(&id, Duration::from_secs(10)).await?;
            if job.ended_at.is_some() {
                assert_eq!(job.state, state, "{job:?}");
                self.env.client_log.shown(&job);
                self.confirmed.ended.insert(id, state);
                return Ok(());
            }
        }
    }

    async fn submit_in_every_way(&mut self) -> Step {
        let (one, many) = (self.planned(10), [(); 20].map(|()| self.planned(1_000)));
        let keyed = Submission { key: Some(format!("key {}", self.round)), ..self.planned(10) };
        let after = |name: &str| Submission {
            id: None,
            after: vec![name.to_owned()],
            ..self.env.job(&["run", "0"])
        };
        let first = Submission { id: None, ..self.planned(10) };
        let names = ["fetch", "split", "join"].map(str::to_owned);
        let flow_jobs = names.into_iter().zip([first, after("fetch"), after("split")]).collect();
        let flow = Flow { name: "flow".to_owned(), jobs: flow_jobs };
        self.submit(&[one]).await?;
        self.submit(&many).await?;
        self.submit(&[keyed]).await?;
        let receipt = self.server.client.submit_flow(&flow, None).await?;
        self.acknowledge(receipt.jobs.into_values().map(|receipt| receipt.id));
        Ok(())
    }

    async fn work(&mut self) -> Step {
        let good = [(); 4].map(|()| self.env.job(&["run", "0"]));
        let bad = Submission { retry: Some(retry(2)), ..self.env.job(&["refuse", "0"]) };
        self.submit(&good).await?;
        self.submit(std::slice::from_ref(&bad)).await?;
        for job in &good {
            self.end_of(job, "succeeded").await?;
        }
        self.end_of(&bad, "dead").await
    }

    async fn hand_over(&mut self) -> Step {
        let first = self.env.job(&["until", &self.gate()]);
        let others = [(); 6].map(|()| self.env.job(&["run", "1"]));
        self.submit(std::slice::from_ref(&first)).await?;
        self.submit(&others).await?;
        // One runs and some wait behind it.
        while self.server.client.workers().await?.iter().all(|worker| worker.held < 3) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.workers.push(self.env.worker(&self.server.url, 1, &[]));
        for job in &others {
            self.end_of(job, "succeeded").await?;
        }
        self.workers.remove(0).kill();
        self.open_gate();
        self.end_of(&first, "succeeded").await
    }

    async fn operate(&mut self) -> Step {
        let planned = self.planned(10);
        let running = self.env.job(&["until", &self.gate()]);
        let dead = [(); 2]
            .map(|()| Submission { retry: Some(retry(1)), ..self.env.job(&["refuse", "0"]) });
        self.submit(&[planned.clone(), running.clone()]).await?;
        self.submit(&dead).await?;
        for job in &dead {
            self.end_of(job, "dead").await?;
        }
        let client = self.server.client.clone();
        client.set_priority(&id(&planned), 7).await?;
        for job in [&planned, &running] {
            client.cancel(&id(job)).await?;
            self.confirmed.ended.insert(id(job), "cancelled");
        }
        let [retried, discarded] = dead;
        for job in [&retried, &discarded] {
            self.env.client_log.operated(&id(job));
        }
        self.confirmed.ended.remove(&id(&retried));
        client.retry(&id(&retried)).await?;
        self.end_of(&retried, "dead").await?;
        let ids = Some(vec![id(&discarded)]);
        // From the request on it may be gone.
        self.confirmed.ended.remove(&id(&discarded));
        self.confirmed.acknowledged.remove(&id(&discarded));
        client.dead_discard(&Selection { ids, ..Selection::default() }).await?;
        self.confirmed.discarded.insert(id(&discarded));
        self.confirmed.limit = None;
        let limit = Some(self.round + 1);
        client.set_queue("default", &QueueUpdate { limit, ..QueueUpdate::default() }).await?;
        self.confirmed.limit = limit;
        Ok(())
    }

    async fn close(&mut self) -> Step {
        // Only a checkpoint writes to the database.
        let database = self.env.path("data/filch.db");
        let last_checkpoint = || std::fs::metadata(&database).unwrap().modified().unwrap();
        let before = last_checkpoint();
        while last_checkpoint() == before {
            self.submit(&[self.planned(10)]).await?;
        }
        self.submit(&[self.planned(10)]).await?;
        self.server.process.signal(Signal::TERM);
        self.server.process.end().await;
        Ok(())
    }
}

impl Confirmed {
    async fn check(&self, server: &TestServer) {
        let known: BTreeMap<String, String> =
            jobs(&server.client).await.into_iter().map(|job| (job.id, job.state)).collect();
        for id in &self.acknowledged {
            assert!(known.contains_key(id), "job {id} was acknowledged and is lost");
        }
        for (id, &state) in &self.ended {
            assert_eq!(known[id], state, "job {id} had ended");
        }
        for id in &self.discarded {
            assert!(!known.contains_key(id), "job {id} was discarded");
        }
        if let Some(limit) = self.limit {
            let queues = server.client.queues().await.unwrap();
            let queue = queues.iter().find(|queue| queue.name == "default").unwrap();
            assert_eq!(queue.limit, Some(limit));
        }
    }
}

/// A sample of these: at most this many, more in a soak and all in a long one. Rare calls come
/// first, the others are spread evenly.
fn choose(points: Vec<CallPoint>, most: usize) -> Vec<CallPoint> {
    let mut seen = BTreeSet::new();
    let points: Vec<CallPoint> = points.into_iter().filter(|it| seen.insert(it.clone())).collect();
    if faults::are_all_wanted() {
        return points;
    }
    let most = faults::scaled(most);
    let (writes, rare): (Vec<_>, Vec<_>) =
        points.into_iter().partition(|it| it.call.contains("write"));
    let mut chosen = spread(rare, most.div_ceil(2));
    chosen.extend(spread(writes, most - chosen.len()));
    chosen
}

/// At most this many, the last among them.
fn spread(points: Vec<CallPoint>, most: usize) -> Vec<CallPoint> {
    let count = points.len();
    let is_chosen = |at: usize| (at + 1) * most / count > at * most / count;
    let points = points.into_iter().enumerate();
    points.filter(|(at, _)| is_chosen(*at)).map(|(_, point)| point).collect()
}
