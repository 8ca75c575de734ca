//! `cargo xtask bench`: starts a benchmark by its name, always in release mode.
//!
//! The benchmark reads its own flags. Nothing is added to its standard output, so that `--json` can
//! be saved to a file.

use std::process::ExitCode;

use anyhow::{Context, Result};

pub(crate) fn run(name: &str, flags: &[String]) -> Result<ExitCode> {
    // In the caller's folder, because flags may name files relative to it.
    let status = crate::cargo()
        .args(["run", "--release", "--locked", "--package", "filch-benches", "--bin", name, "--"])
        .args(flags)
        .status()
        .context("cannot start cargo")?;
    // A benchmark that was killed by a signal has no exit code.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
