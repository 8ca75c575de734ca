//! A sync that fails: the server stops and says why, the disk is not asked again, and the next one begins
//! with what the disk really holds.

use filch_e2e::stage::{Server, Stage};
use filch_e2e::trace::{Point, STORE, Trace};

use crate::{id, jobs, stage, tomorrow};

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_of_the_log_that_fails_stops_the_server() {
    check(STORE, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_of_the_database_that_fails_stops_the_server() {
    check(&["filch.db"], 1).await;
}

/// Submits jobs one after the other until the server is gone. Returns those that were acknowledged.
async fn submit_to_the_end(stage: &Stage, server: &Server) -> Vec<String> {
    let mut acknowledged = Vec::new();
    loop {
        let mut job = stage.job(&["run", "0"]);
        job.at = Some(tomorrow());
        // So that the log is moved every hundred jobs.
        job.env.insert("TEXT".into(), "x".repeat(80_000));
        if server.client.submit(&job).await.is_err() {
            return acknowledged;
        }
        stage.clients.acknowledged(&id(&job));
        acknowledged.push(id(&job));
        assert!(acknowledged.len() < 1_000, "the server goes on without syncs");
    }
}

/// Lets a sync of one of these files fail, by its number.
async fn check(files: &[&str], which: usize) {
    let stage = stage();
    let mut server = stage.server(None).await;
    let fault = format!("inject=fsync,fdatasync:error=EIO:when={which}");
    let trace = Trace::attach(&stage, &server.process, files, &[fault]).await;
    let acknowledged = submit_to_the_end(&stage, &server).await;
    let ended = server.process.end().await;
    let said = server.said();
    assert_eq!(ended.code(), Some(1), "{said}");
    assert!(said.contains("error: the store is not to be trusted any more"), "{said}");
    assert!(said.contains("help: look at the disk"), "{said}");

    // Nothing more was made to last, and nothing more was written: what comes last is the lock that is
    // let go. The log is not moved, as it is whenever a server stops.
    let points = trace.end().await;
    let is_sync = |point: &Point| point.call.ends_with("sync");
    assert_eq!(points.iter().filter(|it| is_sync(it)).count(), which, "{points:?}");
    let rest = points.iter().skip_while(|it| !(is_sync(it) && it.number == which)).skip(1);
    let rest: Vec<&str> = rest.map(|point| point.call.as_str()).collect();
    assert!(rest.iter().all(|&call| call == "ftruncate"), "{rest:?}");
    assert!(stage.path("data/filch.db-wal").metadata().unwrap().len() > 0);

    server.restart(&stage).await;
    let known = jobs(&server.client).await;
    for id in &acknowledged {
        assert!(known.iter().any(|job| job.id == *id), "job {id} was acknowledged and is lost");
    }
    assert!(known.len() <= acknowledged.len() + 1);
    let mut job = stage.job(&["run", "0"]);
    job.at = Some(tomorrow());
    stage.submit(&server, &[job]).await;
    let judged = stage.judge(server).await;
    assert_eq!(judged.jobs, acknowledged.len() + 1);
}
