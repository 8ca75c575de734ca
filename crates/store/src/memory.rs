//! The reference implementation: everything in memory, gone with the process.
//!
//! A commit is applied mutation by mutation, and each records how to undo it. If one is rejected,
//! the ones before it are undone. So every check sees the present state, also where a later
//! mutation of a commit depends on an earlier one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, RangeInclusive};

use filch_scheduler::id::{CommitNo, Fence, Hold, JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{
    AttemptOutput, JobRow, JobWrite, LeaseRow, Loaded, Mutation, Note, QueueSettings, Strategy,
};
use filch_scheduler::spec::QueueKey;
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Wall};

use crate::CommitError;
use crate::daily_count::{DailyCount, DailyCounts};
use crate::rules::{Rejection, check_holder, check_purge, check_write, is_live};
use crate::store::{Expired, Outdated};

mod dump;

/// Everything that has been committed.
///
/// All notes stay, those of purged jobs included, and all rows of the ledger that are not trimmed:
/// they are the history that checkers read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Memory {
    commit: CommitNo,
    last_seq: Seq,
    jobs: BTreeMap<Seq, JobRow>,
    /// The jobs by id. Ids of version 7 sort by time.
    ids: BTreeMap<JobId, Seq>,
    keys: BTreeMap<QueueKey, Seq>,
    /// The jobs that every starting server loads: unfinished ones, and cancelled ones that a worker
    /// still holds.
    live: BTreeSet<Seq>,
    /// All other jobs, by their end.
    ended: BTreeSet<(Wall, Seq)>,
    leases: BTreeMap<LeaseNo, LeaseRow>,
    /// The newest row of the ledger, trimmed or not.
    last_lease: LeaseNo,
    open: BTreeSet<LeaseNo>,
    queues: BTreeMap<Name, QueueSettings>,
    strategy: Option<Strategy>,
    lease_length: Option<Duration>,
    notes: Vec<Note>,
    /// Which job each note is about, if it is about one.
    noted: Vec<Option<Seq>>,
    outputs: BTreeMap<Hold, AttemptOutput>,
    /// Where the ledger stood in each job's life.
    places: BTreeMap<Seq, Place>,
    purged: BTreeSet<Seq>,
    daily_counts: DailyCounts,
}

/// Where the ledger stood when a job was put, and when it came into its present state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Place {
    put: LeaseNo,
    written: LeaseNo,
}

/// How to undo one mutation.
enum Undo {
    Put { seq: Seq, last_seq: Seq },
    Write(JobWrite, LeaseNo),
    Lease { number: LeaseNo, last: LeaseNo },
    Trim(LeaseRow),
    Close(LeaseNo),
    Queue(Name, Option<QueueSettings>),
    Strategy(Option<Strategy>),
    LeaseLength(Option<Duration>),
    Purge(JobRow, Place),
    DailyCounts(DailyCounts),
    Note,
    Output(Hold, Option<AttemptOutput>),
}

