//! The files that belong to the repository, read into memory.
//!
//! Git lists them: files that are committed, and those that `git add --all` would add. Without git
//! (an unpacked archive), every file counts that is not a build product.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

/// Paths are relative to the root, with `/` between folders.
pub(super) struct Tree {
    /// `None` if the file is not text.
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    pub(super) fn read(root: &Path) -> Result<Self> {
        let paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => walked(root)?,
        };
        let mut files = BTreeMap::new();
        for path in paths {
            match fs::read(root.join(&path)) {
                Ok(bytes) => files.insert(path, String::from_utf8(bytes).ok()),
                // Deleted, but the deletion is not committed; or a link to a folder.
                Err(_) => continue,
            };
        }
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), Some((*text).to_owned()));
        Self { files: files.iter().map(owned).collect() }
    }

    /// Every text file, in order of its path.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// The text files whose path ends with this suffix.
    pub(super) fn texts_ending(&self, suffix: &str) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(move |(path, _)| path.ends_with(suffix))
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether there is such a file, or a folder with a file in it; the root itself is `""`.
    pub(super) fn has(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.keys().any(|file| file.starts_with(&inside))
    }

    /// The folders right under `crates/`.
    pub(super) fn crate_folders(&self) -> BTreeSet<&str> {
        let inside = self.files.keys().filter_map(|path| path.strip_prefix("crates/"));
        inside.filter_map(|path| Some(path.split_once('/')?.0)).collect()
    }
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        // We only read names, so it does not matter who owns the checkout.
        .args(["-c", "safe.directory=*"])
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let names = String::from_utf8(output.stdout).ok()?;
    let paths: Vec<String> = names.split_terminator('\0').map(str::to_owned).collect();
    // An archive that was unpacked inside another repository may be ignored there, and git would
    // list almost nothing.
    paths.iter().any(|path| path == "Cargo.toml").then_some(paths)
}

fn walked(root: &Path) -> Result<Vec<String>> {
    const NOT_OURS: [&str; 5] = [".git", ".venv", "__pycache__", "node_modules", "target"];
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let place = root.join(&folder);
        let entries = fs::read_dir(&place).with_context(|| format!("{}", place.display()))?;
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = format!("{folder}{name}");
            if !entry.file_type()?.is_dir() {
                paths.push(path);
            } else if !NOT_OURS.contains(&name.as_str()) {
                folders.push(format!("{path}/"));
            }
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_git_the_folders_are_walked() {
        let root = std::env::temp_dir().join(format!("filch-tree-{}", std::process::id()));
        fs::create_dir_all(root.join("crates/one/src")).unwrap();
        fs::create_dir_all(root.join("target/debug")).unwrap();
        for path in ["Cargo.toml", "crates/one/src/lib.rs", "target/debug/built"] {
            fs::write(root.join(path), "text").unwrap();
        }
        fs::write(root.join("picture"), [0xff, 0xfe]).unwrap();
        let mut walk = walked(&root).unwrap();
        walk.sort();
        let tree = Tree::read(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();

        assert_eq!(walk, ["Cargo.toml", "crates/one/src/lib.rs", "picture"]);
        let texts: Vec<&str> = tree.texts().map(|(path, _)| path).collect();
        assert_eq!(texts, ["Cargo.toml", "crates/one/src/lib.rs"], "a picture is not text");
        assert!(tree.has("picture"));
    }

    #[test]
    fn a_folder_exists_if_a_file_is_in_it() {
        let tree = Tree::of(&[("crates/pool/src/lib.rs", ""), ("crates/notes.md", "")]);
        assert!(tree.has("crates/pool/src/lib.rs") && tree.has("crates/pool") && tree.has(""));
        assert!(!tree.has("crates/po"));
        assert_eq!(tree.crate_folders().into_iter().collect::<Vec<_>>(), ["pool"]);
    }
}
