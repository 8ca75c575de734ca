//! The connections that read: a small pool; a guard returns its connection when it is dropped.
//!
//! A few connections are reserved for reads that the server needs in order to go on. However many
//! reads of clients wait or last long, the scheduler's next look-up finds a free connection.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::connect::{Role, connect, tune};
use super::error::{Failure, OpenError};
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

pub(super) struct Readers {
    idle: Mutex<Vec<Connection>>,
    returned: Condvar,
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
        Ok(Self { idle: Mutex::new(idle), returned: Condvar::new() })
    }

    /// Borrows a connection, in a transaction: all reads through it see the same state.
    pub(super) fn borrow(&self, read_for: ReadFor) -> Result<Reader<'_>, Failure> {
        let (least, wait) = (read_for.idle_min(), read_for.wait());
        // Nothing under this lock can panic, so poisoning is harmless.
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.returned.wait_timeout_while(idle, wait, |idle| idle.len() < least);
        let (mut idle, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return Err(Failure::Waited(wait));
        }
        let connection = idle.pop().expect("at least one connection is idle");
        drop(idle);
        let reader = Reader { readers: self, connection: Some(connection) };
        reader.prepare_cached("BEGIN")?.execute(())?;
        Ok(reader)
    }
}

pub(super) struct Reader<'readers> {
    readers: &'readers Readers,
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
        if !connection.is_autocommit() {
            // A read transaction has nothing to roll back, so a failure is harmless.
            let _ = connection.prepare_cached("ROLLBACK").and_then(|mut end| end.execute(()));
        }
        let mut idle = self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(connection);
        drop(idle);
        // All of them: the one that wakes first may have to leave this connection to another.
        self.readers.returned.notify_all();
    }
}
