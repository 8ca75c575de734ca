//! Waiting for what can be observed.

use std::time::{Duration, Instant};

/// Far longer than anything here takes, also on a machine that has much else to do.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks until there is something to see.
///
/// # Panics
/// If there is nothing for far too long.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {PATIENCE:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// The same for those who cannot await.
///
/// # Panics
/// If there is nothing for far too long.
pub fn until_blocking<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < PATIENCE, "waited in vain for {PATIENCE:?}: {what}");
        std::thread::sleep(PAUSE / 10);
    }
}

/// `Some` if so.
#[must_use]
pub fn when(is_so: bool) -> Option<()> {
    is_so.then_some(())
}
