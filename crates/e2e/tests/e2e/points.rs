//! Exact points: the server is killed at each call with which it changes its store or makes it last.
//!
//! There are five scenarios. Each is played once to the end, to see which calls there are; then again for
//! every one of them, and the server is killed instead of making that call. What was acknowledged before
//! must hold afterwards. How many points are tried is bounded, except in a soak of an hour or more, which tries
//! them all; they are spread evenly, and syncs and changes of names, of which there are few, come first.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use filch_api::client::Error;
use filch_api::cluster::QueueUpdate;
use filch_api::dead::Selection;
use filch_api::flow::Flow;
use filch_api::submission::Submission;
use filch_e2e::disk::Disk;
use filch_e2e::faults;
use filch_e2e::process::Process;
use filch_e2e::stage::{Manner, Server, Stage, retry};
use filch_e2e::trace::{Point, STORE, Trace, up_and_down};
use filch_e2e::until::{PATIENCE, until, when};
use rustix::process::Signal;

use crate::{assert_sound, id, jobs, make_greedy, stage, tomorrow, verify};

/// A page in the log: its bytes and what is said of it.
const PAGE_IN_LOG: u64 = 4_096 + 24;
/// So many are in the log before it becomes long. It is moved when there are 2,000.
const PAGES_BEFORE: u64 = 1_980;

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_jobs_are_submitted() {
    Play::new(Scenario::Submit).await.check(64).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_jobs_are_claimed_run_and_finished() {
    Play::new(Scenario::Work).await.check(40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_jobs_change_hands() {
    Play::new(Scenario::HandOver).await.check(12).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_jobs_are_cancelled_retried_and_discarded() {
    Play::new(Scenario::Operate).await.check(40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_log_is_moved_and_the_store_is_closed() {
    Play::new(Scenario::Close).await.check(16).await;
}

/// And while the store is made, when there is nothing to lose but the store itself.
#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_store_is_made() {
    let stage = stage();
    let (is_killed, points) = up_and_down(&stage, &[]).await;
    assert!(!is_killed);
    let count = points.len();
    let (chosen, mut hits) = (choose(points, 16), 0);
    for point in &chosen {
        empty(&stage);
        let (is_killed, _) = up_and_down(&stage, &[point.kill()]).await;
        hits += usize::from(is_killed);
        assert_sound(&stage, stage.server(None).await).await;
    }
    tally("making a store", hits, chosen.len(), count);
}

/// What comes together in one commit, what comes last, and which thread does it differs from time to time.
fn tally(what: &str, hits: usize, tried: usize, count: usize) {
    eprintln!("{what}: {hits} of {tried} points were reached, {count} calls in all");
    assert!(hits * 4 >= tried * 3, "most points are reached");
    faults::brought_about(hits, "kills at exact calls");
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// One job, an array, a key, a flow.
    Submit,
    /// Jobs that succeed, and one that fails twice.
    Work,
    /// A worker takes more than it can run, another steals some of it, and the first one dies.
    HandOver,
    /// Cancelled, retried, discarded; a queue with another limit.
    Operate,
    /// The log becomes long enough to be moved into the database, and begins anew; then the server is told to
    /// stop. That the log is nearly long enough was brought about before.
    Close,
}

/// What clients were told.
#[derive(Default)]
struct Told {
    acknowledged: BTreeSet<String>,
    ended: BTreeMap<String, &'static str>,
    discarded: BTreeSet<String>,
    limit: Option<u32>,
}

struct Play {
    scenario: Scenario,
    stage: Stage,
    server: Server,
    workers: Vec<Process>,
    told: Told,
    round: u32,
    /// What the store is made of when a scenario begins that begins with another one each time.
    files: BTreeMap<String, Vec<u8>>,
}

type Step<T = ()> = Result<T, Error>;

impl Play {
    async fn new(scenario: Scenario) -> Self {
        let stage = stage();
        let server = stage.server(Some("2s")).await;
        let workers = match scenario {
            Scenario::Work | Scenario::Operate => vec![stage.worker(&server.url, 2, &[])],
            Scenario::Submit | Scenario::HandOver | Scenario::Close => Vec::new(),
        };
        let (told, round, files) = (Told::default(), 0, BTreeMap::new());
        let mut play = Self { scenario, stage, server, workers, told, round, files };
        if scenario == Scenario::Close {
            play.fill_log().await;
        }
        play
    }

    /// Makes the log so long that a few commits more have it moved, with few pages in it, again and again: each
    /// is written once when it is moved. That is done once, and kept for each time to begin with.
    async fn fill_log(&mut self) {
        let log = self.stage.path("data/filch.db-wal");
        let pages = || std::fs::metadata(&log).map_or(0, |log| log.len() / PAGE_IN_LOG);
        // A queue with nothing but the usual settings would be none.
        let mut weights = [2, 3].into_iter().cycle();
        while pages() < PAGES_BEFORE {
            let change = QueueUpdate { weight: weights.next(), ..QueueUpdate::default() };
            self.server.client.set_queue("default", &change).await.unwrap();
        }
        self.server.process.kill();
        self.files = Disk::read(&self.stage.path("data")).present();
        self.files.retain(|name, _| ["filch.db", "filch.db-wal"].contains(&name.as_str()));
        self.begin_anew().await;
    }

    /// Starts the server where this scenario begins, whatever has become of the store. It was killed.
    async fn begin_anew(&mut self) {
        filch_e2e::disk::write(&self.stage.path("data"), &self.files);
        self.told = Told::default();
        self.stage.clients.forget();
        self.server.restart(&self.stage).await;
    }

    /// Tries at most so many points in an ordinary run.
    async fn check(mut self, most: usize) {
        self.prepare().await;
        let trace = Trace::attach(&self.stage, &self.server.process, STORE, &[]).await;
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
        let mut hits = 0;
        for point in &chosen {
            self.prepare().await;
            let kill = [point.kill()];
            let trace = Trace::attach(&self.stage, &self.server.process, STORE, &kill).await;
            match self.play().await {
                Ok(()) | Err(Error::Unreachable { .. }) => {}
                Err(other) => panic!("at {point:?}: {other}"),
            }
            self.die();
            hits += usize::from(trace.end().await.contains(point));
            self.come_back().await;
        }
        tally(&format!("{:?}", self.scenario), hits, chosen.len(), count);
        self.finish().await;
        drop(self.workers);
        let judged = self.stage.judge(self.server).await;
        eprintln!("{judged:?}");
    }

    /// What is there before a scenario begins.
    async fn prepare(&mut self) {
        if self.scenario == Scenario::HandOver {
            self.workers.push(self.stage.worker(&self.server.url, 1, &[]));
            make_greedy(&self.server).await;
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
        let played = tokio::time::timeout(PATIENCE, play).await;
        played.unwrap_or_else(|_| panic!("{scenario:?} comes to no end"))
    }

    /// Starts the server again and holds it to what was told.
    async fn come_back(&mut self) {
        self.server.restart(&self.stage).await;
        self.open_gate();
        self.told.check(&self.server).await;
        verify(&self.stage, &Manner::default()).await;
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
                let _ = self.stage.judge_kept(&self.stage.path("data"));
                self.begin_anew().await;
            }
            Scenario::Submit | Scenario::Work | Scenario::Operate => {}
        }
    }

    /// Everything that is not for tomorrow comes to its end.
    async fn finish(&self) {
        until("everything comes to its end", async || {
            let jobs = jobs(&self.server.client).await;
            let waits = ["scheduled", "blocked"];
            when(jobs.iter().all(|job| job.ended_at.is_some() || waits.contains(&&*job.state)))
        })
        .await;
    }

    fn gate(&self) -> String {
        let gate = self.stage.path(&format!("gate-{}", self.round));
        gate.to_str().unwrap().to_owned()
    }

    fn open_gate(&self) {
        std::fs::write(self.gate(), "").unwrap();
    }

    /// A job for the next day.
    fn planned(&self, bytes: usize) -> Submission {
        let mut job = self.stage.job(&["run", "0"]);
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
            self.stage.clients.acknowledged(&id);
            self.told.acknowledged.insert(id);
        }
    }

    /// Waits for a job's end.
    async fn end_of(&mut self, job: &Submission, state: &'static str) -> Step {
        let id = id(job);
        loop {
            let job = self.server.client.wait(&id, Duration::from_secs(10)).await?;
            if job.ended_at.is_some() {
                assert_eq!(job.state, state, "{job:?}");
                self.stage.clients.shown(&job);
                self.told.ended.insert(id, state);
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
            ..self.stage.job(&["run", "0"])
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
        let good = [(); 4].map(|()| self.stage.job(&["run", "0"]));
        let bad = Submission { retry: Some(retry(2)), ..self.stage.job(&["refuse", "0"]) };
        self.submit(&good).await?;
        self.submit(std::slice::from_ref(&bad)).await?;
        for job in &good {
            self.end_of(job, "succeeded").await?;
        }
        self.end_of(&bad, "dead").await
    }

    async fn hand_over(&mut self) -> Step {
        let first = self.stage.job(&["until", &self.gate()]);
        let others = [(); 6].map(|()| self.stage.job(&["run", "1"]));
        self.submit(std::slice::from_ref(&first)).await?;
        self.submit(&others).await?;
        // One runs and some wait behind it.
        while self.server.client.workers().await?.iter().all(|worker| worker.held < 3) {}
        self.workers.push(self.stage.worker(&self.server.url, 1, &[]));
        for job in &others {
            self.end_of(job, "succeeded").await?;
        }
        self.workers.remove(0).kill();
        self.open_gate();
        self.end_of(&first, "succeeded").await
    }

    async fn operate(&mut self) -> Step {
        let planned = self.planned(10);
        let running = self.stage.job(&["until", &self.gate()]);
        let dead = [(); 2]
            .map(|()| Submission { retry: Some(retry(1)), ..self.stage.job(&["refuse", "0"]) });
        self.submit(&[planned.clone(), running.clone()]).await?;
        self.submit(&dead).await?;
        for job in &dead {
            self.end_of(job, "dead").await?;
        }
        let client = self.server.client.clone();
        client.set_priority(&id(&planned), 7).await?;
        for job in [&planned, &running] {
            client.cancel(&id(job)).await?;
            self.told.ended.insert(id(job), "cancelled");
        }
        let [retried, discarded] = dead;
        for job in [&retried, &discarded] {
            self.stage.clients.operated(&id(job));
        }
        self.told.ended.remove(&id(&retried));
        client.retry(&id(&retried)).await?;
        self.end_of(&retried, "dead").await?;
        let ids = Some(vec![id(&discarded)]);
        // From when it is asked for it may be gone.
        self.told.ended.remove(&id(&discarded));
        self.told.acknowledged.remove(&id(&discarded));
        client.dead_discard(&Selection { ids, ..Selection::default() }).await?;
        self.told.discarded.insert(id(&discarded));
        self.told.limit = None;
        let limit = Some(self.round + 1);
        client.set_queue("default", &QueueUpdate { limit, ..QueueUpdate::default() }).await?;
        self.told.limit = limit;
        Ok(())
    }

    async fn close(&mut self) -> Step {
        // Only what is moved gets into the database.
        let database = self.stage.path("data/filch.db");
        let last_moved = || std::fs::metadata(&database).unwrap().modified().unwrap();
        let before = last_moved();
        while last_moved() == before {
            self.submit(&[self.planned(10)]).await?;
        }
        self.submit(&[self.planned(10)]).await?;
        self.server.process.signal(Signal::TERM);
        self.server.process.end().await;
        Ok(())
    }
}

impl Told {
    async fn check(&self, server: &Server) {
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

/// Of these, each once, at most so many, more in a soak and all in a long one: those that are rare first, the
/// others spread evenly.
fn choose(points: Vec<Point>, most: usize) -> Vec<Point> {
    let mut seen = BTreeSet::new();
    let points: Vec<Point> = points.into_iter().filter(|it| seen.insert(it.clone())).collect();
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

/// At most so many, the first and the last among them.
fn spread(points: Vec<Point>, most: usize) -> Vec<Point> {
    let count = points.len();
    let is_chosen = |at: usize| (at + 1) * most / count > at * most / count;
    let points = points.into_iter().enumerate();
    points.filter(|(at, _)| is_chosen(*at)).map(|(_, point)| point).collect()
}

/// An empty folder for the data of a server that is to be started.
fn empty(stage: &Stage) {
    filch_e2e::disk::write(&stage.path("data"), &BTreeMap::new());
}
