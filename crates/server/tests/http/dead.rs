//! Dead jobs: listed, retried, discarded.

use serde_json::{Value, json};

use crate::client::{Place, Worker};

/// Submits these jobs and lets all of them die at once.
async fn bury(place: &Place, worker: &mut Worker<'_>, jobs: Vec<Value>) -> Vec<String> {
    bury_saying(place, worker, jobs, |_| "no".into()).await
}

/// The same, each with words of its own.
async fn bury_saying(
    place: &Place,
    worker: &mut Worker<'_>,
    jobs: Vec<Value>,
    error: impl Fn(&Value) -> String,
) -> Vec<String> {
    let count = jobs.len();
    let taken = place.post("/v1/jobs", &Value::from(jobs)).await.ok();
    worker.slots = 64;
    let mut buried = 0;
    while buried < count {
        let claimed = worker.claim("10s").await.ok();
        let reports: Vec<Value> = claimed["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| {
                let error = error(&job["work"]["args"]);
                json!({"job": job["job"], "ending": "failed", "error": error, "forever": true})
            })
            .collect();
        buried += reports.len();
        place.post(&worker.path("report"), &json!({"reports": reports})).await.ok();
        worker.holds.clear();
    }
    let ids = taken["jobs"].as_array().unwrap().iter();
    ids.map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn dead_jobs_are_listed_by_queue_kind_and_time() {
    let place = Place::on_disk().await;
    let mut worker = place.worker("00000000000000a1");
    let jobs = (0..6).map(
        |index| json!({"kind": format!("k{}", index % 2), "queue": format!("q{}", index % 3)}),
    );
    bury(&place, &mut worker, jobs.collect()).await;
    place.submit(&json!({"kind": "k0"})).await;
    let seqs = async |query: &str| {
        let page = place.get(&format!("/v1/dead?{query}")).await.ok();
        let jobs = page["jobs"].as_array().unwrap();
        let seqs: Vec<u64> = jobs.iter().map(|job| job["seq"].as_u64().unwrap()).collect();
        (seqs, page["next"].as_u64())
    };
    assert_eq!(seqs("").await, (vec![1, 2, 3, 4, 5, 6], None));
    assert_eq!(seqs("limit=2").await, (vec![1, 2], Some(2)));
    assert_eq!(seqs("limit=2&after=4").await.0, [5, 6]);
    assert_eq!(seqs("limit=2&before=0").await, (vec![6, 5], Some(5)));
    assert_eq!(seqs("kind=k1").await.0, [2, 4, 6]);
    assert_eq!(seqs("kind=k1&queue=q0").await.0, [4]);
    assert_eq!(seqs("since=2099-01-01T00:00:00Z").await.0, [0; 0]);
    assert_eq!(seqs("since=2019-01-01T00:00:00Z").await.0.len(), 6);
    place.get("/v1/dead?state=dead").await.refused(400, "bad-query");
}

#[tokio::test]
async fn dead_jobs_are_retried_by_id_and_by_group() {
    let place = Place::start().await;
    let mut worker = place.worker("00000000000000a1");
    let jobs = vec![json!({"kind": "a"}), json!({"kind": "b"}), json!({"kind": "b"})];
    let ids = bury(&place, &mut worker, jobs).await;
    let queued = place.submit(&json!({"kind": "c"})).await;
    let nobody = "01890000-0000-7000-8000-00000000ffff";

    let wanted = json!({"ids": [ids[0], ids[0], queued, nobody]});
    let done = place.post("/v1/dead/retry", &wanted).await.ok();
    assert_eq!(done["count"], 1);
    let codes = done["refused"].as_array().unwrap().iter();
    let mut codes: Vec<&str> = codes.map(|refused| refused["code"].as_str().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["not-found", "wrong-state"]);
    assert_eq!(place.job(&ids[0]).await["state"], "queued");

    let dry = json!({"kind": "b", "dry_run": true});
    assert_eq!(place.post("/v1/dead/retry", &dry).await.ok(), json!({"count": 2}));
    assert_eq!(place.job(&ids[1]).await["state"], "dead");
    let later = json!({"kind": "b", "since": "2099-01-01T00:00:00Z"});
    assert_eq!(place.post("/v1/dead/retry", &later).await.ok(), json!({"count": 0}));
    assert_eq!(place.post("/v1/dead/retry", &json!({"kind": "b"})).await.ok(), json!({"count": 2}));
    assert_eq!(place.get("/v1/dead").await.ok()["jobs"], json!([]));
}

