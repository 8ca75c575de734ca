//! The connections that read: a small pool; a guard returns its connection when it is dropped.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::connect::{Role, connect, tune};
use super::error::{Failure, OpenError};

/// How many threads can read at once; others wait.
const READERS: usize = 4;

/// How long a thread waits for a connection.
const PATIENCE: Duration = Duration::from_secs(30);

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
        let idle: Vec<Connection> = (0..READERS).map(|_| open()).collect::<Result<_, _>>()?;
        Ok(Self { idle: Mutex::new(idle), returned: Condvar::new() })
    }

    /// Borrows a connection, in a transaction: all reads through it see the same state.
    pub(super) fn borrow(&self) -> Result<Reader<'_>, Failure> {
        // Nothing under this lock can panic, so poisoning is harmless.
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.returned.wait_timeout_while(idle, PATIENCE, |idle| idle.is_empty());
        let (mut idle, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let connection = idle.pop().ok_or(Failure::Waited(PATIENCE))?;
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
        self.readers.returned.notify_one();
    }
}
