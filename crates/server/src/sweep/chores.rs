//! What a slice of side-work does. It reads from the store on a thread that may wait for a disk, proposes
//! what it found to the brain, and is over when that is decided and durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use filch_recruit::{Duty, Rate, SideError};
use filch_scheduler::dispatch::Event;
use filch_scheduler::id::{LeaseNo, Seq};
use filch_scheduler::time::{Monotonic, Now, Wall};
use filch_store::{PurgeCause, Store, StoreError};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Mutex, MutexGuard, oneshot};

use super::Proposal;
use crate::clock::Clock;

/// What there is to do, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Forgets jobs that ended long enough ago.
    Retention,
    /// Trims the ledger and notes about workers: what is old, and no kept job has a part in.
    Trimming,
}

pub(crate) const CHORES: [Chore; 2] = [Chore::Retention, Chore::Trimming];

impl Chore {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Retention => "retention",
            Self::Trimming => "trimming",
        }
    }

    /// The least and the most of all idle moments that it wants.
    pub(crate) fn rates(self) -> (Rate, Rate) {
        let (least, most) = match self {
            Self::Retention => (50_000, 500_000),
            Self::Trimming => (10_000, 250_000),
        };
        (Rate::per_million(least), Rate::per_million(most))
    }
}

/// A slice goes on in steps of so many rows, each a commit of its own: the commits of others wait for no more
/// than one of them.
const STEP: usize = 100;

/// When nothing is known to be overdue, now or later.
const NEVER: u64 = u64::MAX;

/// What slices have found so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) jobs_purged: u64,
    pub(crate) lease_rows_trimmed: u64,
    pub(crate) notes_trimmed: u64,
}

/// How long nothing is looked at again that the brain did not let go, because somebody still waits for it, or
/// that could not be read.
const PAUSE: Duration = Duration::from_secs(30);

/// When nothing at all has ended, or has been trimmed, somebody looks again after this time: the clock may
/// have been wrong.
const LOOKS_EVERY: Duration = Duration::from_secs(3_600);

/// A slice is followed by a rest of so many times its length before it is the turn of the next, however many
/// commits there are.
const RESTS: u32 = 4;

pub(crate) struct Chores {
    store: Arc<dyn Store>,
    clock: Clock,
    retention: Duration,
    proposals: UnboundedSender<Proposal>,
    /// Held by the one slice that is under way.
    walk: Mutex<Walk>,
    /// When each chore has something to do, by the wall clock.
    due: [AtomicU64; CHORES.len()],
    rests_until: AtomicU64,
    /// Since when the oldest job that is overdue has been, or when the first will be, as far as was seen when
    /// somebody last looked.
    overdue_since: AtomicU64,
    jobs_purged: AtomicU64,
    lease_rows_trimmed: AtomicU64,
    notes_trimmed: AtomicU64,
    /// When purged jobs were last logged, and how many there were by then.
    logged: std::sync::Mutex<(Option<Instant>, u64)>,
}

/// Purged jobs are logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// How much a slice may do at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Most {
    /// So many rows are looked at.
    pub(crate) rows: usize,
    /// After this moment no further step is taken.
    pub(crate) until: Option<Instant>,
}

/// How far somebody has come.
#[derive(Default)]
struct Walk {
    /// The last ended job that was proposed. What lies before it was let go, or is still needed, and does not
    /// keep others from being proposed.
    ended: Option<(Wall, Seq)>,
    /// How many were let go since the first was proposed.
    purged: u64,
    /// The last row of the ledger that was looked at.
    lease: LeaseNo,
}

impl Chores {
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
            // Nobody knows before somebody has looked.
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

    /// Whether something is due and nobody is at it. Costs next to nothing.
    pub(crate) fn may_begin(&self, now: Now) -> bool {
        self.are_due(now) && self.walk.try_lock().is_ok()
    }

    /// Whether something is due: to be done, or to be looked at.
    pub(crate) fn are_due(&self, now: Now) -> bool {
        CHORES.iter().any(|&chore| self.has(chore, now.wall))
    }

    /// Whether the last slice was only just over.
    pub(crate) fn is_resting(&self, now: Now) -> bool {
        now.monotonic < Monotonic(self.rests_until.load(Relaxed))
    }

