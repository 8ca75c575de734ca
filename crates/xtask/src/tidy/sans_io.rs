//! Crates that run under the simulator are built without a database and without an async runtime,
//! directly and through their dependencies.
//!
//! Cargo itself resolves the features, for each crate alone: in a build of the whole workspace,
//! other crates enable SQLite. The dependencies of tests do not count.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::Finding;
use super::tree::Tree;

/// Folders under `crates/`. Those that do not exist yet are skipped.
const CRATES: &[&str] = &["engine", "sim"];

/// Packages that do I/O.
const FORBIDDEN: &[&str] = &["libsqlite3-sys", "rusqlite", "tokio"];

pub(super) fn check(root: &Path, tree: &Tree) -> Result<Vec<Finding>> {
    let folders = tree.crate_folders();
    let mut findings = Vec::new();
    for folder in CRATES.iter().filter(|folder| folders.contains(*folder)) {
        findings.extend(forbidden(folder, &dependencies(root, folder)?));
    }
    Ok(findings)
}

/// Every line is one package: its name, a space, its version and perhaps its path.
fn forbidden(folder: &str, dependencies: &str) -> Vec<Finding> {
    let names: BTreeSet<&str> =
        dependencies.lines().filter_map(|line| line.split(' ').next()).collect();
    FORBIDDEN
        .iter()
        .filter(|name| names.contains(*name))
        .map(|name| {
            let message = format!(
                "`filch-{folder}` is built with `{name}`, but must do no I/O: `cargo tree -p \
                 filch-{folder} -e normal -i {name}` shows which dependency brings it"
            );
            Finding::new(&format!("crates/{folder}/Cargo.toml"), 1, message)
        })
        .collect()
}

fn dependencies(root: &Path, folder: &str) -> Result<String> {
    let output = crate::cargo()
        .args(["tree", "--locked", "--package", &format!("filch-{folder}"), "--edges", "normal"])
        .args(["--target", "all", "--prefix", "none", "--format", "{p}"])
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

    const TREE: &str = "filch-sim v0.1.0 (/somewhere/main/crates/sim)
filch-store v0.1.0 (/somewhere/main/crates/store)
tokio-like v1.0.0
serde v1.0.228 (*)
";

    #[test]
    fn a_crate_without_io_passes() {
        assert_eq!(forbidden("sim", TREE), []);
    }

    #[test]
    fn every_forbidden_package_is_found_once() {
        let tree =
            format!("{TREE}rusqlite v0.41.0\nlibsqlite3-sys v0.38.1\nrusqlite v0.41.0 (*)\n");
        let lines: Vec<String> = forbidden("sim", &tree).iter().map(ToString::to_string).collect();
        let expected = ["libsqlite3-sys", "rusqlite"].map(|name| {
            format!(
                "crates/sim/Cargo.toml:1: `filch-sim` is built with `{name}`, but must do no I/O: \
                 `cargo tree -p filch-sim -e normal -i {name}` shows which dependency brings it"
            )
        });
        assert_eq!(lines, expected);
    }

    #[test]
    fn the_program_itself_does_io() {
        let root = crate::workspace_root().unwrap();
        let found = forbidden("cli", &dependencies(&root, "cli").unwrap());
        assert_eq!(found.len(), FORBIDDEN.len(), "{found:?}");
    }
}
