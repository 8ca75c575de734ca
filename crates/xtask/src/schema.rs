//! `cargo xtask schema`: what the OpenAPI document promises, held against a server that runs.
//!
//! schemathesis makes requests out of the document, fitting and unfitting ones, from a fixed seed. No
//! answer may be an error of the server's, and each must be one that the document describes. It lives in
//! a Python environment of its own below the target folder, made here when it is missing.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::{cargo, target_folder};

/// Where the program is, if it is not to be built.
const PROGRAM: &str = "FILCH_BINARY";

const REQUIREMENTS: &str = include_str!("../schemathesis/requirements.txt");

/// Requests of each kind to each door, of those that are made by chance: about a minute altogether.
const EXAMPLES: &str = "25";

/// Streams that end when the client wants.
const ENDLESS: &str = "/v1/events";

/// Its judgement that whatever fits the schema must be accepted does not hold here: a schema cannot say
/// that a flow has no cycle, or that a worker is still there.
const UNSOUND: &str = "positive_data_acceptance";

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let target = target_folder(root)?;
    let program = match env::var_os(PROGRAM) {
        Some(program) => program.into(),
        None => build(root, &target)?,
    };
    let environment = environment(&target)?;
    let folder = target.join("schemathesis").join(std::process::id().to_string());
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut server = Server::start(&program, &folder)?;
    let status = Command::new(environment.join("bin").join("schemathesis"))
        .arg("run")
        // What is committed is what is served: a test of the server's sees to that.
        .arg(root.join("crates/server/tests/openapi.json"))
        .args(["--url", &server.url, "--seed", "1", "--no-color"])
        .args(["--max-examples", EXAMPLES, "--phases", "examples,coverage,fuzzing"])
        .args(["--checks", "all", "--exclude-checks", UNSOUND, "--exclude-path", ENDLESS])
        .args(["--continue-on-failure", "--request-timeout", "60"])
        .env("SCHEMATHESIS_HOOKS", root.join("crates/xtask/schemathesis/hooks.py"))
        .env("FILCH_URL", &server.url)
        .env("FILCH_TOKEN", &server.token)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // Where it leaves what it wants to remember.
        .current_dir(&folder)
        .status()
        .context("cannot start schemathesis")?;
    server.check()?;
    if !status.success() {
        bail!("what the server answers is not what /openapi.json says ({status})");
    }
    drop(server);
    fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn build(root: &Path, target: &Path) -> Result<PathBuf> {
    let words = ["build", "--release", "--locked", "--package", "filch-cli"];
    let built = cargo().args(words).current_dir(root).status().context("cannot start cargo")?;
    if !built.success() {
        bail!("the program could not be built");
    }
    Ok(target.join("release").join("filch"))
}

/// The Python environment with exactly what is required.
fn environment(target: &Path) -> Result<PathBuf> {
    let folder = target.join("schemathesis").join("environment");
    let note = folder.join("requirements.txt");
    if fs::read_to_string(&note).is_ok_and(|installed| installed == REQUIREMENTS) {
        return Ok(folder);
    }
    eprintln!("installing schemathesis into {}", folder.display());
    let venv = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder).status();
    if !venv.context("cannot start python3")?.success() {
        bail!("python3 cannot make an environment\n  help: apt-get install python3-venv");
    }
    let wanted = folder.join("wanted.txt");
    fs::write(&wanted, REQUIREMENTS).context("cannot write into the target folder")?;
    let pip = Command::new(folder.join("bin").join("pip"))
        .args(["install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(&wanted)
        .status();
    if !pip.context("cannot start pip")?.success() {
        bail!("pip could not install schemathesis\n  help: it needs a way to its index");
    }
    // Only now, so that what broke off is done anew.
    fs::rename(&wanted, &note).context("cannot write into the target folder")?;
    Ok(folder)
}

/// A server that is killed at the end.
struct Server {
    child: Child,
    url: String,
    /// An admin's: whatever can be asked for is.
    token: String,
    talk: PathBuf,
}

impl Server {
    fn start(program: &Path, folder: &Path) -> Result<Self> {
        let talk = folder.join("talk");
        let made = Command::new(program)
            .args(["token", "create", "--role", "admin", "--data"])
            .arg(folder.join("data"))
            .env_remove("FILCH_URL")
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let token = String::from_utf8(made.stdout).context("a token is text")?.trim().to_owned();
        let mut child = Command::new(program)
            // Nobody knows what commands would be made up.
            .args(["up", "--slots", "2", "--no-commands", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.join("data"))
            // Nobody's settings.
            .current_dir(folder)
            .env("XDG_CONFIG_HOME", folder)
            .env_remove("FILCH_URL")
            .env_remove("FILCH_TOKEN")
            .env_remove("FILCH_TOKEN_FILE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&talk).context("cannot write into the target folder")?)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = child.stdout.take().context("its stdout was asked for")?;
        let mut server = Self { child, url: String::new(), token, talk };
        BufReader::new(stdout).read_line(&mut server.url).context("the server says nothing")?;
        server.url.truncate(server.url.trim_end().len());
        if server.url.is_empty() {
            bail!("the server does not start:\n{}", server.said());
        }
        Ok(server)
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.talk).unwrap_or_default()
    }

    /// It is still there, no part of it has given up, and it has told nobody a token.
    fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait().context("a child can be waited for")? {
            bail!("the server has ended ({status}):\n{}", self.said());
        }
        if self.said().contains("panicked") {
            bail!("the server has panicked:\n{}", self.said());
        }
        if holds_token(&self.said(), &self.token) {
            bail!("a token is in what the server has said, {}", self.talk.display());
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

/// Whether something that looks like this token stands somewhere in a text: others were made meanwhile.
fn holds_token(text: &str, like: &str) -> bool {
    let (prefix, _) = like.split_once('_').unwrap_or((like, ""));
    let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
    let mut words = text.split(|character| !is_part(character));
    words.any(|word| word.len() == like.len() && word.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_seen_wherever_they_stand() {
        let token = |digit: &str| format!("filch_{}_{}", digit.repeat(8), digit.repeat(64));
        for text in [token("1"), format!("a \"{}\"\n", token("f")), format!("?t={}&b", token("0"))]
        {
            assert!(holds_token(&text, &token("1")), "{text}");
        }
        let others = ["", "filch_server listens", "x".repeat(79).as_str()].map(str::to_owned);
        assert!(others.iter().all(|text| !holds_token(text, &token("1"))));
    }
}
