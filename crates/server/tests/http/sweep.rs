//! Forgetting: what ended long ago goes, a slice at a time, and nobody who is served meanwhile notices.

use std::sync::Arc;
use std::time::{Duration, Instant};

use filch_api::session::{About, Comes, Hello, Up, UpFrame};
use filch_scheduler::id::{JobId, WorkerId};
use filch_scheduler::record::Mutation;
use filch_scheduler::state::State;
use filch_scheduler::time::Wall;
use filch_server::{Embedded, SideWork};
use filch_store::Transient;
use filch_store::integrity::check;
use serde_json::{Value, json};

use crate::client::{Place, eventually};
use crate::past::{DAY_MS, TOGETHER, now_ms, with_past};

/// If nothing has gone for so long, something has gone wrong.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long it all takes is up to the machine, so patience begins anew with everything that goes.
struct Patience {
    gone: u64,
    until: Instant,
}

impl Patience {
    fn begin() -> Self {
        Self { gone: 0, until: Instant::now() + PATIENCE }
    }

    #[track_caller]
    fn see(&mut self, report: &Value) {
        let found = |figure: &str| report["found"][figure].as_u64().unwrap();
        let gone = found("jobs_purged") + found("lease_rows_trimmed");
        if gone > self.gone {
            *self = Self { gone, ..Self::begin() };
        }
        assert!(Instant::now() < self.until, "nothing has gone for {PATIENCE:?}: {report}");
    }
}

async fn purged(place: &Place) -> u64 {
    place.get("/v1/recruit").await.ok()["found"]["jobs_purged"].as_u64().unwrap()
}

fn percentile(spans: &mut [Duration], percent: usize) -> Duration {
    spans.sort_unstable();
    spans[(spans.len() - 1) * percent / 100]
}

/// How long one job takes to be submitted.
async fn submit(place: &Place) -> Duration {
    let began = Instant::now();
    place.submit(&json!({"kind": "k"})).await;
    began.elapsed()
}

const OVERDUE: u64 = 200_000;

/// The server is asked for as long as it takes, and a twin of it without a past is asked in turn: whatever
/// else the machine does, it does to both.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_overdue_goes_and_who_is_served_meanwhile_does_not_notice() {
    let now = now_ms();
    let (place, store, (parent, child, recent)) = with_past(SideWork::InIdleMoments, |past| {
        let parent = past.succeeded_with_key("of a parent", now - 30 * DAY_MS);
        past.succeeded_with_key("of nobody's parent", now - 30 * DAY_MS);
        let mut later = past.row(now - 30 * DAY_MS, State::Scheduled, Vec::new());
        later.now.due = Wall(now + DAY_MS);
        later.spec.not_before = Some(later.now.due);
        let parents = vec![parent, later.spec.id];
        let child = past.row(now - 30 * DAY_MS, State::Blocked, parents);
        let id = child.spec.id;
        past.keep(vec![Mutation::Put(later), Mutation::Put(child)]);
        past.succeeded(OVERDUE - 1, now - 8 * DAY_MS);
        (parent, id, past.succeeded(100, now - DAY_MS))
    })
    .await;
    let (twin, _, ()) = with_past(SideWork::InIdleMoments, |_| ()).await;

    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut patience = Patience::begin();
    loop {
        let report = place.get("/v1/recruit").await.ok();
        if report["found"]["jobs_purged"].as_u64().unwrap() >= OVERDUE && with.len() >= 200 {
            break;
        }
        patience.see(&report);
        with.push(submit(&place).await);
        purged(&twin).await;
        without.push(submit(&twin).await);
    }
    for (percent, most) in [(50, 3), (90, 5), (99, 8)] {
        let [with, without] = [&mut with, &mut without].map(|spans| percentile(spans, percent));
        println!("{percent} of 100: {with:?} with 200,000 overdue jobs, {without:?} without");
        assert!(with < without * most, "{percent}: {with:?} is much more than {without:?}");
    }

    // None went too early, and none that somebody needs.
    assert_eq!(purged(&place).await, OVERDUE);
    let text = |id: &JobId| filch_api::id::job(*id);
    for id in recent.iter().chain([&parent, &child]) {
        place.get(&format!("/v1/jobs/{}", text(id))).await.ok();
    }
    place.submit(&json!({"kind": "k", "after": [text(&parent)]})).await;
    place.submit(&json!({"kind": "k", "after": [text(&child)]})).await;
    // Keys go, and stay, with their jobs.
    let with_key = |key: &str| json!({"kind": "another", "key": key});
    place.post("/v1/jobs", &with_key("of a parent")).await.refused(409, "key-conflict");
    place.submit(&with_key("of nobody's parent")).await;
    // The rows of the ledger that said who had owned them go as well, and their number is known.
    let rows = (OVERDUE - 1).div_ceil(TOGETHER) + 1;
    let report = loop {
        let report = place.get("/v1/recruit").await.ok();
        if report["found"]["lease_rows_trimmed"] == rows {
            break report;
        }
        patience.see(&report);
        submit(&place).await;
    };
    let slices = report["jobs"].as_array().unwrap().iter();
    let slices: u64 = slices.map(|row| row["recruited"].as_u64().unwrap()).sum();
    assert!(slices > 10, "{report}");
    let days = report["days"].as_array().unwrap();
    let forgotten: Vec<&Value> = days.iter().map(|day| &day["succeeded"]).collect();
    assert_eq!(forgotten, [&json!(OVERDUE - 1), &json!(1)], "{report}");
    assert_eq!(days[0]["queue"], "default");
    place.server.stop().await;
    let report = check(&*store).unwrap();
    assert!(report.holds(), "{:?}", report.violations);
    assert_eq!(report.counts.expired, OVERDUE);
    // What it does not look back at, it does not count.
    assert_eq!(report.counts.ledger_rows_trimmed(), rows);
}

