//! Two hundred times `kill -9`, of the server and of workers, while clients submit without a pause.
//!
//! Whom to kill, and after how much work, is drawn from a seed; some blows kill several at once. Each
//! victim is stopped first, and is killed only if at that moment a job is in mid-run whose client waits for
//! an answer: so no kill falls into a quiet moment, and what is believed of the moment is still true when
//! the kill comes. While the
//! server is aimed at, more clients submit jobs for the next day, as fast as they can: these cost
//! nothing but their acknowledgement, and that must be true.
//!
//! In the end every job that was acknowledged has succeeded, none ran twice at once, and the store is
//! sound.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use filch_api::client::{Client, Error};
use filch_api::job::Receipt;
use filch_api::submission::Submission;
use filch_api::time::Moment;
use filch_e2e::clients::Clients;
use filch_e2e::process::Process;
use filch_e2e::random::Random;
use filch_e2e::stage::{Maker, Server, Stage};
use filch_e2e::until::{until, when};
use filch_e2e::{faults, wall};
use filch_scheduler::time::Wall;

use crate::{id, jobs, stage};

const KILLS: usize = 200;
const LEASE: Duration = Duration::from_secs(1);
const WORKERS: usize = 4;
const SLOTS: u32 = 2;
/// So many clients submit a job, wait for its end, and begin again.
const CLIENTS: usize = 16;
/// And so many submit jobs for the next day, but only while the server is aimed at.
const PLANNERS: usize = 4;

