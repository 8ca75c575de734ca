//! Comments and pages of documentation are at most 100 columns wide, so that two of them fit beside
//! each other on a screen.
//!
//! Tables, code blocks, pictures and lines with a URL are exempt: they cannot be broken. Code is
//! rustfmt's business, and the contents of string literals are the program's.

use super::Finding;
use super::manifest::split_comment;
use super::source;
use super::tree::Tree;

const WIDTH: usize = 100;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    tree.texts().flat_map(|(path, text)| check_file(path, text)).collect()
}

fn check_file(path: &str, text: &str) -> Vec<Finding> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let comments: Vec<Option<String>> = match name.rsplit_once('.').map(|(_, suffix)| suffix) {
        Some("rs" | "c") => source::lines(text).into_iter().map(|line| line.comment).collect(),
        Some("md") => text.lines().map(|line| Some(line.to_owned())).collect(),
        Some("toml") => text.lines().map(|line| split_comment(line).1.map(str::to_owned)).collect(),
        Some("sh" | "py" | "yaml" | "yml") => text.lines().map(hash_comment).collect(),
        _ if text.starts_with("#!") => text.lines().map(hash_comment).collect(),
        _ => return Vec::new(),
    };
    let mut findings = Vec::new();
    let mut in_code_block = false;
    for (index, (line, comment)) in text.lines().zip(comments).enumerate() {
        let Some(comment) = comment else {
            in_code_block = false;
            continue;
        };
        let prose = comment.trim_start_matches(['/', '!', '*', '#', '>', ' ']);
        if prose.starts_with("```") {
            in_code_block = !in_code_block;
            continue;
        }
        let width = line.chars().count();
        let is_exempt =
            prose.starts_with('|') || comment.starts_with("![") || prose.contains("://");
        if width > WIDTH && !in_code_block && !is_exempt {
            let message = format!("{width} columns wide: break the line at {WIDTH}");
            findings.push(Finding::new(path, index + 1, message));
        }
    }
    findings
}

/// A line of a script that is a comment. A `#` behind code may be part of a word.
fn hash_comment(line: &str) -> Option<String> {
    let line = line.trim_start();
    line.starts_with('#').then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that are found. `~` stands for a hundred columns of words.
    fn found(path: &str, text: &str) -> Vec<usize> {
        let text = text.replace('~', &"word ".repeat(20));
        check(&Tree::of(&[(path, &text)])).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn wide_comments_and_prose_are_found() {
        assert_eq!(found("a.rs", "//! ~\n\nfn a() {\n    // ~\n    b(); // ~\n}\n"), [1, 4, 5]);
        assert_eq!(found("a.md", "# ~\n\n~x\n\n- ~\n> ~\n"), [1, 3, 5, 6]);
        assert_eq!(found("Cargo.toml", "# ~\na = \"1\" # ~\n"), [1, 2]);
        assert_eq!(found(".ci/run", "#!/bin/sh\n# ~\n"), [2]);
        assert_eq!(found("a.py", "# ~\n"), [1]);
        assert_eq!(found("a.c", "/* ~\n~x */\n"), [1, 2]);
    }

    #[test]
    fn a_line_of_exactly_a_hundred_columns_is_fine() {
        let line = format!("// {}", "x".repeat(97));
        assert_eq!(found("a.rs", &line), [0; 0]);
        assert_eq!(found("a.rs", &format!("{line}x")), [1]);
        // Columns are characters, not bytes.
        assert_eq!(found("a.md", &"é".repeat(100)), [0; 0]);
    }

    #[test]
    fn what_cannot_be_broken_is_exempt() {
        assert_eq!(found("a.md", "| ~ | ~ |\n```\n~x\n```\nsee https://example.org ~\n"), [0; 0]);
        assert_eq!(found("a.rs", "/// | ~ |\n/// ```\n/// ~\n/// ```\n// https://x ~\n"), [0; 0]);
        assert_eq!(found("a.rs", "let a = \"// ~\";\nlet b = \"\n// ~\";\n"), [0; 0]);
        assert_eq!(found("Cargo.toml", "a = \"# ~\"\nb = \"~\"\n"), [0; 0]);
        assert_eq!(found("a.md", "![~](picture.svg)\n"), [0; 0]);
        assert_eq!(found("a.json", "// ~\n"), [0; 0]);
    }

    #[test]
    fn a_code_block_ends_with_its_comment() {
        assert_eq!(found("a.rs", "/// ```\nfn a() {}\n// ~\n"), [3]);
        assert_eq!(found("a.md", "```\n~x\n```\n~x\n"), [4]);
    }
}
