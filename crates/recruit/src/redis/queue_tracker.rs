//! Who has something queued, as a set in Redis: a queue of millions of rows is asked a little at a
//! time, by recruits, and everybody else asks the set.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use ::redis::{Client, Cmd, ConnectionLike, RedisResult, cmd, pipe};

use super::{Link, Transaction, key, watched};
use crate::job::{Duty, SideError, SideJob, Slice};

/// How many identifiers one slice looks at, if nothing else is said.
const LIMIT: usize = 25;

/// The longest time after which a queue is read again: a thousand years, which Redis can add to its clock.
const PERIOD_MAX_MS: i64 = 1_000 * 365 * 24 * 3_600 * 1_000;

/// A queue that is asked what is in it. Rows have numbers that grow; several may have the same.
///
/// Once a row can be seen, none with a smaller number, or with the same, should come to be seen: what has been
/// passed is not read again. Numbers that a database hands out before it commits are not like that. With such
/// a queue, let the tracker [begin again](QueueTracker::rescan_every) now and then.
pub trait QueueSource: Send + Sync {
    /// The next rows that are queued, after those of this number or from the very first, in the order of
    /// their numbers, and not more than `limit`.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn next_after(&self, row: Option<u64>, limit: usize) -> Result<Vec<QueuedRow>, SideError>;

    /// Which of these identifiers have nothing queued any more.
    ///
    /// # Errors
    /// Whatever went wrong.
    fn no_longer_queued(&self, ids: &[String]) -> Result<Vec<String>, SideError>;
}

/// A row that is queued.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueuedRow {
    /// Its number.
    pub row: u64,
    /// Whose it is.
    pub id: String,
}

/// A set in Redis of all identifiers that have something queued, and how far the queue has been read.
///
/// It follows the queue at a distance: an identifier comes in when a recruit has read its row, and goes
/// when a recruit has found that nothing of it is queued any more. Should Redis lose the set, or the number, the
/// queue is read from its beginning.
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

    /// How many rows or identifiers a slice asks for: 25 if not said, and never less than one.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit.max(1);
        self
    }

    /// Reads the queue from its beginning again when this time has passed since it was begun, and not less than
    /// a millisecond: never if not said. It is for queues in which rows can be seen [out of order](QueueSource). Until
    /// what was there has been read again, what is new waits.
    #[must_use]
    pub fn rescan_every(mut self, period: Duration) -> Self {
        self.rescan_every = Some(period);
        self
    }

    /// Lets the next recruits read the queue from its beginning, once. The set stays as it is meanwhile.
    ///
    /// # Errors
    /// If Redis cannot be reached.
    pub fn rescan(&self, connection: &mut dyn ConnectionLike) -> RedisResult<()> {
        cmd("DEL").arg(&self.row).exec(connection)
    }

    /// Whether this identifier has something queued, as far as is known.
    ///
    /// # Errors
    /// If Redis cannot be reached, or something else lies under the key.
    pub fn is_queued(&self, connection: &mut dyn ConnectionLike, id: &str) -> RedisResult<bool> {
        cmd("SISMEMBER").arg(&self.queued).arg(id).query(connection)
    }

    /// Reads on in the queue, up to the limit, and says how many identifiers are new in the set. It
    /// gives up at once, and says none, if anybody is at it as well.
    ///
    /// # Errors
    /// If the queue or Redis cannot be reached, something else lies under the keys, or more rows than the
    /// limit have the same number.
    pub fn add(
        &self,
        connection: &mut dyn ConnectionLike,
        queue: &impl QueueSource,
    ) -> Result<usize, SideError> {
        self.try_add(connection, queue).map(Option::unwrap_or_default)
    }

    /// As [`add`](Self::add), but says nothing if it was contended.
    fn try_add(
        &self,
        connection: &mut dyn ConnectionLike,
        queue: &impl QueueSource,
    ) -> Result<Option<usize>, SideError> {
        watched(connection, [&self.queued, &self.row], |connection| {
            let last = self.last(connection)?;
            // One more shows whether there are others of the same number beyond the limit.
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

    /// The number of the rows that were read last. Whoever has one of the rows up to there is in the set; so if
    /// the set is empty there are none, or it was lost, and to begin anew is right for both.
    fn last(&self, connection: &mut dyn ConnectionLike) -> RedisResult<Option<u64>> {
        let last: Option<u64> = cmd("GET").arg(&self.row).query(connection)?;
        let is_there: bool = cmd("EXISTS").arg(&self.queued).query(connection)?;
        // Begun by somebody who would not have read it again, or later than we would.
        let is_overdue = match self.period_ms() {
            Some(period) => {
                let left: i64 = cmd("PTTL").arg(&self.row).query(connection)?;
                !(0..=period).contains(&left)
            }
            None => false,
        };
        Ok(last.filter(|_| is_there && !is_overdue))
    }

    /// How many of these rows, in order, can be taken without tearing those of one number apart: the rest of
    /// them would never be read.
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

    /// The command that notes up to where the queue was read. What was begun is forgotten in time, and not
    /// later because it went on.
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

    /// Asks the queue about some identifiers of the set, up to the limit, and says how many it removed.
    /// It gives up at once, and says none, if anybody is at it as well: what was found out may be old.
    ///
    /// # Errors
    /// If the queue or Redis cannot be reached, or something else lies under the keys.
    pub fn remove(
        &self,
        connection: &mut dyn ConnectionLike,
        queue: &impl QueueSource,
    ) -> Result<usize, SideError> {
        self.try_remove(connection, queue).map(Option::unwrap_or_default)
    }

    /// As [`remove`](Self::remove), but says nothing if it was contended.
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
            // Others were not asked for.
            gone.retain(|id| some.contains(id));
            if gone.is_empty() {
                return Ok(Transaction::Needless);
            }
            let removed: Option<(usize,)> =
                pipe().atomic().srem(&self.queued, gone).query(connection)?;
            Ok(Transaction::Sent(removed.map(|(removed,)| removed)))
        })
    }

    /// The side job that does either, over a connection of its own.
    pub fn scraper<Q: QueueSource>(&self, client: Client, queue: Q) -> Scraper<Q> {
        Scraper { tracker: self.clone(), queue, link: Link::new(client) }
    }
}

/// Keeps a [`QueueTracker`] up to date: each slice adds a few identifiers or removes a few, as a coin
/// decides.
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
    // A new state has keys of its own, which is chance enough.
    match RandomState::new().build_hasher().finish() % 2 {
        0 => Side::Heads,
        _ => Side::Tails,
    }
}
