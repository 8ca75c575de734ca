//! Waiting for conditions that can be observed.

use std::time::{Duration, Instant};

/// Far longer than anything here takes, also on a heavily loaded machine.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);

/// Calls `look` until it returns something.
///
/// # Panics
/// If it returns nothing for [`TIMEOUT`].
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(start.elapsed() < TIMEOUT, "this did not happen within {TIMEOUT:?}: {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// The same for code that cannot await.
///
/// # Panics
/// If `look` returns nothing for [`TIMEOUT`].
pub fn until_blocking<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < TIMEOUT, "this did not happen within {TIMEOUT:?}: {what}");
        std::thread::sleep(PAUSE / 10);
    }
}

/// `Some` if so.
#[must_use]
pub fn when(is_so: bool) -> Option<()> {
    is_so.then_some(())
}
