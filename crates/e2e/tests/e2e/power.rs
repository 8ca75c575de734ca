//! Power cuts: the server's disk loses what was not synced, and everything acknowledged is still
//! there.
//!
//! The server runs on a simulated disk (`shim/power.c`) while clients submit and a worker, which
//! stands for another machine, runs jobs. Then the server is killed, and its successor finds only
//! what a power cut would have left of its files.
//!
//! To prove that the test would notice a loss, a modified copy of the program, which syncs as
//! SQLite does with `synchronous=NORMAL`, goes through the same and has to lose jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use filch_api::client::Client;
use filch_api::job::Job;
use filch_e2e::client_log::ClientLog;
use filch_e2e::disk::{self, ReplayedDisk, Surviving};
use filch_e2e::faults::{injected, scaled};
use filch_e2e::jobs::{jobs, tomorrow};
use filch_e2e::random::TestRandom;
use filch_e2e::test_env::{JobMaker, LONG_LEASE, LaunchOptions, TestEnv, TestServer};
use filch_e2e::until::{until, when};
use filch_e2e::{program, shim};

use crate::test_env;

const CUTS: usize = 16;
/// Cuts that must hit unsynced writes: all but one in this many.
const QUIET: usize = 4;
const DATABASE: &str = "filch.db";
const LOG: &str = "filch.db-wal";
/// Clients that submit jobs for the next day, one after the other.
const PLANNERS: usize = 6;
/// Clients that wait for the jobs they submit.
const WAITERS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn power_cuts_lose_no_acknowledged_job() {
    let cuts = scaled(CUTS);
    let mut random = TestRandom::seeded();
    let mut machine = Machine::start(test_env(), None).await;
    let worker = machine.env.worker(&machine.server.url, 2, &[]);
    let (confirmed, mut amid_writes) = (Confirmed::on(&machine.env), 0);
    for cut in 0..cuts {
        let surviving = Surviving::draw(&mut random);
        let moment = if cut.is_multiple_of(QUIET) { CutMoment::Any } else { CutMoment::Unsynced };
        let unsynced =
            machine.work_and_cut(&confirmed, WAITERS, moment, surviving, &mut random).await;
        amid_writes += usize::from(unsynced > 0);
        let lost = confirmed.lost(&jobs(&machine.server.client).await);
        assert_eq!(lost, BTreeSet::new(), "after cut {cut}, which {surviving:?} survived");
        machine.env.verify(&LaunchOptions::default(), &machine.data).await;
    }
    let acknowledged = confirmed.count();
    eprintln!("{cuts} cuts, {amid_writes} amid writes: 0 of {acknowledged} acknowledged jobs lost");
    let database = machine.data.join(DATABASE).metadata().unwrap().len();
    assert!(database > 1 << 20, "there were checkpoints: {database} bytes");

    // And the work goes on.
    until("everything but what is for tomorrow is done", async || {
        let jobs = jobs(&machine.server.client).await;
        when(jobs.iter().all(|job| job.state == "scheduled" || job.state == "succeeded"))
    })
    .await;
    drop(worker);
    let checked = machine.env.stop_and_check(machine.server).await;
    assert!(checked.jobs >= acknowledged, "{checked:?} of {acknowledged}");
    injected(cuts, "power cuts");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_syncs_too_rarely_loses_jobs() {
    let mut random = TestRandom::seeded();
    let env = test_env();
    let program = with_fewer_syncs(&env);
    let mut machine = Machine::start(env, Some(program)).await;
    let (confirmed, mut lost, cuts) = (Confirmed::on(&machine.env), 0, 5);
    for _ in 0..cuts {
        machine.work_and_cut(&confirmed, 0, CutMoment::Any, Surviving::Nothing, &mut random).await;
        let known = jobs(&machine.server.client).await;
        lost += confirmed.lost(&known).len();
        // Each lost job is counted once.
        *confirmed.acknowledged.lock().unwrap() = known.into_iter().map(|job| job.id).collect();
    }
    eprintln!("with synchronous=NORMAL {cuts} cuts have lost {lost} acknowledged jobs");
    assert!(lost > 0, "this test would not notice lost jobs");
}

/// Whatever survives of the first moments of a store can be opened.
#[tokio::test(flavor = "multi_thread")]
async fn a_power_cut_while_the_store_is_made_leaves_one_that_opens() {
    let mut random = TestRandom::seeded();
    let mut machine = Machine::start(test_env(), None).await;
    machine.server.process.kill();
    let journal = std::fs::read(&machine.journal).unwrap();
    let records = disk::records(&journal);
    let most = scaled(12);
    for step in 0..=most {
        let before = records.len() * step / most;
        let mut disk = ReplayedDisk::default();
        disk.play(&records[..before].concat());
        machine.replace_files(&disk.cut(Surviving::draw(&mut random), &mut random));
        machine.server.restart(&machine.env).await;
        assert!(jobs(&machine.server.client).await.is_empty(), "after {before} of its first steps");
        machine.server.process.kill();
    }
}

/// Writes that the shim does not see would survive in these tests and nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn the_journal_contains_every_write() {
    let mut random = TestRandom::seeded();
    let machine = Machine::start(test_env(), None).await;
    let confirmed = Confirmed::on(&machine.env);
    let clients = machine.clients(&confirmed, 0, &mut random);
    until("jobs are submitted", async || when(confirmed.count() >= 50)).await;
    clients.into_iter().for_each(|client| client.abort());
    // A process that is frozen between a write and its journal record differs: the next look does
    // not.
    until("the journal accounts for every byte", async || {
        machine.server.process.freeze();
        let (present, there) =
            (machine.replayed().present(), ReplayedDisk::read(&machine.data).present());
        machine.server.process.thaw();
        // The index of the log is shared memory, and the ballast has no content.
        let has_content = |name: &str| !name.ends_with("-shm") && !name.ends_with(".ballast");
        let is_same = |(name, bytes): (&String, &Vec<u8>)| {
            !has_content(name) || there.get(name) == Some(bytes)
        };
        when(present.keys().eq(there.keys()) && present.iter().all(is_same))
    })
    .await;
}

