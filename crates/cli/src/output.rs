//! Where output goes: data to stdout, talk to stderr. Nobody need listen to the end: whoever closes a pipe
//! has seen enough, and the exit code still says how it went.
//!
//! Whoever wrote it: nothing that a terminal obeys leaves here, but for what a job printed.

use std::fmt;
use std::io::{ErrorKind, IsTerminal, Write};

use anyhow::{Context as _, Result};
use filch_api::client::Printed;
use filch_api::session::OutputStream;

use crate::color;
use crate::escape::escaped_lines;

/// Prints data.
pub(crate) fn data(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    pass(stdout.write_all(escaped_lines(text).as_bytes()).and_then(|()| stdout.flush()))
}

/// Whoever has closed the pipe does not want to know.
fn pass(written: std::io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}

/// Prints a text in whose cells nothing is left that a terminal obeys, with colours of our own around them.
pub(crate) fn painted(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    pass(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Prints one JSON document.
pub(crate) fn document(document: &impl serde::Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    data(&text)
}

/// Says something, if anybody listens.
pub(crate) fn message(words: fmt::Arguments<'_>) {
    let words = words.to_string();
    let _ = writeln!(std::io::stderr(), "{}", escaped_lines(&words));
}

/// Says what went wrong.
pub(crate) fn report_error(words: fmt::Arguments<'_>) {
    let words = words.to_string();
    let _ = writeln!(std::io::stderr(), "{} {}", color::error(), escaped_lines(&words));
}

/// What becomes of a job's own output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    /// They are passed on.
    Raw,
    /// They are passed on, but not to a terminal: there what it would obey is escaped.
    Harmless,
}

/// Prints what a job printed, where the job did.
pub(crate) fn printed(printed: &Printed, bytes: Bytes) {
    // Nobody need listen to the end.
    let _ = match printed.stream {
        OutputStream::Stdout => pass_on(std::io::stdout().lock(), &printed.text, bytes),
        OutputStream::Stderr => pass_on(std::io::stderr().lock(), &printed.text, bytes),
    };
}

fn pass_on(
    mut output: impl Write + IsTerminal,
    text: &str,
    bytes: Bytes,
) -> Result<(), std::io::Error> {
    match bytes {
        Bytes::Harmless if output.is_terminal() => {
            output.write_all(escaped_lines(text).as_bytes())?;
        }
        Bytes::Raw | Bytes::Harmless => output.write_all(text.as_bytes())?,
    }
    output.flush()
}
