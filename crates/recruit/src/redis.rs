//! Side jobs for data in Redis: hash fields that expire, and a set of identifiers with queued rows.
//!
//! This module has what both need: a connection that no recruit waits for, and transactions that
//! give up on contention.

mod queue_tracker;
mod volatile_hash;

use std::fmt;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use ::redis::{Client, Connection, ConnectionLike, RedisError, RedisResult, Value, cmd};

use crate::job::{Contended, Duty, SideError, Slice};

pub use queue_tracker::{QueueSource, QueueTracker, QueuedRow, Scraper};
pub use volatile_hash::{Reaper, VolatileHash};

/// The time for a request that starts after its slice has ended. A callback may have used up the
/// slice, and its result should still be stored.
const GRACE: Duration = Duration::from_millis(5);

/// The connection of a side job. One recruit at a time uses it; the others give up at once.
struct Link {
    client: Client,
    /// `None` before the first slice, and after a failed one, which leaves it in an unknown state.
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

    /// Runs a slice of work, which returns how many entries it changed, or `None` on contention.
    /// Neither the connection attempt nor a request is retried.
    fn lend(
        &self,
        slice: &Slice,
        work: impl FnOnce(&mut dyn ConnectionLike) -> Result<Option<usize>, SideError>,
    ) -> Result<Duty, SideError> {
        let mut connection_slot = match self.connection.try_lock() {
            Ok(slot) => slot,
            // A recruit panicked after it had taken the connection out.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Contended.into()),
        };
        let deadline = slice.deadline();
        let connection = match connection_slot.take() {
            Some(connection) => connection,
            None => self.client.get_connection_with_timeout(left(deadline))?,
        };
        let mut timed = Timed { connection, deadline };
        let changed = work(&mut timed)?;
        *connection_slot = Some(timed.connection);
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

/// A connection whose requests time out when the slice ends.
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

/// The result of a transaction.
enum Transaction {
    /// It was sent: the number of changed entries, or `None` if it was aborted by contention.
    Sent(Option<usize>),
    /// There was nothing to change.
    Needless,
}

/// Watches the keys while `work` reads them and sends a transaction. Returns the number of changed
/// entries, or `None` if another client changed the keys in the meantime.
fn watched<E: From<RedisError>>(
    connection: &mut dyn ConnectionLike,
    keys: [&str; 2],
    work: impl FnOnce(&mut dyn ConnectionLike) -> Result<Transaction, E>,
) -> Result<Option<usize>, E> {
    cmd("WATCH").arg(&keys).exec(connection)?;
    match work(connection) {
        // The transaction ends the watch, whether it succeeded or not.
        Ok(Transaction::Sent(changed)) => Ok(changed),
        Ok(Transaction::Needless) => {
            cmd("UNWATCH").exec(connection)?;
            Ok(Some(0))
        }
        Err(error) => {
            // The connection may belong to the caller and still work. If it does not, the first
            // error is the useful one.
            let _ = cmd("UNWATCH").exec(connection);
            Err(error)
        }
    }
}

/// A Redis key. The braces are a hash tag: both keys of a structure are on one cluster node.
fn key(base: &str, part: &str) -> String {
    format!("{{{base}}}:{part}")
}
