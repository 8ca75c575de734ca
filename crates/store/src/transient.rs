//! [`Memory`] as a store: for tests, and for servers that need no durability.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use filch_scheduler::id::{Hold, JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{
    AttemptOutcome, JobRow, LeaseRow, Loaded, Mutation, Note, OperatorAct,
};
use filch_scheduler::spec::QueueKey;
use filch_scheduler::time::Wall;

use crate::clock::clock;
use crate::daily_count::DailyCount;
use crate::integrity::{DumpRecord, StoreDump};
use crate::store::{
    ActFilter, AttemptOutput, Commit, EXAMINED_ROWS_MAX, Expired, Filter, FoundIds,
    HISTORY_OUTPUTS_MAX, HISTORY_ROWS_MAX, History, JobText, ListOrder, Listed, Outdated,
    OwnerChange, Store, StoreError, StoreSpace, StoreStatus, StoredAct, StoredText,
};
use crate::token::{TokenChange, TokenRow};
use crate::{CommitError, Memory, rules};

/// A store in memory; everything is lost when the last clone is dropped. Clones are one owner; see
/// [`Transient::take_over`].
#[derive(Clone, Default)]
pub struct Transient {
    kept: Arc<Mutex<Kept>>,
    epoch: u64,
}

#[derive(Default)]
struct Kept {
    /// The epoch of the owner.
    epoch: u64,
    memory: Memory,
    payloads: BTreeMap<Seq, StoredText>,
    outputs: BTreeMap<Hold, AttemptOutput>,
    /// Notes about jobs and acts of operators, and when they were written.
    notes: Vec<(Option<Seq>, Wall, Note)>,
    tokens: Vec<TokenRow>,
    token_version: u64,
}

