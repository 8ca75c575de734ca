//! Before something is done that cannot be undone: what it would do, and whether it is meant.

use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::escape::escaped;
use crate::exit::Exit;
use crate::output::message;
use crate::usage::Usage;

/// How careful to be
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ConfirmOptions {
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

impl ConfirmOptions {
    /// Whether a person can be asked and wants to be.
    pub(crate) fn can_ask(&self) -> bool {
        !self.yes && !self.dry_run && stdin().is_terminal() && stderr().is_terminal()
    }

    /// Asks, where there is somebody to ask.
    ///
    /// # Errors
    /// If the answer is no.
    pub(crate) fn confirm(&self, question: &str) -> Result<()> {
        if !self.can_ask() {
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

impl ConfirmOptions {
    /// Names and counts what is meant before it is done: `retry 1,284 jobs matching ...`. What is chosen
    /// by what it has in common may be more than one thinks, so that needs a yes.
    ///
    /// # Errors
    /// If the answer is no, or if there is nobody to ask.
    pub(crate) fn confirm_jobs(&self, verb: &str, count: u64, terms: Option<&str>) -> Result<()> {
        let Some(terms) = terms else {
            return self.confirm(&format!("{verb} {}?", count_jobs(count)));
        };
        let what = format!("{verb} {} matching `{}`", count_jobs(count), escaped(terms));
        if count > 0 && !self.yes && !self.dry_run {
            return self.require(&what);
        }
        message(format_args!("{what}"));
        Ok(())
    }

    /// Asks, and takes silence for a no: for what may be more than one thinks.
    ///
    /// # Errors
    /// If the answer is no, or if there is nobody to ask.
    pub(crate) fn require(&self, what: &str) -> Result<()> {
        if self.yes || self.can_ask() {
            return self.confirm(&format!("{what}?"));
        }
        let help = "add --yes, or look with --dry-run first";
        Err(Usage::new(format!("{what}: nobody can be asked whether this is meant"), help).into())
    }
}

/// "1 job", "1,284 jobs".
pub(crate) fn count_jobs(count: u64) -> String {
    format!(
        "{} {}",
        crate::table::grouped(&count.to_string()),
        if count == 1 { "job" } else { "jobs" }
    )
}
