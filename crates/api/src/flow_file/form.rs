//! TOML, JSON and YAML: each is parsed into the same tree, with line numbers.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use toml::de::{DeTable, DeValue};

use super::tree::{Node, Value};
use crate::json::check_depth;

/// The format of a flow file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is what it says")]
pub enum Form {
    Toml,
    Json,
    Yaml,
}

/// Why a text cannot be parsed, and on which line.
#[derive(Debug)]
pub(super) struct Unread {
    pub(super) line: Option<usize>,
    pub(super) why: String,
}

impl Form {
    /// Detects the format from the extension of the file name, or else from the text.
    #[must_use]
    pub fn of(path: &Path, text: &str) -> Option<Self> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        match ending.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "json" => Some(Self::Json),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => text.trim_start().starts_with('{').then_some(Self::Json),
        }
    }

    pub(super) fn read(self, text: &str) -> Result<Node, Unread> {
        match self {
            Self::Toml => toml(text),
            Self::Json => json(text),
            Self::Yaml => yaml(text),
        }
    }
}

/// A text and the offsets of its lines.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// The line of a byte offset, from 1.
    fn at(&self, offset: usize) -> usize {
        self.starts.partition_point(|start| *start <= offset)
    }
}

fn toml(text: &str) -> Result<Node, Unread> {
    let lines = Lines::of(text);
    let table = DeTable::parse(text).map_err(|error| Unread {
        line: error.span().map(|span| lines.at(span.start)),
        why: error.message().to_owned(),
    })?;
    let line = lines.at(table.span().start);
    Ok(Node::new(line, toml_table(&lines, table.get_ref())?))
}

fn toml_table(lines: &Lines<'_>, table: &DeTable<'_>) -> Result<Value, Unread> {
    let mut fields: Vec<_> = table.iter().collect();
    // The parser sorts fields by name; this restores the order of the file.
    fields.sort_by_key(|(name, _)| name.span().start);
    let fields = fields.into_iter().map(|(name, value)| {
        let line = lines.at(name.span().start);
        Ok((name.get_ref().clone().into_owned(), toml_value(lines, line, value.get_ref())?))
    });
    fields.collect::<Result<_, _>>().map(Value::Table)
}

fn toml_value(lines: &Lines<'_>, line: usize, value: &DeValue<'_>) -> Result<Node, Unread> {
    let no_number =
        |written: &str| Unread { line: Some(line), why: format!("unsupported number {written}") };
    Ok(Node::new(
        line,
        match value {
            DeValue::String(text) => Value::Text(text.clone().into_owned()),
            DeValue::Integer(number) => {
                let read = i128::from_str_radix(number.as_str(), number.radix());
                let read = read.map_err(|_| no_number(number.as_str()))?;
                return Node::number(line, read.to_string())
                    .ok_or_else(|| no_number(number.as_str()));
            }
            DeValue::Float(number) => {
                // Plus signs and bare points exist only in TOML; infinities have no JSON form.
                let read = number.as_str().parse::<f64>().ok().filter(|number| number.is_finite());
                let read = read.ok_or_else(|| no_number(number.as_str()))?;
                return Node::number(line, format!("{read:?}"))
                    .ok_or_else(|| no_number(number.as_str()));
            }
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(moment) => Value::Text(moment.to_string()),
            DeValue::Array(items) => {
                let items = items
                    .iter()
                    .map(|item| toml_value(lines, lines.at(item.span().start), item.get_ref()));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            DeValue::Table(table) => toml_table(lines, table)?,
        },
    ))
}

fn json(text: &str) -> Result<Node, Unread> {
    check_depth(text.as_bytes()).map_err(|problem| Unread { line: None, why: problem.title })?;
    let raw: &RawValue = serde_json::from_str(text)
        .map_err(|error| Unread { line: Some(error.line()), why: error.to_string() })?;
    json_value(&Lines::of(text), raw)
}

/// `raw` is borrowed from the text, so its address tells its line.
fn json_value(lines: &Lines<'_>, raw: &RawValue) -> Result<Node, Unread> {
    let written = raw.get();
    let offset = (written.as_ptr() as usize).saturating_sub(lines.text.as_ptr() as usize);
    let line = lines.at(offset);
    let unread = |error: serde_json::Error| Unread { line: Some(line), why: error.to_string() };
    Ok(Node::new(
        line,
        match written.as_bytes().first() {
            Some(b'{') => {
                let Members(members) = serde_json::from_str(written).map_err(unread)?;
                let fields = members
                    .into_iter()
                    .map(|(name, value)| json_value(lines, value).map(|node| (name, node)));
                Value::Table(fields.collect::<Result<_, _>>()?)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(written).map_err(unread)?;
                let items = items.into_iter().map(|item| json_value(lines, item));
                Value::List(items.collect::<Result<_, _>>()?)
            }
            Some(b'"') => Value::Text(serde_json::from_str(written).map_err(unread)?),
            Some(b't') => Value::Bool(true),
            Some(b'f') => Value::Bool(false),
            Some(b'n') => Value::Null,
            _ => Value::Number(raw.to_owned()),
        },
    ))
}

/// The members of an object in the order in which they were written.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Reader).map(Members)
    }
}

fn yaml(text: &str) -> Result<Node, Unread> {
    // As in YAML 1.2: `y`, `no` and `on` are words like others.
    let options = serde_saphyr::options! { strict_booleans: true };
    let read = serde_saphyr::from_str_with_options::<serde_saphyr::Spanned<Yaml>>(text, options);
    let read = read.map_err(|error| {
        let line = error.location().and_then(|location| usize::try_from(location.line()).ok());
        Unread { line, why: error.without_snippet().to_string() }
    })?;
    Ok(read.into())
}

