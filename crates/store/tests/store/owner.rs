//! One owner at a time; other processes learn its address.

use std::path::Path;

use filch_scheduler::id::CommitNo;
use filch_scheduler::record::Loaded;
use filch_scheduler::time::Wall;
use filch_store::{
    Commit, CommitError, Location, OWNER_LEASE, OpenError, OwnerNote, Sqlite, Store, StoreHolder,
    TokenChange,
};

use crate::pair::{NO_RESERVE, folder, load};

fn holder(path: &Path) -> Option<StoreHolder> {
    filch_store::holder(&Location::from(path))
}

const URL: &str = "http://127.0.0.1:7420/?name=\"quoted\"";

#[test]
fn a_second_process_learns_the_owner_and_its_address() {
    let folder = folder();
    let path = folder.path().join("filch.db");
    assert_eq!(holder(&path), None);
    let owner = OwnerNote { pid: 4_711, url: None };
    let store = Sqlite::open_with(&path, &owner, NO_RESERVE).unwrap();
    assert_eq!(holder(&path), Some(StoreHolder { pid: Some(4_711), url: None }));
    store
        .announce("a much longer address, of which nothing may remain, not even its last letter")
        .unwrap();
    store.announce(URL).unwrap();
    let found = StoreHolder { pid: Some(4_711), url: Some(URL.into()) };
    assert_eq!(holder(&path), Some(found));
    // Also by another path to the same file.
    let other = folder.path().join("other.db");
    std::os::unix::fs::symlink(&path, &other).unwrap();
    for path in [&path, &other] {
        match Sqlite::open_with(path, &OwnerNote::this_process(), NO_RESERVE) {
            Err(error @ OpenError::Held { .. }) => {
                let said = error.to_string();
                assert!(said.contains("(pid 4711): connect to it at http://127.0.0.1"), "{said}");
            }
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("two owners"),
        }
    }
    drop(store);
    assert_eq!(holder(&path), None);
    let note = std::fs::read_to_string(path.with_file_name("filch.db.lock")).unwrap();
    assert_eq!(note, "", "its content is no longer valid");
    Sqlite::open_with(&path, &OwnerNote::this_process(), NO_RESERVE).unwrap();
}

#[test]
fn a_closed_store_can_be_read_but_not_written() {
    let folder = folder();
    let path = folder.path().join("filch.db");
    let open = || Sqlite::open_with(&path, &OwnerNote::this_process(), NO_RESERVE);
    let commit = |number| Commit { last: CommitNo(number), ..Commit::default() };
    let first = open().unwrap();
    first.commit(&commit(1)).unwrap();
    first.close();
    assert_eq!(holder(&path), None);
    let second = open().unwrap();
    second.commit(&commit(2)).unwrap();
    match first.commit(&commit(3)) {
        Err(CommitError::Broken(why)) => assert!(why.contains("the store is closed"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(first.announce(URL).is_err());
    let revoke = TokenChange::Revoke { id: "t".into(), at: Wall(1) };
    assert!(first.change_token(&revoke, None).is_err());
    assert_eq!(first.tokens().unwrap().len(), 0, "it can still be read");
    first.close();
    drop(first);
    // Dropping the first does not affect the second.
    second.commit(&commit(3)).unwrap();
    assert!(matches!(open(), Err(OpenError::Held { .. })));
}

/// Without its lock file, a second process can open the store. It takes over: the first one can
/// write nothing more.
#[test]
fn a_removed_lock_file_does_not_allow_two_writers() {
    let folder = folder();
    let path = folder.path().join("filch.db");
    let open = || Sqlite::open_with(&path, &OwnerNote::this_process(), NO_RESERVE);
    let commit = |number| Commit { last: CommitNo(number), ..Commit::default() };
    let first = open().unwrap();
    first.commit(&commit(1)).unwrap();
    std::fs::remove_file(path.with_file_name("filch.db.lock")).unwrap();
    let second = open().unwrap();
    assert_eq!(first.commit(&commit(2)), Err(CommitError::Superseded));
    // The first one may have renewed leases meanwhile, and its own workers still run.
    let former = Loaded::FormerOwner { renews_for: OWNER_LEASE };
    assert!(load(&second).contains(&former));
    second.commit(&commit(2)).unwrap();
    drop(first);
    assert_eq!(holder(&path).map(|holder| holder.pid), Some(Some(std::process::id())));
    second.commit(&commit(3)).unwrap();
    drop(second);
    // After an orderly end there is nothing to wait for; nor if the process does not exist any
    // more.
    let third = Sqlite::open_with(&path, &OwnerNote { pid: u32::MAX, url: None }, NO_RESERVE);
    assert!(!load(&third.unwrap()).contains(&former));
    let changed = rusqlite::Connection::open(&path)
        .unwrap()
        .execute("INSERT INTO owner VALUES (99, ?1, 1, 0)", [std::process::id()]);
    assert_eq!(changed.unwrap(), 1, "the id of that process is used by another one now");
    assert!(!load(&open().unwrap()).contains(&former));
}

/// Workers inside a former owner run on for as long as its process does, however many owners the
/// store had since.
#[test]
fn a_former_owner_counts_until_it_has_closed_the_store() {
    let folder = folder();
    let path = folder.path().join("filch.db");
    let open = || Sqlite::open_with(&path, &OwnerNote::this_process(), NO_RESERVE).unwrap();
    let former = Loaded::FormerOwner { renews_for: OWNER_LEASE };
    let first = open();
    std::fs::remove_file(path.with_file_name("filch.db.lock")).unwrap();
    drop(open());
    let third = open();
    assert!(load(&third).contains(&former), "the first one still runs");
    drop(third);
    drop(first);
    assert!(!load(&open()).contains(&former));
}

#[test]
fn looking_up_the_owner_does_not_block_opening() {
    let folder = folder();
    let path = folder.path().join("filch.db");
    drop(Sqlite::open_with(&path, &OwnerNote::this_process(), NO_RESERVE).unwrap());
    std::thread::scope(|scope| {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let path = &path;
        scope.spawn(move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                let _ = holder(path);
            }
        });
        for _ in 0..30 {
            Sqlite::open_with(path, &OwnerNote::this_process(), NO_RESERVE).unwrap();
        }
        drop(stop);
    });
}

#[test]
fn an_invalid_lock_file_is_ignored() {
    let folder = folder();
    let path = folder.path().join("filch.db");
    let store = Sqlite::open_with(&path, &OwnerNote::this_process(), NO_RESERVE).unwrap();
    for note in ["", "{\"pid\":", "[]", "{\"pid\":\"x\",\"url\":7}", "\u{0}"] {
        std::fs::write(path.with_file_name("filch.db.lock"), note).unwrap();
        assert_eq!(holder(&path), Some(StoreHolder { pid: None, url: None }), "{note:?}");
    }
    drop(store);
}

#[test]
fn a_dangling_link_and_its_target_share_one_lock() {
    let folder = folder();
    let (path, link) = (folder.path().join("filch.db"), folder.path().join("link.db"));
    std::os::unix::fs::symlink("filch.db", &link).unwrap();
    let store = Sqlite::open_with(&link, &OwnerNote::this_process(), NO_RESERVE).unwrap();
    assert!(path.exists() && store.path().ends_with("filch.db"));
    for path in [&path, &link] {
        assert!(holder(path).is_some());
        let second = Sqlite::open_with(path, &OwnerNote::this_process(), NO_RESERVE);
        assert!(matches!(second, Err(OpenError::Held { .. })));
    }
}
