//! Replaying: plays a trace or a run that was written down, and prints what it causes.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, anyhow};

use crate::usage::Usage;

pub(crate) fn run(path: &Path) -> Result<ExitCode> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { "stdin".into() } else { path.display().to_string() };
    let text = if is_stdin { read_stdin() } else { std::fs::read_to_string(path) };
    let text = text.map_err(|error| {
        let what = format!("cannot read {name} ({error})");
        Usage::new(what, "name a trace, or a run that a hunt has printed")
    })?;
    let played = filch_sim::replay::play(&text)
        .map_err(|error| anyhow!("{name} cannot be played: {error}"))?;
    super::print(&played)?;
    Ok(ExitCode::SUCCESS)
}

fn read_stdin() -> std::io::Result<String> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
}
