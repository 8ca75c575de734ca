//! The process group of one command: its leader, its signals, and its end.
//!
//! A group ends in this order, and only in this order: every member is killed; the leader is dead
//! but not yet reaped, so that its id cannot be reused; the guardian forgets the id; the leader is
//! reaped; the last member is gone. Dropping a [`Group`] before its end kills it at once, and the
//! rest happens in the background.
//!
//! A process that leaves the group (`setsid`) is out of reach: to hold that too takes a cgroup.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process_group, test_kill_process,
    test_kill_process_group, waitid,
};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::signal::unix::{SignalKind, signal};

use super::guard::{Guard, Lost, Unwatched, Watched};
use super::{Environment, Helper};

/// How the leader of a group ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Exit {
    Code(i32),
    Signal(i32),
    /// Something else in this process has reaped it.
    Unknown,
}

/// The worker's ends of the leader's pipes.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// A group that was started and has not ended.
pub(super) struct Group {
    /// Taken when the group has ended.
    leader: Option<Leader>,
}

struct Leader {
    child: Child,
    /// The process id of the leader, which is also the id of the group.
    id: Pid,
    /// Wakes whenever a child of this process ends. Every command then checks its own.
    ends: tokio::signal::unix::Signal,
    guard: Guard,
}

impl Group {
    /// Starts a launcher, which waits for its order. May block for a millisecond.
    pub(super) fn start(
        helper: &Helper,
        environment: &Environment,
        guard: Guard,
    ) -> io::Result<(Group, Pipes)> {
        // Before the child starts, so that its end is not missed; and because it sets a handler, no
        // child is reaped automatically, even if this process was started with the signal ignored.
        let ends = signal(SignalKind::child())?;
        let mut child = std::process::Command::new(&helper.program)
            .args(&helper.launcher)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let id = id.expect("process ids start at 1");
        let group = Group { leader: Some(Leader { child, id, ends, guard }) };
        // From here on an error drops the group, and so ends it.
        let pipes = Pipes {
            stdin: ChildStdin::from_std(stdin.expect("it is piped"))?,
            stdout: ChildStdout::from_std(stdout.expect("it is piped"))?,
            stderr: ChildStderr::from_std(stderr.expect("it is piped"))?,
        };
        Ok((group, pipes))
    }

    /// Lets the guardian watch the group and the folder with its files; the returned value notifies
    /// when it no longer does.
    pub(super) async fn watch(&self, folder: &Path) -> Result<Lost, Unwatched> {
        let leader = self.leader();
        leader.guard.watch(leader.id, folder.to_owned()).await
    }

    /// Returns once the leader is dead. It is not reaped, so that the group keeps its number.
    pub(super) async fn exited(&mut self) -> Exit {
        self.leader.as_mut().expect("the group has not ended").exited().await
    }

    /// How the leader ended, if it has by now.
    pub(super) fn has_exited(&self) -> Option<Exit> {
        self.leader().state()
    }

    /// Sends a signal to every member.
    pub(super) fn signal(&self, signal: Signal) {
        self.leader().signal(signal);
    }

    /// Whether any member besides a dead leader lives. Reads every process of the machine.
    pub(super) async fn has_living_members(&self) -> bool {
        has_living_members(self.leader().id).await
    }

    /// Kills the remaining members, and returns when none is left.
    pub(super) async fn end(&mut self) -> Watched {
        let leader = self.leader.as_mut().expect("the group has not ended");
        let watched = leader.kill_and_reap().await;
        let id = leader.id;
        self.leader = None;
        vanished(id).await;
        watched
    }

    fn leader(&self) -> &Leader {
        self.leader.as_ref().expect("the group has not ended")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(mut leader) = self.leader.take() else { return };
        leader.signal(Signal::KILL);
        // It holds the guard, and closing the guard waits for it. Without a runtime this process is
        // about to end, and reaping does not matter.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                leader.kill_and_reap().await;
                vanished(leader.id).await;
            });
        }
    }
}

