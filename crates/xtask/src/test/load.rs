//! Load beside the tests: one process per core that computes and never waits.
//!
//! Each is this program with the command `busy`, and ends when its standard input is closed: by the
//! drop of [`Load`], and also if this process is killed.

use std::io::Read as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::{env, hint, process, thread};

use anyhow::{Context as _, Result};

pub(super) struct Load {
    processes: Vec<Child>,
}

impl Load {
    pub(super) fn start() -> Result<Self> {
        let program = env::current_exe().context("cannot find this program")?;
        let cores = thread::available_parallelism().context("cannot count the cores")?.get();
        let mut load = Self { processes: Vec::new() };
        for _ in 0..cores {
            let mut command = Command::new(&program);
            command.arg(super::BUSY).stdin(Stdio::piped());
            load.processes.push(command.spawn().context("cannot start a process that computes")?);
        }
        eprintln!("beside load: {cores} processes that compute, one per core");
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for process in &mut self.processes {
            drop(process.stdin.take());
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Keeps one core busy until standard input is closed.
pub(crate) fn be_busy() -> ExitCode {
    thread::spawn(|| {
        // Both the end of the input and an error mean that the parent is gone.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        process::exit(0);
    });
    let mut number = 1_u64;
    loop {
        number = hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}