/// What one place has come to so far: this figure of all its side jobs together.
fn at(report: &Value, place: &str, figure: &str) -> f64 {
    let rows = report["jobs"].as_array().unwrap().iter();
    rows.filter(|row| row["place"] == place).map(|row| row[figure].as_f64().unwrap()).sum()
}

/// Nobody asks it for anything: it has all the moments to spare that it could wish for.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_clears_away_as_fast_as_its_budget_allows_and_no_faster() {
    const JOBS: u64 = 40_000;
    let (place, _, began) = with_past(SideWork::InIdleMoments, |past| {
        past.succeeded(JOBS, now_ms() - 8 * DAY_MS);
        Instant::now()
    })
    .await;
    let mut spent = 0.0;
    let mut patience = Patience::begin();
    loop {
        let report = place.get("/v1/recruit").await.ok();
        let elapsed = began.elapsed();
        let spent_now = at(&report, "idle", "seconds");
        if spent_now > spent {
            // Whatever the last slice took: when it began, those before it were paid for. A slice that
            // found somebody at it took next to nothing.
            let most = elapsed.as_secs_f64() * 0.2 + 0.2 + 0.02;
            assert!(spent <= most, "{spent} s within {elapsed:?}: {report}");
            spent = spent_now;
        }
        if report["found"]["jobs_purged"] == JOBS {
            // Once a second would be what its clocks have it look around for in any case.
            let often = at(&report, "idle", "enlisted") / 2.0;
            assert!(often > 5.0 * elapsed.as_secs_f64(), "within {elapsed:?}: {report}");
            break;
        }
        patience.see(&report);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    eventually("nothing is overdue", async || {
        place.get("/v1/recruit").await.ok()["overdue"] == false
    })
    .await;
}

/// This is how it happens at all.
#[tokio::test(flavor = "multi_thread")]
async fn commits_alone_are_enough_for_all_that_is_overdue_to_go() {
    const JOBS: u64 = 3_000;
    let only = SideWork::WithCommitsOnly;
    let (place, _, ()) =
        with_past(only, |past| drop(past.succeeded(JOBS, now_ms() - 8 * DAY_MS))).await;
    let mut patience = Patience::begin();
    let mut was_overdue = false;
    let report = loop {
        let report = place.get("/v1/recruit").await.ok();
        if report["found"]["jobs_purged"] == JOBS {
            break report;
        }
        // It was over for eight days, and is kept for seven.
        let overdue_ms = report["overdue_ms"].as_u64();
        assert_eq!(overdue_ms.is_some(), report["overdue"] == true, "{report}");
        assert!(overdue_ms.is_none_or(|span| span >= DAY_MS), "{report}");
        was_overdue |= overdue_ms.is_some();
        patience.see(&report);
        submit(&place).await;
    };
    assert!(was_overdue, "{report}");
    assert!(at(&report, "commits", "recruited") >= 1.0, "{report}");
    for place in ["idle", "workers"] {
        assert_eq!(at(&report, place, "enlisted"), 0.0, "{report}");
    }
    let page = place.get("/metrics").await.ok();
    assert!(page.as_str().unwrap().contains("\nfilch_purged_total 3000\n"), "{page}");
}

