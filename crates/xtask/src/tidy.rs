//! Tidy: the house rules that no compiler checks, held by a test.
//!
//! Each rule is a function from the files of the repository, or from what cargo makes of them, to
//! findings, in a file of its own under `tidy/`; none of them stops at the first. This file
//! collects and prints what they found.

mod dependencies;
mod edges;
mod features;
mod headers;
mod leftovers;
mod links;
mod lints;
mod machine;
mod manifest;
mod map;
mod tree;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;

use tree::Tree;

/// One broken rule, at one place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

/// The form that editors and terminals turn into a link.
impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let findings = find(root)?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(ExitCode::SUCCESS),
        count => {
            eprintln!("tidy: {count} found");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn find(root: &Path) -> Result<Vec<Finding>> {
    let tree = Tree::read(root)?;
    let mut findings = edges::check(root, &tree)?;
    findings.extend(features::check(root)?);
    for rule in [
        dependencies::check,
        headers::check,
        leftovers::check,
        links::check,
        lints::check,
        machine::check,
        map::check,
    ] {
        findings.extend(rule(&tree));
    }
    findings.sort();
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let findings = find(&crate::workspace_root().unwrap()).unwrap();
        let lines: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
        assert!(findings.is_empty(), "\n{lines}");
    }

    #[test]
    fn findings_read_as_places() {
        let finding = Finding::new("docs/a.md", 7, "no such file");
        assert_eq!(finding.to_string(), "docs/a.md:7: no such file");
    }
}
