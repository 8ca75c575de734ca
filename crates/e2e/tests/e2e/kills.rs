//! Fifty times `kill -9`, of the server and of workers, while clients submit without a pause.
//!
//! Whom to kill, and after how much work, is drawn from a seed. Each victim is stopped first, and is
//! killed only if at that moment a job is in mid-run whose client waits for an answer: so no kill falls
//! into a quiet moment, and what is believed of the moment is still true when the kill comes. While the
//! server is aimed at, more clients submit jobs for the next day, as fast as they can: these cost
//! nothing but their acknowledgement, and that must be true.
//!
//! In the end every job that was acknowledged has succeeded, none ran twice at once, and the store is
//! sound.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use filch_api::client::{Client, Error};
use filch_api::job::Receipt;
use filch_api::submission::Submission;
use filch_api::time::Moment;
use filch_e2e::process::Process;
use filch_e2e::random::Random;
use filch_e2e::runs;
use filch_e2e::stage::{Maker, Server, Stage};
use filch_e2e::until::{until, when};
use filch_scheduler::time::Wall;

use crate::{id, jobs, stage};

const ROUNDS: usize = 50;
const WORKERS: usize = 3;
const SLOTS: u32 = 2;
/// So many clients submit a job, wait for its end, and begin again.
const CLIENTS: usize = 16;
/// And so many submit jobs for the next day, but only while the server is aimed at.
const PLANNERS: usize = 4;

/// What clients have asked for, and what became of it.
#[derive(Default)]
struct Traffic {
    requests: Mutex<Vec<(Request, Fate)>>,
    acknowledged: Mutex<BTreeSet<String>>,
    planned: Mutex<BTreeSet<String>>,
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
            return receipt;
        }
    }
}

