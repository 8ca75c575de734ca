//! The threads on which everything that waits runs, and the wish to end.

use std::future::Future;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::{self, Exit};

/// Runs this to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the threads of the program")?;
    let result = runtime.block_on(future);
    // Whatever still waits for a disk or a stubborn handler must not keep the program from ending.
    runtime.shutdown_background();
    result
}

/// Runs this to its end, unless somebody interrupts it: nothing has to be cleaned up.
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

/// Somebody wants the program to end.
pub(crate) struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ShutdownSignals {
    /// Listens from now on.
    pub(crate) fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen to signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
