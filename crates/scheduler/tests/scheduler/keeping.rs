//! A store in memory: what a real one would keep, in the plainest form.

use std::collections::BTreeMap;

use filch_scheduler::dispatch::{Config, Dispatch, Effect, Loader};
use filch_scheduler::id::{CommitNo, JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, LeaseRow, Loaded, Mutation, Note, QueueSettings, Strategy};
use filch_scheduler::state::State;
use filch_scheduler::time::{Duration, Now};

/// Everything that has been committed.
#[derive(Clone, Default)]
pub(crate) struct Keeping {
    pub(crate) commit: CommitNo,
    pub(crate) jobs: BTreeMap<Seq, JobRow>,
    pub(crate) leases: BTreeMap<LeaseNo, LeaseRow>,
    pub(crate) open: BTreeMap<LeaseNo, LeaseRow>,
    pub(crate) notes: Vec<Note>,
    last_seq: Seq,
    queues: BTreeMap<Name, QueueSettings>,
    strategy: Option<Strategy>,
    lease_length: Option<Duration>,
}

impl Keeping {
    /// Applies one commit, whole. The same number again is the same commit again.
    pub(crate) fn apply(&mut self, number: CommitNo, mutations: &[Mutation]) {
        if number <= self.commit {
            return;
        }
        assert_eq!(number, self.commit.next(), "commits come in order");
        assert!(!mutations.is_empty(), "a commit stores something");
        for mutation in mutations {
            self.mutate(mutation);
        }
        self.commit = number;
    }

    fn mutate(&mut self, mutation: &Mutation) {
        match mutation {
            Mutation::Put(row) => {
                assert!(row.seq > self.last_seq, "numbers grow");
                assert!(self.by_id(row.spec.id).is_none(), "an id is used once");
                let has_key = |other: &JobRow| other.spec.key == row.spec.key;
                let is_free = row.spec.key.is_none() || !self.jobs.values().any(has_key);
                assert!(is_free, "a key is used once");
                self.last_seq = row.seq;
                self.jobs.insert(row.seq, row.clone());
            }
            Mutation::Write(write) => {
                let row = self.jobs.get_mut(&write.job).expect("what is written is there");
                assert!(write.fence >= row.now.fence, "fences grow");
                assert!(
                    row.now.state != State::Succeeded
                        && (row.now.state != State::Cancelled || row.now.holder.is_some())
                        && (row.now.state != State::Dead || write.fence > row.now.fence),
                    "what has ended stays so: {row:?} {write:?}"
                );
                assert!(write.state != State::Leased, "lease rows say who owns what");
                row.now = *write;
            }
            Mutation::Priority { job, priority } => {
                let row = self.jobs.get_mut(job).expect("what is written is there");
                row.now.priority = *priority;
            }
            Mutation::Lease(row) => {
                assert!(self.leases.keys().all(|&other| other < row.number), "rows come in order");
                self.leases.insert(row.number, row.clone());
                self.open.insert(row.number, row.clone());
            }
            Mutation::Close(number) => {
                assert!(self.open.remove(number).is_some(), "a row is closed once");
            }
            Mutation::Queue(settings) => {
                self.queues.insert(settings.queue.clone(), settings.clone());
            }
            Mutation::Strategy(strategy) => self.strategy = Some(*strategy),
            Mutation::LeaseLength(lease) => self.lease_length = Some(*lease),
            Mutation::Purge(jobs) => {
                for job in jobs {
                    let row = self.jobs.remove(job).expect("what is purged is there");
                    assert!(row.now.state.is_ended(), "only ended jobs are purged");
                }
            }
            Mutation::Note(note) => self.notes.push(note.clone()),
        }
    }

    pub(crate) fn by_id(&self, id: JobId) -> Option<&JobRow> {
        self.jobs.values().find(|row| row.spec.id == id)
    }

    /// The answer to a fetch.
    pub(crate) fn find(&self, ids: &[JobId], keys: &[Name], seqs: &[Seq]) -> Vec<JobRow> {
        let wanted = |row: &&JobRow| {
            ids.contains(&row.spec.id)
                || row.spec.key.as_ref().is_some_and(|key| keys.contains(key))
                || seqs.contains(&row.seq)
        };
        self.jobs.values().filter(wanted).cloned().collect()
    }

    /// What a server is given when it starts.
    pub(crate) fn load(&self) -> Vec<Loaded> {
        let mut loaded = vec![Loaded::Numbers {
            commit: self.commit,
            seq: self.last_seq,
            lease: self.leases.keys().next_back().copied().unwrap_or_default(),
            newest_id: self.jobs.values().filter_map(|row| row.spec.id.made_at()).max(),
        }];
        loaded.extend(self.strategy.map(Loaded::Strategy));
        loaded.extend(self.lease_length.map(Loaded::LeaseLength));
        loaded.extend(self.queues.values().cloned().map(Loaded::Queue));
        let is_live = |row: &JobRow| !row.now.state.is_ended() || row.now.holder.is_some();
        let blocked = self.jobs.values().filter(|row| row.now.state == State::Blocked);
        let parents: Vec<JobId> = blocked.flat_map(|row| row.spec.parents.clone()).collect();
        let needed = |row: &&JobRow| is_live(row) || parents.contains(&row.spec.id);
        loaded.extend(self.jobs.values().filter(needed).cloned().map(Loaded::Job));
        loaded.extend(self.open.values().cloned().map(Loaded::Lease));
        loaded
    }

    /// A server that starts with what is kept, and what it does first.
    pub(crate) fn start(&self, config: Config, now: Now) -> (Dispatch, Vec<Effect>) {
        let mut loader = Loader::new(config, now);
        for piece in self.load() {
            loader.add(piece).expect("what is kept fits together");
        }
        let mut effects = Vec::new();
        let dispatch = loader.finish(&mut effects).expect("what is kept fits together");
        (dispatch, effects)
    }
}
