//! The connections that read: a small pool; a guard returns its connection when it is dropped.
//!
//! A few connections are reserved for reads that the server needs in order to go on. However many
//! reads of clients wait or last long, the scheduler's next look-up finds a free connection.
//!
//! All reads can be paused for a moment (`log` says why), and reads of clients be interrupted.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, InterruptHandle};

use super::connect::{Role, connect, tune};
use super::error::Failure;
use crate::open::OpenError;
use crate::store::CLIENT_READS_MAX;

/// How many connections no read for a client ever takes.
const RESERVED: usize = 2;

/// How long a thread of the server waits for a connection.
const SERVER_WAIT: Duration = Duration::from_secs(30);

/// How long a read for a client waits for a connection; then the client is told to repeat it.
const CLIENT_WAIT: Duration = Duration::from_secs(5);

/// What a read is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadFor {
    /// The server itself: without the answer it cannot go on.
    Server,
    /// A client or an operator.
    Client,
}

impl ReadFor {
    /// How many connections must be idle for this read to begin.
    const fn idle_min(self) -> usize {
        match self {
            Self::Server => 1,
            Self::Client => RESERVED + 1,
        }
    }

    const fn wait(self) -> Duration {
        match self {
            Self::Server => SERVER_WAIT,
            Self::Client => CLIENT_WAIT,
        }
    }
}

/// Whether a pause interrupts reads of clients that do not end by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopping {
    Never,
    /// Interrupts them, and waits at most this long for them to end.
    Within(Duration),
}

/// How often reads are interrupted until they end: one that is between two statements does not
/// notice.
const INTERRUPT_AGAIN: Duration = Duration::from_millis(5);

pub(super) struct Readers {
    pool: Mutex<Pool>,
    /// A connection was returned, or a pause is over.
    changed: Condvar,
}

struct Pool {
    idle: Vec<Connection>,
    /// Reads in progress, by their numbers; those of clients can be interrupted.
    active: Vec<(u64, Option<InterruptHandle>)>,
    last_read: u64,
    is_paused: bool,
}

impl Readers {
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        let open = || {
            let connection =
                connect(path, Role::Read).map_err(|failure| failure.while_opening("open", path))?;
            tune(&connection, Role::Read, path)?;
            Ok::<_, OpenError>(connection)
        };
        let idle: Vec<Connection> =
            (0..CLIENT_READS_MAX + RESERVED).map(|_| open()).collect::<Result<_, _>>()?;
        let pool = Pool { idle, active: Vec::new(), last_read: 0, is_paused: false };
        Ok(Self { pool: Mutex::new(pool), changed: Condvar::new() })
    }

    /// Borrows a connection, in a transaction: all reads through it see the same state.
    pub(super) fn borrow(&self, read_for: ReadFor) -> Result<Reader<'_>, Failure> {
        let (least, wait) = (read_for.idle_min(), read_for.wait());
        let must_wait = |pool: &mut Pool| pool.is_paused || pool.idle.len() < least;
        let waited = self.changed.wait_timeout_while(self.pool(), wait, must_wait);
        let (mut pool, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return Err(Failure::Waited(wait));
        }
        let connection = pool.idle.pop().expect("at least one connection is idle");
        pool.last_read += 1;
        let number = pool.last_read;
        let stop = (read_for == ReadFor::Client).then(|| connection.get_interrupt_handle());
        pool.active.push((number, stop));
        drop(pool);
        let reader = Reader { readers: self, number, connection: Some(connection) };
        reader.prepare_cached("BEGIN")?.execute(())?;
        Ok(reader)
    }

    /// Runs `act` while no read begins. Waits for the reads in progress before, at most this long;
    /// then, if they may be stopped, interrupts those of clients.
    pub(super) fn paused<T>(
        &self,
        wait: Duration,
        stopping: Stopping,
        act: impl FnOnce() -> T,
    ) -> T {
        let mut pool = self.pool();
        pool.is_paused = true;
        let pause = Pause { readers: self };
        pool = self.until_quiet(pool, wait, false);
        if let Stopping::Within(wait) = stopping {
            pool = self.until_quiet(pool, wait, true);
        }
        drop(pool);
        let done = act();
        drop(pause);
        done
    }

    /// Waits until no read is in progress, at most this long.
    fn until_quiet<'pool>(
        &'pool self,
        mut pool: MutexGuard<'pool, Pool>,
        wait: Duration,
        interrupts: bool,
    ) -> MutexGuard<'pool, Pool> {
        let began = Instant::now();
        while !pool.active.is_empty() {
            let Some(mut left) = wait.checked_sub(began.elapsed()).filter(|left| !left.is_zero())
            else {
                break;
            };
            if interrupts {
                pool.active
                    .iter()
                    .filter_map(|(_, stop)| stop.as_ref())
                    .for_each(InterruptHandle::interrupt);
                left = left.min(INTERRUPT_AGAIN);
            }
            let waited = self.changed.wait_timeout(pool, left);
            pool = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        pool
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // Nothing under this lock can panic, so poisoning is harmless.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a pause when it is dropped.
struct Pause<'readers> {
    readers: &'readers Readers,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.readers.pool().is_paused = false;
        self.readers.changed.notify_all();
    }
}

pub(super) struct Reader<'readers> {
    readers: &'readers Readers,
    number: u64,
    /// Present until it is returned.
    connection: Option<Connection>,
}

impl Deref for Reader<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("it is returned only when this is dropped")
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        // From here on it is not interrupted any more, so that the transaction ends.
        let mut pool = self.readers.pool();
        let own = pool.active.iter_mut().find(|(number, _)| *number == self.number);
        own.map(|(_, stop)| stop.take());
        drop(pool);
        if !connection.is_autocommit() {
            // A read transaction has nothing to roll back, so a failure is harmless.
            let _ = connection.prepare_cached("ROLLBACK").and_then(|mut end| end.execute(()));
        }
        let mut pool = self.readers.pool();
        pool.active.retain(|(number, _)| *number != self.number);
        pool.idle.push(connection);
        drop(pool);
        // All of them: the one that wakes first may have to leave this connection to another.
        self.readers.changed.notify_all();
    }
}
