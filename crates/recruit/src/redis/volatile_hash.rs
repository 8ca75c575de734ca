//! A hash whose fields expire. Redis 6 lets keys expire, but not fields, and under memory pressure
//! it may evict keys that can expire before their time.
//!
//! A sorted set holds the expiry of each field. From that moment on the field is not returned any
//! more; a recruit removes it later.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ::redis::{Client, ConnectionLike, FromRedisValue, RedisResult, ToSingleRedisArg, cmd, pipe};

use super::{Link, Transaction, key, watched};
use crate::job::{Duty, SideError, SideJob, Slice};

/// Default limit of fields that one slice removes.
const LIMIT: usize = 5;

/// The latest moment that a score (a float) represents exactly: in the year 2255.
const END: u64 = (1 << 53) - 1;

/// A field and its value.
type Entry = (Vec<u8>, Vec<u8>);

/// A hash in Redis whose fields expire, by the clock of the Redis server.
///
/// ```no_run
/// use std::time::Duration;
/// use filch_recruit::redis::VolatileHash;
/// use filch_recruit::{Rate, Recruiter};
///
/// let client = redis::Client::open("redis://127.0.0.1/")?;
/// let sessions = VolatileHash::new("sessions");
/// let recruiter = Recruiter::builder()
///     .job("sessions", Rate::new(0.003)?, sessions.reaper(client.clone()))
///     .build()?;
///
/// let mut connection = client.get_connection()?;
/// sessions.set(&mut connection, "4711", "ada", Duration::from_secs(1800))?;
/// let user: Option<String> = sessions.get(&mut connection, "4711")?;
/// recruiter.enlist(); // almost always nothing; now and then it removes expired fields
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolatileHash {
    fields: String,
    expiries: String,
    limit: usize,
}

impl VolatileHash {
    /// The hash `{base}:fields`, and the sorted set `{base}:expiries` beside it.
    pub fn new(base: &str) -> Self {
        Self { fields: key(base, "fields"), expiries: key(base, "expiries"), limit: LIMIT }
    }

