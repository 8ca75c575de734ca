//! Replays a trace or a run from a file, and checks that it matches.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use filch_sim::replay::{Replayed, replay};

use crate::output::{self, message};
use crate::table;
use crate::usage::Usage;

pub(crate) fn run(path: &Path) -> Result<ExitCode> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "stdin".into() } else { path.display().to_string() };
    let text = if is_stdin { read_stdin() } else { std::fs::read_to_string(path) };
    let text = text.map_err(|error| {
        let what = format!("cannot read {name} ({error})");
        Usage::new(what, "name a trace, or a run that a seed search has printed")
    })?;
    match replay(&text).map_err(|error| {
        let help = "docs/simulate.md describes traces and runs";
        anyhow!("cannot replay {name}: {error}\n  help: {help}")
    })? {
        Replayed::Trace { played, difference } => {
            output::data(&played)?;
            let Some((written, now)) = difference else {
                return Ok(ExitCode::SUCCESS);
            };
            message(format_args!("error: {name}: the replay differs from the trace"));
            message(format_args!("  trace:  {}\n  replay: {}", written.trim(), now.trim()));
            Ok(ExitCode::FAILURE)
        }
        Replayed::Run { stats, violation } => {
            table::print(&super::search::rows(&stats))?;
            let Some(violation) = violation else {
                return Ok(ExitCode::SUCCESS);
            };
            let at = violation.at.0 as f64 / 1_000_000.0;
            message(format_args!(
                "error: {} is violated at {at} s: {}",
                violation.rule.name(),
                violation.what
            ));
            Ok(ExitCode::FAILURE)
        }
    }
}

fn read_stdin() -> std::io::Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}
