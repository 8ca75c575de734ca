//! A failed sync: the server logs why and stops without touching the disk again, and the next
//! server begins with what is really on the disk.

use filch_e2e::jobs::{id, jobs, tomorrow};
use filch_e2e::strace::{CallPoint, STORE, Strace};
use filch_e2e::test_env::{TestEnv, TestServer};

use crate::test_env;

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_of_the_log_stops_the_server() {
    check(STORE, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_of_the_database_stops_the_server() {
    check(&["filch.db"], 1).await;
}

/// Submits jobs one after the other until the server is gone. Returns those that were acknowledged.
async fn submit_to_the_end(env: &TestEnv, server: &TestServer) -> Vec<String> {
    let mut acknowledged = Vec::new();
    loop {
        let mut job = env.job(&["run", "0"]);
        job.at = Some(tomorrow());
        // So that there is a checkpoint every hundred jobs.
        job.env.insert("TEXT".into(), "x".repeat(80_000));
        if server.client.submit(&job).await.is_err() {
            return acknowledged;
        }
        env.client_log.acknowledged(&id(&job));
        acknowledged.push(id(&job));
        assert!(acknowledged.len() < 1_000, "the server goes on without syncs");
    }
}

/// Lets the sync with this number fail, among those of these files.
async fn check(files: &[&str], which: usize) {
    let env = test_env();
    let mut server = env.server(None).await;
    let fault = format!("inject=fsync,fdatasync:error=EIO:when={which}");
    let trace = Strace::attach(&env, &server.process, files, &[fault]).await;
    let acknowledged = submit_to_the_end(&env, &server).await;
    let ended = server.process.end().await;
    let text = server.stderr();
    assert_eq!(ended.code(), Some(8), "{text}");
    let error = "disk error: durability cannot be guaranteed, shutting down: ";
    assert!(text.contains(error), "{text}");
    let help = "help: check the disk (for example with `dmesg`), then start again; every \
                acknowledged job is still stored";
    assert!(text.contains(help), "{text}");

    // Nothing more was synced or written: the last calls release the lock. There was no checkpoint,
    // as there is whenever a server shuts down.
    let points = trace.end().await;
    let is_sync = |point: &CallPoint| point.call.ends_with("sync");
    assert_eq!(points.iter().filter(|it| is_sync(it)).count(), which, "{points:?}");
    let rest = points.iter().skip_while(|it| !(is_sync(it) && it.number == which)).skip(1);
    let rest: Vec<&str> = rest.map(|point| point.call.as_str()).collect();
    assert!(rest.iter().all(|&call| call == "ftruncate"), "{rest:?}");
    assert!(env.path("data/filch.db-wal").metadata().unwrap().len() > 0);

    server.restart(&env).await;
    let known = jobs(&server.client).await;
    for id in &acknowledged {
        assert!(known.iter().any(|job| job.id == *id), "job {id} was acknowledged and is lost");
    }
    assert!(known.len() <= acknowledged.len() + 1);
    let mut job = env.job(&["run", "0"]);
    job.at = Some(tomorrow());
    env.submit(&server, &[job]).await;
    let checked = env.stop_and_check(server).await;
    assert_eq!(checked.jobs, acknowledged.len() + 1);
}
