//! Just enough of TOML to find, for each entry of a `Cargo.toml`, its table, its line, and whether
//! a comment is beside or above it.
//!
//! This is not a TOML parser, because parsers drop comments. Strings over several lines are not
//! supported; manifests have none.

/// One `key = value`, or one `[table]` header, whose key and value are empty.
#[derive(Debug, PartialEq)]
pub(super) struct Entry<'a> {
    /// The header above it, without its brackets.
    pub table: &'a str,
    pub key: &'a str,
    /// Its first line; a list may continue on the next.
    pub value: &'a str,
    pub line: usize,
    pub commented: bool,
}

impl Entry<'_> {
    pub(super) fn is_header(&self) -> bool {
        self.key.is_empty()
    }

    /// Whether the value is taken from the workspace: `x.workspace = true`, or the same in braces.
    pub(super) fn is_inherited(&self) -> bool {
        let dotted = self.key == "workspace" || self.key.ends_with(".workspace");
        (dotted && self.value == "true") || {
            let value: String = self.value.split_whitespace().collect();
            value.contains("{workspace=true") || value.contains(",workspace=true")
        }
    }
}

pub(super) fn entries(text: &str) -> Vec<Entry<'_>> {
    let mut entries = Vec::new();
    let mut table = "";
    let mut above_is_comment = false;
    // Brackets that an entry has opened and not closed yet: these lines belong to it.
    let mut depth = 0;
    for (index, raw) in text.lines().enumerate() {
        let (code, comment) = split_comment(raw);
        let commented = above_is_comment || comment.is_some();
        above_is_comment = code.is_empty() && comment.is_some();
        let continued = depth > 0;
        depth += nesting(code);
        if code.is_empty() || continued {
            continue;
        }
        let line = index + 1;
        if code.starts_with('[') {
            table = code.trim_matches(['[', ']']).trim();
            entries.push(Entry { table, key: "", value: "", line, commented });
        } else if let Some((key, value)) = code.split_once('=') {
            let (key, value) = (key.trim(), value.trim());
            entries.push(Entry { table, key, value, line, commented });
        }
    }
    entries
}

/// The line without its comment, and the comment unless it is empty.
pub(super) fn split_comment(line: &str) -> (&str, Option<&str>) {
    let mut quote = None;
    let mut escaped = false;
    for (index, character) in line.char_indices() {
        match (quote, character) {
            _ if escaped => escaped = false,
            (Some('"'), '\\') => escaped = true,
            (Some(open), close) if open == close => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, '#') => {
                let comment = line[index..].trim_start_matches('#').trim();
                return (line[..index].trim(), (!comment.is_empty()).then_some(comment));
            }
            _ => {}
        }
    }
    (line.trim(), None)
}

fn nesting(code: &str) -> i32 {
    let mut depth = 0;
    let mut quote = None;
    for character in code.chars() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}') => depth -= 1,
            _ => {}
        }
    }
    depth
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_know_their_table_line_and_comment() {
        let text = "\
[package]
name = \"a#b\"

[dependencies] # all of them
# Saves us a parser.
one = \"1\"
two = { version = \"2\", features = [
    \"big\", # not about two
] }
three.workspace = true # why
#
four = '4'
";
        let seen: Vec<_> = entries(text)
            .into_iter()
            .map(|entry| (entry.table, entry.key, entry.line, entry.commented))
            .collect();
        let expected = [
            ("package", "", 1, false),
            ("package", "name", 2, false),
            ("dependencies", "", 4, true),
            ("dependencies", "one", 6, true),
            ("dependencies", "two", 7, false),
            ("dependencies", "three.workspace", 10, true),
            ("dependencies", "four", 12, false),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn inheritance_is_seen_in_both_spellings() {
        let inherited = |text| entries(text)[0].is_inherited();
        assert!(inherited("one.workspace = true"));
        assert!(inherited("one = { workspace = true, features = [\"a\"] }"));
        assert!(inherited("one = {features=[\"a\"], workspace=true}"));
        assert!(!inherited("one = { version = \"1\" }"));
        assert!(!inherited("one.workspace = false"));
    }
}