#[tokio::test]
async fn nothing_is_overdue_at_a_server_without_a_past() {
    let (place, _, ()) = with_past(SideWork::InIdleMoments, |_| ()).await;
    let report = place.get("/v1/recruit").await.ok();
    assert_eq!((&report["overdue"], report.get("overdue_ms")), (&json!(false), None), "{report}");
}

/// A worker that was let in, and has nothing to do.
struct Idle {
    wire: Embedded,
    number: u64,
    /// What it says of itself with its first words.
    about: Option<About>,
    said: u64,
}

impl Idle {
    async fn come(place: &Place) -> Self {
        Self::come_as(place, 5, None).await
    }

    /// The same with a number of its own, and with what it says of itself.
    async fn come_as(place: &Place, number: u64, about: Option<About>) -> Self {
        let mut worker = Self { wire: place.server.connect(), number, about, said: 0 };
        let hello = Hello {
            entrance: Comes::New,
            slots: 1,
            want: 1,
            queues: None,
            reports: Vec::new(),
            started: Vec::new(),
            holds: Vec::new(),
        };
        worker.say(Up::Hello(Box::new(hello))).await;
        while !worker.wire.down.recv().await.expect("it is answered").sweeps {}
        worker
    }

    async fn say(&mut self, message: Up) {
        self.said += 1;
        let frame = UpFrame {
            worker: filch_api::id::worker(WorkerId::embedded(self.number)),
            session: 1,
            number: self.said,
            messages: vec![message],
            output: Vec::new(),
            about: self.about.take().map(Box::new),
        };
        self.wire.up.send(frame).await.unwrap();
    }

    async fn sweep(&mut self) {
        self.say(Up::Sweep).await;
        self.wire.down.recv().await.expect("it is answered");
    }
}

/// A worker that is idle may say so; a server says that it listens.
#[tokio::test]
async fn a_sweep_of_a_worker_is_heard_and_counted() {
    let place = Place::with(Arc::new(Transient::default()), Duration::from_secs(10), None).await;
    Idle::come(&place).await.sweep().await;
    assert_eq!(place.get("/v1/recruit").await.ok()["offered"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slice_is_done_for_a_worker_that_sweeps() {
    // Enough for the server's own idle moments to leave some.
    let (place, _, ()) = with_past(SideWork::InIdleMoments, |past| {
        past.succeeded(20_000, now_ms() - 8 * DAY_MS);
    })
    .await;
    let mut worker = Idle::come(&place).await;
    loop {
        let report = place.get("/v1/recruit").await.ok();
        if at(&report, "workers", "recruited") >= 1.0 {
            break;
        }
        assert!(report["found"]["jobs_purged"] != 20_000, "none for the worker: {report}");
        worker.sweep().await;
    }
}

/// How often idle workers offer a moment is theirs to decide, and they say it when they come.
#[tokio::test]
async fn how_much_workers_offer_is_shown() {
    let place = Place::with(Arc::new(Transient::default()), Duration::from_secs(10), None).await;
    let offers = async || {
        let report = place.get("/v1/recruit").await.ok();
        let mut rows = report["jobs"].as_array().unwrap().iter();
        let others = rows.clone().filter(|row| row["place"] != "workers");
        assert!(
            others.clone().count() > 0
                && others.clone().all(|row| row.get("offer_rate_min").is_none())
        );
        let row = rows.find(|row| row["place"] == "workers").unwrap().clone();
        (
            row.get("offer_rate_min").and_then(Value::as_f64),
            row.get("offer_rate_max").and_then(Value::as_f64),
        )
    };
    let says = |parts| Some(About { offers_per_million: Some(parts), ..About::default() });
    assert_eq!(offers().await, (None, None), "nobody is there");
    let _older = Idle::come_as(&place, 1, Some(About::default())).await;
    assert_eq!(offers().await, (None, None), "an older one does not say");
    let _first = Idle::come_as(&place, 2, says(50_000)).await;
    assert_eq!(offers().await, (Some(0.05), Some(0.05)));
    let second = Idle::come_as(&place, 3, says(100_000)).await;
    assert_eq!(offers().await, (Some(0.05), Some(0.1)));
    let _boaster = Idle::come_as(&place, 4, says(2_000_000)).await;
    assert_eq!(offers().await, (Some(0.05), Some(0.1)), "more than all of them makes no sense");
    drop(second);
    eventually("who has gone is not counted", async || offers().await == (Some(0.05), Some(0.05)))
        .await;
}

#[test]
fn a_sweep_is_one_word() {
    assert_eq!(serde_json::to_string(&Up::Sweep).unwrap(), "\"sweep\"");
}
