//! The jobs of retention: what a slice of each does. A slice reads from the store on a thread that
//! may wait for a disk, proposes to the scheduler what it found, and ends when the decision is
//! durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use filch_recruit::{Duty, Rate, SideError};
use filch_scheduler::dispatch::DispatchEvent;
use filch_scheduler::id::{LeaseNo, Seq};
use filch_scheduler::time::{Monotonic, Now, Wall};
use filch_store::{PurgeCause, Store, StoreError};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, MutexGuard, oneshot};

use super::Proposal;
use crate::clock::Clock;

/// The jobs of retention, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetentionJob {
    /// Purges jobs that ended long enough ago.
    Purge,
    /// Trims the ledger and notes about workers: rows that are old and belong to no stored job.
    Trim,
}

pub(crate) const JOBS: [RetentionJob; 2] = [RetentionJob::Purge, RetentionJob::Trim];

impl RetentionJob {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Purge => "retention",
            Self::Trim => "trimming",
        }
    }

    /// The least and the largest share of idle moments that it gets.
    pub(crate) fn rates(self) -> (Rate, Rate) {
        let (least, most) = match self {
            Self::Purge => (50_000, 500_000),
            Self::Trim => (10_000, 250_000),
        };
        (Rate::per_million(least), Rate::per_million(most))
    }
}

/// Rows of one step of a slice. Each step is one commit, so other commits wait for at most one
/// step.
const STEP: usize = 100;

/// The time of a job that is never due.
const NEVER: u64 = u64::MAX;

/// Totals of all slices.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) jobs_purged: u64,
    pub(crate) lease_rows_trimmed: u64,
    pub(crate) notes_trimmed: u64,
}

/// How long to wait before looking again at jobs that the scheduler keeps because they are still
/// needed, and after a failed read.
const PAUSE: Duration = Duration::from_secs(30);

/// If there is nothing to purge or to trim, the next look is after this time: the clock may have
/// been wrong.
const LOOKS_EVERY: Duration = Duration::from_secs(3_600);

/// After a slice, the next one waits for this many times the length of the slice, however many
/// commits there are.
const RESTS: u32 = 4;

/// Runs slices, one at a time.
pub(crate) struct RetentionJobs {
    store: Arc<dyn Store>,
    clock: Clock,
    retention: Duration,
    proposals: UnboundedSender<Proposal>,
    /// Locked by the slice that runs.
    walk: Mutex<Walk>,
    /// When each job has something to do, by the wall clock.
    due: [AtomicU64; JOBS.len()],
    rests_until: AtomicU64,
    /// Since when the oldest overdue job has been overdue, or when the first will be, as of the
    /// last look.
    overdue_since: AtomicU64,
    jobs_purged: AtomicU64,
    lease_rows_trimmed: AtomicU64,
    notes_trimmed: AtomicU64,
    /// When purged jobs were last logged, and how many there were by then.
    logged: std::sync::Mutex<(Option<Instant>, u64)>,
}

/// Purged jobs are logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The bounds of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceBounds {
    /// How many rows it may look at.
    pub(crate) rows: usize,
    /// When it begins no further step.
    pub(crate) until: Option<Instant>,
}

/// Where the next slice continues.
#[derive(Default)]
struct Walk {
    /// The last ended job that was proposed. Jobs before it were purged or are still needed; the
    /// latter do not keep later ones from being proposed.
    ended: Option<(Wall, Seq)>,
    /// How many jobs were purged since the walk began.
    purged: u64,
    /// The last row of the ledger that was looked at.
    lease: LeaseNo,
}

