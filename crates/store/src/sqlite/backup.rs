//! A copy of everything, as it was at one moment, in a file of its own.
//!
//! It is written under another name and gets its own when it is complete and on the disk, so whatever
//! happens meanwhile, what has that name is a copy.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;

use super::connect::{Role, connect};
use super::error::Failure;
use super::owner::beside;

/// Copies while others go on writing: `connection` reads what was there when it began.
pub(super) fn copy(connection: &Connection, to: &Path) -> Result<(), Failure> {
    if to.symlink_metadata().is_ok() {
        return Err(io::Error::from(rustix::io::Errno::EXIST).into());
    }
    let partial = beside(to, &format!("{}.partial", std::process::id()));
    // Jobs may be nobody else's business. Fails if there is anything under that name.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&partial)?;
    let copied = fill(connection, &partial).and_then(|()| {
        // Fails if somebody else was quicker.
        Ok(fs::hard_link(&partial, to)?)
    });
    // Half a copy is none, and a whole one has its own name by now.
    let removed = fs::remove_file(&partial);
    copied?;
    removed?;
    // The name must last like the content.
    Ok(File::open(folder(to))?.sync_all()?)
}

fn fill(connection: &Connection, to: &Path) -> Result<(), Failure> {
    let mut copy = connect(to, Role::Write)?;
    copy.pragma_update(None, "synchronous", "FULL")?;
    let backup = Backup::new(connection, &mut copy)?;
    backup.run_to_completion(i32::MAX, Duration::ZERO, None)?;
    drop(backup);
    // One file, with nothing beside it. Whoever opens it to write gives it a log again.
    copy.query_row("PRAGMA journal_mode = DELETE", (), |row| row.get::<_, String>(0))?;
    drop(copy);
    Ok(File::open(to)?.sync_all()?)
}

fn folder(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}
