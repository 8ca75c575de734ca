//! Benches: starting one by its name, always in release mode.
//!
//! What is measured, and what the flags mean, is the bench's own business; nothing is added to its
//! standard output, so that `--json` can be saved to a file.

use std::process::ExitCode;

use anyhow::{Context, Result};

pub(crate) fn run(name: &str, flags: &[String]) -> Result<ExitCode> {
    // In the caller's folder: flags may name files relative to it.
    let status = crate::cargo()
        .args(["run", "--release", "--locked", "--package", "filch-benches", "--bin", name, "--"])
        .args(flags)
        .status()
        .context("cannot start cargo")?;
    // A bench killed by a signal has no code of its own.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
