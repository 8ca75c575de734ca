//! Side jobs whose data lies in Redis: fields that expire, and a set of who has something queued.
//!
//! Here is what both need: a connection that nobody waits for, and transactions that give up.

mod queue_tracker;
mod volatile_hash;

use std::fmt;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use ::redis::{Client, Connection, ConnectionLike, RedisError, RedisResult, Value, cmd};

use crate::job::{Contended, Duty, SideError, Slice};

pub use queue_tracker::{QueueSource, QueueTracker, QueuedRow, Scraper};
pub use volatile_hash::{Reaper, VolatileHash};

/// What a request gets that is begun when its slice is over: a callback may have taken all the time,
/// and what it found should not be lost every time.
const GRACE: Duration = Duration::from_millis(5);

/// The connection of a side job: one at a time uses it, and who finds it in use does without.
struct Link {
    client: Client,
    /// None before the first slice, and after one that failed: what state it is in is not known then.
    connection: Mutex<Option<Connection>>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    fn new(client: Client) -> Self {
        Self { client, connection: Mutex::default() }
    }

    /// Does a slice of work that says how many things it changed, unless it was contended. Nothing is tried twice: neither to
    /// connect, nor any request.
    fn lend(
        &self,
        slice: &Slice,
        work: impl FnOnce(&mut dyn ConnectionLike) -> Result<Option<usize>, SideError>,
    ) -> Result<Duty, SideError> {
        let mut place = match self.connection.try_lock() {
            Ok(place) => place,
            // Somebody panicked, and had taken the connection out.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Contended.into()),
        };
        let deadline = slice.deadline();
        let connection = match place.take() {
            Some(connection) => connection,
            None => self.client.get_connection_with_timeout(left(deadline))?,
        };
        let mut timed = Timed { connection, deadline };
        let changed = work(&mut timed)?;
        *place = Some(timed.connection);
        match changed {
            Some(0) => Ok(Duty::NoWork),
            Some(_) => Ok(Duty::Done),
            None => Err(Contended.into()),
        }
    }
}

fn left(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(GRACE)
}

/// A connection whose requests fail when the slice is over.
struct Timed {
    connection: Connection,
    deadline: Instant,
}

impl Timed {
    fn in_time(&mut self) -> RedisResult<&mut Connection> {
        let left = Some(left(self.deadline));
        self.connection.set_read_timeout(left)?;
        self.connection.set_write_timeout(left)?;
        Ok(&mut self.connection)
    }
}

impl ConnectionLike for Timed {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.in_time()?.req_packed_command(command)
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.in_time()?.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }

    fn check_connection(&mut self) -> bool {
        self.connection.check_connection()
    }

    fn is_open(&self) -> bool {
        self.connection.is_open()
    }
}

/// What became of a transaction.
enum Transaction {
    /// It was sent: so many things were changed, or nothing at all because somebody was faster.
    Sent(Option<usize>),
    /// There was nothing to change.
    Needless,
}

/// Watches the keys while `work` looks what is to be done and sends it. How many things it changed;
/// nothing is said if anybody has touched the keys meanwhile.
fn watched<E: From<RedisError>>(
    connection: &mut dyn ConnectionLike,
    keys: [&str; 2],
    work: impl FnOnce(&mut dyn ConnectionLike) -> Result<Transaction, E>,
) -> Result<Option<usize>, E> {
    cmd("WATCH").arg(&keys).exec(connection)?;
    match work(connection) {
        // The server watches no longer, however it went.
        Ok(Transaction::Sent(changed)) => Ok(changed),
        Ok(Transaction::Needless) => {
            cmd("UNWATCH").exec(connection)?;
            Ok(Some(0))
        }
        Err(error) => {
            // The connection may be the caller's own, and good for other things; if it is not, the
            // first error says more than a second one.
            let _ = cmd("UNWATCH").exec(connection);
            Err(error)
        }
    }
}

/// The two keys of one thing. The braces keep them on one node of a cluster.
fn key(base: &str, part: &str) -> String {
    format!("{{{base}}}:{part}")
}
