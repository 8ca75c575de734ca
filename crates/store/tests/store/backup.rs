//! A backup is complete and consistent, and never overwrites a file.

use filch_scheduler::id::CommitNo;
use filch_store::{Filter, ListOrder, OwnerNote, Sqlite, Store};

use crate::conformance::kept;
use crate::pair::{FilePlace, NO_RESERVE, commit};
use crate::put;

#[test]
fn a_backup_is_an_independent_store() {
    let pair = kept::<FilePlace>();
    let to = pair.path().with_file_name("copy.db");
    pair.backup(&to).unwrap();
    // Later commits are not in it.
    pair.commit(&commit(CommitNo(5), vec![put(7, "g")])).unwrap();
    let copy = Sqlite::open_with(&to, &OwnerNote::this_process(), NO_RESERVE).unwrap();
    let order = ListOrder::After(filch_scheduler::id::Seq(0));
    let all = |store: &dyn Store| store.list(&Filter::default(), order, 99).unwrap().rows;
    assert_eq!(all(&copy), all(pair.store())[..6]);
    copy.commit(&commit(CommitNo(5), vec![put(7, "h")])).unwrap();
    pair.compare();
}

#[test]
fn a_backup_overwrites_nothing() {
    let pair = kept::<FilePlace>();
    let to = pair.path().with_file_name("letter");
    std::fs::write(&to, "dear").unwrap();
    let refused = pair.backup(&to).unwrap_err().to_string();
    assert!(refused.starts_with("cannot make a backup: File exists"), "{refused}");
    assert_eq!(std::fs::read_to_string(&to).unwrap(), "dear");
    let refused = pair.backup(&to.join("below")).unwrap_err().to_string();
    assert!(refused.contains("Not a directory"), "{refused}");
}
