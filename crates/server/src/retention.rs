//! Forgetting: what ended long ago is proposed to the brain, a slice at a time.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use filch_scheduler::time::Wall;
use filch_store::Store;

use crate::brain::{Doorbell, Input};

/// How many jobs are proposed at once.
const SLICE: usize = 1_000;

/// How long nothing is proposed after nothing was overdue, or after a slice that the brain may still
/// be thinking about.
const PAUSE: Duration = Duration::from_secs(30);
const BREATH: Duration = Duration::from_millis(200);

/// Goes on until the server ends.
pub(crate) async fn purge(retention: Duration, store: Arc<dyn Store>, doorbell: Doorbell) {
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let before = Wall(now.saturating_sub(retention).as_millis() as u64);
        let reading = Arc::clone(&store);
        let read = tokio::task::spawn_blocking(move || reading.expired(before, SLICE)).await;
        let overdue = match read {
            Ok(Ok(overdue)) => overdue,
            // The brain meets the same trouble, and says so.
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        let is_all = overdue.len() < SLICE;
        if !overdue.is_empty() && doorbell.ring(Input::Expired(overdue)).await.is_err() {
            return;
        }
        tokio::time::sleep(if is_all { PAUSE } else { BREATH }).await;
    }
}
