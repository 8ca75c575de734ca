//! Forgetting: what ended long ago is proposed to the brain, a slice at a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use filch_scheduler::id::Seq;
use filch_scheduler::time::Wall;
use filch_store::Store;
use tokio::sync::watch;

use crate::brain::{Doorbell, Input};

/// How many jobs are proposed at once.
const SLICE: usize = 1_000;

/// So many that are still there after they were proposed are remembered.
const PROPOSED_MAX: usize = 100_000;

/// How long nothing is proposed after nothing was overdue, or after a slice that the brain may still
/// be thinking about.
const PAUSE: Duration = Duration::from_secs(30);
const BREATH: Duration = Duration::from_millis(200);

/// Goes on until the server ends.
///
/// What the brain will not let go yet, because somebody still waits for it, is not proposed again at once:
/// else it would keep everything behind it from being forgotten.
pub(crate) async fn purge(
    retention: Duration,
    store: Arc<dyn Store>,
    doorbell: Doorbell,
    mut closed: watch::Receiver<bool>,
) {
    let mut proposed = BTreeSet::new();
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let before = Wall(now.saturating_sub(retention).as_millis() as u64);
        let (reading, limit) = (Arc::clone(&store), SLICE + proposed.len());
        let read = tokio::task::spawn_blocking(move || reading.expired(before, limit)).await;
        // If it cannot be read, the brain meets the same trouble, and says so.
        let mut overdue = read.ok().and_then(Result::ok).unwrap_or_default();
        let kept: BTreeSet<Seq> = overdue.iter().map(|(seq, _)| *seq).collect();
        proposed.retain(|seq| kept.contains(seq));
        overdue.retain(|(seq, _)| proposed.insert(*seq));
        let is_all = overdue.is_empty();
        if is_all || proposed.len() > PROPOSED_MAX {
            proposed.clear();
        }
        if !is_all && doorbell.ring(Input::Expired(overdue)).await.is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(if is_all { PAUSE } else { BREATH }) => {}
            // A server that has ended lets go of its store.
            _ = closed.wait_for(|closed| *closed) => return,
        }
    }
}
