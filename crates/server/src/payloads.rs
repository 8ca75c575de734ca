//! Data that the scheduler does not need: payloads of jobs on their way to the store and to
//! workers, and output of attempts on its way to the store.

use std::collections::HashMap;
use std::sync::Arc;

use filch_api::session::ReportedOutput;
use filch_scheduler::id::{Digest, Hold, JobId, Seq, WorkerId};
use filch_scheduler::record::{Mutation, Note};
use filch_scheduler::state::JobState;
use filch_store::{AttemptOutput, Commit, StoredText};

/// How many bytes of payloads are cached for workers. The oldest stay, because they are needed
/// first; payloads that do not fit are read from the store when they are needed.
const CACHE_BYTES: usize = 48 << 20;

/// The overhead of a cached payload.
const ENTRY_BYTES: usize = 64;

#[derive(Default)]
pub(crate) struct Payloads {
    /// Submitted, not decided yet; with the number of requests that bring the same payload.
    submitted: HashMap<(JobId, Digest), (StoredText, u32)>,
    cache: HashMap<Seq, StoredText>,
    cached_bytes: usize,
    /// Reported, not decided yet.
    left: HashMap<Hold, (WorkerId, ReportedOutput)>,
}

impl Payloads {
    /// Adds the payload of a request.
    pub(crate) fn bring(&mut self, id: JobId, body: Digest, payload: StoredText) {
        self.submitted.entry((id, body)).or_insert((payload, 0)).1 += 1;
    }

    /// The request with this payload is answered.
    pub(crate) fn forget(&mut self, id: JobId, body: Digest) {
        if let Some((_, count)) = self.submitted.get_mut(&(id, body)) {
            *count -= 1;
            if *count == 0 {
                self.submitted.remove(&(id, body));
            }
        }
    }

    /// Adds the output of an attempt.
    pub(crate) fn leave(&mut self, worker: WorkerId, left: ReportedOutput) {
        self.left.insert(left.hold, (worker, left));
    }

    /// The report of this attempt was answered.
    pub(crate) fn answered(&mut self, hold: Hold) {
        self.left.remove(&hold);
    }

    /// The worker's connection is gone; it will send unanswered reports again.
    pub(crate) fn closed(&mut self, worker: WorkerId) {
        self.left.retain(|_, (from, _)| *from != worker);
    }

    /// Adds payloads and output to the mutations of a commit.
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

    /// The payload, if it is cached.
    pub(crate) fn cached(&self, job: Seq) -> Option<StoredText> {
        self.cache.get(&job).cloned()
    }
}