impl Transient {
    /// The content, as the reference implementation has it.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.kept().memory.clone()
    }

    /// Opens the same content as a new owner, as another process would do with a store on a disk.
    #[must_use]
    pub fn take_over(&self) -> Self {
        let mut kept = self.kept();
        kept.epoch += 1;
        Self { kept: Arc::clone(&self.kept), epoch: kept.epoch }
    }

    /// Whether this is still the owner, which may write.
    fn check_owner(&self, kept: &Kept) -> Result<(), CommitError> {
        if kept.epoch == self.epoch { Ok(()) } else { Err(CommitError::Superseded) }
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
        let mut kept = self.kept();
        self.check_owner(&kept)?;
        let Kept { memory, payloads, outputs, notes, .. } = &mut *kept;
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
                    let job = about(note, memory);
                    let is_other = matches!(note, Note::Act { act, .. } if act.job().is_none());
                    if job.is_some() || is_other {
                        notes.push((job, at, note.clone()));
                    }
                }
                Mutation::Purge(jobs) => {
                    for job in jobs {
                        payloads.remove(job);
                    }
                    outputs.retain(|hold, _| !jobs.contains(&hold.job));
                    notes.retain(|(job, ..)| job.is_none_or(|job| !jobs.contains(&job)));
                }
                Mutation::Trim { notes_before, .. } => {
                    notes.retain(|(job, at, _)| job.is_some() || at >= notes_before);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn is_owned(&self) -> Result<bool, StoreError> {
        Ok(self.kept().epoch == self.epoch)
    }

    fn find(
        &self,
        ids: &[JobId],
        keys: &[QueueKey],
        seqs: &[Seq],
    ) -> Result<Vec<JobRow>, StoreError> {
        Ok(self.kept().memory.find(ids, keys, seqs))
    }

    fn texts(&self, which: JobText, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError> {
        let kept = self.kept();
        let text = |job: &Seq| match which {
            JobText::Payload => kept.payloads.get(job).cloned(),
            JobText::LastError => kept.last_error(*job),
        };
        Ok(jobs.iter().map(text).collect())
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
        let notes = kept.notes.iter().filter(|(seq, ..)| *seq == Some(row.seq));
        let outputs = kept.outputs.values().filter(|left| left.hold.job == row.seq);
        let (mut owners, mut notes, mut outputs) = (
            kept.memory.leases().flat_map(owners).collect(),
            notes.map(|(_, at, note)| (*at, note.clone())).collect(),
            outputs.cloned().collect(),
        );
        let more_owners = keep_newest(&mut owners, HISTORY_ROWS_MAX);
        let more_notes = keep_newest(&mut notes, HISTORY_ROWS_MAX);
        keep_newest(&mut outputs, HISTORY_OUTPUTS_MAX);
        Ok(Some(History {
            payload: kept.payloads[&row.seq].clone(),
            owners,
            notes,
            outputs,
            may_be_more: more_owners || more_notes,
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

    fn outdated(
        &self,
        after: LeaseNo,
        recent: &RangeInclusive<Wall>,
        limit: usize,
    ) -> Result<Outdated, StoreError> {
        Ok(self.kept().memory.outdated(after, recent, limit))
    }

    fn daily_counts(&self, limit: usize) -> Result<Vec<DailyCount>, StoreError> {
        Ok(self.kept().memory.daily_counts(limit))
    }

    fn acts(
        &self,
        filter: &ActFilter,
        before: u64,
        limit: usize,
    ) -> Result<Vec<StoredAct>, StoreError> {
        let kept = self.kept();
        let stored = |(number, (job, at, note)): (u64, &(Option<Seq>, Wall, Note))| {
            let Note::Act { by, act } = note else { return None };
            let queue = match act {
                OperatorAct::SetQueue { queue, .. } => Some(queue),
                _ => None,
            };
            let is_wanted = filter.queue.as_ref().is_none_or(|wanted| queue == Some(wanted));
            let job = job.and_then(|job| kept.memory.job(job));
            is_wanted.then(|| StoredAct {
                number,
                at: *at,
                by: by.clone(),
                act: act.clone(),
                job_queue: job.map(|row| row.spec.queue.clone()),
            })
        };
        let mut acts: Vec<StoredAct> = (1..before).zip(&kept.notes).filter_map(stored).collect();
        acts.reverse();
        acts.truncate(limit);
        Ok(acts)
    }

    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        Ok(self.kept().tokens.clone())
    }

    fn token_version(&self) -> Result<u64, StoreError> {
        Ok(self.kept().token_version)
    }

    fn change_token(&self, change: &TokenChange, by: Option<&Name>) -> Result<bool, CommitError> {
        let mut kept = self.kept();
        self.check_owner(&kept)?;
        let Kept { tokens, token_version, notes, .. } = &mut *kept;
        let (is_changed, act) = match change {
            TokenChange::Create(token) => {
                let is_new = tokens.iter().all(|other| other.id != token.id);
                if is_new {
                    tokens.push(token.clone());
                    tokens.sort_by_key(|token| (token.created_at, token.id.clone()));
                }
                (is_new, OperatorAct::CreateToken(token.id.as_str().into()))
            }
            TokenChange::Revoke { id, at } => {
                let token = tokens.iter_mut().find(|token| token.id == *id);
                let active = token.filter(|token| token.revoked_at.is_none());
                let is_revoked = active.map(|token| token.revoked_at = Some(*at)).is_some();
                (is_revoked, OperatorAct::RevokeToken(id.as_str().into()))
            }
        };
        if is_changed {
            *token_version += 1;
            notes.push((None, clock(), Note::Act { by: by.cloned(), act }));
        }
        Ok(is_changed)
    }

    fn status(&self) -> StoreStatus {
        StoreStatus { space: StoreSpace::Enough, syncs: 0 }
    }

    /// No other process could connect to it.
    fn announce(&self, _url: &str) -> Result<(), StoreError> {
        Ok(())
    }

    /// There is nothing to close: a new owner takes it over in any case.
    fn close(&self) {}
}

impl Kept {
    /// The error of the newest noted attempt of a job.
    fn last_error(&self, job: Seq) -> Option<StoredText> {
        let noted = self.notes.iter().rev().filter(|(seq, ..)| *seq == Some(job));
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
    }
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

/// Drops older items beyond this many. True if there were any.
fn keep_newest<T>(items: &mut Vec<T>, most: usize) -> bool {
    let excess = items.len().saturating_sub(most);
    items.drain(..excess);
    excess > 0
}

/// The job that a note is about, if it is stored.
fn about(note: &Note, memory: &Memory) -> Option<Seq> {
    let id = match note {
        Note::Attempt { hold, .. } => return memory.job(hold.job).map(|row| row.seq),
        Note::WorkerLost { .. } | Note::Act { .. } => note.job()?,
    };
    memory.by_id(id).map(|row| row.seq)
}
