//! The program has no known bugs: the feature `planted` is off in all packages that `filch` is
//! built from.
//!
//! Cargo itself lists the enabled features, so that no way of enabling one escapes: the features of
//! each package, not the tree of features, which leaves out those that the program's own default
//! features enable. The dependencies of tests count too: they test the program as it is.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Finding;

const PROGRAM: &str = "filch-cli";

const FEATURE: &str = "planted";

pub(super) fn check(root: &Path) -> Result<Vec<Finding>> {
    Ok(planted(&tree(root)?))
}

/// Every line is one package: its features, separated by commas and perhaps none, then a space, its
/// name, its version and its path.
fn planted(tree: &str) -> Vec<Finding> {
    let mut names = BTreeSet::new();
    for line in tree.lines() {
        let (features, package) = line.split_once(' ').unwrap_or(("", line));
        if features.split(',').any(|feature| feature == FEATURE) {
            names.extend(package.split(' ').next());
        }
    }
    names
        .into_iter()
        .map(|name| {
            let message = format!(
                "`{name}` is built with the feature `{FEATURE}`, known bugs included: take it out \
                 of the manifest that enables it, which `cargo tree -p {PROGRAM} -e \
                 features -i {name}` shows"
            );
            Finding::new("crates/cli/Cargo.toml", 1, message)
        })
        .collect()
}

fn tree(root: &Path) -> Result<String> {
    let output = crate::cargo()
        .args(["tree", "--locked", "--package", PROGRAM, "--edges", "normal,build,dev"])
        .args(["--prefix", "none", "--format", "{f} {p}"])
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`cargo tree` failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).context("`cargo tree` did not print UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = " filch-cli v0.1.0 (/somewhere/main/crates/cli)
default,std anyhow v1.0.104
derive,planted-not,std serde v1.0.228
 filch-sim v0.1.0 (/somewhere/main/crates/planted sim)
 filch-scheduler v0.1.0 (/somewhere/main/crates/scheduler)
 filch-store v0.1.0 (/somewhere/main/crates/store)
 filch-scheduler v0.1.0 (/somewhere/main/crates/scheduler) (*)
";

    #[test]
    fn a_program_without_planted_bugs_passes() {
        assert_eq!(planted(TREE), []);
        assert_eq!(planted(""), []);
    }

    #[test]
    fn every_package_with_planted_bugs_is_found_once() {
        let tree = TREE
            .replace(" filch-scheduler ", "planted filch-scheduler ")
            .replace(" filch-sim ", "default,planted filch-sim ");
        let lines: Vec<String> = planted(&tree).iter().map(ToString::to_string).collect();
        let expected = ["filch-scheduler", "filch-sim"].map(|name| {
            format!(
                "crates/cli/Cargo.toml:1: `{name}` is built with the feature `planted`, known bugs \
                 included: take it out of the manifest that enables it, which \
                 `cargo tree -p filch-cli -e features -i {name}` shows"
            )
        });
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_tree_that_cannot_be_had_is_no_tree_without_bugs() {
        assert!(check(Path::new("no/such/folder")).is_err());
    }
}
