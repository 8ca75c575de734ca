//! What the tests need of the machine, beyond a Rust toolchain: installed where it is missing, and where
//! that is possible.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

/// A program, perhaps a module of Python's, and the Debian packages that bring it, with a space between
/// them.
struct Need {
    program: &'static str,
    module: Option<&'static str>,
    package: &'static str,
}

impl Need {
    const fn program(program: &'static str) -> Self {
        Self::package(program, program)
    }

    const fn package(program: &'static str, package: &'static str) -> Self {
        Self { program, module: None, package }
    }

    fn is_met(&self) -> bool {
        find(self.program).is_some()
            && self.module.is_none_or(|module| {
                let import = format!("import {module}");
                let tried = Command::new(self.program).args(["-c", &import]).output();
                tried.is_ok_and(|output| output.status.success())
            })
    }
}

const NEEDS: &[Need] = &[
    // The examples of workers in other languages.
    Need::program("bash"),
    Need::program("curl"),
    Need::program("python3"),
    // The environment of schemathesis.
    Need { program: "python3", module: Some("ensurepip"), package: "python3-venv" },
    // Faults: points at which a server is killed, what is preloaded into it, small disks.
    Need::program("strace"),
    Need::package("cc", "gcc libc6-dev"),
    Need::package("unshare", "util-linux"),
    Need::program("mount"),
    // Two machines where there is one, and the certificates of its guide.
    Need::package("ip", "iproute2"),
    Need::program("openssl"),
    Need::program("hostname"),
    // Side jobs whose data lies in Redis, and what they count, read by Prometheus' own client.
    Need::program("redis-server"),
    Need {
        // Debian's own: a module that is a package is for that one.
        program: "/usr/bin/python3",
        module: Some("prometheus_client"),
        package: "python3-prometheus-client",
    },
];

/// Installs what is missing.
pub(crate) fn install() -> Result<()> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !need.is_met()).collect();
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
        let python = |module| Need { program: "python3", module: Some(module), package: "" };
        assert!(Need::program("sh").is_met() && python("json").is_met());
        assert!(!Need::program("no-such-program").is_met() && !python("no_such_module").is_met());
    }
}