#[tokio::test]
async fn dead_jobs_with_similar_errors_are_one_group() {
    let place = Place::on_disk().await;
    let mut worker = place.worker("00000000000000a1");
    let jobs = (0..1_500)
        .map(|n| json!({"kind": if n % 3 == 0 { "pay" } else { "mail" }, "queue": "q", "args": n}));
    let ids = bury_saying(&place, &mut worker, jobs.collect(), |n| match n.as_u64().unwrap() {
        7 => "something else".into(),
        n => format!("no user {n} in /data/{n}.csv (exit code {})", n % 2),
    })
    .await;
    let found = place.get("/v1/dead/groups").await.ok();
    assert_eq!((&found["jobs"], &found["rest"]), (&json!(1_500), &json!(0)));
    let groups = found["groups"].as_array().unwrap();
    let seen = groups
        .iter()
        .map(|group| (group["kind"].as_str().unwrap(), group["count"].as_u64().unwrap()));
    let mut seen: Vec<(&str, u64)> = seen.collect();
    seen.sort_unstable();
    assert_eq!(seen, [("mail", 1), ("mail", 499), ("mail", 500), ("pay", 250), ("pay", 250)]);
    assert_eq!(groups[0]["count"], 500, "the largest comes first");

    let odd = groups.iter().find(|group| group["count"] == 1).unwrap();
    assert_eq!((&odd["error"], &odd["example"]), (&json!("something else"), &json!(ids[7])));
    let name = odd["fingerprint"].as_str().unwrap();
    assert_eq!(odd["retry"], format!("filch dead retry --group {name}"));
    let page = place.get(&format!("/v1/dead?group={name}")).await.ok();
    assert_eq!(page["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&page["jobs"][0]["id"], &page["jobs"][0]["fingerprint"]),
        (&json!(ids[7]), &json!(name))
    );
    assert_eq!(page["jobs"][0]["error"], "something else");

    let name = groups[0]["fingerprint"].as_str().unwrap();
    let dry = json!({"group": name, "dry_run": true});
    assert_eq!(place.post("/v1/dead/retry", &dry).await.ok(), json!({"count": 500}));
    let done = place.post("/v1/dead/retry", &json!({"group": name, "kind": "mail"})).await.ok();
    assert_eq!(done, json!({"count": 500}));
    let done = place.post("/v1/dead/discard", &json!({"group": name})).await.ok();
    assert_eq!(done, json!({"count": 0}), "none of them is dead any more");

    let found = place.get("/v1/dead/groups?kind=pay&limit=1").await.ok();
    assert_eq!((&found["jobs"], &found["rest"]), (&json!(500), &json!(250)));
    let found = place.get("/v1/dead/groups?since=2099-01-01T00:00:00Z").await.ok();
    assert_eq!(found, json!({"groups": [], "jobs": 0, "rest": 0}));
    place.post("/v1/dead/retry", &json!({"group": "xyz"})).await.refused(422, "invalid");
    place.get("/v1/dead?group=xyz").await.refused(422, "invalid");
}

#[tokio::test]
async fn thousands_of_dead_jobs_are_handled_in_slices() {
    let place = Place::on_disk().await;
    let mut worker = place.worker("00000000000000a1");
    let jobs = (0..2_500).map(|_| json!({"kind": "k"})).collect();
    let ids = bury(&place, &mut worker, jobs).await;
    let done = place.post("/v1/dead/retry", &json!({"all": true})).await.ok();
    assert_eq!(done, json!({"count": 2_500}));

    let path = "/v1/queues/default";
    place.send(reqwest::Method::PATCH, path, &json!({"paused": true})).await.ok();
    let mut worker = place.worker("00000000000000a2");
    worker.slots = 64;
    place.send(reqwest::Method::PATCH, path, &json!({"paused": false})).await.ok();
    for _ in 0..2_500_u32.div_ceil(64) {
        let claimed = worker.claim("10s").await.ok();
        let jobs = claimed["jobs"].as_array().unwrap().iter();
        let reports: Vec<Value> = jobs
            .map(|job| json!({"job": job["job"], "ending": "failed", "error": "no", "forever": true}))
            .collect();
        place.post(&worker.path("report"), &json!({"reports": reports})).await.ok();
        worker.holds.clear();
    }
    let all = json!({"all": true});
    let dry = json!({"all": true, "dry_run": true});
    assert_eq!(place.post("/v1/dead/discard", &dry).await.ok(), json!({"count": 2_500}));
    assert_eq!(place.post("/v1/dead/discard", &all).await.ok(), json!({"count": 2_500}));
    assert_eq!(place.post("/v1/dead/discard", &all).await.ok(), json!({"count": 0}));
    place.get(&format!("/v1/jobs/{}", ids[7])).await.refused(404, "not-found");
    assert_eq!(place.get("/v1/jobs").await.ok()["jobs"], json!([]));
}

#[tokio::test]
async fn a_dead_job_that_others_wait_for_is_not_discarded() {
    let place = Place::start().await;
    let mut worker = place.worker("00000000000000a1");
    let parent = place.submit(&json!({"kind": "p"})).await;
    let child = json!({"kind": "c", "after": [parent], "otherwise": "hold"});
    let child = place.submit(&child).await;
    let claimed = worker.claim("10s").await.ok();
    let hold = &claimed["jobs"][0]["job"];
    worker.report(&json!({"job": hold, "ending": "failed", "forever": true})).await.ok();

    let done = place.post("/v1/dead/discard", &json!({"all": true})).await.ok();
    assert_eq!(done, json!({"count": 0}));
    let done = place.post("/v1/dead/discard", &json!({"ids": [parent]})).await.ok();
    assert_eq!((&done["count"], &done["refused"][0]["code"]), (&json!(0), &json!("needed")));
    place.poke(&format!("/v1/jobs/{child}/cancel")).await.ok();
    let done = place.post("/v1/dead/discard", &json!({"ids": [parent]})).await.ok();
    assert_eq!(done, json!({"count": 1}));
}

#[tokio::test]
async fn requests_without_a_filter_are_refused() {
    let place = Place::start().await;
    for path in ["/v1/dead/retry", "/v1/dead/discard"] {
        place.post(path, &json!({})).await.refused(422, "no-filter");
        place.post(path, &json!({"dry_run": true})).await.refused(422, "no-filter");
        place.post(path, &json!({"ids": [], "all": true})).await.refused(422, "invalid");
        place.post(path, &json!({"ids": ["7"]})).await.refused(400, "bad-id");
        place.post(path, &json!({"queeu": "q"})).await.refused(422, "invalid");
        assert_eq!(place.post(path, &json!({"ids": []})).await.ok(), json!({"count": 0}));
    }
}
