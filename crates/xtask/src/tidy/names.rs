//! One public type name means one thing in the workspace: no two `pub` types, traits or type
//! aliases below `crates/*/src` have the same name.
//!
//! `pub(crate)` does not count, and neither does a second definition in the same file, which is the
//! same thing for another platform.

use std::collections::BTreeMap;

use super::Finding;
use super::source;
use super::tree::Tree;

const KEYWORDS: [&str; 5] = ["enum", "struct", "trait", "type", "union"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut places: BTreeMap<String, Vec<(&str, usize)>> = BTreeMap::new();
    for (path, text) in tree.texts_ending(".rs").filter(|(path, _)| is_source(path)) {
        for (index, line) in source::lines(text).iter().enumerate() {
            if let Some(name) = public_type(&line.code) {
                let places = places.entry(name.to_owned()).or_default();
                if places.iter().all(|(other, _)| *other != path) {
                    places.push((path, index + 1));
                }
            }
        }
    }
    let mut findings = Vec::new();
    for (name, places) in &places {
        for (path, line) in places {
            let others = places.iter().filter(|place| place.0 != *path);
            let others: Vec<String> = others.map(|(path, line)| format!("{path}:{line}")).collect();
            if !others.is_empty() {
                let message = format!("`{name}` is also the name of {}", others.join(" and "));
                findings.push(Finding::new(path, *line, message));
            }
        }
    }
    findings
}

fn is_source(path: &str) -> bool {
    let mut folders = path.split('/');
    folders.next() == Some("crates") && folders.nth(1) == Some("src")
}

/// The name that a line like `pub struct Name` defines.
fn public_type(code: &str) -> Option<&str> {
    let mut words = code.split_whitespace();
    if words.next() != Some("pub") {
        return None;
    }
    let keyword = words.find(|word| !matches!(*word, "unsafe" | "auto"))?;
    let rest = KEYWORDS.contains(&keyword).then(|| words.next())??;
    let end = rest.find(|next: char| !next.is_alphanumeric() && next != '_');
    let name = &rest[..end.unwrap_or(rest.len())];
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "crates/one/src/lib.rs";
    const TWO: &str = "crates/two/src/a/b.rs";

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn both_places_of_a_name_are_reported() {
        let found = found(&[(ONE, "/// One.\npub struct Place;"), (TWO, "pub enum Place {}")]);
        let expected = [
            "crates/one/src/lib.rs:2: `Place` is also the name of crates/two/src/a/b.rs:1",
            "crates/two/src/a/b.rs:1: `Place` is also the name of crates/one/src/lib.rs:2",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_kind_of_type_counts() {
        for line in [
            "pub struct Place<'a> {",
            "    pub enum Place {",
            "pub trait Place: Sized {",
            "pub unsafe trait Place {",
            "pub type Place = u8;",
            "pub struct Place(u8);",
        ] {
            assert_eq!(found(&[(ONE, line), (TWO, "pub struct Place;")]).len(), 2, "{line}");
        }
    }

    #[test]
    fn other_things_of_that_name_do_not() {
        for line in [
            "pub(crate) struct Place;",
            "struct Place;",
            "// pub struct Place;",
            "let text = \"\npub struct Place;\";",
            "pub use two::Place;",
            "pub fn Place() {}",
            "pub struct Placement;",
        ] {
            assert_eq!(found(&[(ONE, line), (TWO, "pub struct Place;")]).len(), 0, "{line}");
        }
        let twice = "#[cfg(unix)]\npub struct Place;\n#[cfg(windows)]\npub struct Place;";
        assert_eq!(found(&[(ONE, twice), ("crates/one/tests/a.rs", twice)]).len(), 0);
    }
}
