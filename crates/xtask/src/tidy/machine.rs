//! No file contains paths of one machine, or the host from which a machine downloads packages.
//!
//! Such a path works for one person only, and hosts are a setting of each machine. `Cargo.lock` is
//! exempt, because cargo writes it.

use super::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    // Assembled here, so that this file does not find itself.
    let folders = ["work", "root", "home", "Users"].map(|name| format!("/{name}/"));
    let hosts = [["crates", "io"].join(".")];
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !path.ends_with("Cargo.lock")) {
        for (index, line) in text.lines().enumerate() {
            for folder in folders.iter().filter(|folder| has_absolute(line, folder)) {
                let message = format!("`{folder}...` is a path of one machine");
                findings.push(Finding::new(path, index + 1, message));
            }
            for host in hosts.iter().filter(|host| line.to_lowercase().contains(*host)) {
                let message = format!("`{host}` is a host, which is a setting of each machine");
                findings.push(Finding::new(path, index + 1, message));
            }
        }
    }
    findings
}

/// Whether an absolute path starts with this folder. URLs and relative paths that contain it do not
/// count.
fn has_absolute(line: &str, folder: &str) -> bool {
    let goes_on = |before: char| before.is_alphanumeric() || "._-~*{}<>".contains(before);
    line.match_indices(folder).any(|(start, _)| !line[..start].ends_with(goes_on))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, line: &str) -> usize {
        // `@` keeps the needles out of this file's own text.
        check(&Tree::of(&[(path, &line.replace('@', ""))])).len()
    }

    #[test]
    fn places_on_a_machine_are_found() {
        for line in [
            "see /w@ork/main",
            "(/ro@ot/.cargo)",
            "HOME=/ho@me/somebody",
            "/Use@rs/somebody",
            "file:///ro@ot/x",
            "https://crates@.io/crates/x",
            "https://static.Crates@.io",
        ] {
            assert_eq!(count("docs/a.md", line), 1, "{line}");
        }
    }

    #[test]
    fn addresses_and_relative_paths_are_not() {
        for line in [
            "POST /v1/w@ork/claim",
            "http://127.0.0.1:7420/v1/w@ork/",
            "https://example.org/ho@me/page",
            "./w@ork/x and ../ro@ot/y and ~/ho@me/z and ${TOP}/w@ork/",
            "crates/io.rs",
            "/w@orker/",
        ] {
            assert_eq!(count("docs/a.md", line), 0, "{line}");
        }
        assert_eq!(count("Cargo.lock", "registry+https://crates@.io-index"), 0);
    }
}
