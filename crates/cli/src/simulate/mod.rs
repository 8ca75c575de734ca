//! `filch simulate`: the real scheduler in an invented cluster, to hunt for bugs, to ask what if, or to
//! play what happened once more.

mod cpu;
mod hunt;
mod options;
mod progress;
mod replay;
mod whatif;

use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

use crate::output;

use options::Mode;
pub(crate) use options::SimulateArgs;

pub(crate) fn run(options: SimulateArgs) -> Result<ExitCode> {
    match options.mode()? {
        Mode::Hunt(hunt) => hunt::run(&hunt),
        Mode::WhatIf(question) => whatif::run(&question),
        Mode::Replay(path) => replay::run(&path),
    }
}

/// Prints one document.
fn print_json(document: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    output::data(&text)
}
