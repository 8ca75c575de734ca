//! Every dependency has a comment, beside it or on the line above, that says what it saves us.
//!
//! A dependency that a crate inherits from the workspace has its comment there. Which crate may use
//! which is another rule (`edges`).

use super::Finding;
use super::manifest::{Entry, entries};
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let manifests = tree.texts_ending("Cargo.toml");
    manifests.flat_map(|(path, text)| check_manifest(path, text)).collect()
}

fn check_manifest(path: &str, text: &str) -> Vec<Finding> {
    let entries = entries(text);
    let mut findings = Vec::new();
    for entry in &entries {
        let Some(name) = dependency(entry) else {
            continue;
        };
        let inherited = if entry.is_header() {
            entries.iter().any(|inner| inner.table == entry.table && inner.is_inherited())
        } else {
            entry.is_inherited()
        };
        if !entry.commented && !inherited {
            let message = format!(
                "dependency `{name}` has no comment: say, beside or above it, what it saves us"
            );
            findings.push(Finding::new(path, entry.line, message));
        }
    }
    findings
}

/// The name of the dependency that this entry declares: an entry of a table of dependencies, or the
/// header of a table that is about one of them.
fn dependency<'a>(entry: &Entry<'a>) -> Option<&'a str> {
    let is_list = |table: &str| {
        let last = table.rsplit('.').next();
        matches!(last, Some("dependencies" | "dev-dependencies" | "build-dependencies"))
    };
    if entry.is_header() {
        let (list, name) = entry.table.rsplit_once('.')?;
        return is_list(list).then_some(name);
    }
    is_list(entry.table).then(|| entry.key.split('.').next().unwrap_or(entry.key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<(usize, String)> {
        let findings = check(&Tree::of(&[("crates/one/Cargo.toml", text)]));
        findings.into_iter().map(|finding| (finding.line, finding.message)).collect()
    }

    #[test]
    fn a_dependency_without_a_comment_is_found_in_every_kind_of_table() {
        for table in [
            "dependencies",
            "dev-dependencies",
            "build-dependencies",
            "workspace.dependencies",
            "target.'cfg(unix)'.dependencies",
        ] {
            let found = lines(&format!("[{table}]\none = \"1\" # saves work\ntwo = \"2\"\n"));
            assert_eq!(found.len(), 1, "{table}");
            assert_eq!(found[0].0, 3, "{table}");
            assert!(found[0].1.starts_with("dependency `two` "), "{}", found[0].1);
        }
    }

    #[test]
    fn a_table_about_one_dependency_counts_as_one() {
        let bare = "[dependencies.one]\nversion = \"1\"\n";
        assert_eq!(lines(bare).len(), 1);
        assert_eq!(lines(&format!("# Saves work.\n{bare}")), []);
        assert_eq!(lines("[dependencies.one]\nworkspace = true\n"), []);
    }

    #[test]
    fn inherited_dependencies_and_other_entries_need_no_comment() {
        let text = "\
[package]
name = \"one\"
[features]
extra = []
[dependencies]
two.workspace = true
three = { workspace = true, features = [\"std\"] }
";
        assert_eq!(lines(text), []);
    }
}
