//! What is counted.

use serde_json::json;

use crate::client::Place;

#[tokio::test]
async fn the_metrics_page_is_valid_prometheus_text() {
    let place = Place::on_disk().await;
    place.submit(&json!({"kind": "k", "queue": "img"})).await;
    place.submit(&json!({"kind": "k", "queue": "img"})).await;
    let mut worker = place.worker("00000000000000a1");
    worker.slots = 3;
    worker.claim("10s").await.ok();
    let answer = place.get("/metrics").await;
    assert!(answer.kind.starts_with("text/plain; version=0.0.4"), "{}", answer.kind);
    let page = answer.ok();
    let page = page.as_str().unwrap();
    for line in [
        "filch_jobs 2",
        "filch_queue_depth{queue=\"img\",state=\"queued\"} 0",
        "filch_queue_depth{queue=\"img\",state=\"owned\"} 2",
        "filch_workers{state=\"connected\"} 1",
        "filch_worker_slots 3",
        "filch_worker_jobs 2",
        "filch_jobs_claimed_total 2",
        "filch_steals_total{result=\"moved\"} 0",
        "filch_leases_lost_total 0",
        "filch_http_workers 1",
        "filch_purged_total 0",
        "filch_trimmed_total{what=\"lease_rows\"} 0",
        "filch_trimmed_total{what=\"notes\"} 0",
        "filch_overdue_seconds 0",
        "filch_commit_slices_total{outcome=\"failed\"} 0",
        "# TYPE filch_commit_slice_seconds_total counter",
        "recruiter_slices_total{job=\"retention\",outcome=\"failed\"} 0",
        "recruiter_slices_total{job=\"trimming\",outcome=\"recruited\"} 0",
        "# TYPE recruiter_slice_seconds histogram",
        "# TYPE filch_jobs_finished_total counter",
        "# TYPE filch_commit_seconds histogram",
        "# TYPE filch_job_wait_seconds histogram",
        "# TYPE filch_job_run_seconds histogram",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line}\n{page}");
    }
    check_form(page);
}

/// Every sample belongs to a metric that was described before it, and described once.
fn check_form(page: &str) {
    let mut described = Vec::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let name = rest.split(' ').next().unwrap();
            assert!(!described.contains(&name), "{name} is described twice");
            described.push(name);
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let name = name.split('{').next().unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let is_described = described.last().is_some_and(|known| name.starts_with(known));
            assert!(is_described, "{line}");
        }
    }
}