    /// The number of fields that a slice removes at most: 5 by default, and at least one.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit.max(1);
        self
    }

    /// Sets a field that expires after `ttl`.
    ///
    /// # Errors
    /// If Redis cannot be reached, or a key holds another type.
    pub fn set(
        &self,
        connection: &mut dyn ConnectionLike,
        field: impl ToSingleRedisArg + Copy,
        value: impl ToSingleRedisArg,
        ttl: Duration,
    ) -> RedisResult<()> {
        let ttl = u64::try_from(ttl.as_micros()).unwrap_or(END);
        let expiry = now(connection)?.saturating_add(ttl).min(END);
        pipe()
            .atomic()
            .hset(&self.fields, field, value)
            .zadd(&self.expiries, field, expiry)
            .exec(connection)
    }

    /// The value of the field, if it exists and has not expired.
    ///
    /// # Errors
    /// If Redis cannot be reached, a key holds another type, or the value cannot be converted.
    pub fn get<T: FromRedisValue>(
        &self,
        connection: &mut dyn ConnectionLike,
        field: impl ToSingleRedisArg + Copy,
    ) -> RedisResult<Option<T>> {
        let (now, value, expiry): (Moment, ::redis::Value, Option<f64>) = pipe()
            .atomic()
            .cmd("TIME")
            .hget(&self.fields, field)
            .zscore(&self.expiries, field)
            .query(connection)?;
        // A field without an expiry was not set by `set`.
        let is_alive = expiry.is_some_and(|expiry| (micros(now) as f64) < expiry);
        if is_alive { Ok(FromRedisValue::from_redis_value(value)?) } else { Ok(None) }
    }

    /// Removes a field. Returns whether it existed, expired or not.
    ///
    /// # Errors
    /// If Redis cannot be reached, or a key holds another type.
    pub fn remove(
        &self,
        connection: &mut dyn ConnectionLike,
        field: impl ToSingleRedisArg + Copy,
    ) -> RedisResult<bool> {
        let (was_there, _): (bool, bool) = pipe()
            .atomic()
            .hdel(&self.fields, field)
            .zrem(&self.expiries, field)
            .query(connection)?;
        Ok(was_there)
    }

    /// Removes expired fields, the oldest first, up to the limit, and returns how many. If another
    /// client writes to the hash in the meantime, it gives up at once and returns 0.
    ///
    /// # Errors
    /// If Redis cannot be reached, or a key holds another type.
    pub fn reap(&self, connection: &mut dyn ConnectionLike) -> RedisResult<usize> {
        self.try_reap(connection).map(Option::unwrap_or_default)
    }

    /// Like [`reap`](Self::reap), but returns `None` on contention.
    fn try_reap(&self, connection: &mut dyn ConnectionLike) -> RedisResult<Option<usize>> {
        // Read before the keys are watched: the shorter the watch, the rarer is contention. A field
        // that had expired at this earlier moment is still expired.
        let now = now(connection)?;
        watched(connection, [&self.fields, &self.expiries], |connection| {
            let expired: Vec<Vec<u8>> = cmd("ZRANGEBYSCORE")
                .arg(&self.expiries)
                .arg("-inf")
                .arg(now)
                .arg("LIMIT")
                .arg(0)
                .arg(self.limit)
                .query(connection)?;
            if expired.is_empty() {
                return Ok(Transaction::Needless);
            }
            let removed: Option<(usize, usize)> = pipe()
                .atomic()
                .hdel(&self.fields, &expired)
                .zrem(&self.expiries, &expired)
                .query(connection)?;
            Ok(Transaction::Sent(removed.map(|(_, expiries)| expiries)))
        })
    }

    /// Removes fields without an expiry, up to the limit: `get` does not return them, and they
    /// would stay forever. They exist if Redis lost the sorted set, or could not write to it. It
    /// scans a few fields from the cursor and advances it. Returns `None` on contention.
    fn try_reap_orphans(
        &self,
        connection: &mut dyn ConnectionLike,
        cursor: &AtomicU64,
    ) -> RedisResult<Option<usize>> {
        let (fields, expiries): (u64, u64) =
            pipe().hlen(&self.fields).zcard(&self.expiries).query(connection)?;
        if fields <= expiries {
            return Ok(Some(0));
        }
        watched(connection, [&self.fields, &self.expiries], |connection| {
            let (next, some): (u64, Vec<Entry>) = cmd("HSCAN")
                .arg(&self.fields)
                .arg(cursor.load(Relaxed))
                .arg("COUNT")
                .arg(self.limit)
                .query(connection)?;
            let mut scores = pipe();
            for (field, _) in &some {
                scores.zscore(&self.expiries, field);
            }
            let scores: Vec<Option<f64>> = scores.query(connection)?;
            let orphans = some.into_iter().zip(scores).filter(|(_, score)| score.is_none());
            let mut orphans: Vec<Vec<u8>> = orphans.map(|((field, _), _)| field).collect();
            if orphans.len() > self.limit {
                // The next slice finds the others at the same cursor.
                orphans.truncate(self.limit);
            } else {
                cursor.store(next, Relaxed);
            }
            if orphans.is_empty() {
                return Ok(Transaction::Needless);
            }
            let removed: Option<(usize,)> =
                pipe().atomic().hdel(&self.fields, orphans).query(connection)?;
            Ok(Transaction::Sent(removed.map(|(removed,)| removed)))
        })
    }

    /// The side job that removes expired fields, over its own connection. If there are none, it
    /// removes fields without an expiry, which an interrupted [`set`](Self::set) may have left.
    pub fn reaper(&self, client: Client) -> Reaper {
        Reaper { hash: self.clone(), link: Link::new(client), cursor: AtomicU64::new(0) }
    }
}

/// Removes a few expired fields of a [`VolatileHash`] per slice.
#[derive(Debug)]
pub struct Reaper {
    hash: VolatileHash,
    link: Link,
    /// Where the scan for fields without an expiry continues. One slice at a time has the link, so
    /// one at a time moves it.
    cursor: AtomicU64,
}

impl SideJob for Reaper {
    fn recruited(&self, slice: &mut Slice) -> Result<Duty, SideError> {
        self.link.lend(slice, |connection| match self.hash.try_reap(connection)? {
            Some(0) => Ok(self.hash.try_reap_orphans(connection, &self.cursor)?),
            reaped => Ok(reaped),
        })
    }
}

/// Seconds and microseconds, as Redis returns them.
type Moment = (u64, u64);

fn micros((seconds, micros): Moment) -> u64 {
    seconds.saturating_mul(1_000_000).saturating_add(micros)
}

fn now(connection: &mut dyn ConnectionLike) -> RedisResult<u64> {
    cmd("TIME").query(connection).map(micros)
}
