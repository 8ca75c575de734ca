//! A backup: a consistent copy of the whole store in a new file.
//!
//! The copy is written under a temporary name and gets its own when it is complete and synced, so a
//! file with that name is always a complete copy.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::connect::{Role, connect};
use super::error::Failure;
use super::owner::beside;

/// Copies while the server goes on writing: `connection` reads the state at the start of its
/// transaction. It gives up as soon as `is_over` says so.
pub(super) fn copy(
    connection: &Connection,
    to: &Path,
    is_over: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    if to.symlink_metadata().is_ok() {
        return Err(io::Error::from(rustix::io::Errno::EXIST).into());
    }
    let partial = beside(to, &format!("{}.partial", std::process::id()));
    // Readable by its owner only, because jobs may be confidential. Fails if the name exists.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
    let copied = fill(connection, &partial, is_over).and_then(|()| {
        // Fails if another process has created the file meanwhile.
        Ok(fs::hard_link(&partial, to)?)
    });
    // A partial copy is useless, and a complete one has its own name by now.
    let removed = fs::remove_file(&partial);
    copied?;
    removed?;
    // The directory entry must be as durable as the content.
    Ok(File::open(folder(to))?.sync_all()?)
}

/// How many pages are copied at once: 1 MiB.
const PAGES: i32 = 256;

fn fill(connection: &Connection, to: &Path, is_over: &dyn Fn() -> bool) -> Result<(), Failure> {
    let mut copy = connect(to, Role::Write)?;
    copy.pragma_update(None, "synchronous", "FULL")?;
    let backup = Backup::new(connection, &mut copy)?;
    loop {
        match backup.step(PAGES)? {
            StepResult::Done => break,
            _ if is_over() => return Err(Failure::Interrupted),
            StepResult::More => {}
            // Another program has locked one of the files.
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
    drop(backup);
    // A single file without a log beside it. Opening it for writing creates a log again.
    copy.query_row("PRAGMA journal_mode = DELETE", (), |row| row.get::<_, String>(0))?;
    drop(copy);
    Ok(File::open(to)?.sync_all()?)
}

fn folder(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}