/// What clients have asked for, and what became of it.
#[derive(Default)]
struct Traffic {
    requests: Mutex<Vec<(Request, Fate)>>,
    /// The jobs for the next day.
    planned: Mutex<BTreeSet<String>>,
    /// What else was told.
    clients: Arc<Clients>,
    is_aimed_at_server: AtomicBool,
    /// How many jobs are known to have ended.
    done: AtomicU64,
    is_over: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Answered,
    /// The connection broke.
    Unanswered,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Request {
    Submit,
    /// For the end of this job.
    Wait(String),
}

impl Traffic {
    /// Waits for an answer; `None` if there is none, and it has to be asked again.
    async fn ask<T>(
        &self,
        what: Request,
        asking: impl Future<Output = Result<T, Error>>,
    ) -> Option<T> {
        let number = {
            let mut requests = self.requests.lock().unwrap();
            requests.push((what, Fate::Open));
            requests.len() - 1
        };
        let answer = asking.await;
        let fate = if answer.is_ok() { Fate::Answered } else { Fate::Unanswered };
        self.requests.lock().unwrap()[number].1 = fate;
        match answer {
            Ok(answer) => return Some(answer),
            Err(Error::Unreachable { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        // Nobody is there: no use in asking without a pause.
        tokio::time::sleep(Duration::from_millis(5)).await;
        None
    }

    /// Those that are open and are such.
    fn open(&self, is_such: impl Fn(&Request) -> bool) -> Vec<usize> {
        let requests = self.requests.lock().unwrap();
        let is_open = |at: &usize| requests[*at].1 == Fate::Open && is_such(&requests[*at].0);
        (0..requests.len()).filter(is_open).collect()
    }

    /// How many of these have come to that.
    fn count(&self, these: &[usize], fate: Fate) -> usize {
        let requests = self.requests.lock().unwrap();
        these.iter().filter(|&&at| requests[at].1 == fate).count()
    }
}

/// Submits a job, again and again, until it is acknowledged.
async fn submit(client: &Client, traffic: &Traffic, job: &Submission) -> Receipt {
    loop {
        if let Some(receipt) = traffic.ask(Request::Submit, client.submit(job)).await {
            assert_eq!(receipt.id, id(job));
            traffic.clients.acknowledged(&receipt.id);
            return receipt;
        }
    }
}

/// A client whose jobs are for the next day.
async fn plan(maker: Maker, client: Client, traffic: Arc<Traffic>) {
    let next_day = Moment(Wall(wall().0 + 24 * 3_600_000));
    while !traffic.is_over.load(Ordering::Relaxed) {
        if traffic.is_aimed_at_server.load(Ordering::Relaxed) {
            let mut job = maker.job(&["run", "0"]);
            job.at = Some(next_day);
            let receipt = submit(&client, &traffic, &job).await;
            traffic.planned.lock().unwrap().insert(receipt.id);
        } else {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// One client: one job after the other, until it is over.
async fn submit_and_wait(maker: Maker, client: Client, traffic: Arc<Traffic>, mut random: Random) {
    while !traffic.is_over.load(Ordering::Relaxed) {
        let millis = match random.below(20) {
            // Longer than a lease: who is not killed with its worker meets its successor.
            0 => 1_500 + random.below(1_000),
            1 | 2 => 200 + random.below(200),
            _ => random.below(60),
        };
        let job = maker.job(&["run", &millis.to_string()]);
        let receipt = submit(&client, &traffic, &job).await;
        loop {
            let wait = client.wait(&receipt.id, Duration::from_secs(30));
            let job = traffic.ask(Request::Wait(receipt.id.clone()), wait).await;
            if let Some(job) = job.filter(|job| job.ended_at.is_some()) {
                traffic.clients.shown(&job);
                assert_eq!(job.state, "succeeded", "{job:?}");
                break;
            }
        }
        traffic.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Who is killed at once, and what happens then.
#[derive(Clone, Debug)]
struct Blow {
    server: Option<Back>,
    workers: Vec<usize>,
}

/// When a server is back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Back {
    AtOnce,
    /// When its workers have given up everything.
    Late,
}

impl Blow {
    fn draw(random: &mut Random) -> Self {
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

/// What was under way when a blow fell.
struct Caught {
    /// Clients that wait for jobs in mid-run.
    waits: Vec<usize>,
    submits: Vec<usize>,
    since: Instant,
}

struct Play {
    stage: Stage,
    server: Server,
    workers: Vec<Process>,
    traffic: Arc<Traffic>,
}

impl Play {
    /// Stops the victims at a moment at which much is under way.
    async fn stop(&self, blow: &Blow) -> Caught {
        let is_hit = |index: &usize| blow.workers.is_empty() || blow.workers.contains(index);
        let workers: Vec<&Process> =
            (0..WORKERS).filter(is_hit).map(|index| &self.workers[index]).collect();
        let mut victims: Vec<&Process> =
            blow.workers.iter().map(|&victim| &self.workers[victim]).collect();
        victims.extend(blow.hits_server().then_some(&self.server.process));
        let is_submit = |request: &Request| *request == Request::Submit;
        until("a moment at which much is under way", async || {
            if blow.hits_server() && self.traffic.open(is_submit).is_empty() {
                return None;
            }
            let since = Instant::now();
            for victim in &victims {
                victim.freeze();
            }
            // A job that runs now is not known to have ended, nor can it become known: either its
            // worker is stopped or the server. So it is leased, and who waits for it is not answered.
            let running: BTreeSet<String> =
                workers.iter().flat_map(|worker| worker.jobs()).map(|job| job.id).collect();
            let waits = self
                .traffic
                .open(|request| matches!(request, Request::Wait(job) if running.contains(job)));
            let submits = self.traffic.open(is_submit);
            if waits.is_empty() || (blow.hits_server() && submits.is_empty()) {
                for victim in &victims {
                    victim.thaw();
                }
                return None;
            }
            Some(Caught { waits, submits, since })
        })
        .await
    }

    /// Returns how many submits were never answered.
    async fn strike(&mut self, blow: &Blow) -> usize {
        self.traffic.is_aimed_at_server.store(blow.hits_server(), Ordering::Relaxed);
        let Caught { waits, submits, since } = self.stop(blow).await;
        for &victim in &blow.workers {
            self.workers[victim].kill();
        }
        if blow.hits_server() {
            self.server.process.kill();
        }
        if blow.hits_server() {
            let under_way = [&waits[..], &submits].concat();
            until("clients have noticed", async || {
                when(self.traffic.count(&under_way, Fate::Open) == 0)
            })
            .await;
        }
        assert!(!waits.is_empty(), "something was under way");
        let answered = self.traffic.count(&waits, Fate::Answered);
        // Where the server lives, another worker may have done it when the lease is over.
        let can_be_done = !blow.hits_server() && since.elapsed() > LEASE / 2;
        assert!(answered == 0 || can_be_done, "{blow:?}: nobody can have answered");
        let lost = match blow.hits_server() {
            true => self.traffic.count(&submits, Fate::Unanswered),
            false => 0,
        };
        if blow.server == Some(Back::Late) {
            until("workers without a server stop what they run", async || {
                when(self.workers.iter().all(|worker| worker.jobs().is_empty()))
            })
            .await;
        }
        self.traffic.is_aimed_at_server.store(false, Ordering::Relaxed);
        if blow.hits_server() {
            self.server.restart(&self.stage).await;
        }
        for &victim in &blow.workers {
            self.workers[victim] = self.stage.worker(&self.server.url, SLOTS, &[]);
        }
        lost
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_kills_lose_nothing_and_run_nothing_twice_at_once() {
    let mut random = Random::seeded();
    let stage = stage();
    let server = stage.server(Some(&format!("{}s", LEASE.as_secs()))).await;
    let workers = (0..WORKERS).map(|_| stage.worker(&server.url, SLOTS, &[])).collect();
    let clients = Arc::clone(&stage.clients);
    let traffic = Arc::new(Traffic { clients, ..Traffic::default() });
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (client, random) = (server.client.clone(), Random::new(random.draw()));
            tokio::spawn(submit_and_wait(stage.maker(), client, Arc::clone(&traffic), random))
        })
        .collect();

    clients.extend(
        (0..PLANNERS).map(|_| {
            tokio::spawn(plan(stage.maker(), server.client.clone(), Arc::clone(&traffic)))
        }),
    );

    let started = Instant::now();
    let mut play = Play { stage, server, workers, traffic };
    let (mut kills, mut server_kills, mut lost) = (0, 0, 0);
    while kills < faults::scaled(KILLS) {
        let blow = Blow::draw(&mut random);
        let goal = play.traffic.done.load(Ordering::Relaxed) + 1 + random.below(20);
        until(&format!("work goes on after {kills} kills"), async || {
            when(play.traffic.done.load(Ordering::Relaxed) >= goal)
        })
        .await;
        lost += play.strike(&blow).await;
        kills += blow.count();
        server_kills += usize::from(blow.hits_server());
    }
    let struck = started.elapsed();
    play.traffic.is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    eprintln!("{server_kills} of {kills} kills hit the server; {lost} submits had no answer");
    eprintln!("{struck:?} of kills, {:?} in all", started.elapsed());
    assert!(lost >= server_kills, "kills fell into submits");
    expect_done(&play).await;

    drop(play.workers);
    let judged = play.stage.judge(play.server).await;
    eprintln!("{judged:?}, {:?} with the judgement", started.elapsed());
    faults::brought_about(kills, "kills");
    assert!(judged.repeated > 0, "some kill fell into a run");
}

/// Each job has succeeded, but for those of the next day, and there is none that nobody submitted.
async fn expect_done(play: &Play) {
    let known = jobs(&play.server.client).await;
    let planned = play.traffic.planned.lock().unwrap();
    let count = play.traffic.clients.heard().acknowledged.len();
    assert_eq!(known.len(), count, "a submit that was repeated made one job");
    for job in &known {
        let state = if planned.contains(&job.id) { "scheduled" } else { "succeeded" };
        assert_eq!(job.state, state, "{job:?}");
    }
}
