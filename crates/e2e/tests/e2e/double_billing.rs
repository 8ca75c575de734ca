//! Double Billing: whatever is killed, stopped or repeated, each invoice is charged once.
//!
//! A server and three workers; 200 invoices to be charged, some submitted twice by clients that did not
//! wait for the answer, and 50 products to be shipped after theirs. One worker is killed in mid-job, one
//! stands still past its lease and comes back, one does so with news that come too late, the server is
//! killed and started again, and one invoice can never be charged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use filch_api::client::{Client, Error};
use filch_api::cluster::Status;
use filch_api::submission::{COMMAND, Submission};
use filch_e2e::clients::Clients;
use filch_e2e::faults;
use filch_e2e::ledger::Ledger;
use filch_e2e::process::{Job, Process, parent_of};
use filch_e2e::random::Random;
use filch_e2e::runs::{self, Run};
use filch_e2e::since_boot;
use filch_e2e::stage::{Server, Stage, retry};
use filch_e2e::until::{until, when};
use filch_e2e::wire::Wire;

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
/// The one whose worker stands still while it is being charged.
const STUCK: usize = 99;
/// The one that is charged by a worker of which nobody hears for a while.
const UNHEARD: usize = 100;
/// These wait for a gate of their own in the middle of their work; the others take some time.
const GATED: [usize; 4] = [HIT[0], HIT[1], STUCK, UNHEARD];

/// Of each story: two workers stand still, one is killed, and so is the server.
const FAULTS: usize = 4;

const SLOTS: u32 = 2;
const LEASE: &str = "4s";
/// An orphan runs again within the lease and a second; the rest is for machines with much else to do.
const ORPHAN_WAIT: Duration = Duration::from_secs(5 + 20);

/// What has to be done for one customer.
#[derive(Clone)]
struct Order {
    invoice: Submission,
    ship: Option<Submission>,
}

impl Order {
    fn jobs(&self) -> impl Iterator<Item = &Submission> {
        [Some(&self.invoice), self.ship.as_ref()].into_iter().flatten()
    }
}

fn name(index: usize) -> String {
    format!("invoice-{index}")
}

fn gate(stage: &Stage, index: usize) -> PathBuf {
    stage.path(&format!("gate-{index}"))
}

