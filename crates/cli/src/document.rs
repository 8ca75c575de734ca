//! JSON for programs. A document says which version of its form it has; a line is one object of many.

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::output;

/// In which form data is printed
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Json {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// The same, where there can be many
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct JsonOrLines {
    /// Print one JSON document
    #[arg(long, conflicts_with = "jsonl")]
    pub(crate) json: bool,
    /// Print one JSON object a line
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

/// Prints an object as one line of many, each of which says its version.
pub(crate) fn line(inner: &(impl Serialize + ?Sized)) -> Result<()> {
    let mut text = serde_json::to_string(&Versioned { v: 1, inner })?;
    text.push('\n');
    output::data(&text)
}

/// The same of an object that is text already, as it stands.
pub(crate) fn raw_line(object: &RawValue) -> Result<()> {
    let inner = object.get().trim_start().strip_prefix('{').unwrap_or_default();
    let comma = if inner.trim_start().starts_with('}') { "" } else { "," };
    output::data(&format!("{{\"v\":1{comma}{inner}\n"))
}
