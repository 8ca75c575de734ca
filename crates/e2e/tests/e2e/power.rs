//! Power cuts: the server's disk forgets what was not synced, and everything acknowledged is there all the
//! same.
//!
//! The server runs on a disk that forgets (`shim/power.c`) while clients submit and a worker works, which
//! stands for another machine. Then the server is killed, and what a power cut would have left of its
//! files is all that its successor finds.
//!
//! A test like this one can be blind. So a spoilt copy of the program, which syncs as SQLite does with
//! `synchronous=NORMAL`, goes through the same and has to lose jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use filch_api::client::Client;
use filch_api::job::Job;
use filch_e2e::clients::Clients;
use filch_e2e::disk::{self, Disk, Lasts};
use filch_e2e::faults::{brought_about, scaled};
use filch_e2e::random::Random;
use filch_e2e::stage::{Maker, Manner, Server, Stage};
use filch_e2e::until::{until, when};
use filch_e2e::{program, shim};

use crate::{jobs, stage, tomorrow, verify};

const CUTS: usize = 40;
const DATABASE: &str = "filch.db";
const LOG: &str = "filch.db-wal";
/// So many clients submit jobs for the next day, one after the other.
const PLANNERS: usize = 6;
/// And so many wait for what they submit.
const WAITERS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn power_cuts_lose_nothing_acknowledged() {
    let cuts = scaled(CUTS);
    let mut random = Random::seeded();
    let mut machine = Machine::start(stage(), None).await;
    let worker = machine.stage.worker(&machine.server.url, 2, &[]);
    let (told, mut forgetful) = (Told::on(&machine.stage), 0);
    for cut in 0..cuts {
        let lasts = Lasts::draw(&mut random);
        let unsynced = machine.work_and_cut(&told, WAITERS, lasts, &mut random).await;
        forgetful += usize::from(unsynced > 0);
        let lost = told.lost(&jobs(&machine.server.client).await);
        assert_eq!(lost, BTreeSet::new(), "after cut {cut}, of which {lasts:?} lasted");
        verify(&machine.stage, &Manner::default()).await;
    }
    let acknowledged = told.count();
    eprintln!("{cuts} cuts, {forgetful} amid writes: 0 of {acknowledged} acknowledged jobs lost");
    assert!(forgetful > cuts / 4, "cuts fell into something: {forgetful}");
    let moved = machine.data.join(DATABASE).metadata().unwrap().len();
    assert!(moved > 1 << 20, "the log was moved into the database now and then: {moved} bytes");

    // And the work goes on.
    until("everything but what is for tomorrow is done", async || {
        let jobs = jobs(&machine.server.client).await;
        when(jobs.iter().all(|job| job.state == "scheduled" || job.state == "succeeded"))
    })
    .await;
    drop(worker);
    let judged = machine.stage.judge(machine.server).await;
    assert!(judged.jobs >= acknowledged, "{judged:?} of {acknowledged}");
    brought_about(cuts, "power cuts");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_syncs_too_rarely_is_found_out() {
    let mut random = Random::seeded();
    let stage = stage();
    let program = spoilt(&stage);
    let mut machine = Machine::start(stage, Some(program)).await;
    let (told, mut lost, cuts) = (Told::on(&machine.stage), 0, 5);
    for _ in 0..cuts {
        machine.work_and_cut(&told, 0, Lasts::Nothing, &mut random).await;
        let known = jobs(&machine.server.client).await;
        lost += told.lost(&known).len();
        // What is lost is lost once.
        *told.acknowledged.lock().unwrap() = known.into_iter().map(|job| job.id).collect();
    }
    eprintln!("with synchronous=NORMAL {cuts} cuts have lost {lost} acknowledged jobs");
    assert!(lost > 0, "the test would not have noticed");
}

/// Also the first moments of a store: whatever of them lasts can be opened.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_while_the_store_is_made_leaves_one_that_opens() {
    let mut random = Random::seeded();
    let mut machine = Machine::start(stage(), None).await;
    machine.server.process.kill();
    let journal = std::fs::read(&machine.journal).unwrap();
    let records = disk::records(&journal);
    let most = scaled(12);
    for step in 0..=most {
        let before = records.len() * step / most;
        let mut disk = Disk::default();
        disk.play(&records[..before].concat());
        machine.lay(&disk.cut(Lasts::draw(&mut random), &mut random));
        machine.server.restart(&machine.stage).await;
        assert!(jobs(&machine.server.client).await.is_empty(), "after {before} of its first steps");
        machine.server.process.kill();
    }
}

/// What the shim does not see would last in these tests and nowhere else.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_past_the_journal() {
    let mut random = Random::seeded();
    let machine = Machine::start(stage(), None).await;
    let told = Told::on(&machine.stage);
    let clients = machine.clients(&told, 0, &mut random);
    until("jobs are submitted", async || when(told.count() >= 50)).await;
    clients.into_iter().for_each(|client| client.abort());
    // A quiet moment: whoever is stopped amid a write has not written it down yet.
    until("the journal tells of every byte", async || {
        machine.server.process.freeze();
        let (present, there) = (machine.replayed().present(), Disk::read(&machine.data).present());
        machine.server.process.thaw();
        // The index of the log is shared memory, and no ballast is ever written to.
        let is_kept = |name: &str| !name.ends_with("-shm") && !name.ends_with(".ballast");
        assert!(present.keys().eq(there.keys()), "{:?}", present.keys());
        when(present.iter().all(|(name, bytes)| !is_kept(name) || there[name] == *bytes))
    })
    .await;
}

