//! A server and workers as processes of their own, ended when they are let go of.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use filch_api::client::Client;
use rustix::process::{Pid, Signal, kill_process};

/// A folder of our own, removed in the end.
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    /// A new one whose name begins like this; under another folder than the usual one, if that is said.
    pub(crate) fn new(name: &str, under: Option<&Path>) -> Result<Self> {
        let under = under.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = under.join(format!("{name}-{:016x}", filch_api::id::seed()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // Leaving it behind is untidy, nothing worse.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed when it is let go of.
pub(crate) struct ChildProcess(Child);

impl ChildProcess {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// It stands still until it is told to go on.
    pub(crate) fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // One that has ended is not there to be told; its number is its own until it is waited for.
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }

    /// Bytes of memory that are its own.
    pub(crate) fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .context("cannot read how much memory the server has")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kilobytes.context("the system does not say how much memory the server has")? * 1_024)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is set around a process that is started.
pub(crate) enum Environment {
    /// As it is here.
    Inherited,
    /// Nothing: it is started in this folder, without variables and files that set anything.
    Isolated(PathBuf),
}

impl Environment {
    /// Nothing is set, in this folder.
    pub(crate) fn isolated(folder: &Path) -> Self {
        Self::Isolated(folder.to_owned())
    }

    fn program(&self) -> Result<Command> {
        let here = std::env::current_exe().context("cannot tell where this program is")?;
        let mut command = Command::new(here);
        if let Self::Isolated(folder) = self {
            command.current_dir(folder).env("XDG_CONFIG_HOME", folder);
            let names = std::env::vars_os().map(|(name, _)| name);
            for name in names.filter(|name| name.to_string_lossy().starts_with("FILCH_")) {
                command.env_remove(name);
            }
        }
        Ok(command)
    }
}

/// Starts a server over the data in this folder, and waits until it serves.
pub(crate) async fn server(data: &Path) -> Result<(ChildProcess, Client)> {
    server_with(data, &Environment::Inherited, &[]).await
}

/// The same with more options.
pub(crate) async fn server_with(
    data: &Path,
    environment: &Environment,
    more: &[&str],
) -> Result<(ChildProcess, Client)> {
    let mut child = environment
        .program()?
        .args(["server", "start", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start a server")?;
    let stdout = child.stdout.take().context("the server has no output")?;
    let running = ChildProcess(child);
    let mut url = String::new();
    BufReader::new(stdout).read_line(&mut url).context("the server says nothing")?;
    let client = Client::new(url.trim())?;
    client.status().await.context("the server does not answer")?;
    Ok((running, client))
}

/// Starts a worker.
pub(crate) fn worker(url: &str, slots: u32) -> Result<ChildProcess> {
    worker_with(url, slots, &Environment::Inherited, &[])
}

/// Starts a worker that takes so many jobs into its deque whatever it makes of them.
pub(crate) fn loaded_worker(url: &str, slots: u32, hold: usize) -> Result<ChildProcess> {
    worker_with(url, slots, &Environment::Inherited, &["--hold", &hold.to_string()])
}

/// Starts a worker with more options.
pub(crate) fn worker_with(
    url: &str,
    slots: u32,
    environment: &Environment,
    more: &[&str],
) -> Result<ChildProcess> {
    let child = environment
        .program()?
        .args(["worker", "start", "--server", url, "--slots", &slots.to_string(), "--no-commands"])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start a worker")?;
    Ok(ChildProcess(child))
}

/// Whether what is kept in this folder proves itself; if not, what is wrong.
pub(crate) fn verify(
    data: &Path,
    environment: &Environment,
) -> Result<std::result::Result<(), String>> {
    let output = environment
        .program()?
        .args(["server", "verify", "--data"])
        .arg(data)
        .stdin(Stdio::null())
        .output()
        .context("cannot start the proof")?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok(if output.status.success() { Ok(()) } else { Err(said) })
}

/// How often somebody looks.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until so many workers are connected.
pub(crate) async fn wait_for_workers(client: &Client, count: u64) -> Result<()> {
    while client.status().await?.workers < count {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Waits until no job is left, and says when that was.
pub(crate) async fn wait_until_drained(client: &Client) -> Result<Instant> {
    while client.status().await?.jobs > 0 {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(Instant::now())
}