/// A YAML value, each inner one with its position.
struct Yaml(Value);

impl From<serde_saphyr::Spanned<Yaml>> for Node {
    fn from(spanned: serde_saphyr::Spanned<Yaml>) -> Self {
        let line = usize::try_from(spanned.referenced.line()).unwrap_or(0);
        Self::new(line, spanned.value.0)
    }
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlReader).map(Self)
    }
}

struct YamlReader;

impl YamlReader {
    fn number<E: de::Error>(text: String) -> Result<Value, E> {
        let raw = RawValue::from_string(text);
        raw.map(Value::Number).map_err(|_| E::custom("unsupported number"))
    }
}

impl<'de> Visitor<'de> for YamlReader {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(Self)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Self::number(value.to_string())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Self::number(value.to_string())
    }

    fn visit_i128<E: de::Error>(self, value: i128) -> Result<Value, E> {
        Self::number(value.to_string())
    }

    fn visit_u128<E: de::Error>(self, value: u128) -> Result<Value, E> {
        Self::number(value.to_string())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Self::number(format!("{value:?}"))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element::<serde_saphyr::Spanned<Yaml>>()? {
            items.push(item.into());
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<serde_saphyr::Spanned<String>>()? {
            let mut node: Node = map.next_value::<serde_saphyr::Spanned<Yaml>>()?.into();
            // The line of a field is that of its name.
            node.line = usize::try_from(name.referenced.line()).unwrap_or(node.line);
            fields.push((name.value, node));
        }
        Ok(Value::Table(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = r#"
name = "report"
[job.fetch]
run = ["./fetch.sh",
  "a.csv"]
at = 2026-01-31T12:00:00Z
[job.join]
args = { big = 9223372036854775807, hex = 0xff, half = 0.5, yes = true }
"#;

    const JSON: &str = r#"{
"name": "report",
"job": {"fetch": {
  "run": ["./fetch.sh",
    "a.csv"],
  "at": "2026-01-31T12:00:00Z"},
  "join":
    {"args": {"big": 12345678901234567890123, "hex": 255, "half": 0.50, "yes": true, "no": null}}}}"#;

    const YAML: &str = r#"
name: report
job:
  fetch:
    run: [./fetch.sh,
      a.csv]
    at: "2026-01-31T12:00:00Z"
  join:
    args: {big: 9223372036854775807, hex: 0xff, half: 0.5, yes: true, no: null, y: n}
"#;

    #[test]
    fn what_is_written_is_what_is_read() {
        let fetch = r#""fetch":{"run":["./fetch.sh","a.csv"],"at":"2026-01-31T12:00:00Z"}"#;
        for (form, text, args) in [
            (Form::Toml, TOML, r#"{"big":9223372036854775807,"hex":255,"half":0.5,"yes":true}"#),
            (
                Form::Json,
                JSON,
                r#"{"big":12345678901234567890123,"hex":255,"half":0.50,"yes":true,"no":null}"#,
            ),
            (
                Form::Yaml,
                YAML,
                r#"{"big":9223372036854775807,"hex":255,"half":0.5,"yes":true,"no":null,"y":"n"}"#,
            ),
        ] {
            let node = form.read(text).unwrap();
            let whole =
                format!(r#"{{"name":"report","job":{{{fetch},"join":{{"args":{args}}}}}}}"#);
            assert_eq!(node.json().get(), whole, "{form:?}");
        }
    }

    #[test]
    fn everything_knows_its_line() {
        for (form, text, lines) in [
            (Form::Toml, TOML, [2, 4, 5, 6, 8]),
            (Form::Json, JSON, [2, 4, 5, 6, 8]),
            (Form::Yaml, YAML, [2, 5, 6, 7, 9]),
        ] {
            let node = form.read(text).unwrap();
            let paths: [&[&str]; 5] = [
                &["name"],
                &["job", "fetch", "run", "0"],
                &["job", "fetch", "run", "1"],
                &["job", "fetch", "at", "is", "no", "table"],
                &["job", "join", "args", "half"],
            ];
            let seen = paths.map(|path| node.line_of(path));
            assert_eq!(seen, lines, "{form:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_on_which_line() {
        for (form, text, line) in [
            (Form::Toml, "a = 1\nb = = 2\n", Some(2)),
            (Form::Toml, "a = 1\na = 2\n", Some(2)),
            (Form::Toml, "\n\na = inf\n", Some(3)),
            (Form::Json, "{\"a\": 1,\n\"b\": }", Some(2)),
            (Form::Yaml, "a: 1\nb: [1,\n", Some(2)),
            (Form::Yaml, "a: 1\na: 2\n", Some(2)),
        ] {
            let unread = form.read(text).unwrap_err();
            assert_eq!(unread.line, line, "{form:?} {text:?}: {}", unread.why);
            assert!(!unread.why.is_empty() && !unread.why.contains('\n'), "{}", unread.why);
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(Form::Json.read(&deep).unwrap_err().why.contains("nested"));
        Form::Yaml.read(&deep).unwrap_err();
        Form::Toml.read(&format!("a = {deep}")).unwrap_err();
    }

    #[test]
    fn the_form_is_known_by_its_name_or_its_look() {
        for (name, text, form) in [
            ("a.toml", "", Some(Form::Toml)),
            ("a.YML", "", Some(Form::Yaml)),
            ("a.json", "", Some(Form::Json)),
            ("-", " {\"name\"", Some(Form::Json)),
            ("-", "name: x", None),
        ] {
            assert_eq!(Form::of(Path::new(name), text), form, "{name}");
        }
    }
}
