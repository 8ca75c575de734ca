//! [`Memory`] as a store: for tests, and for servers that need no durability.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use filch_scheduler::id::{Hold, JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{AttemptOutcome, JobRow, LeaseRow, Loaded, Mutation, Note};
use filch_scheduler::time::Wall;

use crate::clock::clock;
use crate::daily_count::DailyCount;
use crate::integrity::{DumpRecord, StoreDump};
use crate::store::{
    AttemptOutput, Commit, DiskSpace, EXAMINED_ROWS_MAX, Expired, Filter, FoundIds, History,
    ListOrder, Listed, Outdated, OwnerChange, Store, StoreError, StoredText,
};
use crate::token::TokenRow;
use crate::{CommitError, Memory, rules};

/// A store in memory; everything is lost when it is dropped.
#[derive(Default)]
pub struct Transient {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    memory: Memory,
    payloads: BTreeMap<Seq, StoredText>,
    outputs: BTreeMap<Hold, AttemptOutput>,
    /// Notes about jobs, and when they were written.
    notes: Vec<(Seq, Wall, Note)>,
    tokens: Vec<TokenRow>,
}

impl Transient {
    /// The content, as the reference implementation has it.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.kept().memory.clone()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // All checks come before the first change, so a panic leaves nothing half done.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Transient {
    fn load(&self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        self.kept().memory.load().for_each(each);
        Ok(())
    }

    fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let Kept { memory, payloads, outputs, notes, .. } = &mut *self.kept();
        if commit.last <= memory.last_commit() {
            return Ok(());
        }
        let checked = rules::check_payloads(commit).and_then(|()| rules::check_purges(commit));
        checked.map_err(|rejection| rejection.broken(commit.last))?;
        memory.commit(commit.last, &commit.mutations)?;
        payloads.extend(commit.payloads.iter().cloned());
        for left in commit.outputs.iter().filter(|left| memory.job(left.hold.job).is_some()) {
            outputs.insert(left.hold, left.clone());
        }
        let at = clock();
        for mutation in &commit.mutations {
            match mutation {
                Mutation::Note(note) => {
                    notes.extend(about(note, memory).map(|job| (job, at, note.clone())));
                }
                Mutation::Purge(jobs) => {
                    for job in jobs {
                        payloads.remove(job);
                    }
                    outputs.retain(|hold, _| !jobs.contains(&hold.job));
                    notes.retain(|(job, ..)| !jobs.contains(job));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn find(&self, ids: &[JobId], keys: &[Name], seqs: &[Seq]) -> Result<Vec<JobRow>, StoreError> {
        Ok(self.kept().memory.find(ids, keys, seqs))
    }

    fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError> {
        let kept = self.kept();
        Ok(jobs.iter().map(|job| kept.payloads.get(job).cloned()).collect())
    }

    fn errors(&self, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError> {
        let kept = self.kept();
        let error = |job: &Seq| {
            let noted = kept.notes.iter().rev().filter(|(seq, ..)| seq == job);
            let mut attempts = noted.filter_map(|(_, _, note)| match note {
                Note::Attempt { outcome, .. } => Some(outcome),
                _ => None,
            });
            match attempts.next()? {
                AttemptOutcome::Failed(error) | AttemptOutcome::Unstarted(error) => {
                    Some(StoredText::from(&**error))
                }
                _ => None,
            }
        };
        Ok(jobs.iter().map(error).collect())
    }

    fn history(&self, job: JobId) -> Result<Option<History>, StoreError> {
        let kept = self.kept();
        let Some(row) = kept.memory.by_id(job).cloned() else {
            return Ok(None);
        };
        let owners = |lease: &LeaseRow| {
            let &LeaseRow { worker, cause, at, .. } = lease;
            let holds: Vec<Hold> =
                lease.jobs.iter().copied().filter(|hold| hold.job == row.seq).collect();
            holds.into_iter().map(move |hold| OwnerChange { hold, worker, cause, at })
        };
        let notes = kept.notes.iter().filter(|(seq, ..)| *seq == row.seq);
        let outputs = kept.outputs.values().filter(|left| left.hold.job == row.seq);
        Ok(Some(History {
            payload: kept.payloads[&row.seq].clone(),
            owners: kept.memory.leases().flat_map(owners).collect(),
            notes: notes.map(|(_, at, note)| (*at, note.clone())).collect(),
            outputs: outputs.cloned().collect(),
            row,
        }))
    }

    fn list(&self, filter: &Filter, order: ListOrder, limit: usize) -> Result<Listed, StoreError> {
        let kept = self.kept();
        let mut jobs: Vec<&JobRow> =
            kept.memory.jobs().filter(|row| filter.includes(row)).collect();
        match order {
            ListOrder::After(seq) => jobs.retain(|row| row.seq > seq),
            ListOrder::Before(seq) => {
                jobs.retain(|row| row.seq < seq);
                jobs.reverse();
            }
        }
        let rows: Vec<JobRow> = jobs.into_iter().take(limit).cloned().collect();
        let last = rows.last().filter(|_| rows.len() == limit).map(|row| row.seq);
        Ok(Listed { rows, last })
    }

    fn ids_ending(&self, digits: &str, limit: usize) -> Result<FoundIds, StoreError> {
        let kept = self.kept();
        let digits = digits.to_ascii_lowercase();
        let mut ids: Vec<JobId> = kept.memory.jobs().map(|row| row.spec.id).collect();
        ids.sort_unstable_by(|one, other| other.cmp(one));
        let may_be_more = ids.len() > EXAMINED_ROWS_MAX;
        ids.truncate(EXAMINED_ROWS_MAX);
        ids.retain(|id| format!("{:032x}", id.0).ends_with(&digits));
        ids.truncate(limit);
        Ok(FoundIds { ids, may_be_more })
    }

    fn expired(
        &self,
        after: Option<(Wall, Seq)>,
        before: Wall,
        limit: usize,
    ) -> Result<Vec<Expired>, StoreError> {
        Ok(self.kept().memory.expired(after, before, limit))
    }

    fn outdated(&self, after: LeaseNo, before: Wall, limit: usize) -> Result<Outdated, StoreError> {
        Ok(self.kept().memory.outdated(after, before, limit))
    }

    fn daily_counts(&self, limit: usize) -> Result<Vec<DailyCount>, StoreError> {
        Ok(self.kept().memory.daily_counts(limit))
    }

    fn ledger(&self, after: LeaseNo, limit: usize) -> Result<Vec<LeaseRow>, StoreError> {
        let kept = self.kept();
        Ok(kept.memory.leases().filter(|row| row.number > after).take(limit).cloned().collect())
    }

    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        Ok(self.kept().tokens.clone())
    }

    fn keep_token(&self, token: &TokenRow) -> Result<(), StoreError> {
        let tokens = &mut self.kept().tokens;
        if tokens.iter().any(|other| other.id == token.id) {
            return Err(StoreError { doing: "store a token", source: "its id is in use".into() });
        }
        tokens.push(token.clone());
        tokens.sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        Ok(())
    }

    fn revoke_token(&self, id: &str, at: Wall) -> Result<bool, StoreError> {
        let mut kept = self.kept();
        let token = kept.tokens.iter_mut().find(|token| token.id == id);
        let live = token.filter(|token| token.revoked_at.is_none());
        Ok(live.map(|token| token.revoked_at = Some(at)).is_some())
    }

    fn disk_space(&self) -> DiskSpace {
        DiskSpace::Enough
    }

    fn sync_count(&self) -> u64 {
        0
    }

    fn backup(&self, _to: &Path) -> Result<(), StoreError> {
        let source = "the store is in memory only".into();
        Err(StoreError { doing: "make a backup", source })
    }

    /// There is nothing to close: no other process can open it.
    fn close(&self) {}
}

impl StoreDump for Transient {
    fn dump(&self, each: &mut dyn FnMut(DumpRecord)) -> Result<(), StoreError> {
        let kept = self.kept();
        kept.memory.dump(&mut |piece| match piece {
            DumpRecord::Job(mut job) => {
                let seq = job.row.seq;
                job.has_payload = kept.payloads.contains_key(&seq);
                let outputs = kept.outputs.keys().filter(|hold| hold.job == seq);
                job.outputs = outputs.map(|hold| hold.fence).collect();
                each(DumpRecord::Job(job));
            }
            piece => each(piece),
        })
    }

    fn id_of(&self, job: Seq) -> Option<JobId> {
        self.kept().memory.id_of(job)
    }
}

/// The job that a note is about, if it is stored.
fn about(note: &Note, memory: &Memory) -> Option<Seq> {
    let id = match note {
        Note::Attempt { hold, .. } => return memory.job(hold.job).map(|row| row.seq),
        Note::Cancelled(id) | Note::Retried(id) | Note::Prioritised(id) => *id,
        Note::WorkerLost { .. } | Note::Drained(_) => return None,
    };
    memory.by_id(id).map(|row| row.seq)
}
