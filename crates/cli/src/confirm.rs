//! Confirmation of commands that cannot be undone, and `--dry-run`.

use std::io::{BufRead as _, IsTerminal as _, Write as _, stderr, stdin};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::escape::escaped;
use crate::exit::Exit;
use crate::output::message;
use crate::usage::Usage;

/// Confirmation options
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct ConfirmOptions {
    /// Only show what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

impl ConfirmOptions {
    /// Whether to ask: there is a terminal, and no option forbids it.
    pub(crate) fn can_ask(&self) -> bool {
        !self.yes && !self.dry_run && stdin().is_terminal() && stderr().is_terminal()
    }

    /// Asks for confirmation if there is a terminal.
    ///
    /// # Errors
    /// If the answer is no.
    pub(crate) fn confirm(&self, question: &str) -> Result<()> {
        if !self.can_ask() {
            return Ok(());
        }
        let _ = write!(stderr(), "{question} [y/N] ").and_then(|()| stderr().flush());
        let mut answer = String::new();
        stdin()
            .lock()
            .read_line(&mut answer)
            .context("cannot read the answer from the terminal")?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(Exit::new(1, "aborted: nothing was changed").into()),
        }
    }
}

impl ConfirmOptions {
    /// Announces what a command will do: `retry 1,284 jobs matching ...`. A filter may match more
    /// jobs than expected, so it needs a confirmation.
    ///
    /// # Errors
    /// If the answer is no, or if there is no terminal to ask on.
    pub(crate) fn confirm_jobs(&self, verb: &str, count: u64, filter: Option<&str>) -> Result<()> {
        let Some(filter) = filter else {
            return self.confirm(&format!("{verb} {}?", count_jobs(count)));
        };
        let what = format!("{verb} {} matching `{}`", count_jobs(count), escaped(filter));
        if count > 0 && !self.yes && !self.dry_run {
            return self.require(&what);
        }
        message(format_args!("{what}"));
        Ok(())
    }

    /// Requires a confirmation, by `--yes` or on a terminal.
    ///
    /// # Errors
    /// If the answer is no, or if there is no terminal to ask on.
    pub(crate) fn require(&self, what: &str) -> Result<()> {
        if self.yes || self.can_ask() {
            return self.confirm(&format!("{what}?"));
        }
        let help = "add --yes, or preview with --dry-run";
        Err(Usage::new(format!("{what}: confirmation needed, but stdin is not a terminal"), help)
            .into())
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
