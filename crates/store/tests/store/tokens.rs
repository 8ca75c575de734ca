//! Tokens: stored, listed, revoked, and found without opening the store.

use filch_scheduler::time::Wall;
use filch_store::{OpenError, TokenRow, has_tokens};

use crate::pair::{Pair, folder};

fn token(id: &str, created_at: u64) -> TokenRow {
    TokenRow {
        id: id.to_owned(),
        name: "the CI's, \u{fc}ber".to_owned(),
        role: "submit".to_owned(),
        queues: vec!["a b".into(), "c,d".into()],
        digest: [7; 32],
        created_at: Wall(created_at),
        expires_at: Some(Wall(u64::MAX >> 2)),
        revoked_at: None,
    }
}

#[test]
fn tokens_are_stored_listed_and_revoked_once() {
    let mut pair = Pair::new();
    let first = TokenRow { queues: Vec::new(), expires_at: None, ..token("b", 1) };
    for store in pair.both() {
        assert_eq!(store.tokens().unwrap(), []);
        store.keep_token(&token("c", 2)).unwrap();
        store.keep_token(&first).unwrap();
        store.keep_token(&token("a", 2)).unwrap();
        let said = store.keep_token(&token("a", 3)).unwrap_err().to_string();
        assert!(said.starts_with("cannot store a token: "), "{said}");
        assert!(store.revoke_token("a", Wall(9)).unwrap());
        assert!(!store.revoke_token("a", Wall(10)).unwrap(), "it was revoked before");
        assert!(!store.revoke_token("unknown", Wall(10)).unwrap());
    }
    pair.reopen();
    let ended = TokenRow { revoked_at: Some(Wall(9)), ..token("a", 2) };
    for store in pair.both() {
        assert_eq!(store.tokens().unwrap(), [first.clone(), ended.clone(), token("c", 2)]);
    }
}

/// The lookup takes no lock, creates no file, and also finds a token that is only in the log.
#[test]
fn tokens_are_found_without_opening_the_store() {
    let mut pair = Pair::new();
    let path = pair.path();
    assert!(!has_tokens(&path).unwrap());
    pair.close();
    let before = files(&path);
    assert!(!has_tokens(&path).unwrap());
    assert_eq!(files(&path), before);

    pair.reopen();
    pair.both()[1].keep_token(&token("a", 1)).unwrap();
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
fn files(path: &std::path::Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
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
