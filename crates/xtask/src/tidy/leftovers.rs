//! No unfinished code: no macro that stands for missing code, no debugging print, no disabled test.
//!
//! Clippy finds the macros too, but only in code that is compiled here; this rule reads every file.

use super::Finding;
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    // Assembled here, so that this file does not find itself.
    let needles = [
        ["todo", "!"].concat(),
        ["dbg", "!"].concat(),
        ["unimplemented", "!"].concat(),
        ["#[", "ignore"].concat(),
    ];
    let mut findings = Vec::new();
    for (path, text) in tree.texts_ending(".rs") {
        for (index, line) in text.lines().enumerate() {
            for needle in &needles {
                if has_word(line, needle) {
                    let message = format!("unfinished: `{needle}`; finish it or remove it");
                    findings.push(Finding::new(path, index + 1, message));
                }
            }
        }
    }
    findings
}

/// Whether the line has the needle, and not as part of a longer name.
fn has_word(line: &str, needle: &str) -> bool {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(needle).any(|(start, _)| {
        let longer_before = line[..start].ends_with(is_name);
        let longer_after =
            needle.ends_with(is_name) && line[start + needle.len()..].starts_with(is_name);
        !longer_before && !longer_after
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, line: &str) -> usize {
        // `@` keeps the needles out of this file's own text.
        let line = line.replace('@', "");
        check(&Tree::of(&[(path, &format!("//! A file.\n{line}\n"))])).len()
    }

    #[test]
    fn leftovers_are_found() {
        for line in [
            "to@do!()",
            "    std::to@do!(\"later\")",
            "let x = db@g!(x);",
            "unimple@mented!()",
            "#[ig@nore]",
            "#[ig@nore = \"slow\"]",
        ] {
            assert_eq!(count("crates/one/tests/all.rs", line), 1, "{line}");
        }
    }

    #[test]
    fn longer_names_and_other_files_are_not() {
        for line in ["my_to@do!()", "the word todo", "#[ig@nored]", "x.dbg()"] {
            assert_eq!(count("crates/one/src/lib.rs", line), 0, "{line}");
        }
        assert_eq!(count("docs/notes.md", "to@do!()"), 0);
    }
}
