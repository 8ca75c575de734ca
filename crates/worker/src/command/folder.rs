//! The private folder in which a worker keeps the files of its commands, and its removal.
//!
//! The worker removes it when it ends; its guardian does if the worker was killed; and if both
//! were, the next worker does. That worker needs no list of living workers: a folder is locked for
//! as long as its worker lives, which works across containers, too, where process ids mean nothing.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::process::geteuid;

use crate::clock::since_boot;

const PREFIX: &str = "filch-worker-";

/// A worker's folder, which exists from the first command on.
#[derive(Clone, Default)]
pub(super) struct Workplace {
    folder: Arc<Mutex<Option<Arc<Folder>>>>,
}

impl Workplace {
    /// Returns the folder; creates it if there is none, or if it was deleted meanwhile. Blocks.
    pub(super) fn folder(&self) -> io::Result<Arc<Folder>> {
        let mut folder = self.folder.lock().expect("no panic while it is locked");
        if let Some(folder) = folder.as_ref().filter(|folder| folder.is_there()) {
            return Ok(Arc::clone(folder));
        }
        let parent = std::path::absolute(std::env::temp_dir())?;
        remove_abandoned(&parent);
        let made = Arc::new(Folder::create(&parent)?);
        *folder = Some(Arc::clone(&made));
        Ok(made)
    }
}

/// A folder that only this user can read; it is removed when this is dropped.
pub(super) struct Folder {
    path: PathBuf,
    /// Holds the lock, which ends with this process.
    _lock: File,
}

impl Folder {
    pub(super) fn create(parent: &Path) -> io::Result<Folder> {
        let mut outcome = Err(io::ErrorKind::AlreadyExists.into());
        for number in 0..100 {
            let moment = since_boot().0;
            let name = format!("{PREFIX}{}-{moment:x}-{number}", std::process::id());
            outcome = Folder::try_create(parent.join(name));
            match &outcome {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Ok(_) | Err(_) => break,
            }
        }
        outcome
    }

    /// Fails with `AlreadyExists` if the name is taken.
    fn try_create(path: PathBuf) -> io::Result<Folder> {
        DirBuilder::new().mode(0o700).create(&path)?;
        let taken = || io::Error::from(io::ErrorKind::AlreadyExists);
        // Until it is locked it looks abandoned, and may be removed.
        let lock = File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => taken(),
            _ => error,
        })?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(taken()),
            // Where locks do not work, no folder looks abandoned either.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let folder = Folder { path, _lock: lock };
        if folder.is_there() { Ok(folder) } else { Err(taken()) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn is_there(&self) -> bool {
        self.path.is_dir()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The guardian may have done so already.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes folders of this user's workers that neither they nor their guardians could remove.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            // If it fails, the next worker removes it.
            let _ = remove_if_abandoned(&entry.path());
        }
    }
}

fn remove_if_abandoned(path: &Path) -> io::Result<()> {
    let metadata = path.symlink_metadata()?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
        return Ok(());
    }
    let lock = File::open(path)?;
    match lock.try_lock() {
        Ok(()) => std::fs::remove_dir_all(path),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_folders_are_not_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = Folder::create(parent.path()).unwrap();
        let mode = folder.path().metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        remove_abandoned(parent.path());
        assert!(folder.is_there());
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }

    #[test]
    fn unlocked_folders_are_removed_with_their_contents() {
        let parent = tempfile::tempdir().unwrap();
        let path = |name: &str| parent.path().join(name);
        for name in ["filch-worker-1-2-0", "other"] {
            std::fs::create_dir(path(name)).unwrap();
            std::fs::write(path(name).join("result"), "1").unwrap();
        }
        std::os::unix::fs::symlink(path("other"), path("filch-worker-link")).unwrap();
        remove_abandoned(parent.path());
        assert!(!path("filch-worker-1-2-0").exists());
        assert!(path("filch-worker-link").join("result").exists(), "links are not followed");
    }
}
