//! A file with settings: read, and judged key by key. What is wrong is shown where it stands.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{SETTINGS, Setting};
use crate::escape::escaped;
use crate::usage::Usage;
use filch_api::suggest::did_you_mean;

/// A setting in a file, its value, and the line on which it stands.
pub(super) type Line = (&'static Setting, String, usize);

/// What a file sets; nothing if there is none.
///
/// # Errors
/// If it cannot be read, or not be meant.
pub(super) fn read(path: &Path) -> Result<Vec<Line>, Usage> {
    match std::fs::read_to_string(path) {
        Ok(text) => File { path, text: &text }.settings(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => {
            let what = format!("cannot read {}: {error}", path.display());
            Err(Usage::new(what, "mend the file, or take it away"))
        }
    }
}

struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

const HELP: &str = "`filch config show` lists what can be set";

impl File<'_> {
    fn settings(&self) -> Result<Vec<Line>, Usage> {
        let top = DeTable::parse(self.text).map_err(|error| {
            let what = format!("this cannot be read as TOML: {}", error.message());
            self.wrong(&what, error.span().unwrap_or_default(), "write KEY = VALUE, one a line")
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
                Err(self.wrong(&format!("{} cannot be this", setting.key), value.span(), &help))
            }
        }
    }

    fn unknown(&self, key: &str, span: Range<usize>) -> Usage {
        let tables =
            SETTINGS.iter().filter_map(|setting| setting.key.split_once('.')).map(|it| it.0);
        let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).chain(tables).collect();
        let what = format!("there is no setting {key:?}{}", did_you_mean(key, &known));
        self.wrong(&what, span, HELP)
    }

    /// What is wrong, with the line on which it stands and a mark below it.
    fn wrong(&self, what: &str, span: Range<usize>, help: &str) -> Usage {
        let (number, start) = self.line_of(span.start);
        let line = self.text[start..].lines().next().unwrap_or_default();
        let (at, end) = (span.start - start, (span.end - start).min(line.len()));
        let before = escaped(line.get(..at).unwrap_or_default()).chars().count();
        let marked = escaped(line.get(at..end).unwrap_or_default()).chars().count().max(1);
        let place = format!("  {}:{number}  ", self.path.display());
        let mark = " ".repeat(place.chars().count() + before) + &"^".repeat(marked);
        Usage::new(format!("{}\n{place}{}\n{mark}", escaped(what), escaped(line)), help)
    }

    /// The number of the line with this byte, and where it begins.
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
    fn every_form_of_value_is_read_and_the_line_is_known() {
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
    fn what_is_wrong_is_shown_where_it_stands() {
        for (text, said) in [
            (
                "# ours\nslotz = 4\n",
                "there is no setting \"slotz\"; did you mean \"slots\"?\n  dir/filch.toml:2  slotz = 4\n                    ^^^^^\n  help: `filch",
            ),
            (
                "lease = \"5 apples\"",
                "lease cannot be this\n  dir/filch.toml:1  lease = \"5 apples\"\n                            ^^^^^^^^^^\n  help: ",
            ),
            ("slots = \"4\"", "help: write a number, without quotation marks"),
            ("slots = -1", "help: write a number, at least 0"),
            ("url = 7", "help: write text, in quotation marks"),
            ("url = \"localhost\"", "help: write a URL like http://127.0.0.1:7420"),
            ("color = \"allways\"", "write auto, always, never; did you mean \"always\"?"),
            (
                "[submit]\nqueu = \"a\"",
                "no setting \"submit.queu\"; did you mean \"submit.queue\"?",
            ),
            ("[sumbit]\nqueue = \"a\"", "no setting \"sumbit\"; did you mean \"submit\"?"),
            ("[slots]\na = 1", "slots cannot be this"),
            ("submit = 1", "there is no setting \"submit\""),
            ("url = ", "this cannot be read as TOML"),
            ("a\u{1b}[2J = 1", "this cannot be read as TOML"),
            ("\"\u{1b}\" = 1", "this cannot be read as TOML"),
        ] {
            let error = settings(text).unwrap_err();
            assert!(error.contains(said), "{text}\n{error}");
            assert!(!error.contains('\u{1b}'), "{error:?}");
        }
    }
}
