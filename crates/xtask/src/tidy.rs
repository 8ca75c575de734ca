//! Tidy: the rules that no compiler checks.
//!
//! Each rule has its own file under `tidy/`: a function from the files of the repository, or from
//! what cargo knows about them, to findings. No rule stops at the first finding. This file runs the
//! rules and prints what they found.

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
mod names;
mod sans_io;
mod source;
mod tree;
mod widths;

use std::fmt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};

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

/// A rule's name and its function.
type Rule = (&'static str, fn(&Path, &Tree) -> Result<Vec<Finding>>);

const RULES: &[Rule] = &[
    ("dependencies", |_, tree| Ok(dependencies::check(tree))),
    ("edges", edges::check),
    ("features", |root, _| features::check(root)),
    ("headers", |_, tree| Ok(headers::check(tree))),
    ("leftovers", |_, tree| Ok(leftovers::check(tree))),
    ("links", |_, tree| Ok(links::check(tree))),
    ("lints", |_, tree| Ok(lints::check(tree))),
    ("machine", |_, tree| Ok(machine::check(tree))),
    ("map", |_, tree| Ok(map::check(tree))),
    ("names", |_, tree| Ok(names::check(tree))),
    ("sans-io", sans_io::check),
    ("widths", |_, tree| Ok(widths::check(tree))),
];

/// Checks the rules of these names, or all of them.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<ExitCode> {
    let findings = find(root, names)?;
    for finding in &findings {
        eprintln!("{finding}");
    }
    match findings.len() {
        0 => Ok(ExitCode::SUCCESS),
        1 => {
            eprintln!("tidy: 1 finding");
            Ok(ExitCode::FAILURE)
        }
        count => {
            eprintln!("tidy: {count} findings");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn find(root: &Path, names: &[String]) -> Result<Vec<Finding>> {
    if let Some(unknown) = names.iter().find(|name| RULES.iter().all(|rule| rule.0 != **name)) {
        let known: Vec<&str> = RULES.iter().map(|rule| rule.0).collect();
        bail!("unknown rule `{unknown}`\n  help: the rules are {}", known.join(", "));
    }
    let tree = Tree::read(root)?;
    let mut findings = Vec::new();
    for (name, check) in RULES {
        if names.is_empty() || names.iter().any(|chosen| chosen == name) {
            findings.extend(check(root, &tree)?);
        }
    }
    findings.sort();
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_tidy() {
        let findings = find(&crate::workspace_root().unwrap(), &[]).unwrap();
        let lines: String = findings.iter().map(|finding| format!("{finding}\n")).collect();
        assert!(findings.is_empty(), "\n{lines}");
    }

    #[test]
    fn an_unknown_rule_is_refused() {
        let error = find(Path::new("."), &["width".to_owned()]).unwrap_err().to_string();
        assert!(error.starts_with("unknown rule `width`\n  help: the rules are "), "{error}");
    }

    #[test]
    fn findings_read_as_places() {
        let finding = Finding::new("docs/a.md", 7, "no such file");
        assert_eq!(finding.to_string(), "docs/a.md:7: no such file");
    }
}