    /// For how long the oldest job has been overdue that nobody needs, if there is one, as far as was seen when
    /// somebody last looked.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        let millis = self.clock.now().wall.0.checked_sub(self.overdue_since.load(Relaxed))?;
        Some(Duration::from_millis(millis))
    }

    fn has(&self, chore: Chore, now: Wall) -> bool {
        self.due[chore as usize].load(Relaxed) <= now.0
    }

    fn put_off(&self, chore: Chore, until: Wall) {
        self.due[chore as usize].store(until.0, Relaxed);
    }

    /// A slice of the most urgent chore that has anything to do.
    pub(crate) async fn whatever_is_due(&self, most: Most) -> Result<Duty, SideError> {
        let now = self.clock.now().wall;
        match CHORES.into_iter().find(|&chore| self.has(chore, now)) {
            Some(chore) => self.slice(chore, most).await,
            None => Ok(Duty::NoWork),
        }
    }

    /// A slice of this chore.
    pub(crate) async fn slice(&self, chore: Chore, most: Most) -> Result<Duty, SideError> {
        let now = self.clock.now().wall;
        let Some(mut walk) = self.begin(chore, now) else {
            return Ok(Duty::NoWork);
        };
        let began = Instant::now();
        let found = self.walk(chore, &mut walk, now, most).await;
        match &found {
            Ok(rows) => {
                tracing::debug!(job = chore.name(), rows, "a slice of retention is done");
                self.log_purged();
            }
            Err(error) => {
                tracing::warn!(job = chore.name(), %error, "a slice of retention failed");
                self.put_off(chore, plus(now, PAUSE));
            }
        }
        let rest = began.elapsed() * RESTS;
        self.rests_until.store(self.clock.now().monotonic.plus(rest).0, Relaxed);
        Ok(if found? > 0 { Duty::Done } else { Duty::NoWork })
    }

    /// Goes on until nothing is left, or as much was done as may be.
    async fn walk(
        &self,
        chore: Chore,
        walk: &mut Walk,
        now: Wall,
        most: Most,
    ) -> Result<u64, SideError> {
        let (mut left, mut found) = (most.rows, 0);
        loop {
            let step = left.min(STEP);
            found += match chore {
                Chore::Retention => self.forget(walk, now, step).await?,
                Chore::Trimming => self.trim(walk, now, step).await?,
            };
            left -= step;
            let is_late = most.until.is_some_and(|until| Instant::now() >= until);
            if left == 0 || is_late || !self.has(chore, now) {
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

    fn begin(&self, chore: Chore, now: Wall) -> Option<MutexGuard<'_, Walk>> {
        self.walk.try_lock().ok().filter(|_| self.has(chore, now))
    }

    /// Proposes the next jobs that ended long enough ago.
    async fn forget(&self, walk: &mut Walk, now: Wall, limit: usize) -> Result<u64, SideError> {
        let (retention, after, before) = (self.retention, walk.ended, self.long_ago(now));
        let expired = self.read(move |store| store.expired(after, before, limit)).await?;
        let last = expired.last().filter(|_| expired.len() == limit);
        walk.ended = last.map(|last| (last.at, last.seq));
        let mut purged = 0;
        if let Some(first) = expired.first() {
            self.overdue_since.store(plus(first.at, retention).0, Relaxed);
            let jobs = expired.iter().map(|job| (job.seq, job.id)).collect();
            let cause = PurgeCause::Expired { retention };
            purged = self.propose(Event::Expired(jobs), Some(cause)).await?;
            self.jobs_purged.fetch_add(purged, Relaxed);
            walk.purged += purged;
        }
        if walk.ended.is_none() {
            let everything = Wall(u64::MAX);
            let first = self.read(move |store| store.expired(None, everything, 1)).await?;
            let (due, overdue_since) = match first.first().map(|first| plus(first.at, retention)) {
                Some(due) if due > now => (due, due.0),
                // Somebody needs it.
                Some(_) => (plus(now, PAUSE), NEVER),
                None => (plus(now, retention.min(LOOKS_EVERY)), NEVER),
            };
            self.put_off(Chore::Retention, due);
            self.overdue_since.store(overdue_since, Relaxed);
            // Whoever goes leaves something behind.
            if std::mem::take(&mut walk.purged) > 0 {
                self.put_off(Chore::Trimming, now);
            }
        }
        Ok(purged)
    }

    /// Proposes the next old rows of the ledger that no kept job has a part in, and old notes.
    async fn trim(&self, walk: &mut Walk, now: Wall, limit: usize) -> Result<u64, SideError> {
        let (after, before) = (walk.lease, self.long_ago(now));
        let outdated = self.read(move |store| store.outdated(after, before, limit)).await?;
        walk.lease = outdated.last.unwrap_or_default();
        if outdated.last.is_none() {
            self.put_off(Chore::Trimming, plus(now, LOOKS_EVERY));
        }
        let (leases, notes) = (outdated.leases, outdated.notes);
        if leases.is_empty() && notes == 0 {
            return Ok(0);
        }
        let event = Event::Outdated { leases, notes_before: before };
        let rows = self.propose(event, None).await?;
        self.lease_rows_trimmed.fetch_add(rows, Relaxed);
        self.notes_trimmed.fetch_add(notes, Relaxed);
        Ok(rows + notes)
    }

    /// Before this moment everything is old.
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

    /// Has the brain decide, and waits until that is durable. How much was cleared away.
    async fn propose(&self, event: Event, cause: Option<PurgeCause>) -> Result<u64, SideError> {
        let (decided, answer) = oneshot::channel();
        self.proposals.send(Proposal { event, cause, decided }).map_err(|_| "the server ends")?;
        Ok(answer.await?)
    }
}

fn plus(now: Wall, span: Duration) -> Wall {
    Wall(now.0.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
}
