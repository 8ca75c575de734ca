//! Retention: jobs that ended long ago are purged, a slice at a time, and jobs that are needed
//! stay.

use std::time::{Duration, Instant};

use filch_scheduler::id::JobId;
use filch_scheduler::record::Mutation;
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use filch_server::SideWork;
use filch_store::integrity::check;
use serde_json::{Value, json};

use crate::client::{Place, eventually};
use crate::past::{DAY_MS, TOGETHER, now_ms, with_past};

/// If nothing is purged for this long, the test fails.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long it takes altogether depends on the machine, so each purged job starts the wait anew.
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
        assert!(Instant::now() < self.until, "nothing was purged for {PATIENCE:?}: {report}");
    }
}

async fn purged(place: &Place) -> u64 {
    place.get("/v1/recruit").await.ok()["found"]["jobs_purged"].as_u64().unwrap()
}

async fn submit(place: &Place) {
    place.submit(&json!({"kind": "k"})).await;
}

const OVERDUE: u64 = 20_000;

#[tokio::test(flavor = "multi_thread")]
async fn overdue_jobs_are_purged_while_the_server_works_and_needed_ones_stay() {
    let now = now_ms();
    let (place, store, (parent, child, recent)) = with_past(SideWork::InIdleMoments, |past| {
        let parent = past.succeeded_with_key("of a parent", now - 30 * DAY_MS);
        past.succeeded_with_key("of a single job", now - 30 * DAY_MS);
        let mut later = past.row(now - 30 * DAY_MS, JobState::Scheduled, Vec::new());
        later.now.due = Wall(now + DAY_MS);
        later.spec.not_before = Some(later.now.due);
        let parents = vec![parent, later.spec.id];
        let child = past.row(now - 30 * DAY_MS, JobState::Blocked, parents);
        let id = child.spec.id;
        past.keep(vec![Mutation::Put(later), Mutation::Put(child)]);
        past.succeeded(OVERDUE - 1, now - 8 * DAY_MS);
        (parent, id, past.succeeded(100, now - DAY_MS))
    })
    .await;

    let mut patience = Patience::begin();
    loop {
        let report = place.get("/v1/recruit").await.ok();
        if report["found"]["jobs_purged"].as_u64().unwrap() >= OVERDUE {
            break;
        }
        patience.see(&report);
        submit(&place).await;
    }

    // No job was purged too early, and none that another job waits for.
    assert_eq!(purged(&place).await, OVERDUE);
    let text = |id: &JobId| filch_api::id::job(*id);
    for id in recent.iter().chain([&parent, &child]) {
        place.get(&format!("/v1/jobs/{}", text(id))).await.ok();
    }
    place.submit(&json!({"kind": "k", "after": [text(&parent)]})).await;
    place.submit(&json!({"kind": "k", "after": [text(&child)]})).await;
    // Keys are purged with their jobs, and only then.
    let with_key = |key: &str| json!({"kind": "another", "key": key});
    place.post("/v1/jobs", &with_key("of a parent")).await.refused(409, "key-conflict");
    place.submit(&with_key("of a single job")).await;
    // The rows of the ledger that recorded their owners are trimmed too, and counted.
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
    assert!(slices > 2, "{report}");
    let days = report["days"].as_array().unwrap();
    let purged: Vec<&Value> = days.iter().map(|day| &day["succeeded"]).collect();
    assert_eq!(purged, [&json!(OVERDUE - 1), &json!(1)], "{report}");
    assert_eq!(days[0]["queue"], "default");
    place.server.stop().await;
    let report = check(&*store).unwrap();
    assert!(report.holds(), "{:?}", report.violations);
    assert_eq!(report.counts.expired, OVERDUE);
    // The proof knows how many rows were trimmed.
    assert_eq!(report.counts.ledger_rows_trimmed(), rows);
}

/// One figure of all side jobs that run at one place, added up.
fn at(report: &Value, place: &str, figure: &str) -> f64 {
    let rows = report["jobs"].as_array().unwrap().iter();
    rows.filter(|row| row["place"] == place).map(|row| row[figure].as_f64().unwrap()).sum()
}

/// There are no commits but those of retention itself, so idle moments do it all.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_server_purges_in_idle_moments_and_within_its_budget() {
    const JOBS: u64 = 5_000;
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
            // However long the last slice took: when it began, those before it were within the
            // budget. This holds on a slow machine as well: the recruiter and this test read the
            // same clock.
            let most = elapsed.as_secs_f64() * 0.2 + 0.2 + 0.02;
            assert!(spent <= most, "{spent} s within {elapsed:?}: {report}");
            spent = spent_now;
        }
        if report["found"]["jobs_purged"] == JOBS {
            assert!(at(&report, "idle", "recruited") >= 1.0, "{report}");
            assert_eq!(at(&report, "commits", "enlisted"), 0.0, "{report}");
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

/// Idle moments are not guaranteed; commits are.
#[tokio::test(flavor = "multi_thread")]
async fn slices_after_commits_alone_purge_everything_that_is_overdue() {
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
        // It ended eight days ago, and the retention is seven.
        let overdue_ms = report["overdue_ms"].as_u64();
        assert_eq!(overdue_ms.is_some(), report["overdue"] == true, "{report}");
        assert!(overdue_ms.is_none_or(|span| span >= DAY_MS), "{report}");
        was_overdue |= overdue_ms.is_some();
        patience.see(&report);
        submit(&place).await;
    };
    assert!(was_overdue, "{report}");
    assert!(at(&report, "commits", "recruited") >= 1.0, "{report}");
    assert_eq!(at(&report, "idle", "enlisted"), 0.0, "{report}");
    let page = place.get("/metrics").await.ok();
    assert!(page.as_str().unwrap().contains("\nfilch_purged_total 3000\n"), "{page}");
}

#[tokio::test]
async fn nothing_is_overdue_on_a_new_server() {
    let (place, _, ()) = with_past(SideWork::InIdleMoments, |_| ()).await;
    let report = place.get("/v1/recruit").await.ok();
    assert_eq!((&report["overdue"], report.get("overdue_ms")), (&json!(false), None), "{report}");
}
