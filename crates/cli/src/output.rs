//! Output: data goes to stdout, messages go to stderr. A reader may close the pipe early; the exit
//! code stays the same.
//!
//! Terminal control characters are escaped in everything but the output of jobs.

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
    ignore_closed_pipe(
        stdout.write_all(escaped_lines(text).as_bytes()).and_then(|()| stdout.flush()),
    )
}

/// A closed pipe is not an error: the reader has seen enough.
fn ignore_closed_pipe(written: std::io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}

/// Prints text that is already escaped and may contain our own color codes.
pub(crate) fn painted(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout().lock();
    ignore_closed_pipe(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Prints one JSON document.
pub(crate) fn document(document: &impl serde::Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    data(&text)
}

/// Prints a message to stderr. Write errors are ignored.
pub(crate) fn message(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    let _ = writeln!(std::io::stderr(), "{}", escaped_lines(&text));
}

/// Prints an error message to stderr.
pub(crate) fn report_error(text: fmt::Arguments<'_>) {
    let text = text.to_string();
    let _ = writeln!(std::io::stderr(), "{} {}", color::error(), escaped_lines(&text));
}

/// How to print the output of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escaping {
    /// Unchanged.
    Raw,
    /// Unchanged, but with control characters escaped if the stream is a terminal.
    OnTerminal,
}

/// Prints a piece of job output on the stream that the job wrote it to.
pub(crate) fn printed(printed: &Printed, escaping: Escaping) {
    // A closed pipe is not an error.
    let _ = match printed.stream {
        OutputStream::Stdout => write_output(std::io::stdout().lock(), &printed.text, escaping),
        OutputStream::Stderr => write_output(std::io::stderr().lock(), &printed.text, escaping),
    };
}

fn write_output(
    mut output: impl Write + IsTerminal,
    text: &str,
    escaping: Escaping,
) -> Result<(), std::io::Error> {
    match escaping {
        Escaping::OnTerminal if output.is_terminal() => {
            output.write_all(escaped_lines(text).as_bytes())?;
        }
        Escaping::Raw | Escaping::OnTerminal => output.write_all(text.as_bytes())?,
    }
    output.flush()
}
