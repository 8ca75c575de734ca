//! A copy of everything, as it was at one moment, in a file of its own.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::backup::Backup;

use super::connect::{Role, connect};
use super::error::Failure;

/// Copies while others go on writing: `connection` reads what was there when it began.
pub(super) fn copy(connection: &Connection, to: &Path) -> Result<(), Failure> {
    // Fails if there is anything under that name.
    File::create_new(to)?;
    let copied = fill(connection, to);
    if copied.is_err() {
        // Half a copy is none. That it could not be made is what whoever asked must know.
        let _ = fs::remove_file(to);
    }
    copied
}

fn fill(connection: &Connection, to: &Path) -> Result<(), Failure> {
    let mut copy = connect(to, Role::Write)?;
    copy.pragma_update(None, "synchronous", "FULL")?;
    let backup = Backup::new(connection, &mut copy)?;
    backup.run_to_completion(i32::MAX, Duration::ZERO, None)?;
    drop(backup);
    drop(copy);
    // The name must last like the content.
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}
