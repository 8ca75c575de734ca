//! `cargo xtask schema`: tests a running server against its OpenAPI document.
//!
//! schemathesis generates valid and invalid requests from the document, with a fixed seed. No
//! response may be a server error, and each must be described by the document. schemathesis is
//! installed into its own Python environment below the target folder.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::{cargo, target_folder};

/// The path of the program; without it, the program is built.
const PROGRAM: &str = "FILCH_BINARY";

const REQUIREMENTS: &str = include_str!("../schemathesis/requirements.txt");

/// Random requests of each kind to each endpoint: about a minute in all.
const EXAMPLES: &str = "25";

/// Streams that end only when the client disconnects.
const ENDLESS: &str = "/v1/events";

/// This check expects that every request that matches the schema is accepted, which does not hold
/// here: a schema cannot express that a flow has no cycle, or that a worker still exists.
const UNSOUND: &str = "positive_data_acceptance";

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let target = target_folder(root)?;
    let program = match env::var_os(PROGRAM) {
        Some(program) => program.into(),
        None => build(root, &target)?,
    };
    let environment = environment(&target)?;
    let folder = target.join("schemathesis").join(std::process::id().to_string());
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut server = Server::start(&program, &folder)?;
    let status = Command::new(environment.join("bin").join("schemathesis"))
        .arg("run")
        // A test of the server ensures that this file is what the server serves.
        .arg(root.join("crates/server/tests/openapi.json"))
        .args(["--url", &server.url, "--seed", "1", "--no-color"])
        .args(["--max-examples", EXAMPLES, "--phases", "examples,coverage,fuzzing"])
        .args(["--checks", "all", "--exclude-checks", UNSOUND, "--exclude-path", ENDLESS])
        .args(["--continue-on-failure", "--request-timeout", "60"])
        .env("SCHEMATHESIS_HOOKS", root.join("crates/xtask/schemathesis/hooks.py"))
        .env("FILCH_URL", &server.url)
        .env("FILCH_TOKEN", &server.token)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // It writes its own files here.
        .current_dir(&folder)
        .status()
        .context("cannot start schemathesis")?;
    server.check()?;
    if !status.success() {
        bail!("the server's responses do not match its OpenAPI document ({status})");
    }
    drop(server);
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn build(root: &Path, target: &Path) -> Result<PathBuf> {
    let words = ["build", "--locked", "--package", "filch-cli"];
    let built = cargo().args(words).current_dir(root).status().context("cannot start cargo")?;
    if !built.success() {
        bail!("filch cannot be built");
    }
    Ok(target.join("debug").join("filch"))
}

/// The Python environment with the required packages, installed if it is missing or outdated.
fn environment(target: &Path) -> Result<PathBuf> {
    let folder = target.join("schemathesis").join("environment");
    let note = folder.join("requirements.txt");
    if fs::read_to_string(&note).is_ok_and(|installed| installed == REQUIREMENTS) {
        return Ok(folder);
    }
    eprintln!("installing schemathesis into {}", folder.display());
    let venv = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder).status();
    if !venv.context("cannot start python3")?.success() {
        bail!("python3 cannot create a virtual environment\n  help: apt-get install python3-venv");
    }
    let wanted = folder.join("wanted.txt");
    fs::write(&wanted, REQUIREMENTS).context("cannot write into the target folder")?;
    let pip = Command::new(folder.join("bin").join("pip"))
        .args(["install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(&wanted)
        .status();
    if !pip.context("cannot start pip")?.success() {
        bail!(
            "pip could not install schemathesis\n  help: check that it can reach its package index"
        );
    }
    // Last, so that an interrupted installation is repeated.
    fs::rename(&wanted, &note).context("cannot write into the target folder")?;
    Ok(folder)
}

/// A server that is killed when this is dropped.
struct Server {
    child: Child,
    url: String,
    /// An admin's token, because all endpoints are called.
    token: String,
    stderr: PathBuf,
}

impl Server {
    fn start(program: &Path, folder: &Path) -> Result<Self> {
        let stderr = folder.join("stderr");
        let made = Command::new(program)
            .args(["token", "create", "--role", "admin", "--data"])
            .arg(folder.join("data"))
            .env_remove("FILCH_URL")
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let token = String::from_utf8(made.stdout).context("a token is text")?.trim().to_owned();
        let mut child = Command::new(program)
            // Random requests must not run random commands.
            .args(["up", "--slots", "2", "--no-commands", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.join("data"))
            // Without the user's settings.
            .current_dir(folder)
            .env("XDG_CONFIG_HOME", folder)
            .env_remove("FILCH_URL")
            .env_remove("FILCH_TOKEN")
            .env_remove("FILCH_TOKEN_FILE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&stderr).context("cannot write into the target folder")?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = child.stdout.take().context("stdout is piped")?;
        let mut server = Self { child, url: String::new(), token, stderr };
        BufReader::new(stdout).read_line(&mut server.url).context("the server prints no URL")?;
        server.url.truncate(server.url.trim_end().len());
        if server.url.is_empty() {
            bail!("the server does not start:\n{}", server.stderr());
        }
        Ok(server)
    }

    fn stderr(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// It still runs, no thread has panicked, and it has logged no token.
    fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("cannot wait for the server")? {
            bail!("the server has exited ({status}):\n{}", self.stderr());
        }
        if self.stderr().contains("panicked") {
            bail!("the server has panicked:\n{}", self.stderr());
        }
        if has_token(&self.stderr(), &self.token) {
            bail!("the server has logged a token, see {}", self.stderr.display());
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a text contains something of the form of this token. The requests create other tokens.
fn has_token(text: &str, like: &str) -> bool {
    let (prefix, _) = like.split_once('_').unwrap_or((like, ""));
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut words = text.split(|character| !is_part(character));
    words.any(|word| word.len() == like.len() && word.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_anywhere_in_a_text() {
        let token = |digit: &str| format!("filch_{}_{}", digit.repeat(8), digit.repeat(64));
        for text in [token("1"), format!("a \"{}\"\n", token("f")), format!("?t={}&b", token("0"))]
        {
            assert!(has_token(&text, &token("1")), "{text}");
        }
        let others = ["", "filch_server listens", "x".repeat(79).as_str()].map(str::to_owned);
        assert!(others.iter().all(|text| !has_token(text, &token("1"))));
    }
}
