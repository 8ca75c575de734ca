//! Zombies: workers that are suspended for longer than their lease, in the middle of a job, and
//! come back.
//!
//! The guardians of some have killed what they ran. The others come back with a report: their job
//! has charged its invoice and ended while they were suspended. Either way the job has another
//! owner by then; their reports are refused, and no invoice is charged twice.

use std::collections::BTreeSet;
use std::path::PathBuf;

use filch_api::cluster::Status;
use filch_api::submission::Submission;
use filch_e2e::faults;
use filch_e2e::jobs::{id, outcomes, until_state};
use filch_e2e::ledger::ChargeLedger;
use filch_e2e::process::{JobProcess, Process};
use filch_e2e::runs::{self, JobRun};
use filch_e2e::test_env::{TestEnv, TestServer};
use filch_e2e::until::{until, when};

use crate::test_env;

const ZOMBIES: usize = 10;
/// How many are suspended at once, while as many others take over.
const AT_ONCE: usize = 5;
/// Rounds are repeated until enough zombies had a report: a slow machine may need more of them.
const ROUNDS_MAX: usize = 40;

/// The guardian kills a job after seven tenths of it; if it is opened in time, it ends before that.
const LEASE: &str = "6s";

#[tokio::test(flavor = "multi_thread")]
async fn late_reports_of_suspended_workers_are_refused_and_nothing_is_charged_twice() {
    let wanted = faults::scaled(ZOMBIES);
    let env = test_env();
    let server = env.server(Some(LEASE)).await;
    let workers = (0..2 * AT_ONCE).map(|_| env.worker(&server.url, 1, &[])).collect();
    let cluster = Cluster { env, server, workers };
    cluster.until_all_are_connected().await;
    let (mut zombies, mut late) = (0, 0);
    for round in 0.. {
        late += cluster.round(round).await;
        zombies += AT_ONCE;
        if zombies >= wanted && late >= wanted / AT_ONCE {
            break;
        }
        assert!(round < ROUNDS_MAX * wanted / ZOMBIES, "only {late} had a report");
    }
    let status = cluster.status().await;
    assert!(status.lost >= zombies as u64, "{status:?}");

    let ledger = ChargeLedger::new(&cluster.env.path("ledger"));
    let charges = ledger.charges();
    let invoices: BTreeSet<&str> = charges.iter().map(|it| it.invoice.as_str()).collect();
    assert_eq!((charges.len(), invoices.len()), (zombies, zombies), "each is charged once");
    let reasons: BTreeSet<String> = ledger.refusals().into_iter().map(|it| it.reason).collect();
    assert_eq!(reasons, BTreeSet::from(["before".to_owned()]), "no former owner tried to charge");
    let checked = cluster.env.stop_and_check(cluster.server).await;
    assert_eq!((checked.jobs, checked.repeated), (zombies, zombies));
    faults::injected(zombies, "zombies");
}

struct Cluster {
    env: TestEnv,
    server: TestServer,
    workers: Vec<Process>,
}

/// A job, and the gate for which it waits before it charges its invoice.
struct Invoice {
    job: Submission,
    gate: PathBuf,
}

impl Cluster {
    fn invoice(&self, number: usize) -> Invoice {
        let (gate, ledger) = (self.env.path(&format!("gate-{number}")), self.env.path("ledger"));
        let words =
            [gate.to_str().unwrap(), ledger.to_str().unwrap(), &format!("invoice-{number}")];
        Invoice { job: self.env.job(&[&["hold"], &words[..]].concat()), gate }
    }

    /// Returns how many came back with a report.
    async fn round(&self, round: usize) -> usize {
        let invoices: Vec<Invoice> =
            (0..AT_ONCE).map(|index| self.invoice(round * AT_ONCE + index)).collect();
        let jobs: Vec<Submission> = invoices.iter().map(|invoice| invoice.job.clone()).collect();
        self.env.submit(&self.server, &jobs).await;
        let before = self.status().await;
        let mut suspended = Vec::new();
        for (index, invoice) in invoices.iter().enumerate() {
            suspended.push(self.suspend_owner(&id(&invoice.job)).await);
            if (round + index).is_multiple_of(2) {
                std::fs::write(&invoice.gate, "").unwrap();
            }
        }
        for (invoice, (_, job)) in invoices.iter().zip(&suspended) {
            let is_next = |run: &JobRun| run.fence > job.fence;
            until("it runs elsewhere", async || {
                when(runs::of(&self.env.runs(), &id(&invoice.job)).iter().any(is_next))
            })
            .await;
            assert!(
                !job.process.is_alive(),
                "its job ended or was killed by the guardian: {job:?}"
            );
        }

        for (zombie, _) in &suspended {
            self.workers[*zombie].thaw();
        }
        // A worker reports what it has missed as soon as it is connected again.
        self.until_all_are_connected().await;
        let late = self.status().await.stale - before.stale;
        for invoice in &invoices {
            std::fs::write(&invoice.gate, "").unwrap();
            let (job, details) =
                until_state(&self.server.client, &id(&invoice.job), "succeeded").await;
            self.env.client_log.shown(&job);
            assert!(outcomes(&details).contains(&"lost"), "{job:?} {details:?}");
        }
        late as usize
    }

    /// The worker that runs this job, suspended in the middle of it.
    async fn suspend_owner(&self, id: &str) -> (usize, JobProcess) {
        until("a worker runs the job", async || {
            let runs_it = |worker: &Process| worker.jobs().into_iter().find(|job| job.id == id);
            let owner = self.workers.iter().position(|worker| runs_it(worker).is_some())?;
            self.workers[owner].freeze();
            let job = runs_it(&self.workers[owner]);
            if job.is_none() {
                self.workers[owner].thaw();
            }
            Some((owner, job?))
        })
        .await
    }

    async fn until_all_are_connected(&self) {
        let all = self.workers.len() as u64;
        self.until_status("all workers are connected", |status| status.workers == all).await;
    }

    async fn status(&self) -> Status {
        self.server.client.status().await.unwrap()
    }

    async fn until_status(&self, what: &str, is_so: impl Fn(&Status) -> bool) {
        until(what, async || when(is_so(&self.status().await))).await;
    }
}
