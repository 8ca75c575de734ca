//! One owner at a time: a lock of the operating system, held for as long as the store is open.
//!
//! The lock is on a file beside the database. The owner writes its process id and address into it,
//! so that a second process can report them or connect. The content is valid only while the lock is
//! held: the operating system releases it however the owner ends.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::open::{OpenError, OwnerNote, StoreHolder};

/// A process that only tests the lock holds it for a moment. An opening process waits this long for
/// that.
const PATIENCE: Duration = Duration::from_millis(200);

/// The lock, and the file it is on.
pub(super) struct Lock {
    file: File,
    pid: u32,
    inode: u64,
}

impl Lock {
    pub(super) fn take(database: &Path, owner: &OwnerNote) -> Result<Self, OpenError> {
        let path = beside(database, "lock");
        match Self::try_take(&path, owner) {
            Ok(Ok(lock)) => Ok(lock),
            Ok(Err(StoreHolder { pid, url })) => Err(OpenError::Held { pid, url }),
            Err(error) => Err(OpenError::Failed { doing: "lock", path, source: Box::new(error) }),
        }
    }

    fn try_take(path: &Path, owner: &OwnerNote) -> io::Result<Result<Self, StoreHolder>> {
        let began = Instant::now();
        loop {
            let mut options = OpenOptions::new();
            // The content belongs to the present owner until the lock is ours.
            let mut file =
                options.read(true).write(true).create(true).truncate(false).open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if began.elapsed() < PATIENCE => {
                    thread::sleep(PATIENCE / 20);
                    continue;
                }
                Err(TryLockError::WouldBlock) => return Ok(Err(read(&mut file)?)),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // If the file was removed between the two steps, the lock protects nothing.
            if is_at(&file, path)? {
                let inode = file.metadata()?.ino();
                let mut lock = Self { file, pid: owner.pid, inode };
                lock.write(owner.url.as_deref())?;
                return Ok(Ok(lock));
            }
        }
    }

    /// The process that holds it.
    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    /// The number of its file, which no other file has for as long as the lock is held.
    pub(super) const fn inode(&self) -> i64 {
        self.inode.cast_signed()
    }

    /// Writes the owner's process id and address.
    pub(super) fn write(&mut self, url: Option<&str>) -> io::Result<()> {
        let sql = "SELECT json_object('pid', ?1, 'url', ?2)";
        let line = Connection::open_in_memory()
            .and_then(|json| json.query_row(sql, (self.pid, url), |row| row.get::<_, String>(0)))
            .map_err(io::Error::other)?;
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.file.write_all(format!("{line}\n").as_bytes())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The lock is released with the file; the content is no longer valid.
        let _ = self.file.set_len(0);
    }
}

/// The process that has the store in this file open, if any.
pub(crate) fn holder(path: &Path) -> Option<StoreHolder> {
    let path = resolve(path);
    // Without a readable lock file there is no owner that could be contacted.
    let mut file = File::open(beside(&path, "lock")).ok()?;
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => read(&mut file).ok(),
        Ok(()) | Err(TryLockError::Error(_)) => None,
    }
}

/// When a process was started, in clock ticks since boot; `None` if there is no such process, or it
/// has ended. With its id, this names one process for as long as the machine runs.
pub(super) fn started(pid: u32) -> Option<i64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may contain anything.
    let end_of_name = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = stat[end_of_name + 1..].split(u8::is_ascii_whitespace).skip(1);
    let state = fields.next()?;
    let is_over = matches!(state, b"Z" | b"X" | b"x");
    let started = str::from_utf8(fields.nth(18)?).ok()?.parse().ok()?;
    (!is_over).then_some(started)
}

/// What the owner wrote; nothing if it has not written yet.
fn read(file: &mut File) -> io::Result<StoreHolder> {
    let mut line = String::new();
    file.rewind()?;
    file.read_to_string(&mut line)?;
    let sql = "SELECT ?1 ->> 'pid', ?1 ->> 'url' WHERE json_valid(?1)";
    let read = |row: &rusqlite::Row<'_>| Ok(StoreHolder { pid: row.get(0)?, url: row.get(1)? });
    let found = Connection::open_in_memory().and_then(|json| json.query_row(sql, [line], read));
    Ok(found.unwrap_or(StoreHolder { pid: None, url: None }))
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    Ok(path.metadata().is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())))
}

/// The canonical path of a file, whether it exists or not.
pub(super) fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    // A dangling link leads to the file that will be created. Links may lead to links, but only so
    // many.
    for _ in 0..40 {
        let Ok(target) = path.read_link() else {
            break;
        };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path,
    }
}

/// The path of a file that belongs to the database: its own path with a suffix.
pub(super) fn beside(database: &Path, word: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(".");
    path.push(word);
    path.into()
}
