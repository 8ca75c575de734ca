//! What the tests need of the machine, beyond a Rust toolchain: installed where it is missing, and where
//! that is possible.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

/// A program, and the Debian package that brings it.
struct Need {
    program: &'static str,
    package: &'static str,
}

const NEEDS: &[Need] = &[
    // The examples of workers in other languages.
    Need { program: "bash", package: "bash" },
    Need { program: "curl", package: "curl" },
    Need { program: "python3", package: "python3" },
];

/// Installs what is missing.
pub(crate) fn install() -> Result<()> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| find(need.program).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let packages = packages.join(" ");
    let help = format!("install it by hand: apt-get install {packages}");
    if find("apt-get").is_none() {
        bail!("the tests need {packages}, and there is no apt-get here\n  help: {help}");
    }
    eprintln!("installing {packages}");
    for words in [vec!["update"], vec!["install", "-y", "--no-install-recommends"]] {
        let is_install = words.len() > 1;
        let mut command = Command::new("apt-get");
        command.args(&words).env("DEBIAN_FRONTEND", "noninteractive");
        if is_install {
            command.args(packages.split(' '));
        }
        let status = command.status().context("cannot start apt-get")?;
        // An update that fails may still leave lists that are good enough.
        if is_install && !status.success() {
            bail!("apt-get could not install {packages} ({status})\n  help: {help}");
        }
    }
    Ok(())
}

fn find(program: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(program))
        .find(|path| fs::metadata(path).is_ok_and(|file| file.is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_found() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program").is_none());
    }
}
