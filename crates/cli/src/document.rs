//! JSON output. Every document and every JSON line carries the version of its format.

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::output;

/// Output format
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Json {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// Output format of lists
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct JsonOrLines {
    /// Print one JSON document
    #[arg(long, conflicts_with = "jsonl")]
    pub(crate) json: bool,
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) jsonl: bool,
}

#[derive(Serialize)]
struct Versioned<T> {
    v: u8,
    #[serde(flatten)]
    inner: T,
}

/// Prints an object as a document.
pub(crate) fn print(inner: impl Serialize) -> Result<()> {
    output::document(&Versioned { v: 1, inner })
}

/// Prints a list as one document, as JSON lines, or as a table.
pub(crate) fn list<T: Serialize, D: Serialize>(
    form: JsonOrLines,
    items: Vec<T>,
    document: impl FnOnce(Vec<T>) -> D,
    table: impl FnOnce(&[T]) -> Result<()>,
) -> Result<()> {
    if form.json {
        print(document(items))
    } else if form.jsonl {
        items.iter().try_for_each(line)
    } else {
        table(&items)
    }
}

/// Prints an object as one JSON line, with the version of the format.
pub(crate) fn line(inner: &(impl Serialize + ?Sized)) -> Result<()> {
    let mut text = serde_json::to_string(&Versioned { v: 1, inner })?;
    text.push('\n');
    output::data(&text)
}

/// Prints an object that is JSON text already, byte for byte.
pub(crate) fn raw_line(object: &RawValue) -> Result<()> {
    let inner = object.get().trim_start().strip_prefix('{').unwrap_or_default();
    let comma = if inner.trim_start().starts_with('}') { "" } else { "," };
    output::data(&format!("{{\"v\":1{comma}{inner}\n"))
}
