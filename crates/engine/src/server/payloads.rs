//! Payloads of new jobs, which most workers want soon.

use std::collections::HashMap;

use filch_scheduler::id::Seq;
use filch_scheduler::record::{Mutation, StoredText};

/// How many bytes of payloads are cached for workers. The oldest stay, because they are needed
/// first; payloads that do not fit are read from the store when they are needed.
const CACHE_BYTES: usize = 48 << 20;

/// The overhead of a cached payload.
const ENTRY_BYTES: usize = 64;

#[derive(Default)]
pub(super) struct Payloads {
    /// Never walked: the order of a hash table must not decide anything.
    cache: HashMap<Seq, StoredText>,
    cached_bytes: usize,
}

impl Payloads {
    /// Caches the payloads of new jobs, and drops those of jobs that have ended.
    pub(super) fn committed(&mut self, mutations: &[Mutation]) {
        for mutation in mutations {
            match mutation {
                Mutation::Put(row) => {
                    let Some(payload) = &row.spec.payload else { continue };
                    let bytes = payload.len() + ENTRY_BYTES;
                    if self.cached_bytes + bytes <= CACHE_BYTES {
                        self.cached_bytes += bytes;
                        self.cache.insert(row.seq, payload.clone());
                    }
                }
                Mutation::Write(write) if write.state.is_ended() => {
                    if let Some(payload) = self.cache.remove(&write.job) {
                        self.cached_bytes -= payload.len() + ENTRY_BYTES;
                    }
                }
                _ => {}
            }
        }
    }

    /// The payload, if it is cached.
    pub(super) fn cached(&self, job: Seq) -> Option<StoredText> {
        self.cache.get(&job).cloned()
    }
}
