//! The data directory: creating it, and the errors of opening the store in it.

use std::path::Path;

use anyhow::Result;
use filch_store::{Location, OpenError};

use crate::exit::{self, Exit};
use crate::usage::Usage;

/// Creates the data directory if it does not exist.
///
/// # Errors
/// If it cannot be created, or if the path is a file.
pub(crate) fn make(folder: &Path) -> Result<()> {
    if folder.is_file() {
        let what = format!("{} is a file, but --data needs a directory", folder.display());
        return Err(Usage::new(what, "name the directory that holds filch.db, or a new one").into());
    }
    std::fs::create_dir_all(folder).map_err(|error| {
        let text = format!("cannot create the directory {}: {error}", folder.display());
        Exit::new(1, format!("{text}\n  help: choose another directory with --data DIR")).into()
    })
}

/// The exit code and message for a store that cannot be opened.
pub(crate) fn unopened(store: &Location, error: &OpenError) -> Exit {
    let named = format!("{store}: {error}");
    match error {
        OpenError::Held { .. } => Exit::new(exit::CONFLICT, named),
        OpenError::OtherVersion { .. } => Exit::new(exit::OTHER_VERSION, named),
        OpenError::Unusable(_) => Exit::new(1, named),
        OpenError::NotOurs(_) => Exit::new(1, error.to_string()),
        OpenError::Failed { .. } => {
            let help = "the store needs a writable disk, and only its owner can open it: run this as \
                        that user, or choose another directory with --data DIR";
            Exit::new(1, format!("{error}\n  help: {help}"))
        }
    }
}
