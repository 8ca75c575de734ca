//! Every planted bug has the effect that its trace shows: with the bug, the trace plays as it is
//! written; without it, it does not.
//!
//! With `FILCH_BLESS=1` the files are rewritten with the actual output, as for other traces.

use std::fs;
use std::path::Path;

use filch_scheduler::planted::{Bug, plant};

use filch_sim::replay::play;

/// One test for all of them: a bug is planted for the whole process.
#[test]
fn each_planted_bug_has_its_described_effect() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/planted");
    let mut wrong = Vec::new();
    for bug in Bug::ALL {
        let path = folder.join(format!("{}.trace", bug.name()));
        let written = fs::read_to_string(&path).expect("every bug has its trace");
        plant(Some(bug));
        let with = play(&written);
        plant(None);
        let without = play(&written);
        if std::env::var_os("FILCH_BLESS").is_some() {
            fs::write(&path, with.as_ref().expect("can be played")).expect("can be written");
        } else if with.as_ref() != Ok(&written) {
            wrong.push(format!("{}: something else happens: {with:#?}", bug.name()));
        }
        if without.is_err() || with == without {
            wrong.push(format!("{}: not seen in its trace: {without:#?}", bug.name()));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    let files = fs::read_dir(folder).expect("the folder can be read");
    assert_eq!(files.count(), Bug::ALL.len(), "every trace is of a bug");
}
