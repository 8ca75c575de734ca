//! Twenty zombies: workers that stand still for longer than their lease, in the middle of a job, and come
//! back.
//!
//! Some find that what they ran was killed by its guardian meanwhile. The others come back
//! with news: their job has charged its invoice and ended while they stood still. Either way the job is
//! somebody else's by then; what they have to say is refused, and nobody pays twice.

use std::collections::BTreeSet;
use std::path::PathBuf;

use filch_api::cluster::Status;
use filch_api::submission::Submission;
use filch_e2e::ledger::Ledger;
use filch_e2e::process::{Job, Process};
use filch_e2e::stage::{Server, Stage};
use filch_e2e::until::{until, when};
use filch_e2e::{faults, runs};

use crate::{id, stage, until_state};

const ZOMBIES: usize = 20;
/// So many stand still at once, while as many others take over.
const AT_ONCE: usize = 5;

/// Long enough for a job to end before its guardian kills it, unless the machine has much else to do.
const LEASE: &str = "3s";
/// One of so many comes back with news at least, whatever the machine does.
const NEWS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn twenty_zombies_are_refused_and_charge_nothing_twice() {
    let zombies = faults::scaled(ZOMBIES);
    let stage = stage();
    let server = stage.server(Some(LEASE)).await;
    let workers = (0..2 * AT_ONCE).map(|_| stage.worker(&server.url, 1, &[])).collect();
    let yard = Yard { stage, server, workers };
    yard.until_status("all are there", |status| status.workers == 2 * AT_ONCE as u64).await;
    let mut news = 0;
    for round in 0..zombies / AT_ONCE {
        news += yard.round(round).await;
    }
    assert!(news >= zombies / NEWS, "only {news} had something to say");
    let status = yard.status().await;
    assert!(status.lost >= zombies as u64, "{status:?}");

    let ledger = Ledger::new(&yard.stage.path("ledger"));
    let charges = ledger.charges();
    let invoices: BTreeSet<&str> = charges.iter().map(|it| it.invoice.as_str()).collect();
    assert_eq!((charges.len(), invoices.len()), (zombies, zombies), "each is charged once");
    let reasons: BTreeSet<String> = ledger.refusals().into_iter().map(|it| it.reason).collect();
    assert_eq!(reasons, BTreeSet::from(["before".to_owned()]), "nobody old came to charge");
    let judged = yard.stage.judge(yard.server).await;
    assert_eq!((judged.jobs, judged.repeated), (zombies, zombies));
    faults::brought_about(zombies, "zombies");
}

/// Where they walk.
struct Yard {
    stage: Stage,
    server: Server,
    workers: Vec<Process>,
}

/// A job, and the gate for which it waits before it charges its invoice.
struct Invoice {
    job: Submission,
    gate: PathBuf,
}

impl Yard {
    fn invoice(&self, number: usize) -> Invoice {
        let (gate, ledger) =
            (self.stage.path(&format!("gate-{number}")), self.stage.path("ledger"));
        let words =
            [gate.to_str().unwrap(), ledger.to_str().unwrap(), &format!("invoice-{number}")];
        Invoice { job: self.stage.job(&[&["hold"], &words[..]].concat()), gate }
    }

    /// Returns how many came back with news.
    async fn round(&self, round: usize) -> usize {
        let invoices: Vec<Invoice> =
            (0..AT_ONCE).map(|index| self.invoice(round * AT_ONCE + index)).collect();
        let jobs: Vec<Submission> = invoices.iter().map(|invoice| invoice.job.clone()).collect();
        self.stage.submit(&self.server, &jobs).await;
        let before = self.status().await;
        let mut still = Vec::new();
        for (index, invoice) in invoices.iter().enumerate() {
            still.push(self.stop_who_runs(&id(&invoice.job)).await);
            if (round + index).is_multiple_of(2) {
                std::fs::write(&invoice.gate, "").unwrap();
            }
        }
        let lost = before.lost + AT_ONCE as u64;
        self.until_status("their loss is seen", |status| status.lost >= lost).await;
        for (_, job) in &still {
            assert!(!job.process.is_alive(), "its guardian has killed what it ran: {job:?}");
        }
        let runs_of = |invoice: &Invoice| runs::of(&self.stage.runs(), &id(&invoice.job));
        for invoice in &invoices {
            until("it runs elsewhere", async || when(runs_of(invoice).len() >= 2)).await;
        }
        let has_news = |invoice: &&Invoice| runs_of(invoice)[0].end.is_some();
        let news = invoices.iter().filter(has_news).count();

        for (zombie, _) in &still {
            self.workers[*zombie].thaw();
        }
        let stale = before.stale + news as u64;
        self.until_status("their news is refused", |status| status.stale >= stale).await;
        self.until_status("they are back", |status| status.workers == self.workers.len() as u64)
            .await;
        for invoice in &invoices {
            std::fs::write(&invoice.gate, "").unwrap();
            let (job, details) =
                until_state(&self.server.client, &id(&invoice.job), "succeeded").await;
            self.stage.clients.shown(&job);
            let outcomes: Vec<&str> =
                details.failures.iter().map(|failure| failure.outcome.as_str()).collect();
            assert_eq!(outcomes, ["lost"], "{job:?}");
        }
        news
    }

    /// The worker that runs this job, stopped in the middle of it.
    async fn stop_who_runs(&self, id: &str) -> (usize, Job) {
        until("a job is in mid-run", async || {
            let runs_it = |worker: &Process| worker.jobs().into_iter().find(|job| job.id == id);
            let zombie = self.workers.iter().position(|worker| runs_it(worker).is_some())?;
            self.workers[zombie].freeze();
            let job = runs_it(&self.workers[zombie]);
            if job.is_none() {
                self.workers[zombie].thaw();
            }
            Some((zombie, job?))
        })
        .await
    }

    async fn status(&self) -> Status {
        self.server.client.status().await.unwrap()
    }

    async fn until_status(&self, what: &str, is_so: impl Fn(&Status) -> bool) {
        until(what, async || when(is_so(&self.status().await))).await;
    }
}
