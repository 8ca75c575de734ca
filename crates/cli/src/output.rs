//! Where output goes: data to stdout, talk to stderr. Nobody need listen to the end: whoever closes a pipe
//! has seen enough, and the exit code still says how it went.

use std::fmt;
use std::io::{ErrorKind, Write as _};

use anyhow::{Context as _, Result};

/// Prints data.
pub(crate) fn data(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}

/// Prints one JSON document.
pub(crate) fn document(document: &impl serde::Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    data(&text)
}

/// Says something, if anybody listens.
pub(crate) fn talk(words: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{words}");
}
