//! Reads and validates a settings file. Errors show the line they are about.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{SETTINGS, Setting};
use crate::escape::escaped;
use crate::usage::Usage;
use filch_api::suggest::did_you_mean;

/// A setting in a file, its value and its line number.
pub(super) type Line = (&'static Setting, String, usize);

/// The settings of a file; none if it does not exist.
///
/// # Errors
/// If the file cannot be read or is invalid.
pub(super) fn read(path: &Path) -> Result<Vec<Line>, Usage> {
    match std::fs::read_to_string(path) {
        Ok(text) => File { path, text: &text }.settings(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => {
            let what = format!("cannot read {}: {error}", path.display());
            Err(Usage::new(what, "fix the permissions of the file, or remove it"))
        }
    }
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

const HELP: &str = "`filch config show` lists all settings";

impl File<'_> {
    fn settings(&self) -> Result<Vec<Line>, Usage> {
        let top = DeTable::parse(self.text).map_err(|error| {
            let what = format!("invalid TOML: {}", error.message());
            self.wrong(&what, error.span().unwrap_or_default(), "write one KEY = VALUE per line")
        })?;
        let mut lines = Vec::new();
        self.table("", top.get_ref(), &mut lines)?;
        Ok(lines)
    }

    fn table(&self, above: &str, table: &DeTable<'_>, lines: &mut Vec<Line>) -> Result<(), Usage> {
        for (name, value) in table {
            let key = format!("{above}{}", name.get_ref());
            if let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) {
                lines.push(self.line(setting, value)?);
                continue;
            }
            let inner = format!("{key}.");
            let is_table = SETTINGS.iter().any(|setting| setting.key.starts_with(&inner));
            match value.get_ref() {
                DeValue::Table(table) if is_table => self.table(&inner, table, lines)?,
                _ => return Err(self.unknown(&key, name.span())),
            }
        }
        Ok(())
    }

    fn line(&self, setting: &'static Setting, value: &Spanned<DeValue<'_>>) -> Result<Line, Usage> {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        match setting.kind.read_toml(value.get_ref(), folder) {
            Ok(text) => Ok((setting, text, self.line_of(value.span().start).0)),
            Err(help) => {
                Err(self.wrong(&format!("invalid value of {}", setting.key), value.span(), &help))
            }
        }
    }

    fn unknown(&self, key: &str, span: Range<usize>) -> Usage {
        let tables =
            SETTINGS.iter().filter_map(|setting| setting.key.split_once('.')).map(|it| it.0);
        let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).chain(tables).collect();
        let what = format!("unknown setting {key:?}{}", did_you_mean(key, &known));
        self.wrong(&what, span, HELP)
    }

    /// An error with the line it is about, and a marker below it.
    fn wrong(&self, what: &str, span: Range<usize>, help: &str) -> Usage {
        let (number, start) = self.line_of(span.start);
        let line = self.text[start..].lines().next().unwrap_or_default();
        let (at, end) = (span.start - start, (span.end - start).min(line.len()));
        let before = escaped(line.get(..at).unwrap_or_default()).chars().count();
        let marked = escaped(line.get(at..end).unwrap_or_default()).chars().count().max(1);
        let location = format!("  {}:{number}  ", self.path.display());
        let mark = " ".repeat(location.chars().count() + before) + &"^".repeat(marked);
        Usage::new(format!("{}\n{location}{}\n{mark}", escaped(what), escaped(line)), help)
    }

    /// The number of the line with this byte, and the offset of its start.
    fn line_of(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..at.min(self.text.len())];
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Result<Vec<Line>, String> {
        let file = File { path: Path::new("dir/filch.toml"), text };
        file.settings().map_err(|usage| usage.to_string())
    }

    #[test]
    fn every_kind_of_value_is_read_with_its_line() {
        let text =
            "slots = 4\nqueues = [\"a\", \"b\"]\ndata = \"kept\"\n\n[submit]\npriority = -3\n";
        let read: Vec<(&str, String, usize)> = settings(text)
            .unwrap()
            .into_iter()
            .map(|(s, value, line)| (s.key, value, line))
            .collect();
        let mut seen = read.iter().map(|(key, value, line)| (*key, value.as_str(), *line));
        let mut seen: Vec<_> = seen.by_ref().collect();
        seen.sort_by_key(|(_, _, line)| *line);
        assert_eq!(
            seen,
            [
                ("slots", "4", 1),
                ("queues", "a,b", 2),
                ("data", "dir/kept", 3),
                ("submit.priority", "-3", 6)
            ]
        );
    }

    #[test]
    fn errors_show_the_line_they_are_about() {
        for (text, said) in [
            (
                "# ours\nslotz = 4\n",
                "unknown setting \"slotz\"; did you mean \"slots\"?\n  dir/filch.toml:2  slotz = 4\n                    ^^^^^\n  help: `filch",
            ),
            (
                "lease = \"5 apples\"",
                "invalid value of lease\n  dir/filch.toml:1  lease = \"5 apples\"\n                            ^^^^^^^^^^\n  help: ",
            ),
            ("slots = \"4\"", "help: write a number without quotation marks"),
            ("slots = -1", "help: write a number of at least 0"),
            ("url = 7", "help: write text in quotation marks"),
            ("url = \"localhost\"", "help: write a URL like http://127.0.0.1:7420"),
            ("color = \"allways\"", "write auto, always, never; did you mean \"always\"?"),
            (
                "[submit]\nqueu = \"a\"",
                "unknown setting \"submit.queu\"; did you mean \"submit.queue\"?",
            ),
            ("[sumbit]\nqueue = \"a\"", "unknown setting \"sumbit\"; did you mean \"submit\"?"),
            ("[slots]\na = 1", "invalid value of slots"),
            ("submit = 1", "unknown setting \"submit\""),
            ("url = ", "invalid TOML"),
            ("a\u{1b}[2J = 1", "invalid TOML"),
            ("\"\u{1b}\" = 1", "invalid TOML"),
        ] {
            let error = settings(text).unwrap_err();
            assert!(error.contains(said), "{text}\n{error}");
            assert!(!error.contains('\u{1b}'), "{error:?}");
        }
    }
}