impl Memory {
    /// Stores these mutations, all or none. They are one commit, or a group of consecutive ones of
    /// which `last` is the newest. A commit that is stored already is recognised by its number.
    ///
    /// # Errors
    /// [`CommitError::Broken`] if a mutation contradicts what is stored. Nothing has changed then.
    pub fn commit(&mut self, last: CommitNo, mutations: &[Mutation]) -> Result<(), CommitError> {
        if last <= self.commit {
            return Ok(());
        }
        let mut undo = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            if let Err(rejection) = self.mutate(mutation, &mut undo) {
                while let Some(step) = undo.pop() {
                    self.undo(step);
                }
                return Err(rejection.broken(last));
            }
        }
        self.commit = last;
        Ok(())
    }

    /// The newest commit.
    #[must_use]
    pub const fn last_commit(&self) -> CommitNo {
        self.commit
    }

    /// What a starting server needs, in the order that [`Loaded`] requires.
    pub fn load(&self) -> impl Iterator<Item = Loaded> {
        let numbers = Loaded::Numbers {
            commit: self.commit,
            seq: self.last_seq,
            lease: self.last_lease,
            newest_id: self.ids.keys().rev().find_map(|id| id.made_at()),
        };
        let live = || self.live.iter().map(|seq| &self.jobs[seq]);
        // In one commit a child may have a lower number than its parents, so the order of numbers
        // is not enough: ended jobs come first.
        let mut ended: BTreeSet<Seq> =
            live().filter(|row| row.now.state.is_ended()).map(|row| row.seq).collect();
        for child in live().filter(|row| row.now.state == JobState::Blocked) {
            let parents = child.spec.parents.iter().filter_map(|&parent| self.by_id(parent));
            ended.extend(parents.filter(|row| row.now.state.is_ended()).map(|row| row.seq));
        }
        let ended = ended.into_iter().map(|seq| &self.jobs[&seq]);
        let unfinished = live().filter(|row| !row.now.state.is_ended());
        std::iter::once(numbers)
            .chain(self.strategy.map(Loaded::Strategy))
            .chain(self.lease_length.map(Loaded::LeaseLength))
            .chain(self.queues.values().cloned().map(Loaded::Queue))
            .chain(ended.chain(unfinished).cloned().map(Loaded::Job))
            .chain(self.open_leases().cloned().map(Loaded::Lease))
    }

    /// The jobs that have one of these ids, keys or numbers, each once, in the order of submission.
    #[must_use]
    pub fn find(&self, ids: &[JobId], keys: &[QueueKey], seqs: &[Seq]) -> Vec<JobRow> {
        let by_id = ids.iter().filter_map(|id| self.ids.get(id));
        let by_key = keys.iter().filter_map(|key| self.keys.get(key));
        let found: BTreeSet<Seq> = by_id.chain(by_key).chain(seqs).copied().collect();
        found.iter().filter_map(|seq| self.jobs.get(seq)).cloned().collect()
    }

    /// At most `limit` jobs that ended before this time and that no worker holds, the oldest end
    /// first, starting after the job `after` (its end and number), if given. The caller decides
    /// whether they are purged.
    #[must_use]
    pub fn expired(&self, after: Option<(Wall, Seq)>, before: Wall, limit: usize) -> Vec<Expired> {
        let first = after.map_or(Bound::Unbounded, Bound::Excluded);
        let ended = self.ended.range((first, Bound::Unbounded));
        let expired = ended.take_while(|(at, _)| *at < before).take(limit);
        expired.map(|&(at, seq)| Expired { at, seq, id: self.jobs[&seq].spec.id }).collect()
    }

    /// Examines at most `limit` rows of the ledger after this number, until the first one that was
    /// written at a `recent` time, and returns the closed ones that concern no stored job.
    #[must_use]
    pub fn outdated(
        &self,
        after: LeaseNo,
        recent: &RangeInclusive<Wall>,
        limit: usize,
    ) -> Outdated {
        let rows = self.leases.range((Bound::Excluded(after), Bound::Unbounded));
        let is_old = |row: &&LeaseRow| !recent.contains(&row.at);
        let mut rows = rows.map(|(_, row)| row).take_while(is_old).peekable();
        let mut outdated = Outdated::default();
        for row in rows.by_ref().take(limit) {
            outdated.last = Some(row.number);
            let is_needed = row.jobs.iter().any(|hold| self.jobs.contains_key(&hold.job));
            if !is_needed && !self.open.contains(&row.number) {
                outdated.leases.push(row.number);
            }
        }
        outdated.last = outdated.last.filter(|_| rows.peek().is_some());
        outdated
    }

    /// At most `limit` daily counts of purged jobs, the newest day first.
    #[must_use]
    pub fn daily_counts(&self, limit: usize) -> Vec<DailyCount> {
        self.daily_counts.newest(limit)
    }

    /// The job with this number.
    #[must_use]
    pub fn job(&self, seq: Seq) -> Option<&JobRow> {
        self.jobs.get(&seq)
    }

    /// The job with this id.
    #[must_use]
    pub fn by_id(&self, id: JobId) -> Option<&JobRow> {
        self.job(*self.ids.get(&id)?)
    }

    /// Every job, in the order of submission.
    pub fn jobs(&self) -> impl Iterator<Item = &JobRow> {
        self.jobs.values()
    }

    /// Every row of the ledger, open or closed, in its order.
    pub fn leases(&self) -> impl Iterator<Item = &LeaseRow> {
        self.leases.values()
    }

    /// The rows of the ledger that a starting server reads, in their order.
    pub fn open_leases(&self) -> impl Iterator<Item = &LeaseRow> {
        self.open.iter().map(|number| &self.leases[number])
    }

    /// Every note, in the order in which they were made.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The output of this attempt.
    #[must_use]
    pub fn output(&self, attempt: Hold) -> Option<&AttemptOutput> {
        self.outputs.get(&attempt)
    }

    fn mutate(&mut self, mutation: &Mutation, undo: &mut Vec<Undo>) -> Result<(), Rejection> {
        match mutation {
            Mutation::Put(row) => {
                self.check_put(row)?;
                undo.push(Undo::Put { seq: row.seq, last_seq: self.last_seq });
                self.last_seq = row.seq;
                let lease = self.last_lease;
                self.insert(row.clone(), Place { put: lease, written: lease });
            }
            Mutation::Write(write) => {
                check_write(&self.existing(write.job)?.now, write)?;
                let mut lease = self.last_lease;
                let place = self.places.get_mut(&write.job).expect("every job has a place");
                if self.jobs[&write.job].now.state.is_ended() && write.state.is_ended() {
                    // Its worker lets go of it; the job had ended before.
                    lease = place.written;
                }
                let before = std::mem::replace(&mut place.written, lease);
                undo.push(Undo::Write(self.write(*write), before));
            }
            &Mutation::Priority { job, priority } => {
                let row = self.existing(job)?;
                let write = JobWrite { priority, ..row.now };
                let lease = self.places[&job].written;
                undo.push(Undo::Write(self.write(write), lease));
            }
            Mutation::Lease(row) => {
                self.check_lease(row)?;
                undo.push(Undo::Lease { number: row.number, last: self.last_lease });
                self.last_lease = row.number;
                self.leases.insert(row.number, row.clone());
                self.open.insert(row.number);
            }
            &Mutation::Close(number) => {
                if !self.open.remove(&number) {
                    return Err(Rejection::NotOpen(number));
                }
                undo.push(Undo::Close(number));
            }
            Mutation::Queue(settings) => {
                let name = settings.queue.clone();
                let before = self.queues.insert(name.clone(), settings.clone());
                undo.push(Undo::Queue(name, before));
            }
            &Mutation::Strategy(strategy) => {
                undo.push(Undo::Strategy(self.strategy.replace(strategy)));
            }
            &Mutation::LeaseLength(length) => {
                undo.push(Undo::LeaseLength(self.lease_length.replace(length)));
            }
            Mutation::Purge(jobs) => {
                undo.push(Undo::DailyCounts(self.daily_counts.clone()));
                for &seq in jobs {
                    check_purge(&self.existing(seq)?.now)?;
                    let of_job = Hold { job: seq, fence: Fence(0) }..Hold {
                        job: seq.next(),
                        fence: Fence(0),
                    };
                    let outputs: Vec<Hold> =
                        self.outputs.range(of_job).map(|(&hold, _)| hold).collect();
                    for hold in outputs {
                        undo.push(Undo::Output(hold, self.outputs.remove(&hold)));
                    }
                    let (row, place) = self.remove(seq);
                    self.daily_counts.add(DailyCount::of(&row));
                    self.purged.insert(seq);
                    undo.push(Undo::Purge(row, place));
                }
            }
            // The times of notes are unknown here, so all notes stay.
            Mutation::Trim { leases, notes_before: _ } => {
                for number in leases {
                    if self.open.contains(number) {
                        return Err(Rejection::TrimmedOpen(*number));
                    }
                    undo.extend(self.leases.remove(number).map(Undo::Trim));
                }
            }
            Mutation::Note(note) => {
                undo.push(Undo::Note);
                self.noted.push(self.about(note));
                self.notes.push(note.clone());
            }
            // Output of a job that is not stored is dropped.
            Mutation::Output(output) => {
                if self.jobs.contains_key(&output.hold.job) {
                    let before = self.outputs.insert(output.hold, output.clone());
                    undo.push(Undo::Output(output.hold, before));
                }
            }
        }
        Ok(())
    }

    fn undo(&mut self, step: Undo) {
        match step {
            Undo::Put { seq, last_seq } => {
                self.remove(seq);
                self.last_seq = last_seq;
            }
            Undo::Write(before, lease) => {
                self.places.get_mut(&before.job).expect("every job has a place").written = lease;
                self.write(before);
            }
            Undo::Lease { number, last } => {
                self.leases.remove(&number);
                self.open.remove(&number);
                self.last_lease = last;
            }
            Undo::Trim(row) => {
                self.leases.insert(row.number, row);
            }
            Undo::DailyCounts(before) => self.daily_counts = before,
            Undo::Close(number) => {
                self.open.insert(number);
            }
            Undo::Queue(name, Some(before)) => {
                self.queues.insert(name, before);
            }
            Undo::Queue(name, None) => {
                self.queues.remove(&name);
            }
            Undo::Strategy(before) => self.strategy = before,
            Undo::LeaseLength(before) => self.lease_length = before,
            Undo::Purge(row, place) => {
                self.purged.remove(&row.seq);
                self.insert(row, place);
            }
            Undo::Note => {
                self.noted.pop();
                self.notes.pop();
            }
            Undo::Output(hold, Some(before)) => {
                self.outputs.insert(hold, before);
            }
            Undo::Output(hold, None) => {
                self.outputs.remove(&hold);
            }
        }
    }

    fn check_put(&self, row: &JobRow) -> Result<(), Rejection> {
        let JobRow { seq, ref spec, ref now, .. } = *row;
        if seq <= self.last_seq {
            return Err(Rejection::SeqOrder { seq, last: self.last_seq });
        }
        if now.job != seq {
            return Err(Rejection::WrittenAs { seq, job: now.job });
        }
        if let Some(&other) = self.ids.get(&spec.id) {
            return Err(Rejection::SameId { id: spec.id, other, seq });
        }
        if let Some(key) = spec.queue_key()
            && let Some(&other) = self.keys.get(&key)
        {
            return Err(Rejection::SameKey { key: key.key, other, seq });
        }
        check_holder(now)
    }

    fn check_lease(&self, row: &LeaseRow) -> Result<(), Rejection> {
        let last = self.last_lease;
        if row.number <= last {
            return Err(Rejection::LeaseOrder { number: row.number, last });
        }
        row.jobs.iter().try_for_each(|hold| self.existing(hold.job).map(|_| ()))
    }

    fn existing(&self, seq: Seq) -> Result<&JobRow, Rejection> {
        self.jobs.get(&seq).ok_or(Rejection::NoJob(seq))
    }

    fn insert(&mut self, row: JobRow, place: Place) {
        self.enter(&row.now);
        self.places.insert(row.seq, place);
        self.ids.insert(row.spec.id, row.seq);
        if let Some(key) = row.spec.queue_key() {
            self.keys.insert(key, row.seq);
        }
        self.jobs.insert(row.seq, row);
    }

    fn remove(&mut self, seq: Seq) -> (JobRow, Place) {
        let row = self.jobs.remove(&seq).expect("checked by the caller");
        self.leave(&row.now);
        self.ids.remove(&row.spec.id);
        if let Some(key) = row.spec.queue_key() {
            self.keys.remove(&key);
        }
        (row, self.places.remove(&seq).expect("every job has a place"))
    }

    /// The job that a note is about, if it is stored.
    fn about(&self, note: &Note) -> Option<Seq> {
        let id = match note {
            Note::Attempt { hold, .. } => return self.job(hold.job).map(|row| row.seq),
            Note::WorkerLost { .. } | Note::Act { .. } => note.job()?,
        };
        self.ids.get(&id).copied()
    }

    /// Replaces the mutable part of a job, and returns the old one.
    fn write(&mut self, write: JobWrite) -> JobWrite {
        let row = self.jobs.get_mut(&write.job).expect("checked by the caller");
        let before = std::mem::replace(&mut row.now, write);
        if is_live(&before) != is_live(&write) || before.at != write.at {
            self.leave(&before);
            self.enter(&write);
        }
        before
    }

    fn enter(&mut self, now: &JobWrite) {
        if is_live(now) {
            self.live.insert(now.job);
        } else {
            self.ended.insert((now.at, now.job));
        }
    }

    fn leave(&mut self, now: &JobWrite) {
        if is_live(now) {
            self.live.remove(&now.job);
        } else {
            self.ended.remove(&(now.at, now.job));
        }
    }
}
