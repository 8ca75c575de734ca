//! Partitions: everything that a network can do to a worker in the middle of a job.
//!
//! Under the lease nothing runs again, whatever was lost, doubled or late. Beyond it the worker is as good
//! as lost: what it ran is stopped, by itself or by its guardian, before the job runs elsewhere, and it
//! comes back when the network does.

use std::path::PathBuf;
use std::time::Duration;

use filch_api::cluster::Status;
use filch_e2e::faults;
use filch_e2e::process::Process;
use filch_e2e::random::Random;
use filch_e2e::runs::{self, Run};
use filch_e2e::stage::{Server, Stage};
use filch_e2e::until::{until, when};
use filch_e2e::wire::Passage::{Cut, Hole, Late, Slow, Twice, Whole};
use filch_e2e::wire::{Passage, Weather, Wire};

use crate::{id, stage, until_state};

const WORKERS: usize = 3;
const LEASE: Duration = Duration::from_secs(6);
/// A worker stops what it runs after seven tenths of a lease without an answer. So long does a short
/// partition last, and beats and a machine with much else to do have the rest.
const SHORT: Duration = Duration::from_millis(600);

/// What is done to the worker's wire, and for how long.
#[derive(Clone, Copy, Debug)]
enum Partition {
    Short(Passage, Passage),
    /// Until the job runs elsewhere.
    Long(Passage, Passage),
    /// The worker can speak but hears nothing, until it has stopped what it runs.
    Deaf,
    /// On and off, on and off.
    Flapping,
}

impl Partition {
    const fn is_beyond_lease(self) -> bool {
        matches!(self, Self::Long(..) | Self::Deaf)
    }
}

/// What goes up and what goes down.
const PARTITIONS: [Partition; 13] = [
    Partition::Short(Cut, Cut),
    Partition::Short(Hole, Whole),
    Partition::Short(Whole, Hole),
    Partition::Short(Late(SHORT), Late(SHORT)),
    Partition::Short(Twice, Twice),
    Partition::Short(Whole, Slow(2_000)),
    Partition::Short(Slow(2_000), Whole),
    Partition::Flapping,
    Partition::Long(Cut, Cut),
    Partition::Long(Hole, Whole),
    Partition::Deaf,
    Partition::Long(Hole, Hole),
    Partition::Long(Late(LEASE.saturating_mul(2)), Whole),
];

#[tokio::test(flavor = "multi_thread")]
async fn partitions_under_the_lease_change_nothing_and_beyond_it_the_worker_is_lost() {
    let mut random = Random::seeded();
    let stage = stage();
    let server = stage.server(Some(&format!("{}s", LEASE.as_secs()))).await;
    let mut net = Net { stage, server, wires: Vec::new(), workers: Vec::new() };
    for _ in 0..WORKERS {
        let wire = Wire::to(net.server.url.strip_prefix("http://").unwrap()).await;
        net.workers.push(net.stage.worker(&wire.url(), 1, &[]));
        net.wires.push(wire);
    }
    net.until_status("all are there", |status| status.workers == WORKERS as u64).await;

    let mut partitions = PARTITIONS.repeat(faults::scaled(1));
    let count = partitions.len();
    let beyond = partitions.iter().filter(|partition| partition.is_beyond_lease()).count();
    while !partitions.is_empty() {
        let next = random.below(partitions.len() as u64) as usize;
        net.part(partitions.swap_remove(next)).await;
    }
    let judged = net.stage.judge(net.server).await;
    assert_eq!(judged.repeated, beyond);
    faults::brought_about(count, "partitions");
}

struct Net {
    stage: Stage,
    server: Server,
    /// One for each worker.
    wires: Vec<Wire>,
    workers: Vec<Process>,
}

impl Net {
    async fn part(&self, partition: Partition) {
        let before = self.status().await;
        let (job, gate) = self.begin().await;
        let worker = until("somebody runs it", async || self.who_runs(&job)).await;
        let wire = &self.wires[worker];
        let part = |up, down| wire.set(Weather { up, down });
        match partition {
            Partition::Short(up, down) => {
                part(up, down);
                tokio::join!(self.chatter(), async {
                    tokio::time::sleep(SHORT).await;
                    wire.mend();
                });
            }
            Partition::Flapping => {
                for _ in 0..6 {
                    part(Cut, Cut);
                    tokio::time::sleep(SHORT / 6).await;
                    wire.mend();
                    tokio::time::sleep(SHORT / 6).await;
                }
            }
            Partition::Long(up, down) => {
                part(up, down);
                until(&format!("{partition:?}: it runs elsewhere"), async || {
                    when(self.runs_of(&job).len() == 2)
                })
                .await;
                let [first, second] = &self.runs_of(&job)[..] else { panic!("two runs") };
                assert!(!first.process.is_alive(), "{partition:?}: {first:?}");
                assert_ne!(first.worker, second.worker, "{partition:?}");
                wire.mend();
            }
            Partition::Deaf => {
                let first = until("it has begun", async || {
                    self.runs_of(&job).first().map(|run| run.process)
                })
                .await;
                part(Whole, Hole);
                until("it stops what it runs", async || when(!first.is_alive())).await;
                wire.mend();
                until("it runs again", async || when(self.runs_of(&job).len() == 2)).await;
            }
        }
        let all = |status: &Status| status.workers == WORKERS as u64;
        self.until_status("everybody is there", all).await;
        std::fs::write(&gate, "").unwrap();
        let (shown, details) = until_state(&self.server.client, &job, "succeeded").await;
        self.stage.clients.shown(&shown);
        let after = self.status().await;
        if !partition.is_beyond_lease() {
            assert_eq!(self.runs_of(&job).len(), 1, "{partition:?}: {details:?}");
            assert_eq!(after.lost, before.lost, "{partition:?}");
            assert_eq!(details.failures, [], "{partition:?}");
        }
        self.until_calm().await;
    }

    /// Submits a job that waits for a gate.
    async fn begin(&self) -> (String, PathBuf) {
        let gate = self.stage.path("gate");
        let _ = std::fs::remove_file(&gate);
        let job = self.stage.job(&["until", gate.to_str().unwrap()]);
        self.stage.submit(&self.server, std::slice::from_ref(&job)).await;
        (id(&job), gate)
    }

    /// Some jobs pass while the wire is not whole; those that the others have no room for may have to
    /// wait until it is.
    async fn chatter(&self) {
        let jobs: Vec<_> = (0..8).map(|_| self.stage.job(&["run", "10"])).collect();
        self.stage.submit(&self.server, &jobs).await;
    }

    async fn until_calm(&self) {
        self.until_status("everything is done", |status| status.jobs == 0).await;
    }

    fn who_runs(&self, job: &str) -> Option<usize> {
        self.workers.iter().position(|worker| worker.jobs().iter().any(|it| it.id == job))
    }

    fn runs_of(&self, job: &str) -> Vec<Run> {
        runs::of(&self.stage.runs(), job)
    }

    async fn status(&self) -> Status {
        self.server.client.status().await.unwrap()
    }

    async fn until_status(&self, what: &str, is_so: impl Fn(&Status) -> bool) {
        until(what, async || when(is_so(&self.status().await))).await;
    }
}
