//! Double Billing: whatever is killed, stopped or repeated, each invoice is charged once.
//!
//! A server and three workers; 200 invoices to be charged, some submitted twice by a client that did not
//! wait for the answer, and 50 products to be shipped after theirs. One worker is killed in mid-job, one
//! stands still past its lease and comes back, the server is killed and started again, and one invoice
//! can never be charged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use filch_api::client::{Client, Error};
use filch_api::cluster::Status;
use filch_api::submission::{COMMAND, Submission};
use filch_e2e::ledger::Ledger;
use filch_e2e::process::{Job, Process};
use filch_e2e::random::Random;
use filch_e2e::runs::{self, Run};
use filch_e2e::since_boot;
use filch_e2e::stage::{Server, Stage, retry};
use filch_e2e::until::{until, when};

use crate::{id, jobs, make_greedy, show, stage, until_state};

const INVOICES: usize = 200;
/// Every so many are shipped: 50.
const SHIPPED: usize = 4;
/// Every so many are submitted twice.
const REPEATED: usize = 5;
/// The one that can never be charged. It would have been shipped.
const POISON: usize = 12;
const POISON_ATTEMPTS: u16 = 3;
/// Those that are being charged when their worker is killed. They take all its slots.
const HIT: [usize; 2] = [20, 21];
/// The one that is being charged when its worker is stopped.
const SLOW: usize = 100;
/// The first ones that are submitted before the kill, before the stop, and while the server is killed.
const WAVES: [usize; 3] = [60, SLOW, 120];

const SLOTS: u32 = 2;
const LEASE: &str = "1s";
/// An orphan runs again within the lease and a second; the rest is for machines with much else to do.
const ORPHAN_WAIT: Duration = Duration::from_secs(2 + 8);

/// What has to be done for one customer.
#[derive(Clone)]
struct Order {
    invoice: Submission,
    ship: Option<Submission>,
}

fn name(index: usize) -> String {
    format!("invoice-{index}")
}

fn orders(stage: &Stage, random: &mut Random) -> Vec<Order> {
    let paths = ["ledger", "gate", "slow-gate"].map(|name| stage.path(name));
    let [ledger, gate, slow_gate] = paths.each_ref().map(|path| path.to_str().unwrap());
    let order = |index: usize| {
        // Most are short, so that workers take them in batches; some are long, so that what was taken
        // behind them is stolen.
        let millis = match random.below(4) {
            0 => 100 + random.below(300),
            _ => random.below(10),
        };
        let (name, millis) = (name(index), millis.to_string());
        let mut invoice = stage.job(&["charge", &millis, ledger, &name]);
        // Those that take long come last.
        invoice.priority = if millis.len() < 3 { 5 } else { random.below(5) as i16 };
        if HIT.contains(&index) || index == SLOW {
            let gate = if index == SLOW { slow_gate } else { gate };
            invoice = stage.job(&["hold", gate, ledger, &name]);
            invoice.priority = 9;
        }
        if index == POISON {
            invoice = stage.job(&["refuse", "5"]);
            invoice.retry = Some(retry(POISON_ATTEMPTS));
        }
        let ship = index.is_multiple_of(SHIPPED).then(|| {
            let mut ship = stage.job(&["ship", "5", ledger, &name]);
            ship.after = vec![id(&invoice)];
            ship.priority = 9;
            ship
        });
        Order { invoice, ship }
    };
    (0..INVOICES).map(order).collect()
}

/// What clients have come to.
#[derive(Default)]
struct Answers {
    /// How often a job was acknowledged as a new one.
    new: AtomicUsize,
    /// How often one was acknowledged that had been before.
    repeated: AtomicUsize,
    /// How often there was no answer.
    missing: AtomicUsize,
    is_over: AtomicBool,
}

