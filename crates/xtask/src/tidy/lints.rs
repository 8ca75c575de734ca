//! Every crate inherits the workspace's lints; `pool`, which cannot, has its own table.
//!
//! Without this rule, a crate that forgets the two lines would look like one without warnings.

use super::Finding;
use super::manifest::{Entry, entries};
use super::tree::Tree;

/// `forbid(unsafe_code)` cannot be relaxed by the one crate that needs unsafe code.
const OWN_TABLE: &str = "pool";

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for folder in tree.crate_folders() {
        let path = format!("crates/{folder}/Cargo.toml");
        let Some(text) = tree.text(&path) else {
            continue;
        };
        let entries = entries(text);
        if folder == OWN_TABLE {
            if !entries.iter().any(|entry| entry.table.starts_with("lints.")) {
                let message = "no lints: this crate needs `[lints.rust]` and `[lints.clippy]`";
                findings.push(Finding::new(&path, 1, message));
            }
        } else if !entries.iter().any(inherits_lints) {
            let message = "the workspace's lints are not inherited: add `[lints] workspace = true`";
            findings.push(Finding::new(&path, 1, message));
        }
    }
    findings
}

fn inherits_lints(entry: &Entry<'_>) -> bool {
    let path = (entry.table, entry.key);
    matches!(path, ("lints", "workspace") | ("", "lints.workspace")) && entry.value == "true"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(folder: &str, text: &str) -> usize {
        check(&Tree::of(&[(&format!("crates/{folder}/Cargo.toml"), text)])).len()
    }

    #[test]
    fn a_crate_inherits_the_lints() {
        assert_eq!(count("store", "[lints]\nworkspace = true\n"), 0);
        assert_eq!(count("store", "lints.workspace = true\n[package]\n"), 0);
        assert_eq!(count("store", "[package]\nname = \"store\"\n"), 1);
        assert_eq!(count("store", "[lints]\nworkspace = false\n"), 1);
        assert_eq!(count("store", "[lints.rust]\nunsafe_code = \"allow\"\n"), 1);
        assert_eq!(count("store", "[package]\nlints.workspace = true\n"), 1, "another table");
    }

    #[test]
    fn pool_has_its_own() {
        assert_eq!(count("pool", "[lints.rust]\nmissing_docs = \"warn\"\n"), 0);
        assert_eq!(count("pool", "[package]\nname = \"pool\"\n"), 1);
    }
}
