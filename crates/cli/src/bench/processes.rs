//! A server and workers as processes of their own, ended when they are let go of.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use filch_api::client::Client;

/// A folder of our own, removed in the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(under: Option<&Path>) -> Result<Self> {
        let under = under.map_or_else(std::env::temp_dir, Path::to_owned);
        let path = under.join(format!("filch-bench-{:016x}", filch_api::id::seed()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Leaving it behind is untidy, nothing worse.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A process that is killed when it is let go of.
pub(super) struct Running(Child);

impl Running {
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Bytes of memory that are its own.
    pub(super) fn memory(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .context("cannot read how much memory the server has")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kilobytes.context("the system does not say how much memory the server has")? * 1_024)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program() -> Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot tell where this program is")?))
}

/// Starts a server over the data in this folder, and waits until it serves.
pub(super) async fn server(data: &Path) -> Result<(Running, Client)> {
    let mut child = program()?
        .args(["server", "start", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start a server")?;
    let stdout = child.stdout.take().context("the server has no output")?;
    let running = Running(child);
    let mut url = String::new();
    BufReader::new(stdout).read_line(&mut url).context("the server says nothing")?;
    let client = Client::new(url.trim())?;
    client.status().await.context("the server does not answer")?;
    Ok((running, client))
}

/// Starts a worker.
pub(super) fn worker(url: &str, slots: u32) -> Result<Running> {
    start_worker(url, slots, &[])
}

/// Starts a worker that takes so many jobs into its deque whatever it makes of them.
pub(super) fn loaded_worker(url: &str, slots: u32, hold: usize) -> Result<Running> {
    start_worker(url, slots, &["--hold", &hold.to_string()])
}

fn start_worker(url: &str, slots: u32, more: &[&str]) -> Result<Running> {
    let child = program()?
        .args(["worker", "start", "--server", url, "--slots", &slots.to_string(), "--no-commands"])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start a worker")?;
    Ok(Running(child))
}

/// How often somebody looks.
const LOOK: Duration = Duration::from_millis(2);

/// Waits until so many workers are connected.
pub(super) async fn connected(client: &Client, count: u64) -> Result<()> {
    while client.status().await?.workers < count {
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Waits until no job is left, and says when that was.
pub(super) async fn drained(client: &Client) -> Result<Instant> {
    while client.status().await?.jobs > 0 {
        tokio::time::sleep(LOOK).await;
    }
    Ok(Instant::now())
}