fn orders(stage: &Stage, random: &mut Random) -> Vec<Order> {
    let ledger = stage.path("ledger");
    let ledger = ledger.to_str().unwrap();
    let order = |index: usize| {
        let millis = if random.below(4) == 0 { 100 + random.below(300) } else { random.below(10) };
        let (name, gate, millis) = (name(index), gate(stage, index), millis.to_string());
        let is_gated = GATED.contains(&index);
        let mut invoice = match is_gated {
            true => stage.job(&["hold", gate.to_str().unwrap(), ledger, &name]),
            false => stage.job(&["charge", &millis, ledger, &name]),
        };
        invoice.priority = if is_gated { 9 } else { random.below(9) as i16 };
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

#[tokio::test(flavor = "multi_thread")]
async fn every_invoice_is_charged_once() {
    let mut random = Random::seeded();
    let times = faults::scaled(1);
    for _ in 0..times {
        charge_all(&mut random).await;
    }
    faults::brought_about(times * FAULTS, "faults around invoices");
}

async fn charge_all(random: &mut Random) {
    let stage = stage();
    let server = stage.server(Some(LEASE)).await;
    let orders = orders(&stage, random);
    let mut shop = Shop { stage, server, workers: Vec::new(), wires: Vec::new(), orders };

    shop.newcomers_steal(0..60).await;
    shop.a_worker_is_killed(60..STUCK).await;
    shop.a_worker_stands_still().await;
    shop.a_worker_comes_back_with_news().await;
    let first_life = shop.status().await;
    assert!(first_life.lost >= 3 && first_life.stale >= 1, "{first_life:?}");
    shop.expect_told(&first_life).await;
    shop.the_server_is_killed(UNHEARD + 1..INVOICES).await;

    shop.until_status("everything is done", |status| status.jobs == 0).await;
    judge(&shop).await;
    assert!(shop.stage.judge(shop.server).await.repeated >= 3);
}

struct Shop {
    stage: Stage,
    server: Server,
    workers: Vec<Process>,
    /// One for each worker.
    wires: Vec<Wire>,
    orders: Vec<Order>,
}

impl Shop {
    /// One worker takes more than it can begin with; two more come, and steal when nothing else is left.
    async fn newcomers_steal(&mut self, orders: Range<usize>) {
        self.hire().await;
        make_greedy(&self.server).await;
        self.submit(orders).await;
        until("its slots are taken and jobs wait behind them", async || {
            let held = self.server.client.workers().await.unwrap()[0].held;
            when(HIT.iter().all(|&hit| self.who_charges(hit) == Some(0)) && held > SLOTS.into())
        })
        .await;
        for _ in 1..3 {
            self.hire().await;
        }
        self.until_status("jobs are stolen", |status| status.steals > 0).await;
    }

    /// That worker is killed in mid-job, and another comes in its place.
    async fn a_worker_is_killed(&mut self, orders: Range<usize>) {
        self.submit(orders).await;
        let (killed, orphans) = self.stop_in_mid_job(HIT[0]).await;
        assert_eq!((killed, orphans.len()), (0, HIT.len()));
        let lost = self.status().await.lost;
        self.workers[killed].kill();
        let killed_at = since_boot();
        self.workers[killed] = self.stage.worker(&self.wires[killed].url(), SLOTS, &[]);
        self.until_status("its loss is seen", |status| status.lost > lost).await;
        self.expect_again(&orphans, killed_at).await;
        HIT.iter().for_each(|&hit| self.open(hit));
    }

    /// Past its lease, what it ran is dead and runs elsewhere. It comes back under another name.
    async fn a_worker_stands_still(&self) {
        self.submit(STUCK..STUCK + 1).await;
        let (still, jobs) = self.stop_in_mid_job(STUCK).await;
        self.let_it_lose(&jobs).await;
        self.workers[still].thaw();
        self.until_status("it is back", |status| status.workers == 3).await;
        self.open(STUCK);
    }

    /// One has charged an invoice when its wire is cut, and stands still before it can say so. When it
    /// comes back and does, it is refused, because somebody else has the job, and charges nothing.
    async fn a_worker_comes_back_with_news(&self) {
        self.submit(UNHEARD..UNHEARD + 1).await;
        let lost = self.status().await.lost;
        let worker = until("it is being charged", async || self.who_charges(UNHEARD)).await;
        self.wires[worker].cut().await;
        self.open(UNHEARD);
        let first = until("the first has done its work", async || {
            self.runs_of(UNHEARD).into_iter().find(|run| run.end.is_some())
        })
        .await;
        // Its worker knows how it ended once it has reaped it.
        until("it is reaped", async || when(parent_of(first.process.pid).is_none())).await;
        self.workers[worker].freeze();
        self.until_status("its loss is seen", |status| status.lost > lost).await;
        until("the second begins", async || when(self.runs_of(UNHEARD).len() > 1)).await;

        let stale = self.status().await.stale;
        self.workers[worker].thaw();
        self.wires[worker].mend();
        self.until_status("its news is refused", |status| status.stale > stale).await;
        self.until_status("it is back", |status| status.workers == 3).await;
        let job = id(&self.orders[UNHEARD].invoice);
        until_state(&self.server.client, &job, "succeeded").await;
        let ledger = Ledger::new(&self.stage.path("ledger"));
        let charges = ledger.charges();
        let charge = charges.iter().find(|it| it.invoice == name(UNHEARD)).unwrap();
        assert_eq!(charge.fence, first.fence, "the first has charged it");
        let mut refusals = ledger.refusals().into_iter();
        assert!(refusals.any(|it| it.invoice == name(UNHEARD)), "and the second has not");
    }

    /// It is killed while clients submit, and comes back on the same port with the same data.
    async fn the_server_is_killed(&mut self, orders: Range<usize>) {
        let answers = Arc::new(Answers::default());
        let orders = &self.orders[orders];
        let clients: Vec<_> = orders
            .chunks(orders.len().div_ceil(4))
            .map(|orders| {
                let (answers, orders) = (Arc::clone(&answers), orders.to_vec());
                let (client, clients) =
                    (self.server.client.clone(), Arc::clone(&self.stage.clients));
                tokio::spawn(async move {
                    answers.submit_restlessly(client, &clients, orders).await;
                })
            })
            .collect();
        until("clients submit", async || when(answers.new.load(Ordering::Relaxed) >= 20)).await;
        self.server.process.kill();
        until("they notice", async || when(answers.missing.load(Ordering::Relaxed) > 0)).await;
        self.server.restart(&self.stage).await;
        answers.is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.unwrap();
        }
    }

    /// Starts a worker at the end of a wire.
    async fn hire(&mut self) {
        let wire = Wire::to(self.server.url.strip_prefix("http://").unwrap()).await;
        self.workers.push(self.stage.worker(&wire.url(), SLOTS, &[]));
        self.wires.push(wire);
    }

    /// Submits these orders, all or none, and some of them once more.
    async fn submit(&self, orders: Range<usize>) {
        let orders = &self.orders[orders];
        let jobs: Vec<Submission> = orders.iter().flat_map(Order::jobs).cloned().collect();
        let receipts = self.stage.submit(&self.server, &jobs).await;
        assert!(receipts.iter().all(|receipt| receipt.new));
        for order in orders.iter().step_by(REPEATED) {
            let receipt = self.server.client.submit(&order.invoice).await.unwrap();
            assert!(!receipt.new, "it is known: {receipt:?}");
        }
    }

    fn runs_of(&self, index: usize) -> Vec<Run> {
        runs::of(&self.stage.runs(), &id(&self.orders[index].invoice))
    }

    fn open(&self, index: usize) {
        std::fs::write(gate(&self.stage, index), "").unwrap();
    }

    fn who_charges(&self, index: usize) -> Option<usize> {
        let is_it = |job: &Job| job.id == id(&self.orders[index].invoice);
        self.workers.iter().position(|worker| worker.jobs().iter().any(is_it))
    }

    /// The worker that charges this invoice, stopped in the middle of it, and all that it runs.
    async fn stop_in_mid_job(&self, index: usize) -> (usize, Vec<Job>) {
        until("a job is in mid-run", async || {
            let worker = self.who_charges(index)?;
            self.workers[worker].freeze();
            // From here on it reports nothing: what runs now is in the middle of its attempt.
            if self.who_charges(index) == Some(worker) {
                return Some((worker, self.workers[worker].jobs()));
            }
            self.workers[worker].thaw();
            None
        })
        .await
    }

    /// Waits until the server has given up a worker that stands still, and sees to what it ran.
    async fn let_it_lose(&self, jobs: &[Job]) {
        let stopped_at = since_boot();
        let lost = self.status().await.lost;
        self.until_status("its loss is seen", |status| status.lost > lost).await;
        for job in jobs {
            assert!(!job.process.is_alive(), "its guardian has killed what it ran: {job:?}");
        }
        self.expect_again(jobs, stopped_at).await;
    }

    /// What ran on a worker that is no more runs again elsewhere, soon.
    async fn expect_again(&self, orphans: &[Job], since: u64) {
        for orphan in orphans {
            let is_next = |run: &Run| run.fence > orphan.fence;
            let next = until("an orphan runs again", async || {
                runs::of(&self.stage.runs(), &orphan.id).into_iter().find(is_next)
            })
            .await;
            let waited = Duration::from_micros(next.start.saturating_sub(since));
            assert!(waited < ORPHAN_WAIT, "{orphan:?} waited for {waited:?}");
        }
    }

    async fn status(&self) -> Status {
        self.server.client.status().await.unwrap()
    }

    async fn until_status(&self, what: &str, is_so: impl Fn(&Status) -> bool) {
        until(what, async || when(is_so(&self.status().await))).await;
    }

    /// The losses can be seen on the command line.
    async fn expect_told(&self, status: &Status) {
        let arguments = ["server", "status", "--json", "--server", &self.server.url];
        let mut command = self.stage.filch(&self.stage.path("data"), &arguments);
        assert_eq!(command.code().await, Some(0), "{}", command.said());
        let told: serde_json::Value = serde_json::from_str(&command.printed()).unwrap();
        assert!(told["lost"].as_u64() >= Some(status.lost), "{told}");
        assert!(told["stale"].as_u64() >= Some(status.stale), "{told}");
    }
}

/// What clients have come to.
#[derive(Default)]
struct Answers {
    /// How often a job was acknowledged as a new one.
    new: AtomicUsize,
    /// How often there was no answer.
    missing: AtomicUsize,
    is_over: AtomicBool,
}

impl Answers {
    /// Submits these orders, and then once more, until it is told that it is over.
    async fn submit_restlessly(&self, client: Client, clients: &Clients, orders: Vec<Order>) {
        loop {
            for job in orders.iter().flat_map(Order::jobs) {
                self.submit(&client, clients, job).await;
            }
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Submits as a careful client does: again and again with the same id, until there is an answer.
    async fn submit(&self, client: &Client, clients: &Clients, job: &Submission) {
        loop {
            match client.submit(job).await {
                Ok(receipt) => {
                    assert_eq!(receipt.id, id(job));
                    clients.acknowledged(&receipt.id);
                    self.new.fetch_add(receipt.new.into(), Ordering::Relaxed);
                    return;
                }
                Err(Error::Unreachable { .. }) => self.missing.fetch_add(1, Ordering::Relaxed),
                Err(other) => panic!("{other}"),
            };
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// What must have come of all this.
async fn judge(shop: &Shop) {
    let client = &shop.server.client;
    let known = jobs(client).await.into_iter().filter(|job| job.kind == COMMAND);
    let known: BTreeMap<String, String> = known.map(|job| (job.id, job.state)).collect();
    assert_eq!(known.len(), INVOICES + INVOICES / SHIPPED, "repeated submits made no more jobs");
    let ledger = Ledger::new(&shop.stage.path("ledger"));
    let charges = ledger.charges();
    let charged: BTreeMap<&str, u64> =
        charges.iter().map(|charge| (charge.invoice.as_str(), charge.at)).collect();
    assert_eq!(charges.len(), INVOICES - 1, "one charge per good invoice");
    assert_eq!(charged.len(), charges.len(), "and none twice");
    let reasons: BTreeSet<String> = ledger.refusals().into_iter().map(|it| it.reason).collect();
    let harmless = BTreeSet::from(["before".to_owned()]);
    assert!(reasons.is_subset(&harmless), "nobody old or doubled came to charge: {reasons:?}");

    let runs = runs::all(&shop.stage.runs());
    for (index, order) in shop.orders.iter().enumerate().filter(|(index, _)| *index != POISON) {
        for job in order.jobs() {
            assert_eq!(known[&id(job)], "succeeded", "{}", name(index));
        }
        for run in order.ship.iter().flat_map(|ship| &runs[&id(ship)]) {
            let is_paid = run.start > charged[&*name(index)];
            assert!(is_paid, "{} was shipped too early: {run:?}", name(index));
        }
    }

    let poison = &shop.orders[POISON];
    let (job, details) = show(client, &id(&poison.invoice)).await;
    assert_eq!((job.state.as_str(), job.reason.as_deref()), ("dead", Some("failed")));
    let error = "exit code 1: this invoice cannot be charged";
    assert_eq!((job.attempts, details.error.as_deref()), (POISON_ATTEMPTS, Some(error)));
    let ship = id(poison.ship.as_ref().unwrap());
    let (job, _) = until_state(client, &ship, "cancelled").await;
    assert_eq!(job.reason.as_deref(), Some("condition"));
    assert!(!runs.contains_key(&ship), "it never ran");
}
