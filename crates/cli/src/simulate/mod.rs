//! `filch simulate`: runs the real scheduler in a simulated cluster: seed searchs, what-if
//! questions and replays.

mod cpu;
mod options;
mod progress;
mod replay;
mod search;
mod whatif;

use std::process::ExitCode;

use anyhow::Result;
use options::Mode;
pub(crate) use options::SimulateArgs;

pub(crate) fn run(options: SimulateArgs) -> Result<ExitCode> {
    match options.mode()? {
        Mode::Search(options) => search::run(&options),
        Mode::WhatIf(options) => whatif::run(&options),
        Mode::Replay(path) => replay::run(&path),
    }
}
