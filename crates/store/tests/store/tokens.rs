//! Tokens are found without opening the store.

use std::path::Path;

use filch_store::{Location, OpenError, Store as _, TokenChange, has_tokens as has_tokens_at};

use crate::conformance::token;
use crate::pair::{FilePair, folder};

fn has_tokens(path: &Path) -> Result<bool, OpenError> {
    has_tokens_at(&Location::from(path))
}

/// The lookup takes no lock, creates no file, and also finds a token that is only in the log.
#[test]
fn tokens_are_found_without_opening_the_store() {
    let mut pair = FilePair::new();
    let path = pair.path();
    assert!(!has_tokens(&path).unwrap());
    pair.close();
    let before = files(&path);
    assert!(!has_tokens(&path).unwrap());
    assert_eq!(files(&path), before);

    pair.reopen();
    assert!(pair.store().change_token(&TokenChange::Create(token("a", 1)), None).unwrap());
    assert!(has_tokens(&path).unwrap(), "it is in the log");
    pair.close();
    let before = files(&path);
    assert!(has_tokens(&path).unwrap(), "it is in the file");
    assert_eq!(files(&path), before);

    let folder = folder();
    assert!(!has_tokens(&folder.path().join("none.db")).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let text = folder.path().join("letter with spaces?.txt");
    std::fs::write(&text, "Dear reader, this is no database. ".repeat(99)).unwrap();
    assert!(matches!(has_tokens(&text), Err(OpenError::NotOurs(_))));
}

/// The names and contents of all files in the folder.
fn files(path: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries =
        std::fs::read_dir(path.parent().expect("a file is in a folder")).expect("it can be read");
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("it can be read");
        (entry.file_name(), std::fs::read(entry.path()).expect("it can be read"))
    };
    let mut files: Vec<_> = entries.map(read).collect();
    files.sort();
    files
}
