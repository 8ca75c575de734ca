//! Everything that is in memory, as a proof wants it. What only stores have (payloads, what remains of
//! attempts, why jobs were purged) is taken to be as it should be.

use std::collections::{BTreeMap, BTreeSet};

use filch_scheduler::id::{JobId, LeaseNo, Seq};
use filch_scheduler::record::{JobRow, Note};

use super::Memory;
use crate::keep::{PurgeCause, ReadError};
use crate::proof::{Evidence, Kept, Parent, Piece, Purge};

impl Evidence for Memory {
    fn evidence(&self, each: &mut dyn FnMut(Piece)) -> Result<(), ReadError> {
        let (commit, seq, lease) = (self.commit, self.last_seq, self.last_lease);
        each(Piece::Numbers { commit, seq, lease });
        for &seq in &self.purged {
            each(Piece::Purged(seq, seq));
        }
        let jobs = self.purged.len() as u64;
        if jobs > 0 {
            let at = filch_scheduler::time::Wall::default();
            let waited_least = (0, self.purged.first().copied().unwrap_or_default());
            each(Piece::Purge(Purge { cause: PurgeCause::Discarded, at, jobs, waited_least }));
        }
        let mut notes: BTreeMap<Seq, Vec<Note>> = BTreeMap::new();
        let mut retried = BTreeSet::new();
        for (note, about) in self.notes.iter().zip(&self.noted) {
            if let Some(seq) = *about {
                notes.entry(seq).or_default().push(note.clone());
                retried.extend(matches!(note, Note::Retried(_)).then_some(seq));
            }
        }
        let mut leases = self.leases.values().peekable();
        for row in self.jobs.values() {
            let place = self.places[&row.seq];
            while let Some(lease) = leases.next_if(|lease| lease.number <= place.put) {
                each(Piece::Lease {
                    is_open: self.open.contains(&lease.number),
                    row: lease.clone(),
                });
            }
            each(Piece::Job(Box::new(Kept {
                row: row.clone(),
                lease_before: place.put,
                lease_ended: place.written,
                // Where the commit ended that wrote it is not known here.
                lease_last: LeaseNo(u64::MAX),
                notes: notes.remove(&row.seq).unwrap_or_default(),
                remains: Vec::new(),
                has_payload: true,
                is_live: self.live.contains(&row.seq),
                parents: self.parents(row, &retried),
            })));
        }
        for lease in leases {
            each(Piece::Lease { is_open: self.open.contains(&lease.number), row: lease.clone() });
        }
        Ok(())
    }

    fn id_of(&self, job: Seq) -> Option<JobId> {
        self.job(job).map(|row| row.spec.id)
    }
}

impl Memory {
    fn parents(&self, row: &JobRow, retried: &BTreeSet<Seq>) -> Vec<Option<Parent>> {
        let parent = |id: &JobId| {
            let parent = self.by_id(*id)?;
            Some(Parent {
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
