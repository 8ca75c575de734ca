//! Five thousand workers that have nothing to do: they cost next to nothing, and all of them are back soon
//! after the server is.

use std::time::{Duration, Instant};

use filch_e2e::crowd::Crowd;
use filch_e2e::faults;
use filch_e2e::stage::Server;
use filch_e2e::until::{until, when};

use crate::stage;

const WORKERS: usize = 5_000;
/// The server's share of one core.
const SHARE_MAX: f64 = 0.1;
/// It is measured so often at most, for so long. The lowest counts: whatever else the machine does only makes it
/// more.
const PERIODS: usize = 15;
/// And so often at least.
const PERIODS_MIN: usize = 5;
const PERIOD: Duration = Duration::from_secs(4);
const BACK_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_idle_workers_cost_little_and_come_back_soon() {
    let stage = stage();
    let mut server = stage.server(None).await;
    let crowd = Crowd::gather(&server.url, WORKERS);
    until_all_are_there(&server).await;

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
        server.restart(&stage).await;
        let restarted = Instant::now();
        until_all_are_there(&server).await;
        back = back.max(restarted.elapsed());
    }
    let (count, share_percent) = (crowd.count(), share * 100.0);
    let figures = format!("{share_percent:.1} % of a core, all back within {back:.1?}");
    faults::measured(&format!("{count} idle workers"), figures);
    faults::brought_about(restarts, "restarts before a crowd");
    drop(crowd);
    stage.judge(server).await;
    assert!(share < SHARE_MAX, "idle workers cost {share_percent:.1} % of a core");
    assert!(back < BACK_WITHIN, "some were back only after {back:?}");
}

async fn until_all_are_there(server: &Server) {
    until("all are there", async || {
        when(server.client.status().await.unwrap().workers == WORKERS as u64)
    })
    .await;
}
