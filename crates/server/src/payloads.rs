//! What the brain does not hold: the payload of each job on its way to the store and to a worker, and
//! what attempts left behind on its way to the store.

use std::collections::HashMap;
use std::sync::Arc;

use filch_api::session::ReportedOutput;
use filch_scheduler::id::{Digest, Hold, JobId, Seq, WorkerId};
use filch_scheduler::record::{Mutation, Note};
use filch_scheduler::state::JobState;
use filch_store::{AttemptOutput, Commit, StoredText};

/// So many bytes of payloads are held for workers. The oldest stay, because they are wanted first; what
/// does not fit is read from the store when its turn comes.
const CACHE_BYTES: usize = 48 << 20;

/// What one payload costs beside its text.
const ENTRY_BYTES: usize = 64;

#[derive(Default)]
pub(crate) struct Payloads {
    /// Submitted, and not decided upon: with how many requests bring the same.
    submitted: HashMap<(JobId, Digest), (StoredText, u32)>,
    cache: HashMap<Seq, StoredText>,
    cached_bytes: usize,
    /// Reported, and not decided upon.
    left: HashMap<Hold, (WorkerId, ReportedOutput)>,
}

impl Payloads {
    /// A request brings this.
    pub(crate) fn bring(&mut self, id: JobId, body: Digest, payload: StoredText) {
        self.submitted.entry((id, body)).or_insert((payload, 0)).1 += 1;
    }

    /// The request that brought this is answered.
    pub(crate) fn forget(&mut self, id: JobId, body: Digest) {
        if let Some((_, count)) = self.submitted.get_mut(&(id, body)) {
            *count -= 1;
            if *count == 0 {
                self.submitted.remove(&(id, body));
            }
        }
    }

    /// A worker reports and leaves this behind.
    pub(crate) fn leave(&mut self, worker: WorkerId, left: ReportedOutput) {
        self.left.insert(left.hold, (worker, left));
    }

    /// The worker was answered for these.
    pub(crate) fn answered(&mut self, hold: Hold) {
        self.left.remove(&hold);
    }

    /// The worker's connection is gone; what it has not been answered for, it will bring again.
    pub(crate) fn closed(&mut self, worker: WorkerId) {
        self.left.retain(|_, (from, _)| *from != worker);
    }

    /// Puts beside the mutations of a commit what belongs to them.
    pub(crate) fn join(&mut self, commit: &mut Commit) {
        for mutation in &commit.mutations {
            match mutation {
                Mutation::Put(row) => {
                    let brought = self.submitted.get(&(row.spec.id, row.spec.body));
                    let (payload, _) = brought.expect("a new job comes with its payload");
                    commit.payloads.push((row.seq, Arc::clone(payload)));
                    let bytes = payload.len() + ENTRY_BYTES;
                    if self.cached_bytes + bytes <= CACHE_BYTES {
                        self.cached_bytes += bytes;
                        self.cache.insert(row.seq, Arc::clone(payload));
                    }
                }
                Mutation::Write(write) if write.state.is_ended() => {
                    if let Some(payload) = self.cache.remove(&write.job) {
                        self.cached_bytes -= payload.len() + ENTRY_BYTES;
                    }
                    if write.state == JobState::Succeeded && !self.left.is_empty() {
                        let hold = Hold { job: write.job, fence: write.fence };
                        commit.outputs.extend(self.output(hold));
                    }
                }
                Mutation::Note(Note::Attempt { hold, .. }) => {
                    commit.outputs.extend(self.output(*hold));
                }
                _ => {}
            }
        }
    }

    fn output(&mut self, hold: Hold) -> Option<AttemptOutput> {
        let (_, left) = self.left.remove(&hold)?;
        Some(AttemptOutput { hold, result: left.result, log: left.log })
    }

    /// The payload, if it need not be read.
    pub(crate) fn cached(&self, job: Seq) -> Option<StoredText> {
        self.cache.get(&job).cloned()
    }
}
