//! The guardian: a process beside each worker that ends the worker's commands when the worker
//! cannot.
//!
//! A worker that was killed with `kill -9`, or stopped with SIGSTOP past its lease, cannot end its
//! commands; its guardian does. It is the same program as the worker, started with another argument
//! (`filch guardian`), in its own process group. They exchange lines:
//!
//! ```text
//! worker                guardian
//!                       filch guardian 3     started, with this version of the protocol
//! deadline 81234567890  -                    from then on nothing may run; microseconds since boot
//! deadline none         -                    no such moment
//! watch 4711            watching 4711        process group 4711 is mine to kill
//!                       late 4711            the deadline has passed: it is killed already
//! forget 4711           forgotten 4711       it will not be killed, whatever happens
//!                       killed 4711          it was killed because the deadline had passed
//! folder "/tmp/its"     -                    to be removed when the worker is gone; as JSON
//! (end of file)         -                    the worker is gone: all watched groups are killed
//! ```
//!
//! Why nothing slips through:
//!
//! - *A program runs only once its group is watched.* The worker starts a launcher (`command`), and
//!   tells it what to execute after it has read `watching`. If the worker dies before that, the
//!   launcher reads the end of its file and goes.
//! - *Lines that the worker wrote before it died are read.* They are in the pipe, before the end of
//!   file.
//! - *A deadline is a moment, not a span.* Time since boot is one clock for all processes of a
//!   machine, and it counts while the machine sleeps. A span would start when it is read, and would
//!   so grow by the time for which the worker was suspended before writing it.
//! - *No other process is killed.* A process id is not reused until the worker has reaped the
//!   group's leader, and it reaps only after it has read `forgotten`. When a worker has died,
//!   another process reaps: then the guardian's own handle of the leader tells whether the id was
//!   reused.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use filch_scheduler::time::Monotonic;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, test_kill_process,
};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};

use crate::clock::since_boot;

/// The first line that a guardian writes. The number grows when the meaning of lines changes.
pub(crate) const GREETING: &str = "filch guardian 3";

/// While there are groups and a deadline, the clock is checked this often: the kernel's timeouts do
/// not count while the machine sleeps.
const TICK: Duration = Duration::from_millis(200);

