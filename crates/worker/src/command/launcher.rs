//! The launcher: becomes the program of a command when it receives its order.
//!
//! A worker starts it (`filch guardian-exec`) in place of the program, has its process group
//! watched, and only then writes the order on its stdin. The launcher takes exactly the order off
//! that pipe and executes the program, which finds there what the worker wrote next: the payload.
//! If the worker dies first, the launcher reads the end of the file, and nothing has happened.
//!
//! The parent's death signal (`PR_SET_PDEATHSIG`) is deliberately not used instead: it is sent when
//! the *thread* that started the child ends, and it reaches only the child.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

/// What to execute, and where.
#[derive(Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Order {
    pub(super) argv: Vec<String>,
    /// In addition to the environment of the launcher itself.
    pub(super) env: BTreeMap<String, String>,
    pub(super) dir: Option<PathBuf>,
    /// The file into which a [`Failure`] is written.
    pub(super) report: PathBuf,
}

impl Order {
    /// As [`main`] reads it: its length in four bytes, then JSON.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>, String> {
        let text = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        let length = u32::try_from(text.len()).map_err(|_| "it is too long".to_owned())?;
        Ok([&length.to_be_bytes()[..], &text].concat())
    }

    /// Takes no byte more than the order has.
    fn read(mut input: impl Read) -> io::Result<Order> {
        let mut length = [0; 4];
        input.read_exact(&mut length)?;
        let mut text = Vec::new();
        let length = u64::from(u32::from_be_bytes(length));
        input.take(length).read_to_end(&mut text)?;
        Ok(serde_json::from_slice(&text)?)
    }
}

/// The exit code of a launcher that could not execute its program, as in shells.
pub(super) const NOT_EXECUTED: i32 = 127;

/// Why a launcher did not become the program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Failure {
    pub(super) step: Step,
    /// The system's error number; 0 if there is none.
    pub(super) errno: i32,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    EnterFolder,
    Execute,
}

impl Failure {
    fn new(step: Step, error: &io::Error) -> Failure {
        Failure { step, errno: error.raw_os_error().unwrap_or(0) }
    }

    /// Begins with a byte that no JSON has, since it is written where the command's result would
    /// be.
    fn to_text(self) -> String {
        let step = match self.step {
            Step::EnterFolder => "folder",
            Step::Execute => "execute",
        };
        format!("\0{step} {}", self.errno)
    }

    pub(super) fn parse(text: &[u8]) -> Option<Failure> {
        let text = std::str::from_utf8(text).ok()?.strip_prefix('\0')?;
        let (step, errno) = text.split_once(' ')?;
        let step = match step {
            "folder" => Step::EnterFolder,
            "execute" => Step::Execute,
            _ => return None,
        };
        Some(Failure { step, errno: errno.parse().ok()? })
    }
}

/// The body of `filch guardian-exec`; returns only if the program could not be executed.
///
/// Nothing may have been read from stdin before, and nothing written to stdout.
pub fn main() -> ExitCode {
    let Some(order) = read_order() else {
        // The worker is gone: the reason would not be read.
        return ExitCode::FAILURE;
    };
    let failure = carry_out(&order);
    let _ = std::fs::write(&order.report, failure.to_text());
    ExitCode::from(NOT_EXECUTED as u8)
}

fn read_order() -> Option<Order> {
    // A second descriptor of the same pipe, because what std calls stdin reads ahead.
    let input = io::stdin().as_fd().try_clone_to_owned().ok()?;
    Order::read(File::from(input)).ok()
}

fn carry_out(order: &Order) -> Failure {
    if let Some(dir) = &order.dir
        && let Err(error) = std::env::set_current_dir(dir)
    {
        return Failure::new(Step::EnterFolder, &error);
    }
    let Some((program, arguments)) = order.argv.split_first() else {
        return Failure { step: Step::Execute, errno: 0 };
    };
    let error = std::process::Command::new(program).args(arguments).envs(&order.env).exec();
    Failure::new(Step::Execute, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_and_the_payload_is_left() {
        let order = Order {
            argv: vec!["echo".into(), "two words".into()],
            env: BTreeMap::from([("A".into(), "1".into())]),
            dir: None,
            report: "/tmp/report".into(),
        };
        let mut bytes = order.to_bytes().unwrap();
        bytes.extend(b"{\"payload\": 1}");
        let mut input = bytes.as_slice();
        assert_eq!(Order::read(&mut input).unwrap(), order);
        assert_eq!(input, b"{\"payload\": 1}");
    }

    #[test]
    fn half_an_order_is_none() {
        let order = Order { argv: vec![], env: BTreeMap::new(), dir: None, report: "r".into() };
        let bytes = order.to_bytes().unwrap();
        for length in 0..bytes.len() {
            assert!(Order::read(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_failure_is_read_as_it_is_written() {
        for step in [Step::EnterFolder, Step::Execute] {
            let failure = Failure { step, errno: 2 };
            assert_eq!(Failure::parse(failure.to_text().as_bytes()), Some(failure));
        }
        for text in ["", "{}", "execute 2", "\0execute", "\0other 2"] {
            assert_eq!(Failure::parse(text.as_bytes()), None);
        }
    }
}
