//! Reads of the store for clients are bounded: in number, and in how much each of them examines.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use filch_scheduler::record::Mutation;
use filch_scheduler::state::JobState;
use filch_server::{Bounds, ServerConfig, SideWork};
use filch_store::integrity::StoreDump;
use filch_store::{CLIENT_READS_MAX, EXAMINED_ROWS_MAX, OwnerNote, Sqlite};
use serde_json::json;

use crate::client::Place;
use crate::past::{TOGETHER, now_ms, with_past};

#[tokio::test]
async fn reads_beyond_the_limit_are_busy_and_the_server_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("filch.db");
    let store = Arc::new(Sqlite::open(&path, &OwnerNote::this_process()).unwrap());
    let bounds = Bounds { read_wait: Duration::from_millis(100), ..Bounds::default() };
    let config = ServerConfig { bounds, ..ServerConfig::default() };
    let shared = Arc::clone(&store);
    let place = Place::configured(config, shared, Some(folder)).await;
    let job = json!({"kind": "resize", "key": "once"});
    let first = place.post("/v1/jobs", &job).await.ok();

    // Other reads hold every connection that is not reserved.
    let (begun, begins) = channel();
    let (open, held): (Vec<_>, Vec<_>) = (0..CLIENT_READS_MAX).map(|_| channel::<()>()).unzip();
    let hold = |gate: std::sync::mpsc::Receiver<()>| {
        let (begun, store) = (begun.clone(), Arc::clone(&store));
        std::thread::spawn(move || {
            let dumped = store.dump(&mut |_| {
                let _ = begun.send(());
                // Until the other end is dropped.
                let _ = gate.recv();
            });
            dumped.unwrap();
        })
    };
    let holders: Vec<_> = held.into_iter().map(hold).collect();
    for _ in 0..CLIENT_READS_MAX {
        begins.recv().unwrap();
    }
    // Some of them wait for a connection, the others for their turn to do that.
    let paths = ["/v1/jobs?limit=1", "/v1/jobs/abcd", "/v1/dead"];
    let asked = (0..3 * CLIENT_READS_MAX).map(|index| place.get(paths[index % paths.len()]));
    let answers = futures_util::future::join_all(asked);
    let (answers, second) = tokio::join!(answers, place.post("/v1/jobs", &job));
    // The scheduler looked the key up in the store meanwhile.
    assert_eq!(second.ok()["id"], first["id"]);
    for answer in answers {
        let problem = answer.refused(503, "busy");
        assert_eq!(problem["help"], "repeat the request in a moment");
    }
    drop(open);
    for holder in holders {
        holder.join().unwrap();
    }
    assert_eq!(place.get("/v1/jobs").await.ok()["jobs"][0]["id"], first["id"]);
}

#[tokio::test]
async fn last_digits_find_only_the_newest_jobs() {
    let many = EXAMINED_ROWS_MAX as u64 + 1;
    let (place, _store, ids) =
        with_past(SideWork::default(), |past| past.succeeded(many, now_ms())).await;
    let show = async |seq: u64, digits: usize| {
        let text = format!("{seq:016x}");
        place.get(&format!("/v1/jobs/{}", &text[16 - digits..])).await
    };
    assert_eq!(show(many, 8).await.ok()["seq"], many);
    let problem = show(many, 6).await.refused(409, "ambiguous-id");
    assert_eq!(problem["help"], "use at least 8 digits");
    let problem = show(1, 8).await.refused(404, "not-found");
    assert_eq!(problem["title"], "none of the newest 50000 jobs ends with 00000001");
    let oldest = filch_api::id::job(ids[0]);
    assert_eq!(place.get(&format!("/v1/jobs/{oldest}")).await.ok()["seq"], 1);
}

#[tokio::test]
async fn a_page_ends_early_and_the_next_one_goes_on() {
    let count = 10 * TOGETHER + 1;
    let (place, ..) = with_past(SideWork::default(), |past| {
        for first in (0..count).step_by(TOGETHER as usize) {
            let rows = (first..count.min(first + TOGETHER))
                .map(|_| Mutation::Put(past.row(now_ms(), JobState::Queued, Vec::new())));
            let rows = rows.collect();
            past.keep(rows);
        }
    })
    .await;
    // Rows may be older than the scheduler's state, so all are read, a part for each page.
    let page = place.get("/v1/jobs?state=scheduled").await.ok();
    assert_eq!(page, json!({"jobs": [], "next": 20_000}));
    let page = place.get("/v1/jobs?state=scheduled&after=20000").await.ok();
    assert_eq!(page, json!({"jobs": []}));
}

#[tokio::test]
async fn owned_jobs_are_listed_at_once_however_many_others_there_are() {
    let many = 10 * TOGETHER;
    let (place, ..) = with_past(SideWork::default(), |past| {
        for _ in 0..many / TOGETHER {
            let rows = (0..TOGETHER)
                .map(|_| Mutation::Put(past.row(now_ms(), JobState::Queued, Vec::new())));
            let rows = rows.collect();
            past.keep(rows);
        }
    })
    .await;
    for (number, queue) in [(1, "a"), (2, "b"), (3, "a")] {
        place.submit(&json!({"kind": format!("k{number}"), "queue": queue})).await;
    }
    let claim = json!({"number": 1, "slots": 3, "holds": [], "wait": "60s", "queues": ["a", "b"]});
    let claimed = place.post("/v1/work/00000000000000a1/claim", &claim).await.ok();
    assert_eq!(claimed["jobs"].as_array().unwrap().len(), 3, "{claimed}");
    let list = async |query: &str| {
        let page = place.get(&format!("/v1/jobs?state=RUNNING,leased{query}")).await.ok();
        let seqs = page["jobs"].as_array().unwrap().iter().map(|job| job["seq"].as_u64().unwrap());
        (seqs.map(|seq| seq - many).collect::<Vec<_>>(), page["next"].as_u64())
    };
    assert_eq!(list("").await, (vec![1, 2, 3], None));
    assert_eq!(list("&before=0").await, (vec![3, 2, 1], None));
    assert_eq!(list("&limit=2").await, (vec![1, 2], Some(many + 2)));
    assert_eq!(list(&format!("&limit=2&after={}", many + 2)).await, (vec![3], None));
    assert_eq!(list(&format!("&before={}", many + 2)).await, (vec![1], None));
    assert_eq!(list("&queue=a").await, (vec![1, 3], None));
    assert_eq!(list("&kind=k2").await, (vec![2], None));
    assert_eq!(list("&since=2100-01-01T00:00:00Z").await, (vec![], None));
    assert_eq!(list(&format!("&after={}", u64::MAX)).await, (vec![], None));
}
