//! Errors of the SQLite store, and what they mean for its users.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{error, fmt, io};

use filch_scheduler::id::CommitNo;
use rusqlite::ErrorCode;

use crate::CommitError;
use crate::rules::Rejection;

/// Why a store could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it open.
    Held {
        /// Its process id, if it has written it yet.
        pid: Option<u32>,
        /// Its address, if it has written it yet.
        url: Option<String>,
    },
    /// The file is not a filch store.
    NotOurs(PathBuf),
    /// The store was created by a filch with other tables.
    OtherVersion {
        /// Its schema version.
        found: i64,
        /// The only one that is supported here.
        known: i64,
    },
    /// The file system does not support a write-ahead log.
    NoLog {
        /// The journal mode that SQLite would use instead.
        mode: String,
    },
    /// The SQLite library is too old: it can lose committed data.
    OldLibrary {
        /// Its version.
        version: &'static str,
    },
    /// The disk or the operating system reported an error.
    Failed {
        /// What was attempted.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        source: Box<dyn error::Error + Send + Sync>,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held { pid, url } => {
                formatter.write_str("the store is in use by another process")?;
                if let Some(pid) = pid {
                    write!(formatter, " (pid {pid})")?;
                }
                match url {
                    Some(url) => write!(formatter, ": connect to it at {url}"),
                    None => formatter.write_str(": stop it, or choose another data directory"),
                }
            }
            Self::NotOurs(path) => {
                write!(formatter, "{} is not a filch store: choose another path", path.display())
            }
            Self::OtherVersion { found, known } => write!(
                formatter,
                "schema version {found} is not supported, this filch needs version {known}: use \
                 the filch that created the file, or choose a new data directory"
            ),
            Self::NoLog { mode } => write!(
                formatter,
                "the file system supports no write-ahead log, only {mode}: use a local disk"
            ),
            Self::OldLibrary { version } => write!(
                formatter,
                "SQLite {version} can lose committed data: build filch with 3.51.3 or newer"
            ),
            Self::Failed { doing, path, source } => {
                write!(formatter, "cannot {doing} {}: {source}", path.display())
            }
        }
    }
}

impl error::Error for OpenError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Failed { source, .. } => Some(&**source),
            Self::Held { .. }
            | Self::NotOurs(_)
            | Self::OtherVersion { .. }
            | Self::NoLog { .. }
            | Self::OldLibrary { .. } => None,
        }
    }
}

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

    /// Whether a constraint was violated. Nothing was written then, and the disk is fine.
    pub(super) fn is_not_permitted(&self) -> bool {
        let Self::Sqlite(error) = self else {
            return false;
        };
        error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
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
        }
    }
}

impl error::Error for Failure {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Sqlite(error) => Some(error),
            Self::Io(error) => Some(error),
            Self::Content(_) | Self::Earlier(_) | Self::Waited(_) => None,
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
    Rejection(Rejection),
    Failure(Failure),
}

impl Halt {
    pub(super) fn is_full(&self) -> bool {
        matches!(self, Self::Failure(failure) if failure.is_full())
    }

    /// The same as the error of a commit.
    pub(super) fn of_commit(self, number: CommitNo) -> CommitError {
        let why = format!("commit {}: {self}", number.0);
        match self {
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