/// A server on a disk that forgets.
struct Machine {
    stage: Stage,
    server: Server,
    data: PathBuf,
    journal: PathBuf,
    /// What was on the disk when the server was started last, all of it there to stay.
    before: Disk,
}

impl Machine {
    async fn start(stage: Stage, program: Option<PathBuf>) -> Self {
        let data = stage.path("data").canonicalize().unwrap();
        let journal = data.with_file_name("journal");
        let library = shim::build(shim::POWER, data.parent().unwrap());
        let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
        let environment = vec![
            (shim::PRELOAD.to_owned(), text(&library)),
            ("FILCH_POWER_FOLDER".to_owned(), text(&data)),
            ("FILCH_POWER_JOURNAL".to_owned(), text(&journal)),
        ];
        let manner = Manner { program, environment, ..Manner::default() };
        let server = stage.server_in(&manner, None).await;
        Self { stage, server, data, journal, before: Disk::default() }
    }

    /// The disk as it is now.
    fn replayed(&self) -> Disk {
        let mut disk = self.before.clone();
        disk.play(&std::fs::read(&self.journal).unwrap());
        disk
    }

    /// Lets the disk hold these files, for a server that is to be started.
    fn lay(&mut self, files: &BTreeMap<String, Vec<u8>>) {
        disk::write(&self.data, files);
        std::fs::write(&self.journal, "").unwrap();
        self.before = Disk::read(&self.data);
    }

    fn clients(
        &self,
        told: &Arc<Told>,
        waiters: usize,
        random: &mut Random,
    ) -> Vec<tokio::task::JoinHandle<()>> {
        let client = |index: usize| {
            let (told, maker, client) =
                (Arc::clone(told), self.stage.maker(), self.server.client.clone());
            let random = Random::new(random.draw());
            tokio::spawn(async move {
                match index < waiters {
                    true => told.work(maker, client).await,
                    false => told.plan(maker, client, random).await,
                }
            })
        };
        (0..waiters + PLANNERS).map(client).collect()
    }

    /// Lets clients work for a while and cuts the power. Returns how much was not synced at that moment.
    async fn work_and_cut(
        &mut self,
        told: &Arc<Told>,
        waiters: usize,
        lasts: Lasts,
        random: &mut Random,
    ) -> usize {
        let goal = told.count() + 5 + random.below(80) as usize;
        let clients = self.clients(told, waiters, random);
        until("jobs are acknowledged", async || when(told.count() >= goal)).await;
        self.server.process.kill();
        for client in clients {
            client.await.unwrap();
        }
        let disk = self.replayed();
        self.lay(&disk.cut(lasts, random));
        self.server.restart(&self.stage).await;
        disk.unsynced(LOG) + disk.unsynced(DATABASE)
    }
}

/// What clients were told.
#[derive(Default)]
struct Told {
    acknowledged: Mutex<BTreeSet<String>>,
    succeeded: Mutex<BTreeSet<String>>,
    /// The same for the judgement.
    clients: Arc<Clients>,
}

impl Told {
    fn on(stage: &Stage) -> Arc<Self> {
        Arc::new(Self { clients: Arc::clone(&stage.clients), ..Self::default() })
    }

    fn acknowledge(&self, id: &str) {
        self.acknowledged.lock().unwrap().insert(id.to_owned());
        self.clients.acknowledged(id);
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Submits until nobody answers.
    async fn plan(&self, maker: Maker, client: Client, mut random: Random) {
        loop {
            let mut job = maker.job(&["run", "0"]);
            job.at = Some(tomorrow());
            // The larger ones make the log long enough to be moved into the database now and then.
            let size = if random.below(8) == 0 { 60_000 } else { 100 };
            job.env.insert("TEXT".into(), "x".repeat(size));
            let Ok(receipt) = client.submit(&job).await else { return };
            self.acknowledge(&receipt.id);
        }
    }

    /// Submits and waits until nobody answers.
    async fn work(&self, maker: Maker, client: Client) {
        while let Ok(receipt) = client.submit(&maker.job(&["run", "0"])).await {
            self.acknowledge(&receipt.id);
            loop {
                let wait = client.wait(&receipt.id, Duration::from_secs(10));
                let Ok(job) = wait.await else { return };
                if job.ended_at.is_some() {
                    assert_eq!(job.state, "succeeded", "{job:?}");
                    self.clients.shown(&job);
                    self.succeeded.lock().unwrap().insert(job.id);
                    break;
                }
            }
        }
    }

    /// What does not hold any more.
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

/// A copy of the program that tells SQLite to sync at other moments; both texts are of one length.
fn spoilt(stage: &Stage) -> PathBuf {
    let (honest, spoilt) = (b"PRAGMA synchronous = FULL;", b"PRAGMA synchronous=NORMAL;");
    let mut program = std::fs::read(program::filch()).unwrap();
    let places: Vec<usize> = (0..program.len() - honest.len())
        .filter(|&place| program[place..].starts_with(honest))
        .collect();
    let [place] = places[..] else { panic!("it stands in {} places", places.len()) };
    program[place..place + honest.len()].copy_from_slice(spoilt);
    let path = stage.path("spoilt");
    std::fs::write(&path, program).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}
