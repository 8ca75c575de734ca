//! A document, whichever its format: values with the lines they are on.

use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::value::RawValue;

#[derive(Clone, Debug)]
pub(super) struct Node {
    /// From 1.
    pub(super) line: usize,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// As it was written, so that no digits are lost.
    Number(Box<RawValue>),
    Text(String),
    List(Vec<Node>),
    /// In the order in which it was written.
    Table(Vec<(String, Node)>),
}

impl Node {
    pub(super) fn new(line: usize, value: Value) -> Self {
        Self { line, value }
    }

    /// A number from a format other than JSON; `None` if JSON has no such number.
    pub(super) fn number(line: usize, text: String) -> Option<Self> {
        RawValue::from_string(text).ok().map(|raw| Self::new(line, Value::Number(raw)))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Value::Table(fields) = &self.value else { return None };
        fields.iter().find(|(field, _)| field == name).map(|(_, node)| node)
    }

    /// The line of the value at a path, or of the last value on the way there.
    pub(super) fn line_of(&self, path: &[&str]) -> usize {
        let mut node = self;
        for name in path {
            let next = match &node.value {
                Value::List(items) => name.parse().ok().and_then(|at: usize| items.get(at)),
                _ => node.get(name),
            };
            let Some(next) = next else { break };
            node = next;
        }
        node.line
    }

    /// The same as JSON.
    pub(super) fn json(&self) -> Box<RawValue> {
        serde_json::value::to_raw_value(self).expect("names are text, so it can be written")
    }

    /// Its type, for people.
    pub(super) const fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.value {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Number(raw) => raw.serialize(serializer),
            Value::Text(text) => serializer.serialize_str(text),
            Value::List(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(item)?;
                }
                list.end()
            }
            Value::Table(fields) => {
                let mut table = serializer.serialize_map(Some(fields.len()))?;
                for (name, node) in fields {
                    table.serialize_entry(name, node)?;
                }
                table.end()
            }
        }
    }
}
