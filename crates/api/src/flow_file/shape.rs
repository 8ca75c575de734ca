//! The type of each field of a job in plain words, and which part of a field has another type.

use super::tree::{Node, Value};
use crate::submission::{Growth, Span};

/// A part of a field that has the wrong type.
pub(super) struct Misfit {
    /// Its line.
    pub(super) line: usize,
    /// Which part, what it is, and what it should be.
    pub(super) what: String,
}

const TEXT: &str = "text, in quotation marks";
const SPAN: &str = "a duration in quotation marks: \"90s\", \"10m\", \"1h30m\"";

/// What is wrong with the type of this field; `None` if its value is wrong instead.
pub(super) fn misfit(field: &str, node: &Node) -> Option<Misfit> {
    match field {
        "args" => None,
        "priority" => number::<i16>(field, node, "a whole number from -32768 to 32767"),
        "run" => {
            let whole = "a list of words: [\"./fetch.sh\", \"a.csv\"]";
            list(field, node, whole, "word")
        }
        "after" => list(field, node, "a list of names of jobs: [\"fetch\"]", "name"),
        "env" => match &node.value {
            Value::Table(variables) => variables
                .iter()
                .find_map(|(name, value)| text(&format!("env, {name}"), value, TEXT)),
            _ => Some(wrong(field, node, "a table of texts: { NAME = \"value\" }")),
        },
        "retry" => retry(node),
        "at" => text(field, node, "a time in quotation marks: \"2026-01-31T12:00:00Z\""),
        "timeout" => text(field, node, SPAN),
        _ => text(field, node, TEXT),
    }
}

fn wrong(part: &str, node: &Node, expected: &str) -> Misfit {
    let found = match &node.value {
        Value::Number(number) => number.get(),
        Value::Bool(value) => {
            if *value {
                "true"
            } else {
                "false"
            }
        }
        _ => node.kind(),
    };
    Misfit { line: node.line, what: format!("{part} must be {expected}, got {found}") }
}

fn text(part: &str, node: &Node, expected: &str) -> Option<Misfit> {
    let is_text = matches!(node.value, Value::Text(_));
    (!is_text).then(|| wrong(part, node, expected))
}

fn number<N: std::str::FromStr>(part: &str, node: &Node, expected: &str) -> Option<Misfit> {
    let fits = matches!(&node.value, Value::Number(raw) if raw.get().parse::<N>().is_ok());
    (!fits).then(|| wrong(part, node, expected))
}

/// A list of texts; `item` is the word for one of them.
fn list(field: &str, node: &Node, whole: &str, item: &str) -> Option<Misfit> {
    let Value::List(items) = &node.value else { return Some(wrong(field, node, whole)) };
    let numbered = (1..).zip(items);
    numbered.into_iter().find_map(|(at, node)| text(&format!("{field}, {item} {at}"), node, TEXT))
}

fn retry(node: &Node) -> Option<Misfit> {
    let whole = "a number of attempts, or a table: \
                 { max = 5, backoff = \"exponential\", base = \"2s\", cap = \"5m\" }";
    let Value::Table(parts) = &node.value else {
        return number::<u16>("retry", node, whole);
    };
    parts.iter().find_map(|(name, node)| {
        let part = format!("retry, {name}");
        match name.as_str() {
            "max" => number::<u16>(&part, node, "a number of attempts"),
            "backoff" => {
                reads::<Growth>(&part, node, "one of \"none\", \"fixed\", \"exponential\"")
            }
            "base" | "cap" => reads::<Span>(&part, node, SPAN),
            "factor_percent" => number::<u16>(&part, node, "a whole number of percent"),
            "jitter_percent" => number::<u8>(&part, node, "a whole number from 0 to 100"),
            _ => Some(Misfit {
                line: node.line,
                what: format!("unknown key {name:?} in retry, which must be {whole}"),
            }),
        }
    })
}

/// A text that must parse as a `T`.
fn reads<T: serde::de::DeserializeOwned>(
    part: &str,
    node: &Node,
    expected: &str,
) -> Option<Misfit> {
    let Value::Text(text) = &node.value else { return Some(wrong(part, node, expected)) };
    let what = format!("{part} must be {expected}, got {text:?}");
    let is_read = serde_json::from_str::<T>(node.json().get()).is_ok();
    (!is_read).then_some(Misfit { line: node.line, what })
}
