//! Which identifiers have queued rows, as a set in Redis. Recruits read a queue of millions of rows
//! a few at a time; all other code queries the set.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use ::redis::{Client, Cmd, ConnectionLike, RedisResult, cmd, pipe};

use super::{Link, Transaction, key, watched};
use crate::job::{Duty, SideError, SideJob, Slice};

/// Default number of rows or identifiers that one slice processes.
const LIMIT: usize = 25;

/// The longest rescan period: a thousand years, which Redis can still add to its clock.
const PERIOD_MAX_MS: i64 = 1_000 * 365 * 24 * 3_600 * 1_000;

/// A queue that a [`QueueTracker`] reads. Rows have increasing numbers; several may share one.
///
/// The tracker does not read a number again after it has passed it. So once a row is visible, no
/// row with the same or a smaller number should become visible later. Database sequences do not
/// guarantee that, because numbers are assigned before the commit. For such a queue, let the
/// tracker [start again](QueueTracker::rescan_every) now and then.
pub trait QueueSource: Send + Sync {
    /// The next queued rows after this number (from the start if `None`), in the order of their
    /// numbers, at most `limit`.
    ///
    /// # Errors
    /// If the queue cannot be read.
    fn next_after(&self, row: Option<u64>, limit: usize) -> Result<Vec<QueuedRow>, SideError>;

    /// Which of these identifiers have no queued rows any more.
    ///
    /// # Errors
    /// If the queue cannot be read.
    fn no_longer_queued(&self, ids: &[String]) -> Result<Vec<String>, SideError>;
}

/// A queued row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuedRow {
    /// Its number.
    pub row: u64,
    /// The identifier it belongs to.
    pub id: String,
}

/// A set in Redis of all identifiers that have queued rows, and the number of the last row read.
///
/// The set follows the queue with a delay: a recruit adds an identifier when it reads its row, and
/// removes it when it finds that the identifier has no queued rows any more. If Redis loses the set
/// or the number, the queue is read from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueTracker {
    queued: String,
    row: String,
    limit: usize,
    rescan_every: Option<Duration>,
}

impl QueueTracker {
    /// The set `{base}:queued`, and the number `{base}:row` beside it.
    pub fn new(base: &str) -> Self {
        let (queued, row) = (key(base, "queued"), key(base, "row"));
        Self { queued, row, limit: LIMIT, rescan_every: None }
    }

