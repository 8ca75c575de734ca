//! A store with a past: jobs that ended long before the server started.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use filch_scheduler::id::{CommitNo, Fence, Hold, JobId, LeaseNo, Seq, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, JobWrite, LeaseCause, LeaseRow, Mutation};
use filch_scheduler::spec::JobSpec;
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use filch_server::{ServerConfig, SideWork};
use filch_store::{Commit, OwnerNote, Sqlite, Store, StoredText};

use crate::client::{LEASE, Place};

pub(crate) const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// How many jobs go into one commit, and into one row of the ledger.
pub(crate) const TOGETHER: u64 = 2_000;

pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Writes a history as a server would have left it.
pub(crate) struct Past<'a> {
    store: &'a dyn Store,
    commit: u64,
    seq: u64,
    lease: u64,
}

impl Past<'_> {
    pub(crate) fn keep(&mut self, mutations: Vec<Mutation>) {
        self.commit += 1;
        let put = mutations.iter().filter_map(|mutation| match mutation {
            Mutation::Put(row) => Some((row.seq, StoredText::from("{}"))),
            _ => None,
        });
        let payloads = put.collect();
        let last = CommitNo(self.commit);
        self.store.commit(&Commit { last, mutations, payloads, ..Commit::default() }).unwrap();
    }

    pub(crate) fn row(&mut self, at: u64, state: JobState, parents: Vec<JobId>) -> JobRow {
        self.seq += 1;
        let seq = Seq(self.seq);
        // A UUID of version 7, with its time.
        let id = JobId(u128::from(at) << 80 | 7 << 76 | 0b10 << 62 | u128::from(self.seq));
        let spec = JobSpec { parents, ..JobSpec::new(id) };
        let now = JobWrite {
            job: seq,
            state,
            fence: Fence(0),
            attempts: 0,
            suspicions: 0,
            priority: 0,
            due: Wall(at),
            holder: None,
            last: None,
            reason: None,
            at: Wall(at),
        };
        JobRow { seq, spec, submitted_at: Wall(at), now }
    }

    /// A job with a key that was submitted, claimed, and succeeded at this moment.
    pub(crate) fn succeeded_with_key(&mut self, key: &str, at: u64) -> JobId {
        let mut row = self.row(at, JobState::Queued, Vec::new());
        row.spec.key = Some(Name::from(key));
        let id = row.spec.id;
        self.succeed(vec![row], at);
        id
    }

    /// Jobs that were submitted, claimed, and succeeded at this moment.
    pub(crate) fn succeeded(&mut self, count: u64, at: u64) -> Vec<JobId> {
        let mut ids = Vec::new();
        for first in (0..count).step_by(TOGETHER as usize) {
            let rows: Vec<JobRow> = (first..count.min(first + TOGETHER))
                .map(|_| self.row(at, JobState::Queued, Vec::new()))
                .collect();
            ids.extend(rows.iter().map(|row| row.spec.id));
            self.succeed(rows, at);
        }
        ids
    }

    fn succeed(&mut self, rows: Vec<JobRow>, at: u64) {
        let jobs: Vec<Hold> =
            rows.iter().map(|row| Hold { job: row.seq, fence: Fence(1) }).collect();
        let ends = jobs.iter().zip(&rows).map(|(hold, row)| {
            let (fence, state) = (hold.fence, JobState::Succeeded);
            Mutation::Write(JobWrite { fence, state, ..row.now })
        });
        let mut ends: Vec<Mutation> = ends.collect();
        self.lease += 1;
        let number = LeaseNo(self.lease);
        ends.push(Mutation::Close(number));
        self.keep(rows.into_iter().map(Mutation::Put).collect());
        let (worker, cause) = (Some(WorkerId::apart(7)), LeaseCause::Claim);
        let lease = LeaseRow { number, worker, cause, jobs, at: Wall(at) };
        self.keep(vec![Mutation::Lease(lease)]);
        self.keep(ends);
    }
}

/// A server over a file with such a past, and the result of `past`.
pub(crate) async fn with_past<T>(
    side_work: SideWork,
    past: impl FnOnce(&mut Past<'_>) -> T,
) -> (Place, Arc<Sqlite>, T) {
    let folder = tempfile::tempdir().unwrap();
    let note = OwnerNote::this_process();
    let store = Arc::new(Sqlite::open(&folder.path().join("filch.db"), &note).unwrap());
    let made = past(&mut Past { store: &*store, commit: 0, seq: 0, lease: 0 });
    let config = ServerConfig { side_work, lease: LEASE, ..ServerConfig::default() };
    let shared = Arc::clone(&store);
    (Place::configured(config, shared, Some(folder)).await, store, made)
}
