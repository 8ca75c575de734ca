//! The async runtime of the program, and its shutdown signals.

use std::future::Future;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{self, Exit};

/// Runs a future to completion.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let result = runtime.block_on(future);
    // A task that still waits for a disk or a slow handler must not keep the program alive.
    runtime.shutdown_background();
    result
}

/// Runs a future that needs no cleanup to completion, or until Ctrl-C.
pub(crate) fn block_on_interruptible<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    block_on(async {
        tokio::select! {
            result = future => result,
            _ = tokio::signal::ctrl_c() => {
                Err(Exit::new(exit::INTERRUPTED, "interrupted").into())
            }
        }
    })
}

/// SIGINT and SIGTERM.
pub(crate) struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ShutdownSignals {
    /// Starts to listen.
    pub(crate) fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Waits for the next of the two signals.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
