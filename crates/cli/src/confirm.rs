//! Before something is done that cannot be undone: what it would do, and whether it is meant.

use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::exit::Exit;

/// How careful to be
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Caution {
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

impl Caution {
    /// Whether a person can be asked and wants to be.
    pub(crate) fn asks(&self) -> bool {
        !self.yes && !self.dry_run && stdin().is_terminal() && stderr().is_terminal()
    }

    /// Asks, where there is somebody to ask.
    ///
    /// # Errors
    /// If the answer is no.
    pub(crate) fn confirm(&self, question: &str) -> Result<()> {
        if !self.asks() {
            return Ok(());
        }
        let _ = write!(stderr(), "{question} [y/N] ").and_then(|()| stderr().flush());
        let mut answer = String::new();
        stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Exit::new(1, "nothing was done").into()),
        }
    }
}

/// "1 job", "1,284 jobs".
pub(crate) fn jobs(count: u64) -> String {
    format!(
        "{} {}",
        crate::table::grouped(&count.to_string()),
        if count == 1 { "job" } else { "jobs" }
    )
}
