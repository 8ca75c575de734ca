//! Asks the store again and again whether this server still owns it.

use std::sync::Arc;
use std::time::Duration;

use filch_store::Store;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::shell::{Handle, Urgent};

/// How often the store is asked. Also how long a server that was superseded and has nothing to
/// write goes on.
const CONFIRM: Duration = Duration::from_millis(500);

/// Asks until the server closes or is superseded.
pub(crate) async fn confirm(
    store: Arc<dyn Store>,
    handle: Handle,
    clock: Clock,
    mut closed: watch::Receiver<bool>,
) {
    loop {
        // If the sender is gone, the server is closed, too.
        tokio::select! {
            _ = closed.wait_for(|closed| *closed) => return,
            () = tokio::time::sleep(CONFIRM) => {}
        }
        let asked = clock.now().monotonic;
        let asking = Arc::clone(&store);
        // If this thread panics, the server is ending.
        let Ok(answer) = tokio::task::spawn_blocking(move || asking.is_owned()).await else {
            return;
        };
        let told = match answer {
            Ok(true) => handle.urgent(Urgent::Owned { asked }).await,
            Ok(false) => handle.urgent(Urgent::Superseded).await,
            Err(error) => {
                tracing::warn!(%error, "cannot confirm the ownership of the store");
                Ok(())
            }
        };
        if told.is_err() {
            return;
        }
    }
}
