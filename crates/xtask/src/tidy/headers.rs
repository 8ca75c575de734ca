//! Every source file starts with a header that says what it is about.

use super::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.texts_ending(".rs")
        .filter(|(path, text)| is_source(path) && !text.starts_with("//!"))
        .map(|(path, _)| {
            Finding::new(path, 1, "no header: start with `//!` and what this file is about")
        })
        .collect()
}

/// `crates/*/src/**`
fn is_source(path: &str) -> bool {
    let mut parts = path.split('/');
    parts.next() == Some("crates") && parts.nth(1) == Some("src")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_header_is_found() {
        let found = check(&Tree::of(&[
            ("crates/one/src/lib.rs", "//! One.\n#![no_std]\n"),
            ("crates/one/src/deep/down.rs", "use core::fmt;\n//! Too late.\n"),
            ("crates/one/src/empty.rs", ""),
            ("crates/one/tests/all.rs", "use one;\n"),
            ("examples/src/main.rs", "fn main() {}\n"),
        ]));
        let paths: Vec<&str> = found.iter().map(|finding| finding.path.as_str()).collect();
        assert_eq!(paths, ["crates/one/src/deep/down.rs", "crates/one/src/empty.rs"]);
    }
}