/// A client whose jobs are for the next day.
async fn plan(maker: Maker, client: Client, traffic: Arc<Traffic>) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let next_day = now + Duration::from_secs(24 * 3_600);
    while !traffic.is_over.load(Ordering::Relaxed) {
        if traffic.is_aimed_at_server.load(Ordering::Relaxed) {
            let mut job = maker.job(&["run", "0"]);
            job.at = Some(Moment(Wall(next_day.as_millis() as u64)));
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
        traffic.acknowledged.lock().unwrap().insert(receipt.id.clone());
        loop {
            let wait = client.wait(&receipt.id, Duration::from_secs(30));
            let job = traffic.ask(Request::Wait(receipt.id.clone()), wait).await;
            if let Some(job) = job.filter(|job| job.ended_at.is_some()) {
                assert_eq!(job.state, "succeeded", "{job:?}");
                break;
            }
        }
        traffic.done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Who is killed, and what happens then.
#[derive(Clone, Copy, Debug)]
enum Blow {
    /// The server, back at once.
    Server,
    /// The server, back when its workers have given up everything.
    ServerForLong,
    Worker(usize),
    /// Both at once.
    ServerAndWorker(usize),
}

impl Blow {
    fn draw(random: &mut Random) -> Self {
        let worker = random.below(WORKERS as u64) as usize;
        match random.below(10) {
            0..=2 => Self::Server,
            3 => Self::ServerForLong,
            4 => Self::ServerAndWorker(worker),
            _ => Self::Worker(worker),
        }
    }

    const fn hits_server(self) -> bool {
        !matches!(self, Self::Worker(_))
    }

    const fn hits_worker(self) -> Option<usize> {
        match self {
            Self::Worker(worker) | Self::ServerAndWorker(worker) => Some(worker),
            Self::Server | Self::ServerForLong => None,
        }
    }
}

/// What was under way when a blow fell.
struct Caught {
    /// Clients that wait for jobs in mid-run.
    waits: Vec<usize>,
    submits: Vec<usize>,
}

struct Play {
    stage: Stage,
    server: Server,
    workers: Vec<Process>,
    traffic: Arc<Traffic>,
}

impl Play {
    /// Stops the victims at a moment at which much is under way.
    async fn stop(&self, blow: Blow) -> Caught {
        let workers = |index: usize| blow.hits_worker().is_none_or(|victim| victim == index);
        let workers: Vec<&Process> = (0..WORKERS)
            .filter(|&index| workers(index))
            .map(|index| &self.workers[index])
            .collect();
        let mut victims: Vec<&Process> =
            blow.hits_worker().map(|victim| &self.workers[victim]).into_iter().collect();
        victims.extend(blow.hits_server().then_some(&self.server.process));
        let is_submit = |request: &Request| *request == Request::Submit;
        until("a moment at which much is under way", async || {
            if blow.hits_server() && self.traffic.open(is_submit).is_empty() {
                return None;
            }
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
            Some(Caught { waits, submits })
        })
        .await
    }

    /// Returns how many submits were never answered.
    async fn strike(&mut self, blow: Blow) -> usize {
        self.traffic.is_aimed_at_server.store(blow.hits_server(), Ordering::Relaxed);
        let Caught { waits, submits } = self.stop(blow).await;
        if let Some(victim) = blow.hits_worker() {
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
        assert_eq!(answered, 0, "{blow:?}: nobody can have answered");
        let lost = match blow.hits_server() {
            true => self.traffic.count(&submits, Fate::Unanswered),
            false => 0,
        };
        if matches!(blow, Blow::ServerForLong) {
            until("workers without a server stop what they run", async || {
                when(self.workers.iter().all(|worker| worker.jobs().is_empty()))
            })
            .await;
        }
        self.traffic.is_aimed_at_server.store(false, Ordering::Relaxed);
        if blow.hits_server() {
            self.server.restart(&self.stage).await;
        }
        if let Some(victim) = blow.hits_worker() {
            self.workers[victim] = self.stage.worker(&self.server, SLOTS, &[]);
        }
        lost
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_kills_lose_nothing_and_run_nothing_twice_at_once() {
    let mut random = Random::seeded();
    let stage = stage();
    let server = stage.server(Some("1s")).await;
    let workers = (0..WORKERS).map(|_| stage.worker(&server, SLOTS, &[])).collect();
    let traffic = Arc::new(Traffic::default());
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
    let (mut server_kills, mut lost) = (0, 0);
    for round in 0..ROUNDS {
        let blow = Blow::draw(&mut random);
        let goal = play.traffic.done.load(Ordering::Relaxed) + 5 + random.below(40);
        until(&format!("work goes on before round {round}"), async || {
            when(play.traffic.done.load(Ordering::Relaxed) >= goal)
        })
        .await;
        lost += play.strike(blow).await;
        server_kills += usize::from(blow.hits_server());
    }
    let struck = started.elapsed();
    play.traffic.is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    eprintln!("{server_kills} of {ROUNDS} kills hit the server; {lost} submits had no answer");
    eprintln!("{struck:?} of kills, {:?} in all", started.elapsed());
    assert!(lost >= server_kills, "kills fell into submits");
    judge(&play).await;

    // What is kept is sound.
    let mut server = play.server;
    drop(play.workers);
    server.process.signal(rustix::process::Signal::TERM);
    assert!(server.process.end().await.success());
    let database = rusqlite::Connection::open(play.stage.path("data").join("filch.db")).unwrap();
    let verdict: String =
        database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

async fn judge(play: &Play) {
    let known = jobs(&play.server.client).await;
    let (acknowledged, planned) = (&play.traffic.acknowledged, &play.traffic.planned);
    let (acknowledged, planned) = (acknowledged.lock().unwrap(), planned.lock().unwrap());
    let is_known: BTreeSet<&String> = known.iter().map(|job| &job.id).collect();
    for id in acknowledged.iter().chain(&*planned) {
        assert!(is_known.contains(id), "job {id} was acknowledged and is lost");
    }
    let count = acknowledged.len() + planned.len();
    assert_eq!(known.len(), count, "a submit that was repeated made one job");
    let runs = runs::all(&play.stage.runs());
    let mut again = 0;
    for job in &known {
        if planned.contains(&job.id) {
            assert_eq!(job.state, "scheduled", "{job:?}");
            continue;
        }
        assert_eq!(job.state, "succeeded", "{job:?}");
        let runs = &runs[&job.id];
        assert_eq!(runs::objection(runs), None, "job {}", job.id);
        // Whose word was taken has come to its end, and was the last to own it.
        let last = runs.last().unwrap();
        assert!(last.fence == job.fence && last.end.is_some(), "{job:?} {runs:?}");
        again += usize::from(runs.len() > 1);
    }
    let (ran, planned) = (acknowledged.len(), planned.len());
    eprintln!("{ran} jobs ran, {again} of them more than once; {planned} are for the next day");
    assert!(again > 0, "some kill fell into a run");
}
