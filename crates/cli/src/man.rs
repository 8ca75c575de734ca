//! `filch man`: man pages, generated from the same definition as the help.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use clap_mangen::Man;

use crate::output::{data, message};

/// Write man pages: one per command into a directory, or filch(1) to stdout
#[derive(Args)]
#[command(after_help = "Examples:
  filch man | man -l -
  filch man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Directory for filch.1, filch-job.1, filch-job-list.1, ...; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(options: &ManArgs, command: clap::Command) -> Result<ExitCode> {
    // Without the `help` commands, which would have pages of their own.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(folder) = &options.folder else {
        data(&page(&command)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the directory {}", folder.display()))?;
    let count = write(&command, folder)?;
    message(format_args!("wrote {count} man pages to {}", folder.display()));
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of this command and of its subcommands, and returns their number.
fn write(command: &clap::Command, folder: &Path) -> Result<usize> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = folder.join(format!("{name}.1"));
    std::fs::write(&path, page(command)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    let mut count = 1;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        count += write(inner, folder)?;
    }
    Ok(count)
}

fn page(command: &clap::Command) -> Result<String> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(String::from_utf8(page)?)
}
