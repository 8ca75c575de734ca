//! `filch completions`: prints shell completion scripts.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use clap_complete::Shell;

use crate::output::data;

/// Print a shell completion script
#[derive(Args)]
#[command(after_help = "Examples:
  filch completions bash > ~/.local/share/bash-completion/completions/filch
  filch completions zsh > ~/.zfunc/_filch
  filch completions fish > ~/.config/fish/completions/filch.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell
    shell: Shell,
}

pub(crate) fn run(options: &CompletionsArgs, mut command: clap::Command) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "filch", &mut script);
    data(&String::from_utf8(script)?)?;
    Ok(ExitCode::SUCCESS)
}