impl RetentionJobs {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        retention: Duration,
        proposals: UnboundedSender<Proposal>,
    ) -> Self {
        Self {
            store,
            clock,
            retention,
            proposals,
            walk: Mutex::default(),
            // Both are due at first: only a look at the store can tell.
            due: Default::default(),
            rests_until: AtomicU64::new(0),
            overdue_since: AtomicU64::new(NEVER),
            jobs_purged: AtomicU64::new(0),
            lease_rows_trimmed: AtomicU64::new(0),
            notes_trimmed: AtomicU64::new(0),
            logged: std::sync::Mutex::default(),
        }
    }

    pub(crate) const fn retention(&self) -> Duration {
        self.retention
    }

    pub(crate) fn found(&self) -> Found {
        Found {
            jobs_purged: self.jobs_purged.load(Relaxed),
            lease_rows_trimmed: self.lease_rows_trimmed.load(Relaxed),
            notes_trimmed: self.notes_trimmed.load(Relaxed),
        }
    }

    /// Whether a job is due and no slice is running. Cheap.
    pub(crate) fn may_begin(&self, now: Now) -> bool {
        self.are_due(now) && self.walk.try_lock().is_ok()
    }

    /// Whether a job is due.
    pub(crate) fn are_due(&self, now: Now) -> bool {
        JOBS.iter().any(|&job| self.is_due(job, now.wall))
    }

    /// Whether the last slice ended so recently that the next one has to wait.
    pub(crate) fn is_resting(&self, now: Now) -> bool {
        now.monotonic < Monotonic(self.rests_until.load(Relaxed))
    }

    /// For how long the oldest job that can be purged has been overdue, if there is one, as of the
    /// last look.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        let millis = self.clock.now().wall.0.checked_sub(self.overdue_since.load(Relaxed))?;
        Some(Duration::from_millis(millis))
    }

    fn is_due(&self, job: RetentionJob, now: Wall) -> bool {
        self.due[job as usize].load(Relaxed) <= now.0
    }

    fn put_off(&self, job: RetentionJob, until: Wall) {
        self.due[job as usize].store(until.0, Relaxed);
    }

    /// Runs a slice of the most urgent job that is due.
    pub(crate) async fn run_due(&self, bounds: SliceBounds) -> Result<Duty, SideError> {
        let now = self.clock.now().wall;
        match JOBS.into_iter().find(|&job| self.is_due(job, now)) {
            Some(job) => self.slice(job, bounds).await,
            None => Ok(Duty::NoWork),
        }
    }

    /// Runs a slice of this job.
    pub(crate) async fn slice(
        &self,
        job: RetentionJob,
        bounds: SliceBounds,
    ) -> Result<Duty, SideError> {
        let now = self.clock.now().wall;
        let Some(mut walk) = self.begin(job, now) else {
            return Ok(Duty::NoWork);
        };
        let began = Instant::now();
        let found = self.walk(job, &mut walk, now, bounds).await;
        match &found {
            Ok(rows) => {
                tracing::debug!(job = job.name(), rows, "a slice of retention is done");
                self.log_purged();
            }
            Err(error) => {
                tracing::warn!(job = job.name(), %error, "a slice of retention failed");
                self.put_off(job, plus(now, PAUSE));
            }
        }
        let rest = began.elapsed() * RESTS;
        self.rests_until.store(self.clock.now().monotonic.plus(rest).0, Relaxed);
        Ok(if found? > 0 { Duty::Done } else { Duty::NoWork })
    }

    /// Goes on until nothing is left or a bound is reached.
    async fn walk(
        &self,
        job: RetentionJob,
        walk: &mut Walk,
        now: Wall,
        bounds: SliceBounds,
    ) -> Result<u64, SideError> {
        let (mut left, mut found) = (bounds.rows, 0);
        loop {
            let step = left.min(STEP);
            found += match job {
                RetentionJob::Purge => self.purge(walk, now, step).await?,
                RetentionJob::Trim => self.trim(walk, now, step).await?,
            };
            left -= step;
            let is_late = bounds.until.is_some_and(|until| Instant::now() >= until);
            if left == 0 || is_late || !self.is_due(job, now) {
                return Ok(found);
            }
        }
    }

    /// Logs how many jobs were purged, at most once a minute.
    fn log_purged(&self) {
        let mut logged = self.logged.lock().expect("no panic while it is locked");
        let total = self.jobs_purged.load(Relaxed);
        if total > logged.1 && logged.0.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            tracing::info!(jobs = total - logged.1, "retention: purged jobs that ended long ago");
            *logged = (Some(Instant::now()), total);
        }
    }

    fn begin(&self, job: RetentionJob, now: Wall) -> Option<MutexGuard<'_, Walk>> {
        self.walk.try_lock().ok().filter(|_| self.is_due(job, now))
    }

    /// Proposes the next jobs that ended long enough ago.
    async fn purge(&self, walk: &mut Walk, now: Wall, limit: usize) -> Result<u64, SideError> {
        let (retention, after, before) = (self.retention, walk.ended, self.long_ago(now));
        let expired = self.read(move |store| store.expired(after, before, limit)).await?;
        let last = expired.last().filter(|_| expired.len() == limit);
        walk.ended = last.map(|last| (last.at, last.seq));
        let mut purged = 0;
        if let Some(first) = expired.first() {
            self.overdue_since.store(plus(first.at, retention).0, Relaxed);
            let jobs = expired.iter().map(|job| (job.seq, job.id)).collect();
            let cause = PurgeCause::Expired { retention };
            purged = self.propose(DispatchEvent::Expired(jobs), Some(cause)).await?;
            self.jobs_purged.fetch_add(purged, Relaxed);
            walk.purged += purged;
        }
        if walk.ended.is_none() {
            let everything = Wall(u64::MAX);
            let first = self.read(move |store| store.expired(None, everything, 1)).await?;
            let (due, overdue_since) = match first.first().map(|first| plus(first.at, retention)) {
                Some(due) if due > now => (due, due.0),
                // It is still needed, for instance by a job that waits for it.
                Some(_) => (plus(now, PAUSE), NEVER),
                None => (plus(now, retention.min(LOOKS_EVERY)), NEVER),
            };
            self.put_off(RetentionJob::Purge, due);
            self.overdue_since.store(overdue_since, Relaxed);
            // Purged jobs leave rows of the ledger behind.
            if std::mem::take(&mut walk.purged) > 0 {
                self.put_off(RetentionJob::Trim, now);
            }
        }
        Ok(purged)
    }

    /// Proposes the next old rows of the ledger that belong to no stored job, and old notes.
    async fn trim(&self, walk: &mut Walk, now: Wall, limit: usize) -> Result<u64, SideError> {
        let (after, before) = (walk.lease, self.long_ago(now));
        let outdated = self.read(move |store| store.outdated(after, before, limit)).await?;
        walk.lease = outdated.last.unwrap_or_default();
        if outdated.last.is_none() {
            self.put_off(RetentionJob::Trim, plus(now, LOOKS_EVERY));
        }
        let (leases, notes) = (outdated.leases, outdated.notes);
        if leases.is_empty() && notes == 0 {
            return Ok(0);
        }
        let event = DispatchEvent::Outdated { leases, notes_before: before };
        let rows = self.propose(event, None).await?;
        self.lease_rows_trimmed.fetch_add(rows, Relaxed);
        self.notes_trimmed.fetch_add(notes, Relaxed);
        Ok(rows + notes)
    }

    /// Rows from before this time are old.
    fn long_ago(&self, now: Wall) -> Wall {
        let millis = u64::try_from(self.retention.as_millis()).unwrap_or(u64::MAX);
        Wall(now.0.saturating_sub(millis))
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, SideError> {
        let store = Arc::clone(&self.store);
        Ok(tokio::task::spawn_blocking(move || read(&*store)).await??)
    }

    /// Proposes something to the scheduler, and waits until its decision is durable. Returns how
    /// many rows were removed.
    async fn propose(
        &self,
        event: DispatchEvent,
        cause: Option<PurgeCause>,
    ) -> Result<u64, SideError> {
        let (decided, answer) = oneshot::channel();
        self.proposals
            .send(Proposal { event, cause, decided })
            .map_err(|_| "the server is stopping")?;
        Ok(answer.await?)
    }
}

fn plus(now: Wall, span: Duration) -> Wall {
    Wall(now.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
}
