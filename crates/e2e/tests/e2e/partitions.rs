//! Partitions: everything that a network can do to a worker in the middle of a job.
//!
//! A partition that is much shorter than the lease changes nothing, whatever was lost, duplicated
//! or delayed. In a partition that outlasts the lease the worker is lost: what it ran is stopped,
//! by itself or by its guardian, before the job runs elsewhere, and the worker comes back when the
//! network does.

use std::path::PathBuf;
use std::time::Duration;

use filch_api::cluster::Status;
use filch_e2e::faults;
use filch_e2e::jobs::{id, until_state};
use filch_e2e::process::Process;
use filch_e2e::proxy::LinkCondition::{Cut, Delayed, Dropped, Duplicated, Normal, Slow};
use filch_e2e::proxy::{LinkCondition, LinkConditions, Proxy};
use filch_e2e::random::TestRandom;
use filch_e2e::runs::{self, JobRun};
use filch_e2e::test_env::{TestEnv, TestServer};
use filch_e2e::until::{until, when};

use crate::test_env;

const WORKERS: usize = 3;
/// How long a short partition lasts: a small part of the long lease, also if the machine is slow to
/// mend it.
const SHORT: Duration = Duration::from_millis(600);
/// Heartbeats, by which a worker finds out what it has missed, are a tenth of a lease apart. A
/// worker stops its jobs after seven tenths without an answer.
const LONG_LEASE: &str = "60s";
/// The lease that long partitions outlast.
const SHORT_LEASE: Duration = Duration::from_secs(6);

/// Conditions from the worker to the server, and from the server to the worker.
type Both = (LinkCondition, LinkCondition);

const SHORT_PARTITIONS: [Both; 7] = [
    (Cut, Cut),
    (Dropped, Normal),
    (Normal, Dropped),
    (Delayed(SHORT), Delayed(SHORT)),
    (Duplicated, Duplicated),
    (Normal, Slow(2_000)),
    (Slow(2_000), Normal),
];

const LONG_PARTITIONS: [Both; 4] = [
    (Cut, Cut),
    (Dropped, Normal),
    (Dropped, Dropped),
    (Delayed(SHORT_LEASE.saturating_mul(2)), Normal),
];

#[tokio::test(flavor = "multi_thread")]
async fn short_partitions_change_nothing() {
    let cluster = Cluster::start(LONG_LEASE).await;
    let mut partitions = SHORT_PARTITIONS.repeat(faults::scaled(1));
    let count = partitions.len() + 1;
    shuffle(&mut partitions);
    for partition in partitions {
        cluster.part_briefly(partition).await;
    }
    cluster.flap().await;
    let status = cluster.status().await;
    assert_eq!(status.lost, 0, "{status:?}");
    let checked = cluster.env.stop_and_check(cluster.server).await;
    assert_eq!(checked.repeated, 0);
    faults::injected(count, "partitions");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_behind_a_long_partition_is_lost_and_its_job_runs_elsewhere() {
    let cluster = Cluster::start(&format!("{}s", SHORT_LEASE.as_secs())).await;
    let mut partitions = LONG_PARTITIONS.repeat(faults::scaled(1));
    let count = partitions.len();
    shuffle(&mut partitions);
    for partition in partitions {
        cluster.part_for_long(partition).await;
    }
    let checked = cluster.env.stop_and_check(cluster.server).await;
    assert!(checked.repeated >= count, "{checked:?}");
    faults::injected(count, "partitions");
}

/// The worker's messages arrive, but it hears no answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_hears_nothing_stops_its_job() {
    let cluster = Cluster::start(&format!("{}s", SHORT_LEASE.as_secs())).await;
    let times = faults::scaled(1);
    for _ in 0..times {
        cluster.deafen().await;
    }
    let checked = cluster.env.stop_and_check(cluster.server).await;
    assert!(checked.repeated >= times, "{checked:?}");
    faults::injected(times, "partitions");
}

fn shuffle(partitions: &mut [Both]) {
    let mut random = TestRandom::seeded();
    for index in (1..partitions.len()).rev() {
        partitions.swap(index, random.below(index as u64 + 1) as usize);
    }
}

struct Cluster {
    env: TestEnv,
    server: TestServer,
    /// One for each worker.
    proxies: Vec<Proxy>,
    workers: Vec<Process>,
}

/// A job that waits for its gate.
struct Gated {
    id: String,
    gate: PathBuf,
}

