//! Double billing: whatever is killed, suspended or repeated, each invoice is charged once.
//!
//! A server and three workers; 200 invoices to be charged, some submitted twice by clients that did
//! not wait for the response, and 50 products to be shipped after their invoices. One worker is
//! killed in the middle of a job, one is suspended past its lease and comes back, one comes back
//! with a report that is too late, the server is killed and restarted, and one invoice can never be
//! charged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use filch_api::client::{Client, Error};
use filch_api::cluster::Status;
use filch_api::submission::{COMMAND, Submission};
use filch_e2e::client_log::ClientLog;
use filch_e2e::faults;
use filch_e2e::jobs::{id, jobs, show, until_state};
use filch_e2e::ledger::{Charge, ChargeLedger};
use filch_e2e::process::{JobProcess, Process, parent_of};
use filch_e2e::proxy::Proxy;
use filch_e2e::random::TestRandom;
use filch_e2e::runs::{self, JobRun};
use filch_e2e::test_env::{TestEnv, TestServer, retry};
use filch_e2e::until::{until, when};

use crate::test_env;

const INVOICES: usize = 200;
/// One in this many is shipped: 50.
const SHIPPED: usize = 4;
/// One in this many is submitted twice.
const REPEATED: usize = 5;
/// The one that can never be charged. It would have been shipped.
const POISON: usize = 12;
const POISON_ATTEMPTS: u16 = 3;

/// Those that are being charged when their worker is killed. They take all its slots.
const HIT: [usize; 2] = [20, 21];
/// The one whose worker is suspended while it is being charged.
const SUSPENDED: usize = 99;
/// Those that are charged by a worker without a connection. On a slow machine the guardian may kill
/// the first of them before it has charged; then the next one is tried.
const DISCONNECTED: Range<usize> = 100..110;

/// In each run: two workers are suspended, one is killed, and so is the server.
const FAULTS: usize = 4;

const SLOTS: u32 = 2;
/// How many jobs the first worker claims beyond those that it runs, so that others can steal them.
const HOLD: &str = "20";
const LEASE: &str = "8s";

/// Whether this one waits for its own gate in the middle of its work; the others take some time.
fn is_gated(index: usize) -> bool {
    HIT.contains(&index) || index == SUSPENDED || DISCONNECTED.contains(&index)
}

/// The jobs for one customer.
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

fn gate(env: &TestEnv, index: usize) -> PathBuf {
    env.path(&format!("gate-{index}"))
}

