//! The connections that read: a few, lent to whoever asks and given back by themselves.

use std::ops::Deref;
use std::path::Path;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::connect::{Role, connect, tune};
use super::error::{Failure, OpenError};

/// So many threads read at once; others wait for one to be done.
const READERS: usize = 4;

/// How long one waits for that.
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

    /// One of the connections, in a transaction: whatever is read through it is of one moment.
    pub(super) fn borrow(&self) -> Result<Reader<'_>, Failure> {
        // Nothing that can panic happens under this lock, so poison does not mean harm.
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
    /// Always there, until it is given back.
    connection: Option<Connection>,
}

impl Deref for Reader<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection.as_ref().expect("not given back yet")
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if !connection.is_autocommit() {
            // A read transaction has nothing to lose.
            let _ = connection.prepare_cached("ROLLBACK").and_then(|mut end| end.execute(()));
        }
        let mut idle = self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(connection);
        drop(idle);
        self.readers.returned.notify_one();
    }
}