/// A server on a simulated disk.
struct Machine {
    env: TestEnv,
    server: TestServer,
    data: PathBuf,
    journal: PathBuf,
    /// What was on the disk when the server was last started, all of it synced.
    before: ReplayedDisk,
}

impl Machine {
    async fn start(env: TestEnv, program: Option<PathBuf>) -> Self {
        let data = env.path("data").canonicalize().unwrap();
        let journal = data.with_file_name("journal");
        let library = shim::build(shim::POWER, data.parent().unwrap());
        let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
        let environment = vec![
            (shim::PRELOAD.to_owned(), text(&library)),
            ("FILCH_POWER_FOLDER".to_owned(), text(&data)),
            ("FILCH_POWER_JOURNAL".to_owned(), text(&journal)),
        ];
        let options = LaunchOptions { program, environment, ..LaunchOptions::default() };
        let server = env.server_with(&options, Some(LONG_LEASE)).await;
        Self { env, server, data, journal, before: ReplayedDisk::default() }
    }

    /// The disk as it is now.
    fn replayed(&self) -> ReplayedDisk {
        let mut disk = self.before.clone();
        disk.play(&std::fs::read(&self.journal).unwrap());
        disk
    }

    /// Replaces the files on the disk before a server is started.
    fn replace_files(&mut self, files: &BTreeMap<String, Vec<u8>>) {
        disk::write(&self.data, files);
        std::fs::write(&self.journal, "").unwrap();
        self.before = ReplayedDisk::read(&self.data);
    }

    fn clients(
        &self,
        confirmed: &Arc<Confirmed>,
        waiters: usize,
        random: &mut TestRandom,
    ) -> Vec<tokio::task::JoinHandle<()>> {
        let client = |index: usize| {
            let (confirmed, maker, client) =
                (Arc::clone(confirmed), self.env.maker(), self.server.client.clone());
            let random = TestRandom::new(random.draw());
            tokio::spawn(async move {
                match index < waiters {
                    true => confirmed.work(maker, client).await,
                    false => confirmed.plan(maker, client, random).await,
                }
            })
        };
        (0..waiters + PLANNERS).map(client).collect()
    }