impl Cluster {
    async fn start(lease: &str) -> Self {
        let env = test_env();
        let server = env.server(Some(lease)).await;
        let (mut proxies, mut workers) = (Vec::new(), Vec::new());
        for _ in 0..WORKERS {
            let proxy = Proxy::to(server.address()).await;
            workers.push(env.worker(&proxy.url(), 1, &[]));
            proxies.push(proxy);
        }
        let cluster = Self { env, server, proxies, workers };
        cluster.until_all_are_connected().await;
        cluster
    }

    async fn part_briefly(&self, (up, down): Both) {
        let (job, owner) = self.begin().await;
        self.proxies[owner].set(LinkConditions { up, down });
        tokio::join!(self.submit_more(), tokio::time::sleep(SHORT));
        self.proxies[owner].mend();
        self.finish_undisturbed(job).await;
    }

    /// The connection breaks and comes back several times in a row.
    async fn flap(&self) {
        let (job, owner) = self.begin().await;
        for _ in 0..6 {
            self.proxies[owner].set(LinkConditions::CUT);
            tokio::time::sleep(SHORT / 6).await;
            self.proxies[owner].mend();
            tokio::time::sleep(SHORT / 6).await;
        }
        self.finish_undisturbed(job).await;
    }

    async fn part_for_long(&self, (up, down): Both) {
        let (job, owner) = self.begin().await;
        self.proxies[owner].set(LinkConditions { up, down });
        let owner_pid = self.workers[owner].pid();
        let runs = until(&format!("{up:?}, {down:?}: it runs elsewhere"), async || {
            let runs = self.runs_of(&job.id);
            runs.last().is_some_and(|run| run.worker != owner_pid).then_some(runs)
        })
        .await;
        for run in runs.iter().filter(|run| run.worker == owner_pid) {
            assert!(!run.process.is_alive(), "{up:?}, {down:?}: {run:?}");
        }
        self.proxies[owner].mend();
        self.finish(job).await;
    }

    async fn deafen(&self) {
        let (job, owner) = self.begin().await;
        let first = until("it has begun", async || self.runs_of(&job.id).pop()).await;
        self.proxies[owner].set(LinkConditions { up: Normal, down: Dropped });
        until("it stops what it runs", async || when(!first.process.is_alive())).await;
        self.proxies[owner].mend();
        let is_next = |run: &JobRun| run.fence > first.fence;
        until("it runs again", async || when(self.runs_of(&job.id).iter().any(is_next))).await;
        self.finish(job).await;
    }

    /// Submits a job that waits for a gate. Returns when a worker runs it.
    async fn begin(&self) -> (Gated, usize) {
        let gate = self.env.path("gate");
        let _ = std::fs::remove_file(&gate);
        let job = self.env.job(&["until", gate.to_str().unwrap()]);
        self.env.submit(&self.server, std::slice::from_ref(&job)).await;
        let id = id(&job);
        let owner = until("a worker runs it", async || self.owner_of(&id)).await;
        (Gated { id, gate }, owner)
    }

    /// Some jobs go through the cluster during a partition; those that the other workers have no
    /// slot for may have to wait for its end.
    async fn submit_more(&self) {
        let jobs: Vec<_> = (0..8).map(|_| self.env.job(&["run", "10"])).collect();
        self.env.submit(&self.server, &jobs).await;
    }

    /// Lets everything come to its end.
    async fn finish(&self, job: Gated) {
        self.until_all_are_connected().await;
        std::fs::write(&job.gate, "").unwrap();
        let (shown, _) = until_state(&self.server.client, &job.id, "succeeded").await;
        self.env.client_log.shown(&shown);
        self.until_status("everything is done", |status| status.jobs == 0).await;
    }

    /// The same for a job that was not interrupted.
    async fn finish_undisturbed(&self, job: Gated) {
        let id = job.id.clone();
        self.finish(job).await;
        let runs = self.runs_of(&id);
        assert_eq!(runs.len(), 1, "{runs:?}");
        let (_, details) = filch_e2e::jobs::show(&self.server.client, &id).await;
        assert_eq!(details.failures, []);
    }

    fn owner_of(&self, job: &str) -> Option<usize> {
        self.workers.iter().position(|worker| worker.jobs().iter().any(|it| it.id == job))
    }

    fn runs_of(&self, job: &str) -> Vec<JobRun> {
        runs::of(&self.env.runs(), job)
    }

    async fn until_all_are_connected(&self) {
        let all = |status: &Status| status.workers == WORKERS as u64;
        self.until_status("all workers are connected", all).await;
    }

    async fn status(&self) -> Status {
        self.server.client.status().await.unwrap()
    }

    async fn until_status(&self, what: &str, is_so: impl Fn(&Status) -> bool) {
        until(what, async || when(is_so(&self.status().await))).await;
    }
}