impl Answers {
    /// Submits as a careful client does: again and again with the same id, until there is an answer.
    async fn submit(&self, client: &Client, job: &Submission) {
        loop {
            match client.submit(job).await {
                Ok(receipt) => {
                    assert_eq!(receipt.id, id(job));
                    let count = if receipt.new { &self.new } else { &self.repeated };
                    count.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                Err(Error::Unreachable { .. }) => self.missing.fetch_add(1, Ordering::Relaxed),
                Err(other) => panic!("{other}"),
            };
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Submits these orders, and then once more, until it is told that it is over: there is nothing
    /// that such a client would not do.
    async fn submit_restlessly(&self, client: Client, orders: Vec<Order>) {
        loop {
            for order in &orders {
                for job in [Some(&order.invoice), order.ship.as_ref()].into_iter().flatten() {
                    self.submit(&client, job).await;
                }
            }
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    }
}

/// Submits these orders, all or none, and some of them once more.
async fn submit_together(client: &Client, orders: &[Order]) {
    let jobs = |order: &Order| [Some(order.invoice.clone()), order.ship.clone()];
    let jobs: Vec<Submission> = orders.iter().flat_map(jobs).flatten().collect();
    let receipts = client.submit_all(&jobs).await.unwrap();
    assert!(receipts.iter().all(|receipt| receipt.new));
    for order in orders.iter().step_by(REPEATED) {
        let receipt = client.submit(&order.invoice).await.unwrap();
        assert!(!receipt.new, "it is known: {receipt:?}");
    }
}

fn runs(worker: &Process, order: &Order) -> bool {
    worker.jobs().iter().any(|job| job.id == id(&order.invoice))
}

/// The worker that charges this order, stopped in the middle of it, and all that it runs.
async fn stop_in_mid_job(workers: &[Process], order: &Order) -> (usize, Vec<Job>) {
    until("a job is in mid-run", async || {
        let busy = workers.iter().position(|worker| runs(worker, order))?;
        workers[busy].freeze();
        // From here on it reports nothing: what runs now is in the middle of its attempt.
        let jobs = workers[busy].jobs();
        if jobs.iter().any(|job| job.id == id(&order.invoice)) {
            return Some((busy, jobs));
        }
        workers[busy].thaw();
        None
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_invoice_is_charged_once() {
    let mut random = Random::seeded();
    let stage = stage();
    let mut server = stage.server(Some(LEASE)).await;
    let orders = orders(&stage, &mut random);

    // One worker takes more than it can begin with; two more come, and steal when nothing else is left.
    let [kill, stop, late] = WAVES;
    let mut workers = vec![stage.worker(&server, SLOTS, &[])];
    make_greedy(&server).await;
    submit_together(&server.client, &orders[..kill]).await;
    until("its slots are taken and jobs wait behind them", async || {
        let held = server.client.workers().await.unwrap()[0].held;
        when(HIT.iter().all(|&hit| runs(&workers[0], &orders[hit])) && held > SLOTS.into())
    })
    .await;
    workers.extend([stage.worker(&server, SLOTS, &[]), stage.worker(&server, SLOTS, &[])]);
    until_status(&server, "jobs are stolen", |status| status.steals > 0).await;

    // That worker is killed in mid-job, and another comes in its place.
    submit_together(&server.client, &orders[kill..stop]).await;
    let (killed, orphans) = stop_in_mid_job(&workers, &orders[HIT[0]]).await;
    assert_eq!((killed, orphans.len()), (0, 2));
    workers[killed].kill();
    let killed_at = since_boot();
    workers[killed] = stage.worker(&server, SLOTS, &[]);
    until_status(&server, "its loss is seen", |status| status.lost >= 1).await;
    expect_again(&stage, &orphans, killed_at).await;
    std::fs::write(stage.path("gate"), "").unwrap();

    // One stands still past its lease, and comes back.
    submit_together(&server.client, &orders[stop..late]).await;
    let stale = server.client.status().await.unwrap().stale;
    while server.client.status().await.unwrap().stale == stale {
        let (stopped, jobs) = stop_in_mid_job(&workers, &orders[SLOW]).await;
        let stopped_at = since_boot();
        let lost = server.client.status().await.unwrap().lost;
        until_status(&server, "its loss is seen too", |status| status.lost > lost).await;
        for job in &jobs {
            assert!(!job.process.is_alive(), "its guardian has killed what it ran: {job:?}");
        }
        expect_again(&stage, &jobs, stopped_at).await;
        // It comes back under another name. If it noticed how its job ended before it noticed that
        // its time was over, then it says so, and is refused; else it has nothing to say.
        workers[stopped].thaw();
        until_status(&server, "it is back", |status| status.workers == 3).await;
    }
    std::fs::write(stage.path("slow-gate"), "").unwrap();
    let first_life = server.client.status().await.unwrap();
    assert!(first_life.lost >= 2 && first_life.stale > stale, "{first_life:?}");
    expect_told(&stage, &server, &first_life).await;

    // The server is killed while clients submit, and comes back on the same port with the same data.
    let answers = Arc::new(Answers::default());
    let rest = orders[late..].chunks((INVOICES - late) / 4);
    let clients: Vec<_> = rest
        .map(|orders| {
            let (answers, client, orders) =
                (Arc::clone(&answers), server.client.clone(), orders.to_vec());
            tokio::spawn(async move { answers.submit_restlessly(client, orders).await })
        })
        .collect();
    until("clients submit", async || when(answers.new.load(Ordering::Relaxed) >= 20)).await;
    server.process.kill();
    until("they notice", async || when(answers.missing.load(Ordering::Relaxed) > 0)).await;
    server.restart(&stage).await;
    answers.is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }

    let done = until_status(&server, "everything is done", |status| status.jobs == 0).await;
    judge(&stage, &server.client, &orders).await;
    eprintln!(
        "{} thefts; {} times a job was known already, {} times there was no answer",
        first_life.steals + done.steals,
        answers.repeated.load(Ordering::Relaxed),
        answers.missing.load(Ordering::Relaxed)
    );
}

async fn until_status(server: &Server, what: &str, is_so: impl Fn(&Status) -> bool) -> Status {
    until(what, async || Some(server.client.status().await.unwrap()).filter(&is_so)).await
}

/// What ran on a worker that is no more runs again elsewhere, soon.
async fn expect_again(stage: &Stage, orphans: &[Job], since: u64) {
    for orphan in orphans {
        let is_next = |run: &Run| run.fence > orphan.fence;
        let next = until("an orphan runs again", async || {
            runs::of(&stage.runs(), &orphan.id).into_iter().find(is_next)
        })
        .await;
        let waited = Duration::from_micros(next.start.saturating_sub(since));
        assert!(waited < ORPHAN_WAIT, "{orphan:?} waited for {waited:?}");
    }
}

/// The losses can be seen on the command line.
async fn expect_told(stage: &Stage, server: &Server, status: &Status) {
    let arguments = ["server", "status", "--json", "--server", &server.url];
    let mut command = stage.filch(&stage.path("data"), &arguments);
    assert_eq!(command.code().await, Some(0), "{}", command.said());
    let told: serde_json::Value = serde_json::from_str(&command.printed()).unwrap();
    assert!(told["lost"].as_u64() >= Some(status.lost), "{told}");
    assert!(told["stale"].as_u64() >= Some(status.stale), "{told}");
}

/// What must have come of all this.
async fn judge(stage: &Stage, client: &Client, orders: &[Order]) {
    let known = jobs(client).await.into_iter().filter(|job| job.kind == COMMAND);
    let known: Vec<_> = known.collect();
    assert_eq!(known.len(), INVOICES + INVOICES / SHIPPED, "repeated submits made no more jobs");
    let states: BTreeMap<&str, &str> =
        known.iter().map(|job| (job.id.as_str(), job.state.as_str())).collect();
    let ledger = Ledger::new(&stage.path("ledger"));
    let charges = ledger.charges();
    let charged: BTreeMap<&str, u64> =
        charges.iter().map(|charge| (charge.invoice.as_str(), charge.at)).collect();
    assert_eq!(charges.len(), INVOICES - 1, "one charge per good invoice");
    assert_eq!(charged.len(), charges.len(), "and none twice");
    let reasons: BTreeSet<String> = ledger.refusals().into_iter().map(|it| it.reason).collect();
    let harmless = BTreeSet::from(["before".to_owned()]);
    assert!(reasons.is_subset(&harmless), "nobody old or doubled came to charge: {reasons:?}");

    let runs = runs::all(&stage.runs());
    for (job, runs) in &runs {
        assert_eq!(runs::objection(runs), None, "job {job}");
    }
    for (index, Order { invoice, ship }) in orders.iter().enumerate() {
        if index == POISON {
            continue;
        }
        assert_eq!(states[&*id(invoice)], "succeeded", "{}", name(index));
        let charged_at = charged[&*name(index)];
        let Some(ship) = ship else { continue };
        assert_eq!(states[&*id(ship)], "succeeded", "{}", name(index));
        for run in &runs[&id(ship)] {
            assert!(run.start > charged_at, "{} was shipped too early: {run:?}", name(index));
        }
    }

    let poison = &orders[POISON];
    let (job, details) = show(client, &id(&poison.invoice)).await;
    assert_eq!((job.state.as_str(), job.reason.as_deref()), ("dead", Some("failed")));
    assert_eq!((job.attempts, details.error.as_deref()), (POISON_ATTEMPTS, Some("exit code 1")));
    let ship = id(poison.ship.as_ref().unwrap());
    let (job, _) = until_state(client, &ship, "cancelled").await;
    assert_eq!(job.reason.as_deref(), Some("condition"));
    assert!(!runs.contains_key(&ship), "it never ran");
}
