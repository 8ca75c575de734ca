//! The WebSocket frames between workers and the server as JSON Schema, for workers in other
//! languages.
//!
//! The schemas are derived from the types that the server itself reads and writes (`session`), so
//! they cannot drift from them. `docs/protocol.md` explains the messages.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::{PartialSchema as _, ToSchema as _};

use crate::protocol;
use crate::session::{DownFrame, UpFrame};

/// A JSON Schema document (2020-12) that accepts either frame, with every type under `$defs`.
#[must_use]
pub fn worker_protocol() -> String {
    let mut schemas = Vec::new();
    for (name, schema) in
        [(UpFrame::name(), UpFrame::schema()), (DownFrame::name(), DownFrame::schema())]
    {
        schemas.push((name.into_owned(), schema));
    }
    UpFrame::schemas(&mut schemas);
    DownFrame::schemas(&mut schemas);
    let definitions: BTreeMap<String, Value> = schemas
        .into_iter()
        .map(|(name, schema)| {
            (name, serde_json::to_value(schema).expect("a schema can be written as JSON"))
        })
        .collect();
    let document = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": format!("filch worker protocol, version {}", protocol::NUMBER),
        "description": "Frames of the WebSocket at /v1/work. Workers send UpFrame, the server \
                        sends DownFrame.",
        "oneOf": [{"$ref": "#/$defs/UpFrame"}, {"$ref": "#/$defs/DownFrame"}],
        "$defs": definitions,
    });
    let mut text = serde_json::to_string_pretty(&document).expect("JSON can be written");
    text.push('\n');
    // The derived schemas refer to one another as OpenAPI does.
    text.replace("\"#/components/schemas/", "\"#/$defs/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reference_has_a_definition() {
        let text = worker_protocol();
        let document: Value = serde_json::from_str(&text).expect("it is JSON");
        let mut count = 0;
        for reference in text.split("\"$ref\": \"#/$defs/").skip(1) {
            let name = reference.split('"').next().expect("a closing quote");
            assert!(document["$defs"][name].is_object(), "{name} is not defined");
            count += 1;
        }
        assert!(count > 20, "the frames refer to their messages");
        assert!(!text.contains("#/components"), "no reference leaves the document");
    }

    #[test]
    fn the_schema_names_every_message() {
        let text = worker_protocol();
        for word in ["hello", "heartbeat", "want", "started", "finished", "report", "goodbye"] {
            assert!(text.contains(&format!("\"{word}\"")), "{word}");
        }
        for word in ["reconcile", "assign", "ask_to_give", "accepted", "refused", "gone"] {
            assert!(text.contains(&format!("\"{word}\"")), "{word}");
        }
    }
}
