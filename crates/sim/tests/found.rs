//! Whatever the simulator has found once, it does not find again: every run in `found/` breaks no
//! rule.

use std::fs;
use std::path::{Path, PathBuf};

use filch_sim::replay::{Replayed, replay};

fn runs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("found");
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("an entry can be read").path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_run_that_was_found_breaks_no_rule_now() {
    let runs = runs();
    assert!(!runs.is_empty(), "the runs are there");
    for path in runs {
        let text = fs::read_to_string(&path).expect("a file can be read");
        match replay(&text) {
            Ok(Replayed::Run { stats, violation }) => {
                assert_eq!(violation, None, "{}", path.display());
                assert!(stats.starts > 0, "{}: something happens in it", path.display());
            }
            other => panic!("{} is no run: {other:?}", path.display()),
        }
    }
}
