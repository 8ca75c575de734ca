//! The folder with the data: made if it is not there, and why what is in it cannot be opened.

use std::path::Path;

use anyhow::Result;
use filch_store::OpenError;

use crate::exit::{self, Exit};
use crate::usage::Usage;

/// Makes the folder, unless it is there.
///
/// # Errors
/// If it cannot be made, or is something else.
pub(crate) fn make(folder: &Path) -> Result<()> {
    if folder.is_file() {
        let what = format!("{} is a file, where a folder is meant", folder.display());
        return Err(Usage::new(what, "name the folder that filch.db is in, or is to be in").into());
    }
    std::fs::create_dir_all(folder).map_err(|error| {
        let text = format!("cannot make the folder {}: {error}", folder.display());
        Exit::new(1, format!("{text}\n  help: choose another one with --data DIR")).into()
    })
}

/// Whether the file is there. What cannot be looked at may be, and whoever opens it is told why not.
pub(crate) fn is_there(file: &Path) -> bool {
    file.try_exists().unwrap_or(true)
}

/// Why the file could not be opened, as a way to end.
pub(crate) fn unopened(file: &Path, error: &OpenError) -> Exit {
    let named = format!("{}: {error}", file.display());
    match error {
        OpenError::Held { .. } => Exit::new(exit::CONFLICT, named),
        OpenError::OtherVersion { .. } => Exit::new(exit::OTHER_VERSION, named),
        OpenError::NoLog { .. } | OpenError::OldLibrary { .. } => Exit::new(1, named),
        OpenError::NotOurs(_) => Exit::new(1, error.to_string()),
        OpenError::Failed { .. } => {
            let help = "only their owner can open these files, on a disk that can be written to: run \
                        this as that user, or choose another folder with --data DIR";
            Exit::new(1, format!("{error}\n  help: {help}"))
        }
    }
}
