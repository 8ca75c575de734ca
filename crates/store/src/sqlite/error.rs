//! Errors of the SQLite store, and what they mean for its users.

use std::path::Path;
use std::time::Duration;
use std::{error, fmt, io};

use rusqlite::ErrorCode;

use crate::CommitError;
use crate::open::OpenError;
use crate::rules::Rejection;
use crate::store::StoreError;

/// Why rows could not be read or written.
#[derive(Debug)]
pub(super) enum Failure {
    Sqlite(rusqlite::Error),
    Io(io::Error),
    /// A row has an invalid value.
    Content(String),
    /// The disk failed earlier, and is not used any more.
    Earlier(String),
    /// All connections that read were in use for too long.
    Waited(Duration),
    /// A backup took too long.
    Interrupted,
}

impl Failure {
    /// Whether the disk is full. The transaction has been rolled back then.
    pub(super) fn is_full(&self) -> bool {
        let Self::Sqlite(rusqlite::Error::SqliteFailure(error, _)) = self else {
            return false;
        };
        // The second code comes from the memory that connections share, which is a file too.
        error.code == ErrorCode::DiskFull
            || error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
    }

    /// Whether another program has locked the file. Nothing was written then.
    fn is_busy(&self) -> bool {
        let Self::Sqlite(error) = self else {
            return false;
        };
        error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
    }

    /// Whether a read was interrupted.
    fn is_interrupted(&self) -> bool {
        match self {
            Self::Sqlite(error) => {
                error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
            }
            Self::Interrupted => true,
            _ => false,
        }
    }

    /// The same as the error of a read.
    pub(super) fn of_read(self, doing: &'static str) -> StoreError {
        match self {
            Self::Waited(waited) => StoreError::busy(doing, waited),
            failure if failure.is_interrupted() => StoreError::interrupted(doing),
            failure => StoreError { doing, source: Box::new(failure) },
        }
    }

    /// The same as the error of opening a store.
    pub(super) fn while_opening(self, doing: &'static str, path: &Path) -> OpenError {
        match &self {
            Self::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
                OpenError::NotOurs(path.to_owned())
            }
            _ => OpenError::Failed { doing, path: path.to_owned(), source: Box::new(self) },
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(error) if self.is_busy() => {
                write!(formatter, "another program has locked the file ({error})")
            }
            Self::Sqlite(error) => error.fmt(formatter),
            Self::Io(error) => error.fmt(formatter),
            Self::Content(what) => write!(formatter, "the file is damaged: {what}"),
            Self::Earlier(what) => write!(formatter, "the disk failed earlier: {what}"),
            Self::Waited(span) => {
                write!(formatter, "all read connections were in use for {} s", span.as_secs())
            }
            Self::Interrupted => formatter.write_str("interrupted"),
        }
    }
}

impl error::Error for Failure {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Sqlite(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::Content(_) | Self::Earlier(_) | Self::Waited(_) | Self::Interrupted => None,
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<rusqlite::types::FromSqlError> for Failure {
    fn from(error: rusqlite::types::FromSqlError) -> Self {
        Self::Sqlite(error.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Why a transaction was not committed.
#[derive(Debug)]
pub(super) enum Halt {
    /// Another process owns the store now.
    Superseded,
    Rejection(Rejection),
    Failure(Failure),
}

impl Halt {
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Failure(failure) if failure.is_full())
    }

    /// The same as the error of a write.
    pub(super) fn of_write(self, doing: &str) -> CommitError {
        let why = format!("{doing}: {self}");
        match self {
            Self::Superseded => CommitError::Superseded,
            Self::Rejection(_) => CommitError::Broken(why),
            Self::Failure(failure) if failure.is_full() => CommitError::DiskFull(why),
            Self::Failure(failure) if failure.is_busy() => CommitError::Broken(why),
            Self::Failure(_) => CommitError::DiskFailed(why),
        }
    }
}

impl fmt::Display for Halt {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superseded => CommitError::Superseded.fmt(formatter),
            Self::Rejection(rejection) => rejection.fmt(formatter),
            Self::Failure(failure) => failure.fmt(formatter),
        }
    }
}

impl From<Rejection> for Halt {
    fn from(rejection: Rejection) -> Self {
        Self::Rejection(rejection)
    }
}

impl From<Failure> for Halt {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<rusqlite::Error> for Halt {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failure(error.into())
    }
}
