//! Everything in memory, for an integrity check. What only stores have (payloads, outputs of
//! attempts, causes of purges) is assumed to be correct.

use std::collections::{BTreeMap, BTreeSet};

use filch_scheduler::id::{JobId, LeaseNo, Seq};
use filch_scheduler::record::{JobRow, Note, OperatorAct};

use super::Memory;
use crate::integrity::{DumpRecord, ParentJob, PurgeRecord, StoreDump, StoredJob};
use crate::store::{PurgeCause, StoreError};

impl StoreDump for Memory {
    fn dump(&self, each: &mut dyn FnMut(DumpRecord)) -> Result<(), StoreError> {
        let (commit, seq, lease) = (self.commit, self.last_seq, self.last_lease);
        each(DumpRecord::Numbers { commit, seq, lease });
        for &seq in &self.purged {
            each(DumpRecord::Purged(seq, seq));
        }
        let jobs = self.purged.len() as u64;
        if jobs > 0 {
            let at = filch_scheduler::time::Wall::default();
            let waited_least = (0, self.purged.first().copied().unwrap_or_default());
            each(DumpRecord::Purge(PurgeRecord {
                cause: PurgeCause::Discarded,
                at,
                jobs,
                waited_least,
            }));
        }
        let mut notes: BTreeMap<Seq, Vec<Note>> = BTreeMap::new();
        let mut retried = BTreeSet::new();
        for (note, about) in self.notes.iter().zip(&self.noted) {
            if let Some(seq) = *about {
                notes.entry(seq).or_default().push(note.clone());
                retried.extend(
                    matches!(note, Note::Act { act: OperatorAct::Retry(_), .. }).then_some(seq),
                );
            }
        }
        let mut leases = self.leases.values().peekable();
        for row in self.jobs.values() {
            let place = self.places[&row.seq];
            while let Some(lease) = leases.next_if(|lease| lease.number <= place.put) {
                each(DumpRecord::Lease {
                    is_open: self.open.contains(&lease.number),
                    row: lease.clone(),
                });
            }
            each(DumpRecord::Job(Box::new(StoredJob {
                row: row.clone(),
                lease_before: place.put,
                lease_ended: place.written,
                // The newest lease row after the commit that wrote it is unknown here.
                lease_last: LeaseNo(u64::MAX),
                notes: notes.remove(&row.seq).unwrap_or_default(),
                outputs: Vec::new(),
                has_payload: true,
                is_live: self.live.contains(&row.seq),
                parents: self.parents(row, &retried),
            })));
        }
        for lease in leases {
            each(DumpRecord::Lease {
                is_open: self.open.contains(&lease.number),
                row: lease.clone(),
            });
        }
        Ok(())
    }

    fn id_of(&self, job: Seq) -> Option<JobId> {
        self.job(job).map(|row| row.spec.id)
    }
}

impl Memory {
    fn parents(&self, row: &JobRow, retried: &BTreeSet<Seq>) -> Vec<Option<ParentJob>> {
        let parent = |id: &JobId| {
            let parent = self.by_id(*id)?;
            Some(ParentJob {
                seq: parent.seq,
                submitted_at: parent.submitted_at,
                state: parent.now.state,
                lease_ended: self.places[&parent.seq].written,
                is_retried: retried.contains(&parent.seq),
            })
        };
        row.spec.parents.iter().map(parent).collect()
    }
}
