//! JSON for programs. A document says which version of its form it has; a line is one object of many.

use anyhow::Result;
use clap::Args;
use serde::Serialize;

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

/// Prints an object as a document.
pub(crate) fn print(inner: impl Serialize) -> Result<()> {
    #[derive(Serialize)]
    struct Versioned<T> {
        v: u8,
        #[serde(flatten)]
        inner: T,
    }
    output::document(&Versioned { v: 1, inner })
}

/// Prints an object as one line of many.
pub(crate) fn line(object: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string(object)?;
    text.push('\n');
    output::data(&text)
}
