//! Five thousand idle workers: they cost the server little CPU time, and all of them are connected
//! again soon after it was restarted.

use std::time::{Duration, Instant};

use filch_e2e::faults;
use filch_e2e::idle_workers::IdleWorkers;
use filch_e2e::test_env::TestServer;
use filch_e2e::until::{until, when};

use crate::test_env;

const WORKERS: usize = 5_000;
/// The server's share of one core.
const SHARE_MAX: f64 = 0.1;
/// It is measured at most this often. The lowest value counts: other load on the machine can only
/// raise it.
const PERIODS: usize = 15;
/// And at least this often.
const PERIODS_MIN: usize = 5;
const PERIOD: Duration = Duration::from_secs(4);
const BACK_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn idle_workers_cost_little_cpu_time_and_reconnect_soon() {
    let env = test_env();
    let mut server = env.server(None).await;
    let workers = IdleWorkers::start(&server.url, WORKERS);
    until_all_are_connected(&server).await;

    let mut share = f64::INFINITY;
    for period in 0..PERIODS {
        if period >= PERIODS_MIN && share < SHARE_MAX {
            break;
        }
        let (cpu, started) = (server.process.cpu(), Instant::now());
        tokio::time::sleep(PERIOD).await;
        let spent = server.process.cpu() - cpu;
        share = share.min(spent.as_secs_f64() / started.elapsed().as_secs_f64());
    }

    let restarts = faults::scaled(1);
    let mut back = Duration::ZERO;
    for _ in 0..restarts {
        server.process.kill();
        server.restart(&env).await;
        let restarted = Instant::now();
        until_all_are_connected(&server).await;
        back = back.max(restarted.elapsed());
    }
    let (count, share_percent) = (workers.count(), share * 100.0);
    let figures = format!("{share_percent:.1} % of a core, all connected again within {back:.1?}");
    faults::measured(&format!("{count} idle workers"), figures);
    faults::injected(restarts, "restarts with idle workers");
    drop(workers);
    env.stop_and_check(server).await;
    assert!(share < SHARE_MAX, "idle workers cost {share_percent:.1} % of a core");
    assert!(back < BACK_WITHIN, "some were connected again only after {back:?}");
}

async fn until_all_are_connected(server: &TestServer) {
    until("all workers are connected", async || {
        when(server.client.status().await.unwrap().workers == WORKERS as u64)
    })
    .await;
}
