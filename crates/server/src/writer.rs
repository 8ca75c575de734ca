//! The one thread that writes: commits that came while another was on its way are made durable together.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

use filch_scheduler::id::CommitNo;
use filch_store::{Commit, CommitError, Store};
use tokio::sync::mpsc::UnboundedSender;

use crate::http::metrics::Metrics;

/// What became of commits.
pub(crate) type Receipt = Result<CommitNo, CommitError>;

/// So many mutations at most are made durable together: a group that is too large makes everybody wait.
const GROUP_MUTATIONS: usize = 32_768;

/// Hands over commits; the thread ends when this is dropped.
pub(crate) struct Writer {
    commits: Sender<Commit>,
}

impl Writer {
    /// Starts the thread. How many commits wait is bounded by the brain, which knows them all.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        receipts: UnboundedSender<Receipt>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (commits, waiting) = channel();
        thread::Builder::new()
            .name("filch-writer".into())
            .spawn(move || write(&*store, &waiting, &receipts, &metrics))
            .expect("the system has room for one thread");
        Self { commits }
    }

    pub(crate) fn keep(&self, commit: Commit) {
        // If the thread has ended, its last receipt says why, and the brain ends too.
        let _ = self.commits.send(commit);
    }
}

fn write(
    store: &dyn Store,
    waiting: &Receiver<Commit>,
    receipts: &UnboundedSender<Receipt>,
    metrics: &Metrics,
) {
    while let Ok(mut group) = waiting.recv() {
        while group.mutations.len() < GROUP_MUTATIONS
            && let Ok(next) = waiting.try_recv()
        {
            group.last = next.last;
            group.mutations.extend(next.mutations);
            group.payloads.extend(next.payloads);
            group.remains.extend(next.remains);
        }
        let began = Instant::now();
        let kept = loop {
            match store.commit(&group) {
                // The same mutations under the same number settle it.
                Err(CommitError::Unknown) => {}
                other => break other,
            }
        };
        metrics.commit_took(began.elapsed());
        let is_over = kept.is_err();
        if receipts.send(kept.map(|()| group.last)).is_err() || is_over {
            return;
        }
    }
}