    /// The number of rows or identifiers that a slice processes: 25 by default, and at least one.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit.max(1);
        self
    }

    /// Reads the queue from its start again after this period, at least a millisecond; by default,
    /// never. Use it for queues whose rows can become visible [out of order](QueueSource). New rows
    /// wait until the rows before them have been read again.
    #[must_use]
    pub fn rescan_every(mut self, period: Duration) -> Self {
        self.rescan_every = Some(period);
        self
    }

    /// Makes the next recruits read the queue from its start, once. The set is kept meanwhile.
    ///
    /// # Errors
    /// If Redis cannot be reached.
    pub fn rescan(&self, connection: &mut dyn ConnectionLike) -> RedisResult<()> {
        cmd("DEL").arg(&self.row).exec(connection)
    }

    /// Whether this identifier has queued rows, as far as the recruits have read.
    ///
    /// # Errors
    /// If Redis cannot be reached, or the key holds another type.
    pub fn is_queued(&self, connection: &mut dyn ConnectionLike, id: &str) -> RedisResult<bool> {
        cmd("SISMEMBER").arg(&self.queued).arg(id).query(connection)
    }

    /// Reads the next rows of the queue, up to the limit, and returns how many identifiers are new
    /// in the set. On contention it gives up at once and returns 0.
    ///
    /// # Errors
    /// If the queue or Redis cannot be reached, a key holds another type, or more rows than the
    /// limit have the same number.
    pub fn add(
        &self,
        connection: &mut dyn ConnectionLike,
        queue: &impl QueueSource,
    ) -> Result<usize, SideError> {
        self.try_add(connection, queue).map(Option::unwrap_or_default)
    }

    /// Like [`add`](Self::add), but returns `None` on contention.
    fn try_add(
        &self,
        connection: &mut dyn ConnectionLike,
        queue: &impl QueueSource,
    ) -> Result<Option<usize>, SideError> {
        watched(connection, [&self.queued, &self.row], |connection| {
            let last = self.last(connection)?;
            // One more row shows whether others beyond the limit have the same number.
            let mut rows = queue.next_after(last, self.limit.saturating_add(1))?;
            rows.retain(|next| last.is_none_or(|last| next.row > last));
            rows.sort();
            rows.truncate(self.whole_numbers(&rows)?);
            let Some(next) = rows.last() else { return Ok(Transaction::Needless) };
            let ids: Vec<&str> = rows.iter().map(|next| next.id.as_str()).collect();
            let mut transaction = pipe();
            transaction.atomic().sadd(&self.queued, ids).add_command(self.set_row(last, next.row));
            let added: Option<(usize,)> = transaction.ignore().query(connection)?;
            Ok(Transaction::Sent(added.map(|(added,)| added)))
        })
    }

    /// The number of the last row read. The set contains the identifiers of all queued rows up to
    /// it. So if the set is empty, either there are no such rows or the set was lost; starting
    /// again is right for both.
    fn last(&self, connection: &mut dyn ConnectionLike) -> RedisResult<Option<u64>> {
        let last: Option<u64> = cmd("GET").arg(&self.row).query(connection)?;
        let is_there: bool = cmd("EXISTS").arg(&self.queued).query(connection)?;
        // The scan was started by a tracker without a rescan period, or with a longer one.
        let is_overdue = match self.period_ms() {
            Some(period) => {
                let left: i64 = cmd("PTTL").arg(&self.row).query(connection)?;
                !(0..=period).contains(&left)
            }
            None => false,
        };
        Ok(last.filter(|_| is_there && !is_overdue))
    }

    /// How many of these sorted rows to take so that rows with the same number stay together: if
    /// they were split, the rest would never be read.
    fn whole_numbers(&self, rows: &[QueuedRow]) -> Result<usize, SideError> {
        let Some(beyond) = rows.get(self.limit) else { return Ok(rows.len()) };
        match rows[..self.limit].partition_point(|row| row.row < beyond.row) {
            0 => Err(format!(
                "more than {} rows have the number {}: raise the limit of the tracker",
                self.limit, beyond.row
            )
            .into()),
            whole => Ok(whole),
        }
    }

    /// The command that stores the number of the last row read. With a rescan period, the key
    /// expires a period after the scan started, and progress does not extend it.
    fn set_row(&self, last: Option<u64>, row: u64) -> Cmd {
        let mut set = cmd("SET");
        set.arg(&self.row).arg(row);
        match (self.period_ms(), last) {
            (None, _) => {}
            (Some(_), Some(_)) => {
                set.arg("KEEPTTL");
            }
            (Some(period), None) => {
                set.arg("PX").arg(period);
            }
        }
        set
    }

    fn period_ms(&self) -> Option<i64> {
        let millis = |period: Duration| i64::try_from(period.as_millis()).unwrap_or(i64::MAX);
        Some(millis(self.rescan_every?).clamp(1, PERIOD_MAX_MS))
    }

    /// Asks the queue about some identifiers of the set, up to the limit, and returns how many were
    /// removed. On contention it gives up at once and returns 0, because the answer may be
    /// outdated.
    ///
    /// # Errors
    /// If the queue or Redis cannot be reached, or a key holds another type.
    pub fn remove(
        &self,
        connection: &mut dyn ConnectionLike,
        queue: &impl QueueSource,
    ) -> Result<usize, SideError> {
        self.try_remove(connection, queue).map(Option::unwrap_or_default)
    }

    /// Like [`remove`](Self::remove), but returns `None` on contention.
    fn try_remove(
        &self,
        connection: &mut dyn ConnectionLike,
        queue: &impl QueueSource,
    ) -> Result<Option<usize>, SideError> {
        watched(connection, [&self.queued, &self.row], |connection| {
            let some: Vec<String> =
                cmd("SRANDMEMBER").arg(&self.queued).arg(self.limit).query(connection)?;
            if some.is_empty() {
                return Ok(Transaction::Needless);
            }
            let mut gone = queue.no_longer_queued(&some)?;
            // Ignore identifiers that were not asked for.
            gone.retain(|id| some.contains(id));
            if gone.is_empty() {
                return Ok(Transaction::Needless);
            }
            let removed: Option<(usize,)> =
                pipe().atomic().srem(&self.queued, gone).query(connection)?;
            Ok(Transaction::Sent(removed.map(|(removed,)| removed)))
        })
    }

    /// The side job that adds and removes identifiers, over its own connection.
    pub fn scraper<Q: QueueSource>(&self, client: Client, queue: Q) -> Scraper<Q> {
        Scraper { tracker: self.clone(), queue, link: Link::new(client) }
    }
}

/// Keeps a [`QueueTracker`] up to date: each slice adds a few identifiers or removes a few, chosen
/// at random.
#[derive(Debug)]
pub struct Scraper<Q> {
    tracker: QueueTracker,
    queue: Q,
    link: Link,
}

impl<Q: QueueSource> SideJob for Scraper<Q> {
    fn recruited(&self, slice: &mut Slice) -> Result<Duty, SideError> {
        self.link.lend(slice, |connection| match coin() {
            Side::Heads => self.tracker.try_add(connection, &self.queue),
            Side::Tails => self.tracker.try_remove(connection, &self.queue),
        })
    }
}

enum Side {
    Heads,
    Tails,
}

fn coin() -> Side {
    // Each new state has its own random keys.
    match RandomState::new().build_hasher().finish() % 2 {
        0 => Side::Heads,
        _ => Side::Tails,
    }
}