fn orders(env: &TestEnv, random: &mut TestRandom) -> Vec<Order> {
    let ledger = env.path("ledger");
    let ledger = ledger.to_str().unwrap();
    let order = |index: usize| {
        let millis = if random.below(4) == 0 { 100 + random.below(300) } else { random.below(10) };
        let (name, gate, millis) = (name(index), gate(env, index), millis.to_string());
        let is_gated = is_gated(index);
        let mut invoice = match is_gated {
            true => env.job(&["hold", gate.to_str().unwrap(), ledger, &name]),
            false => env.job(&["charge", &millis, ledger, &name]),
        };
        invoice.priority = if is_gated { 9 } else { random.below(9) as i16 };
        if index == POISON {
            invoice = env.job(&["refuse", "5"]);
            invoice.retry = Some(retry(POISON_ATTEMPTS));
        }
        let ship = index.is_multiple_of(SHIPPED).then(|| {
            let mut ship = env.job(&["ship", "5", ledger, &name]);
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
    let mut random = TestRandom::seeded();
    let times = faults::scaled(1);
    for _ in 0..times {
        charge_all(&mut random).await;
    }
    faults::injected(times * FAULTS, "faults around invoices");
}

async fn charge_all(random: &mut TestRandom) {
    let env = test_env();
    let server = env.server(Some(LEASE)).await;
    let orders = orders(&env, random);
    let mut shop = Shop { env, server, workers: Vec::new(), proxies: Vec::new(), orders };

    shop.new_workers_steal(0..60).await;
    shop.a_worker_is_killed(60..SUSPENDED).await;
    shop.a_worker_is_suspended().await;
    let tried = shop.a_worker_comes_back_with_a_late_report().await;
    let before_crash = shop.status().await;
    assert!(before_crash.lost >= 3 && before_crash.stale >= 1, "{before_crash:?}");
    shop.expect_in_status_command(&before_crash).await;
    shop.the_server_is_killed(tried + 1..INVOICES).await;

    shop.until_status("everything is done", |status| status.jobs == 0).await;
    check(&shop).await;
    assert!(shop.env.stop_and_check(shop.server).await.repeated >= 3);
}

struct Shop {
    env: TestEnv,
    server: TestServer,
    workers: Vec<Process>,
    /// One for each worker.
    proxies: Vec<Proxy>,
    orders: Vec<Order>,
}

impl Shop {
    /// One worker claims more than it can run; two more are started, and steal when nothing else is
    /// left.
    async fn new_workers_steal(&mut self, orders: Range<usize>) {
        self.add_worker(&["--hold", HOLD]).await;
        self.submit(orders).await;
        until("its slots are taken and jobs wait behind them", async || {
            let held = self.server.client.workers().await.unwrap().first()?.held;
            when(HIT.iter().all(|&hit| self.owner_of(hit) == Some(0)) && held > SLOTS.into())
        })
        .await;
        for _ in 1..3 {
            self.add_worker(&[]).await;
        }
        self.until_status("jobs are stolen", |status| status.steals > 0).await;
    }

    /// That worker is killed in the middle of its jobs, and another is started in its place.
    async fn a_worker_is_killed(&mut self, orders: Range<usize>) {
        self.submit(orders).await;
        let (killed, orphans) = self.freeze_owner(HIT[0]).await;
        let lost = self.status().await.lost;
        self.workers[killed].kill();
        self.workers[killed] = self.env.worker(&self.proxies[killed].url(), SLOTS, &[]);
        self.until_status("the server notices the loss", |status| status.lost > lost).await;
        self.expect_again(&orphans).await;
        HIT.iter().for_each(|&hit| self.open(hit));
        // The other faults shall not hit this one: then it would not die of its own failures.
        until_state(&self.server.client, &id(&self.orders[POISON].invoice), "dead").await;
    }

    /// When its lease is over, what it ran is dead and runs elsewhere. It comes back as a new
    /// worker.
    async fn a_worker_is_suspended(&self) {
        self.submit(SUSPENDED..SUSPENDED + 1).await;
        let (suspended, jobs) = self.freeze_owner(SUSPENDED).await;
        let lost = self.status().await.lost;
        self.until_status("the server notices the loss", |status| status.lost > lost).await;
        self.expect_again(&jobs).await;
        self.workers[suspended].thaw();
        self.until_status("it is back", |status| status.workers == 3).await;
        self.open(SUSPENDED);
    }

    /// A worker has charged an invoice while its connection is cut, and is suspended before it can
    /// report that. When it comes back and does, its report is refused, because the job has another
    /// owner, which charges nothing. Returns the number of the last invoice that was submitted.
    async fn a_worker_comes_back_with_a_late_report(&self) -> usize {
        for index in DISCONNECTED {
            self.submit(index..index + 1).await;
            let owner = until("it is being charged", async || self.owner_of(index)).await;
            self.proxies[owner].cut().await;
            self.open(index);
            let first = until("its run has ended", async || {
                let first = self.runs_of(index).into_iter().next()?;
                // Its worker knows how it ended once it has reaped it.
                (parent_of(first.process.pid) != Some(first.worker)).then_some(first)
            })
            .await;
            if first.worker == self.workers[owner].pid() && self.is_charged_by(index, first.fence) {
                self.expect_late_report(index, owner, &first).await;
                DISCONNECTED.for_each(|index| self.open(index));
                return index;
            }
            // The worker or its guardian has stopped it before it could charge.
            self.proxies[owner].mend();
            self.until_status("it is back", |status| status.workers == 3).await;
        }
        panic!("no job has ended before its worker's lease");
    }

    fn is_charged_by(&self, index: usize, fence: u64) -> bool {
        let ledger = ChargeLedger::new(&self.env.path("ledger"));
        let is_it = |charge: &Charge| charge.invoice == name(index) && charge.fence == fence;
        ledger.charges().iter().any(is_it)
            && self.runs_of(index).iter().any(|run| run.fence == fence && run.end.is_some())
    }

    async fn expect_late_report(&self, index: usize, owner: usize, first: &JobRun) {
        self.workers[owner].freeze();
        let is_next = |run: &JobRun| run.fence > first.fence;
        until("it runs elsewhere", async || when(self.runs_of(index).iter().any(is_next))).await;
        let stale = self.status().await.stale;
        self.workers[owner].thaw();
        self.proxies[owner].mend();
        self.until_status("its report is refused", |status| status.stale > stale).await;
        self.until_status("it is back", |status| status.workers == 3).await;
        let job = id(&self.orders[index].invoice);
        until_state(&self.server.client, &job, "succeeded").await;
        assert!(self.is_charged_by(index, first.fence), "the first has charged it");
        let ledger = ChargeLedger::new(&self.env.path("ledger"));
        let mut refusals = ledger.refusals().into_iter();
        assert!(refusals.any(|it| it.invoice == name(index)), "and the second has not");
    }

    /// It is killed while clients submit, and restarted on the same port with the same data.
    async fn the_server_is_killed(&mut self, orders: Range<usize>) {
        let answers = Arc::new(Answers::default());
        let orders = &self.orders[orders];
        let clients: Vec<_> = orders
            .chunks(orders.len().div_ceil(4))
            .map(|orders| {
                let (answers, orders) = (Arc::clone(&answers), orders.to_vec());
                let (client, clients) =
                    (self.server.client.clone(), Arc::clone(&self.env.client_log));
                tokio::spawn(async move {
                    answers.submit_repeatedly(client, &clients, orders).await;
                })
            })
            .collect();
        until("clients submit", async || when(answers.new.load(Ordering::Relaxed) >= 20)).await;
        self.server.process.kill();
        until("they notice", async || when(answers.missing.load(Ordering::Relaxed) > 0)).await;
        self.server.restart(&self.env).await;
        answers.is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.unwrap();
        }
    }

    /// Starts a worker that is connected through a proxy.
    async fn add_worker(&mut self, more: &[&str]) {
        let proxy = Proxy::to(self.server.address()).await;
        self.workers.push(self.env.worker(&proxy.url(), SLOTS, more));
        self.proxies.push(proxy);
    }

    /// Submits these orders, all or none, and some of them once more.
    async fn submit(&self, orders: Range<usize>) {
        let orders = &self.orders[orders];
        let jobs: Vec<Submission> = orders.iter().flat_map(Order::jobs).cloned().collect();
        let receipts = self.env.submit(&self.server, &jobs).await;
        assert!(receipts.iter().all(|receipt| receipt.new));
        for order in orders.iter().step_by(REPEATED) {
            let receipt = self.server.client.submit(&order.invoice).await.unwrap();
            assert!(!receipt.new, "it is known: {receipt:?}");
        }
    }

    fn runs_of(&self, index: usize) -> Vec<JobRun> {
        runs::of(&self.env.runs(), &id(&self.orders[index].invoice))
    }

    fn open(&self, index: usize) {
        std::fs::write(gate(&self.env, index), "").unwrap();
    }

    fn owner_of(&self, index: usize) -> Option<usize> {
        let is_it = |job: &JobProcess| job.id == id(&self.orders[index].invoice);
        self.workers.iter().position(|worker| worker.jobs().iter().any(is_it))
    }

    /// The worker that charges this invoice, frozen in the middle of it, and all that it runs.
    async fn freeze_owner(&self, index: usize) -> (usize, Vec<JobProcess>) {
        until("a worker runs the job", async || {
            let worker = self.owner_of(index)?;
            self.workers[worker].freeze();
            // From here on it reports nothing: what runs now is in the middle of its attempt.
            if self.owner_of(index) == Some(worker) {
                return Some((worker, self.workers[worker].jobs()));
            }
            self.workers[worker].thaw();
            None
        })
        .await
    }

    /// What ran on a lost worker is dead, and runs again elsewhere.
    async fn expect_again(&self, orphans: &[JobProcess]) {
        for orphan in orphans {
            let is_next = |run: &JobRun| run.fence > orphan.fence;
            until("an orphaned job runs again", async || {
                when(runs::of(&self.env.runs(), &orphan.id).iter().any(is_next))
            })
            .await;
            assert!(!orphan.process.is_alive(), "the guardian has killed it: {orphan:?}");
        }
    }

    async fn status(&self) -> Status {
        self.server.client.status().await.unwrap()
    }

    async fn until_status(&self, what: &str, is_so: impl Fn(&Status) -> bool) {
        until(what, async || when(is_so(&self.status().await))).await;
    }

    /// `filch server status` shows the losses.
    async fn expect_in_status_command(&self, status: &Status) {
        let arguments = ["server", "status", "--json", "--server", &self.server.url];
        let mut command = self.env.filch(&self.env.path("data"), &arguments);
        assert_eq!(command.code().await, Some(0), "{}", command.stderr());
        let shown: serde_json::Value = serde_json::from_str(&command.stdout()).unwrap();
        assert!(shown["lost"].as_u64() >= Some(status.lost), "{shown}");
        assert!(shown["stale"].as_u64() >= Some(status.stale), "{shown}");
    }
}

/// How often clients were answered.
#[derive(Default)]
struct Answers {
    /// How often a job was acknowledged as a new one.
    new: AtomicUsize,
    /// How often there was no response.
    missing: AtomicUsize,
    is_over: AtomicBool,
}

impl Answers {
    /// Submits these orders again and again, until `is_over` is set.
    async fn submit_repeatedly(&self, client: Client, clients: &ClientLog, orders: Vec<Order>) {
        loop {
            for job in orders.iter().flat_map(Order::jobs) {
                self.submit(&client, clients, job).await;
            }
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Submits as a careful client does: with the same id, until there is a response.
    async fn submit(&self, client: &Client, clients: &ClientLog, job: &Submission) {
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

/// What must hold in the end.
async fn check(shop: &Shop) {
    let client = &shop.server.client;
    let known = jobs(client).await.into_iter().filter(|job| job.kind == COMMAND);
    let known: BTreeMap<String, String> = known.map(|job| (job.id, job.state)).collect();
    assert_eq!(known.len(), INVOICES + INVOICES / SHIPPED, "repeated submits made no more jobs");
    let ledger = ChargeLedger::new(&shop.env.path("ledger"));
    let charges = ledger.charges();
    let charged: BTreeMap<&str, u64> =
        charges.iter().map(|charge| (charge.invoice.as_str(), charge.at)).collect();
    assert_eq!(charges.len(), INVOICES - 1, "one charge per good invoice");
    assert_eq!(charged.len(), charges.len(), "and none twice");
    let reasons: BTreeSet<String> = ledger.refusals().into_iter().map(|it| it.reason).collect();
    let harmless = BTreeSet::from(["before".to_owned()]);
    assert!(
        reasons.is_subset(&harmless),
        "no former owner tried to charge, and none twice: {reasons:?}"
    );

    let runs = runs::all(&shop.env.runs());
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
