//! The kinds of setting values: how each is validated, and how it is written in TOML.

use std::net::SocketAddr;
use std::path::Path;

use toml::de::DeValue;

/// A kind of value.
#[derive(Clone, Copy, Debug)]
pub(super) enum ValueKind {
    Text,
    Url,
    Path,
    Address,
    Span,
    Names,
    Priority,
    Count { least: u32 },
    Choice(&'static [&'static str]),
}

impl ValueKind {
    /// Validates a value like its flag does.
    ///
    /// # Errors
    /// What to write instead.
    pub(super) fn validate(self, text: &str) -> Result<(), String> {
        let ok = |is_valid: bool, help: &str| if is_valid { Ok(()) } else { Err(help.to_owned()) };
        match self {
            Self::Text => ok(!text.is_empty(), "write a name"),
            Self::Path => ok(!text.is_empty(), "write a path"),
            Self::Url => {
                let is_url = text.starts_with("http://") || text.starts_with("https://");
                ok(is_url, "write a URL like http://127.0.0.1:7420")
            }
            Self::Address => {
                ok(text.parse::<SocketAddr>().is_ok(), "write an address like 127.0.0.1:7420")
            }
            Self::Span => filch_api::span::read(text).map(drop),
            Self::Names => ok(
                text.split(',').all(|name| !name.trim().is_empty()),
                "write comma-separated names, like img,default",
            ),
            Self::Priority => {
                ok(text.parse::<i16>().is_ok(), "write a number from -32768 to 32767")
            }
            Self::Count { least } => {
                let is_valid = text.parse::<u32>().is_ok_and(|count| count >= least);
                ok(is_valid, &format!("write a number of at least {least}"))
            }
            Self::Choice(words) => {
                let near = filch_api::suggest::did_you_mean(text, words);
                ok(words.contains(&text), &format!("write {}{near}", words.join(", ")))
            }
        }
    }

    /// A TOML value as its flag would be written. Paths are relative to the directory of the file.
    ///
    /// # Errors
    /// What to write instead.
    pub(super) fn read_toml(self, value: &DeValue<'_>, folder: &Path) -> Result<String, String> {
        let text = match (self, value) {
            (Self::Count { .. } | Self::Priority, DeValue::Integer(number)) => {
                number.as_str().trim_start_matches('+').to_owned()
            }
            (Self::Names, DeValue::Array(names)) => {
                let names = names.iter().map(|name| match name.get_ref() {
                    DeValue::String(name) if !name.contains(',') => Ok(name.as_ref()),
                    _ => Err("write names in quotation marks, without commas".to_owned()),
                });
                names.collect::<Result<Vec<&str>, String>>()?.join(",")
            }
            (Self::Count { .. } | Self::Priority, _) => {
                return Err("write a number without quotation marks".to_owned());
            }
            (Self::Path, DeValue::String(path)) if !path.is_empty() => {
                folder.join(path.as_ref()).display().to_string()
            }
            (_, DeValue::String(text)) => text.clone().into_owned(),
            (Self::Names, _) => return Err("write names, like [\"img\", \"default\"]".to_owned()),
            _ => return Err("write text in quotation marks".to_owned()),
        };
        self.validate(&text).map(|()| text)
    }
}
