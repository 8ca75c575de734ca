//! Starts servers and workers as child processes for the demo and the benchmarks. They are killed
//! on drop.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use filch_api::client::Client;
use rustix::process::{Pid, Signal, kill_process};

/// A temporary directory, removed on drop.
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    /// Creates a directory with this prefix, under `under` or the default directory for temporary
    /// files.
    pub(crate) fn new(name: &str, under: Option<&Path>) -> Result<Self> {
        let under = under.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = under.join(format!("{name}-{:016x}", filch_api::id::seed()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot create the directory {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        // A leftover directory does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A child process, killed on drop.
pub(crate) struct ChildProcess(Child);

impl ChildProcess {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Suspends the process until `resume`.
    pub(crate) fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        // If it has exited, this has no effect: its pid is not reused before it is waited for.
        let _ = kill_process(Pid::from_child(&self.0), signal);
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .context("cannot read the memory usage of the server")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kilobytes.context("the memory usage of the server is not available")? * 1_024)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The environment of a child process.
pub(crate) enum Environment {
    /// The environment of this process.
    Inherited,
    /// This working directory, without settings from variables or files.
    Isolated(PathBuf),
}

impl Environment {
    /// No settings, with this working directory.
    pub(crate) fn isolated(folder: &Path) -> Self {
        Self::Isolated(folder.to_owned())
    }

    fn program(&self) -> Result<Command> {
        let here = std::env::current_exe().context("cannot find the path of this program")?;
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

/// Starts a server on this data directory, and waits until it is ready.
pub(crate) async fn server(data: &Path) -> Result<(ChildProcess, Client)> {
    server_with(data, &Environment::Inherited, &[]).await
}

/// The same, with more options.
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
    BufReader::new(stdout).read_line(&mut url).context("the server printed no URL")?;
    let client = Client::new(url.trim())?;
    client.status().await.context("the server does not answer")?;
    Ok((running, client))
}

/// Starts a worker.
pub(crate) fn worker(url: &str, slots: u32) -> Result<ChildProcess> {
    worker_with(url, slots, &Environment::Inherited, &[])
}

/// Starts a worker that always prefetches this many jobs.
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

/// Checks the integrity of this data directory; the inner error is the message of a failed check.
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
        .context("cannot start `filch server verify`")?;
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok(if output.status.success() { Ok(()) } else { Err(stderr) })
}

/// How often conditions are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until this many workers are connected.
pub(crate) async fn wait_for_workers(client: &Client, count: u64) -> Result<()> {
    while client.status().await?.workers < count {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}

/// Waits until all jobs have ended, and returns the time.
pub(crate) async fn wait_until_drained(client: &Client) -> Result<Instant> {
    while client.status().await?.jobs > 0 {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(Instant::now())
}
