//! Opening a store, wherever it is: as its owner, or only to look.

use std::error;
use std::fmt;
use std::path::PathBuf;

#[cfg(feature = "sqlite")]
use crate::sqlite::{self, Snapshot, Sqlite};
#[cfg(feature = "sqlite")]
use crate::store::Store;

/// Where a store is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// In a file on a local disk, and in the files beside it.
    File(PathBuf),
}

impl Location {
    /// Whether there is a store, or something else. If that cannot be determined, it counts as
    /// existing, and opening it reports the error.
    #[must_use]
    pub fn exists(&self) -> bool {
        let Self::File(path) = self;
        path.try_exists().unwrap_or(true)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::File(path) = self;
        path.display().fmt(formatter)
    }
}

impl<P: Into<PathBuf>> From<P> for Location {
    fn from(path: P) -> Self {
        Self::File(path.into())
    }
}

/// The process that opens a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerNote {
    /// Its process id.
    pub pid: u32,
    /// Its address, if it is known already.
    pub url: Option<String>,
}

impl OwnerNote {
    /// This process, without an address yet.
    #[must_use]
    pub fn this_process() -> Self {
        Self { pid: std::process::id(), url: None }
    }
}

/// The process that has a store open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreHolder {
    /// Its process id, if it has written it yet.
    pub pid: Option<u32>,
    /// Its address, if it has written it yet.
    pub url: Option<String>,
}

/// Opens the store at this location as its owner, and creates it if there is none.
///
/// ```
/// use filch_store::{Commit, Location, OpenError, OwnerNote, Store, open};
///
/// let folder = tempfile::tempdir()?;
/// let location = Location::from(folder.path().join("filch.db"));
/// let store = open(&location, &OwnerNote::this_process())?;
/// store.announce("http://127.0.0.1:7420")?;
/// store.commit(&Commit::default())?;
///
/// // A second process gets the address of the first.
/// let second = open(&location, &OwnerNote::this_process());
/// let Err(OpenError::Held { url, .. }) = second else {
///     panic!("two owners");
/// };
/// assert_eq!(url.as_deref(), Some("http://127.0.0.1:7420"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// See [`OpenError`].
#[cfg(feature = "sqlite")]
pub fn open(location: &Location, owner: &OwnerNote) -> Result<Box<dyn Store>, OpenError> {
    let Location::File(path) = location;
    Ok(Box::new(Sqlite::open(path, owner)?))
}

/// Opens the store at this location only to read it, whether a server has it open or not. A file
/// may be a backup.
///
/// # Errors
/// See [`OpenError`].
#[cfg(feature = "sqlite")]
pub fn inspect(location: &Location) -> Result<Snapshot, OpenError> {
    let Location::File(path) = location;
    Snapshot::open(path)
}

/// The process that has the store at this location open, if any.
#[cfg(feature = "sqlite")]
#[must_use]
pub fn holder(location: &Location) -> Option<StoreHolder> {
    let Location::File(path) = location;
    sqlite::holder(path)
}

/// Whether the store at this location has any token, also one that has expired or was revoked.
/// Neither locks nor changes the store; where there is no store, there is none.
///
/// # Errors
/// If it cannot be read.
#[cfg(feature = "sqlite")]
pub fn has_tokens(location: &Location) -> Result<bool, OpenError> {
    let Location::File(path) = location;
    sqlite::has_tokens(path)
}

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
    /// What is there is not a filch store.
    NotOurs(PathBuf),
    /// The store was created by a filch with other tables.
    OtherVersion {
        /// Its schema version.
        found: i64,
        /// The only one that is supported here.
        known: i64,
    },
    /// What the store is built on lacks something that durability needs.
    Unusable(String),
    /// The disk or the operating system reported an error.
    Failed {
        /// What was attempted.
        doing: &'static str,
        /// With what.
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
            Self::Unusable(why) => formatter.write_str(why),
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
            | Self::Unusable(_) => None,
        }
    }
}