/// The body of `filch guardian`; returns when the worker is gone and everything it left is killed.
///
/// Reads lines on stdin and writes lines on stdout. It ignores signals that ask a process to end,
/// because it must not end before its worker. Call it outside any runtime.
pub fn main() -> ExitCode {
    // Both keep the signals caught for as long as they live. If they fail, the guardian is merely
    // easier to kill, and its worker notices that.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    let _inside = runtime.as_ref().map(tokio::runtime::Runtime::enter).ok();
    let _caught = catch_signals();
    // Another name than the worker's, so that `pkill filch` does not match it.
    let _ = rustix::thread::set_name(c"guardian");
    // So that no file system is kept busy.
    let _ = std::env::set_current_dir("/");

    let mut watched = Watched::default();
    let outcome = keep_watch(&mut watched, io::stdin(), io::stdout());
    watched.kill_all();
    watched.remove_folder();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn catch_signals() -> Vec<io::Result<tokio::signal::unix::Signal>> {
    if tokio::runtime::Handle::try_current().is_err() {
        return Vec::new();
    }
    [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()]
        .map(signal)
        .into()
}

/// Returns at end of file, or on an error of the pipe.
fn keep_watch(watched: &mut Watched, input: impl AsFd, mut output: impl Write) -> io::Result<()> {
    writeln!(output, "{GREETING}")?;
    output.flush()?;
    // As large as a pipe: one read takes all lines that are there.
    let mut buffer = vec![0; 64 << 10];
    let mut unread = Vec::new();
    loop {
        if wait_for_input(&input, watched.patience(since_boot()))? {
            match read(&input, &mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => unread.extend_from_slice(&buffer[..count]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            let line = Line::parse(String::from_utf8_lossy(&line).trim_end());
            if let Some(reply) = watched.hear(since_boot(), line) {
                // If the worker does not read it, the end of file is near.
                let _ = writeln!(output, "{reply}").and_then(|()| output.flush());
            }
        }
        // After reading: lines that came before the deadline may have moved it.
        if watched.is_overdue(since_boot()) {
            watched.kill_all();
        }
    }
}

/// Whether there is something to read, or the other end is closed.
fn wait_for_input(input: &impl AsFd, patience: Option<Duration>) -> io::Result<bool> {
    let timeout = patience.map(|patience| {
        Timespec::try_from(patience).expect("a tick fits into the kernel's span of time")
    });
    let mut inputs = [PollFd::new(input, PollFlags::IN)];
    match poll(&mut inputs, timeout.as_ref()) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Lines from a worker to its guardian.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Line {
    Watch(Pid),
    Forget(Pid),
    /// A moment of the time since boot.
    Deadline(Option<Monotonic>),
    /// A path may contain any text, even newlines.
    Folder(String),
}

impl Line {
    fn parse(line: &str) -> Option<Line> {
        let (word, rest) = line.split_once(' ')?;
        match word {
            "watch" => Some(Line::Watch(group(rest)?)),
            "forget" => Some(Line::Forget(group(rest)?)),
            "deadline" if rest == "none" => Some(Line::Deadline(None)),
            "deadline" => Some(Line::Deadline(Some(Monotonic(rest.parse().ok()?)))),
            "folder" => Some(Line::Folder(serde_json::from_str(rest).ok()?)),
            _ => None,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Line::Watch(group) => write!(formatter, "watch {group}"),
            Line::Forget(group) => write!(formatter, "forget {group}"),
            Line::Deadline(None) => write!(formatter, "deadline none"),
            Line::Folder(path) => write!(formatter, "folder {}", Value::from(path.as_str())),
            Line::Deadline(Some(moment)) => write!(formatter, "deadline {}", moment.0),
        }
    }
}

/// 0 and 1 are not groups: a signal to them would reach the guardian itself, or all processes.
fn group(number: &str) -> Option<Pid> {
    let number: i32 = number.parse().ok()?;
    if number > 1 { Pid::from_raw(number) } else { None }
}

/// Lines from a guardian to its worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reply {
    Watching(Pid),
    Late(Pid),
    Forgotten(Pid),
    Killed(Pid),
    Unknown,
}

impl fmt::Display for Reply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Watching(group) => write!(formatter, "watching {group}"),
            Reply::Late(group) => write!(formatter, "late {group}"),
            Reply::Forgotten(group) => write!(formatter, "forgotten {group}"),
            Reply::Killed(group) => write!(formatter, "killed {group}"),
            Reply::Unknown => write!(formatter, "unknown"),
        }
    }
}

/// The groups to kill, and when.
#[derive(Default)]
struct Watched {
    /// With a handle of the leader, unless the system had none left.
    groups: BTreeMap<i32, (Pid, Option<OwnedFd>)>,
    deadline: Option<Monotonic>,
    /// The worker's folder, to remove when the worker is gone.
    folder: Option<PathBuf>,
}

impl Watched {
    fn hear(&mut self, now: Monotonic, line: Option<Line>) -> Option<Reply> {
        match line {
            Some(Line::Deadline(deadline)) => {
                self.deadline = deadline;
                None
            }
            Some(Line::Folder(folder)) => {
                self.folder = Some(folder.into());
                None
            }
            Some(Line::Watch(group)) => {
                let number = group.as_raw_nonzero().get();
                self.groups.insert(number, (group, handle(group)));
                // The caller kills it at once, because it is overdue.
                let late = self.is_overdue(now);
                Some(if late { Reply::Late(group) } else { Reply::Watching(group) })
            }
            Some(Line::Forget(group)) => {
                // A killed group is no longer watched.
                let was_watched = self.groups.remove(&group.as_raw_nonzero().get()).is_some();
                Some(if was_watched { Reply::Forgotten(group) } else { Reply::Killed(group) })
            }
            None => Some(Reply::Unknown),
        }
    }

