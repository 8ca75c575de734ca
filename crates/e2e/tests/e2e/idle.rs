//! Idle workers come back after the server was restarted. What they cost is measured in a soak.

use filch_e2e::idle_workers::IdleWorkers;
use filch_e2e::test_env::TestServer;
use filch_e2e::until::{until, when};

use crate::test_env;

const WORKERS: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn idle_workers_reconnect_after_a_restart() {
    let env = test_env();
    let mut server = env.server(None).await;
    let workers = IdleWorkers::start(&server.url, WORKERS);
    until_all_are_connected(&server).await;
    server.process.kill();
    server.restart(&env).await;
    until_all_are_connected(&server).await;
    drop(workers);
    env.stop_and_check(server).await;
}

async fn until_all_are_connected(server: &TestServer) {
    until("all workers are connected", async || {
        when(server.client.status().await.unwrap().workers == WORKERS as u64)
    })
    .await;
}