    /// Lets clients work for a while and cuts the power. Returns how many writes were not synced
    /// then.
    async fn work_and_cut(
        &mut self,
        confirmed: &Arc<Confirmed>,
        waiters: usize,
        moment: CutMoment,
        surviving: Surviving,
        random: &mut TestRandom,
    ) -> usize {
        let goal = confirmed.count() + 5 + random.below(80) as usize;
        let clients = self.clients(confirmed, waiters, random);
        until("jobs are acknowledged", async || when(confirmed.count() >= goal)).await;
        until("a moment for a power cut", async || {
            self.server.process.freeze();
            let is_it = moment == CutMoment::Any || unsynced(&self.replayed()) > 0;
            if !is_it {
                self.server.process.thaw();
            }
            when(is_it)
        })
        .await;
        self.server.process.kill();
        for client in clients {
            client.await.unwrap();
        }
        let disk = self.replayed();
        self.replace_files(&disk.cut(surviving, random));
        self.server.restart(&self.env).await;
        unsynced(&disk)
    }
}

/// When the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CutMoment {
    Any,
    /// While some writes are not synced.
    Unsynced,
}

fn unsynced(disk: &ReplayedDisk) -> usize {
    disk.unsynced(LOG) + disk.unsynced(DATABASE)
}

/// What the server has confirmed to clients.
#[derive(Default)]
struct Confirmed {
    acknowledged: Mutex<BTreeSet<String>>,
    succeeded: Mutex<BTreeSet<String>>,
    /// The same for the final check.
    client_log: Arc<ClientLog>,
}

impl Confirmed {
    fn on(env: &TestEnv) -> Arc<Self> {
        Arc::new(Self { client_log: Arc::clone(&env.client_log), ..Self::default() })
    }

    fn acknowledge(&self, id: &str) {
        self.acknowledged.lock().unwrap().insert(id.to_owned());
        self.client_log.acknowledged(id);
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Submits until the server is gone.
    async fn plan(&self, maker: JobMaker, client: Client, mut random: TestRandom) {
        loop {
            let mut job = maker.job(&["run", "0"]);
            job.at = Some(tomorrow());
            // The larger ones make the log long enough for checkpoints.
            let size = if random.below(8) == 0 { 250_000 } else { 100 };
            job.env.insert("TEXT".into(), "x".repeat(size));
            let Ok(receipt) = client.submit(&job).await else { return };
            self.acknowledge(&receipt.id);
        }
    }

    /// Submits and waits until the server is gone.
    async fn work(&self, maker: JobMaker, client: Client) {
        while let Ok(receipt) = client.submit(&maker.job(&["run", "0"])).await {
            self.acknowledge(&receipt.id);
            loop {
                let wait = client.wait(&receipt.id, Duration::from_secs(10));
                let Ok(job) = wait.await else { return };
                if job.ended_at.is_some() {
                    assert_eq!(job.state, "succeeded", "{job:?}");
                    self.client_log.shown(&job);
                    self.succeeded.lock().unwrap().insert(job.id);
                    break;
                }
            }
        }
    }

    /// Jobs for which the confirmation does not hold any more.
    fn lost(&self, known: &[Job]) -> BTreeSet<String> {
        let ids = |state: Option<&str>| {
            let is_so = |job: &&Job| state.is_none_or(|state| job.state == state);
            known.iter().filter(is_so).map(|job| job.id.clone()).collect::<BTreeSet<_>>()
        };
        let acknowledged = &*self.acknowledged.lock().unwrap() - &ids(None);
        let succeeded = &*self.succeeded.lock().unwrap() - &ids(Some("succeeded"));
        &acknowledged | &succeeded
    }
}

/// A copy of the program in which SQLite syncs less often; both texts have the same length.
fn with_fewer_syncs(env: &TestEnv) -> PathBuf {
    let (original, modified) = (b"PRAGMA synchronous = FULL;", b"PRAGMA synchronous=NORMAL;");
    let mut program = std::fs::read(program::filch()).unwrap();
    let places: Vec<usize> = (0..program.len() - original.len())
        .filter(|&place| program[place..].starts_with(original))
        .collect();
    let [place] = places[..] else { panic!("found it in {} places", places.len()) };
    program[place..place + original.len()].copy_from_slice(modified);
    let path = env.path("modified-filch");
    std::fs::write(&path, program).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}