    fn is_overdue(&self, now: Monotonic) -> bool {
        !self.groups.is_empty() && self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// How long to wait for the worker before looking at the clock again.
    fn patience(&self, now: Monotonic) -> Option<Duration> {
        if self.groups.is_empty() {
            return None;
        }
        self.deadline.map(|deadline| deadline.since(now).min(TICK))
    }

    /// Once is enough: the kernel holds up every fork in a group while it delivers to the group.
    fn kill_all(&mut self) {
        for (group, leader) in std::mem::take(&mut self.groups).into_values() {
            if !changed_hands(group, leader) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }

    /// If a dying process still writes there, a later worker removes it.
    fn remove_folder(&self) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn handle(leader: Pid) -> Option<OwnedFd> {
    pidfd_open(leader, PidfdFlags::empty()).ok()
}

/// Whether the id of this group was reused.
///
/// It was if our leader was reaped and there is a process with its id nevertheless: ids are not
/// reused while any member of the group is left.
fn changed_hands(group: Pid, leader: Option<OwnedFd>) -> bool {
    leader.is_some_and(|leader| {
        pidfd_send_signal(&leader, Signal::KILL) == Err(Errno::SRCH)
            && test_kill_process(group) != Err(Errno::SRCH)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Stdio;

    use super::*;

    const fn seconds(count: u64) -> Monotonic {
        Monotonic(count * 1_000_000)
    }

    /// Larger than any id that the kernel assigns, so no process is killed.
    fn nobody() -> Pid {
        Pid::from_raw(i32::MAX).unwrap()
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        for line in [
            Line::Watch(nobody()),
            Line::Forget(nobody()),
            Line::Deadline(None),
            Line::Deadline(Some(Monotonic(81_234_567_890))),
            Line::Folder("/tmp/its own\nfolder".to_owned()),
        ] {
            let text = line.to_string();
            assert!(!text.contains('\n'), "{text}");
            assert_eq!(Line::parse(&text), Some(line));
        }
    }

    #[test]
    fn group_ids_0_and_1_are_rejected() {
        for line in [
            "watch 0",
            "watch 1",
            "watch -1",
            "watch",
            "watch x",
            "deadline -1",
            "folder x",
            "",
            "kill 5",
        ] {
            assert_eq!(Line::parse(line), None, "{line}");
        }
        assert_eq!(Watched::default().hear(seconds(0), None), Some(Reply::Unknown));
    }

    #[test]
    fn the_deadline_holds_until_it_is_moved() {
        let mut watched = Watched::default();
        assert_eq!(watched.hear(seconds(0), Some(Line::Deadline(Some(seconds(7))))), None);
        assert!(!watched.is_overdue(seconds(8)), "there is nothing to kill");
        assert_eq!(watched.patience(seconds(8)), None);

        let watch = || Some(Line::Watch(nobody()));
        assert_eq!(watched.hear(seconds(1), watch()), Some(Reply::Watching(nobody())));
        assert_eq!(watched.patience(seconds(1)), Some(TICK));
        assert_eq!(watched.patience(Monotonic(6_950_000)), Some(TICK / 4));
        assert!(watched.is_overdue(seconds(7)));
        watched.kill_all();
        let forget = || Some(Line::Forget(nobody()));
        assert_eq!(watched.hear(seconds(8), forget()), Some(Reply::Killed(nobody())));

        assert_eq!(watched.hear(seconds(8), watch()), Some(Reply::Late(nobody())));
        assert!(watched.is_overdue(seconds(8)), "killed at once");
        assert_eq!(watched.hear(seconds(8), Some(Line::Deadline(Some(seconds(15))))), None);
        assert_eq!(watched.hear(seconds(8), watch()), Some(Reply::Watching(nobody())));
        assert_eq!(watched.hear(seconds(20), forget()), Some(Reply::Forgotten(nobody())));
        assert!(!watched.is_overdue(seconds(20)));
    }

    #[test]
    fn a_group_is_killed_unless_its_id_was_reused() {
        let start = |program: &str| {
            let mut command = std::process::Command::new(program);
            command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
            let child = command.spawn().unwrap();
            let id = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            (child, id)
        };
        let (mut leader, leader_id) = start("true");
        let leader_handle = handle(leader_id);
        leader.wait().unwrap();
        let (mut stranger, stranger_id) = start("cat");

        // As if another process had the leader's id.
        let mut watched = Watched::default();
        watched.groups.insert(1, (stranger_id, leader_handle));
        watched.kill_all();
        let mut lives = [0; 5];
        stranger.stdin.as_ref().unwrap().write_all(b"lives").unwrap();
        stranger.stdout.as_mut().unwrap().read_exact(&mut lives).unwrap();

        watched.hear(seconds(0), Some(Line::Watch(stranger_id)));
        watched.kill_all();
        assert_eq!(stranger.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
    }
}