impl Leader {
    fn signal(&self, signal: Signal) {
        // If another part of the process has reaped it, the id may have been reused.
        if self.state() == Some(Exit::Unknown) {
            return;
        }
        // There may be only the dead leader left, or a process with more privileges than ours, for
        // whose end we wait.
        let _ = kill_process_group(self.id, signal);
    }

    async fn exited(&mut self) -> Exit {
        loop {
            if let Some(exit) = self.state() {
                return exit;
            }
            self.ends.recv().await;
        }
    }

    /// How it ended, if it has; this does not reap it.
    fn state(&self) -> Option<Exit> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = match retry_on_intr(|| waitid(WaitId::Pid(self.id), options)) {
            Ok(status) => status?,
            Err(_) => return Some(Exit::Unknown),
        };
        Some(match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Exit::Code(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Unknown,
        })
    }

    async fn kill_and_reap(&mut self) -> Watched {
        self.signal(Signal::KILL);
        self.exited().await;
        let watched = self.guard.forget(self.id).await;
        // It is dead, so this does not wait. If it was reaped already, there is nothing to do.
        let _ = self.child.wait();
        watched
    }
}

/// Returns when no member is left of a group whose leader was reaped. All have received SIGKILL, so
/// this takes no time, except for processes with more privileges than ours or in a system call that
/// never returns: we wait for them, because they run.
async fn vanished(group: Pid) {
    const PAUSE_MIN: Duration = Duration::from_millis(1);
    const PAUSE_MAX: Duration = Duration::from_millis(64);
    /// By now orphans have been reaped.
    const PAUSE_ODD: Duration = Duration::from_millis(8);
    let mut pause = PAUSE_MIN;
    while has_members(group) {
        // Where orphans are not reaped, as in many containers, dead processes stay members for
        // ever.
        if pause >= PAUSE_ODD && !has_living_members(group).await {
            reap_adopted(group);
            return;
        }
        tokio::time::sleep(pause).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
}

/// Whether a group, the leader of which was reaped, has members, dead ones included.
fn has_members(group: Pid) -> bool {
    reap_adopted(group);
    !was_given_out_anew(group) && test_kill_process_group(group) != Err(Errno::SRCH)
}

/// In a container this process may be the one that inherits orphans.
fn reap_adopted(group: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    while !was_given_out_anew(group)
        && let Ok(Some(_)) = waitid(WaitId::Pgid(Some(group)), options)
    {}
}

/// Whether there is a process with the id of a group whose leader was reaped. Then that group is
/// gone: its id could not be reused before the last member had ended.
fn was_given_out_anew(group: Pid) -> bool {
    test_kill_process(group) != Err(Errno::SRCH)
}

async fn has_living_members(group: Pid) -> bool {
    let look = move || {
        let mut processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.any(|process| {
            let stat = std::fs::read(process.path().join("stat")).unwrap_or_default();
            is_living_member(&stat, group)
        })
    };
    tokio::task::spawn_blocking(look).await.unwrap_or(false)
}

/// Reads `/proc/ID/stat`: number, name in parentheses, state, parent, group. A name may contain
/// anything, even parentheses.
fn is_living_member(stat: &[u8], group: Pid) -> bool {
    let Some(end_of_name) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    let mut fields = stat[end_of_name + 1..].split(u8::is_ascii_whitespace).skip(1);
    let (state, its_group) = (fields.next(), fields.nth(1));
    let is_dead = matches!(state, Some(b"Z" | b"X" | b"x"));
    !is_dead && its_group == Some(group.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_group_and_state() {
        let group = Pid::from_raw(77).unwrap();
        assert!(is_living_member(b"78 (sleep) S 1 77 77 0 -1", group));
        assert!(is_living_member(b"78 (a) Z 1 (b) R 1 77 77 0 -1", group));
        assert!(!is_living_member(b"78 (sleep) Z 1 77 77 0 -1", group));
        assert!(!is_living_member(b"77 (sleep) S 77 78 77 0 -1", group));
        assert!(!is_living_member(b"", group));
        assert!(!is_living_member(b"78 (", group));
        assert!(!is_living_member(b"78 (x)", group));
    }
}
