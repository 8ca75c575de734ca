//! Programs that the tests need besides a Rust toolchain. Missing ones are installed with apt-get.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, bail};

/// A program, or a module of Python, and the Debian packages that contain it, separated by spaces.
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
    // Example workers in other languages.
    Need::program("bash"),
    Need::program("curl"),
    Need::program("python3"),
    // For the Python environment of schemathesis.
    Need { program: "python3", module: Some("ensurepip"), package: "python3-venv" },
    // Faults: killing a server at exact system calls, preloaded libraries, small disks.
    Need::program("strace"),
    Need::package("cc", "gcc libc6-dev"),
    Need::package("unshare", "util-linux"),
    Need::program("mount"),
    // Two network namespaces that stand for two machines, and certificates for them.
    Need::package("ip", "iproute2"),
    Need::program("openssl"),
    Need::program("hostname"),
    // Side jobs that use Redis, and their metrics, read by Prometheus' own client.
    Need::program("redis-server"),
    Need {
        // Debian's Python: the package's module is installed for this one.
        program: "/usr/bin/python3",
        module: Some("prometheus_client"),
        package: "python3-prometheus-client",
    },
];

/// Installs missing packages.
pub(crate) fn install() -> Result<()> {
    let missing: Vec<&Need> = NEEDS.iter().filter(|need| !need.is_met()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    let packages = packages.join(" ");
    let help = format!("install them by hand: apt-get install {packages}");
    if find("apt-get").is_none() {
        bail!("the tests need {packages}, and apt-get was not found\n  help: {help}");
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
        // After a failed update, older package lists may still be good enough.
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
    fn installed_programs_and_modules_are_found() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program").is_none());
        let python = |module| Need { program: "python3", module: Some(module), package: "" };
        assert!(Need::program("sh").is_met() && python("json").is_met());
        assert!(!Need::program("no-such-program").is_met() && !python("no_such_module").is_met());
    }
}
