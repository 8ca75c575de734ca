//! The writer thread: commits that arrive while another is being written are made durable together.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use filch_scheduler::id::CommitNo;
use filch_store::{Commit, CommitError, Store};
use tokio::sync::mpsc::UnboundedSender;

use crate::metrics::Metrics;

/// The result of a commit.
pub(crate) type Receipt = Result<CommitNo, CommitError>;

/// How many mutations are made durable together: larger groups would delay everything behind them.
const GROUP_MUTATIONS: usize = 32_768;

/// About how many bytes are made durable together, for the same reason; and so that the write-ahead
/// log stays short. A single commit may be larger.
const GROUP_BYTES: u64 = 32 << 20;

/// A commit that takes this long is logged.
const SLOW: Duration = Duration::from_secs(1);

/// Passes commits to the thread, which ends when this is dropped.
pub(crate) struct Writer {
    commits: Sender<Commit>,
}

impl Writer {
    /// Starts the thread. The scheduler bounds how many commits wait.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        receipts: UnboundedSender<Receipt>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (commits, waiting) = channel();
        thread::Builder::new()
            .name("filch-writer".into())
            .spawn(move || write(&*store, &waiting, &receipts, &metrics))
            .expect("the system can start one more thread");
        Self { commits }
    }

    pub(crate) fn keep(&self, commit: Commit) {
        // If the thread has ended, its last receipt contains the reason, and the server ends too.
        let _ = self.commits.send(commit);
    }
}

/// How long to wait before the next attempt on a full disk.
const ROOM_PAUSE: Duration = Duration::from_millis(500);

/// Commits a group. If the disk is full, it waits for space, however long that takes: running jobs
/// go on, and their reports wait here. Nothing is acknowledged that is not durable.
fn keep(store: &dyn Store, group: &Commit, is_over: impl Fn() -> bool) -> Result<(), CommitError> {
    let mut is_waiting = false;
    loop {
        let kept = store.commit(group);
        match kept {
            // Repeating the same mutations under the same number is safe.
            Err(CommitError::Unknown) => {
                tracing::warn!("the outcome of a commit is unknown; repeating it");
            }
            Err(CommitError::DiskFull(ref why)) if !is_over() => {
                if !is_waiting {
                    tracing::error!(error = %why, "disk full: commits are paused until space is freed");
                }
                is_waiting = true;
                thread::sleep(ROOM_PAUSE);
            }
            other => {
                if is_waiting && other.is_ok() {
                    tracing::info!("disk space is available again: commits continue");
                }
                return other;
            }
        }
    }
}

fn write(
    store: &dyn Store,
    waiting: &Receiver<Commit>,
    receipts: &UnboundedSender<Receipt>,
    metrics: &Metrics,
) {
    while let Ok(mut group) = waiting.recv() {
        let mut bytes = group.size();
        while group.mutations.len() < GROUP_MUTATIONS
            && bytes < GROUP_BYTES
            && let Ok(next) = waiting.try_recv()
        {
            bytes += next.size();
            group.append(next);
        }
        let began = Instant::now();
        let kept = keep(store, &group, || receipts.is_closed());
        let took = began.elapsed();
        metrics.commit_took(took);
        if took >= SLOW {
            let (seconds, mutations) = (took.as_secs_f64(), group.mutations.len());
            tracing::warn!(seconds, mutations, "slow commit");
        }
        let is_over = kept.is_err();
        if receipts.send(kept.map(|()| group.last)).is_err() || is_over {
            return;
        }
    }
}
