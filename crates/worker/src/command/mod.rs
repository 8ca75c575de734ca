//! Command jobs: runs a program as an attempt, reads its output, and cleans up after it.
//!
//! A [`Command`] is a list of arguments; no shell is involved. It runs in its own process group
//! with the payload on stdin, its environment, and these variables:
//!
//! | variable | |
//! |---|---|
//! | `FILCH_JOB` | the job's id |
//! | `FILCH_ATTEMPT` | 1 for the first |
//! | `FILCH_FENCE` | the fencing token: grows with each owner, to protect external effects |
//! | `FILCH_RESULT` | an empty file; JSON that is written to it becomes the job's result |
//! | `TRACEPARENT` | the job's trace context, if it has one |
//!
//! A [`Runner`] promises that no process of the group runs any more when [`Runner::run`] returns;
//! that the group is killed at once when its future is dropped; and that both hold even if the
//! worker is killed or suspended, for which there is a second process (`guardian`). It has no
//! timeout: the caller decides when to stop a command.
//!
//! How it is made: `attempt` is the loop around one command, `group` its processes, `launcher` the
//! way to start them only once they are watched, `guard` the pipe to the guardian, `log` and
//! `result` the output of the command, `folder` where its files are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use filch_scheduler::time::Monotonic;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::folder::Workplace;
use self::guard::{Deadline, Guard};

mod attempt;
mod folder;
mod group;
mod guard;
mod last_words;
pub mod launcher;
mod log;
mod result;

/// One attempt at a command job.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Command {
    /// The program and its arguments. A program without a slash is searched for in `PATH`.
    pub argv: Vec<String>,
    /// What it reads on stdin: the job's arguments, as they were submitted.
    pub stdin: String,
    /// Variables in addition to those that commands inherit; the variables of the table above
    /// cannot be overridden.
    pub env: BTreeMap<String, String>,
    /// Its working directory; the worker's by default.
    pub dir: Option<PathBuf>,
    /// The job's id.
    pub job: String,
    /// 1 for the first.
    pub attempt: u16,
    /// The fencing token.
    pub fence: u64,
    /// The W3C trace context of the job.
    pub traceparent: Option<String>,
}

/// An output stream of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The end of an attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finished {
    /// How it ended.
    pub how: How,
    /// JSON: the contents of the file `$FILCH_RESULT`, else the last line on stdout if it is JSON.
    /// Only if the command ended by itself; its exit code does not matter.
    pub result: Option<String>,
    /// The last line on stderr that is not blank, as plain text; long lines are truncated.
    pub last_words: Option<String>,
    /// The output of both streams as text: the first 16 KiB and the last 48 KiB, with a line
    /// between that contains how much was left out. Lines by filch itself come at the end.
    pub log: String,
}

impl Finished {
    fn without_output(how: How) -> Self {
        Self { how, result: None, last_words: None, log: String::new() }
    }
}

/// How an attempt ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum How {
    /// It exited with this code.
    Exited(i32),
    /// A signal that was not ours ended it.
    Signalled(i32),
    /// The program could not be executed: why, and what to do about it.
    NotStarted(String),
    /// It was asked to stop, or the worker's deadline passed: it ended or was killed, or was not
    /// started.
    Stopped,
    /// The worker could not start it, for this reason, which is not the job's fault.
    Unstarted(String),
    /// It is not the job's fault: the worker could no longer guard it.
    Interrupted(String),
}

/// How a worker runs commands.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that guards and launches.
    pub helper: Helper,
    /// Names of the variables that commands inherit from the worker. A star at the end matches any
    /// ending.
    pub inherited: Vec<String>,
    /// The grace period between SIGTERM and SIGKILL.
    pub grace: Duration,
}

impl Options {
    /// The defaults, with filch itself as the helper; `program` is its path.
    pub fn new(program: PathBuf) -> Options {
        let inherited =
            ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR"];
        Options {
            helper: Helper {
                program,
                guardian: vec!["guardian".to_owned()],
                launcher: vec!["guardian-exec".to_owned()],
            },
            inherited: inherited.map(str::to_owned).into(),
            grace: Duration::from_secs(2),
        }
    }
}

/// A program whose `main` calls [`crate::guardian::main`] for some arguments, and
/// [`launcher::main`] for others, before it does anything else.
#[derive(Clone, Debug)]
pub struct Helper {
    /// An absolute path; `/proc/self/exe` is this program even after an update has replaced its
    /// file.
    pub program: PathBuf,
    /// The arguments that make it a guardian.
    pub guardian: Vec<String>,
    /// The arguments that make it a launcher.
    pub launcher: Vec<String>,
}

/// What commands inherit.
type Environment = Vec<(OsString, OsString)>;

/// Runs commands, any number at once; there is one per worker.
pub struct Runner {
    helper: Helper,
    environment: Environment,
    grace: Duration,
    workplace: Workplace,
    deadline: watch::Sender<Deadline>,
    guard: Guard,
    guard_task: JoinHandle<()>,
}

impl Runner {
    /// Ready to run commands. The guardian is started before the first one.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(options: Options) -> Runner {
        let Options { helper, inherited, grace } = options;
        let environment = std::env::vars_os().filter(|(name, _)| is_inherited(name, &inherited));
        let environment = environment.collect();
        let (deadline, told) = watch::channel(None);
        let (guard, guard_task) = Guard::start(helper.clone(), told);
        let workplace = Workplace::default();
        Runner { helper, environment, grace, workplace, deadline, guard, guard_task }
    }

    /// Sets the deadline of all commands: a moment by the time since boot (`CLOCK_BOOTTIME`). If
    /// the worker has not moved the deadline by then, for whatever reason, the guardian kills every
    /// command, and until the deadline is moved also those that are started. Without a deadline,
    /// only the worker's death ends them.
    ///
    /// It takes effect before any command that is started later, so set it before [`Runner::run`],
    /// not after. Time asleep counts.
    pub fn deadline(&self, at: Option<Monotonic>) {
        // Passed on untouched: a span would grow if the process is suspended before it is read.
        self.deadline.send_replace(at);
    }

    /// Runs a command until it ends by itself or `stop` completes, and until nothing of its process
    /// group is left. On `stop`, it first gets SIGTERM, and SIGKILL after the grace period.
    ///
    /// `output` is called with output as soon as it is read. If the future is dropped, the whole
    /// group is killed at once.
    pub async fn run(
        &self,
        command: Command,
        output: impl FnMut(Stream, &[u8]) + Send,
        stop: impl Future<Output = ()> + Send,
    ) -> Finished {
        attempt::run(self, command, output, stop).await
    }

    /// Returns when the guardian and all that was started have ended. Dropping a runner has the
    /// same effect, a little later.
    pub async fn close(self) {
        let Runner { guard, guard_task, .. } = self;
        drop(guard);
        // It fails if the task panicked: then there is no guardian to wait for.
        let _ = guard_task.await;
    }
}

fn is_inherited(name: &OsString, inherited: &[String]) -> bool {
    let name = name.as_encoded_bytes();
    inherited.iter().any(|wanted| match wanted.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning.as_bytes()),
        None => name == wanted.as_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers like a guardian, and writes what it was told to a file.
    const FAKE_GUARDIAN: &str = "echo 'filch guardian 3'
        while read -r word rest; do
            echo \"$word $rest\" >>\"$0\"
            case $word in
                watch) echo \"watching $rest\" ;;
                forget) echo \"forgotten $rest\" ;;
            esac
        done";

    #[tokio::test]
    async fn the_guardian_is_told_the_very_moment_that_was_set() {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let helper = Helper {
            program: "/bin/sh".into(),
            guardian: words(&["-c", FAKE_GUARDIAN, told.to_str().unwrap()]),
            launcher: words(&["-c", "exit 0"]),
        };
        let runner = Runner::start(Options { helper, ..Options::new(PathBuf::new()) });
        // Long ago. If it went through a span, it would become a moment of today.
        runner.deadline(Some(Monotonic(17)));
        let command = Command { argv: vec!["true".to_owned()], ..Command::default() };
        let finished = runner.run(command, |_, _| {}, std::future::pending()).await;
        assert_eq!(finished.how, How::Exited(0));
        runner.close().await;
        let told = std::fs::read_to_string(told).unwrap();
        assert_eq!(told.lines().next(), Some("deadline 17"), "{told}");
    }

    #[test]
    fn variables_are_inherited_by_name_or_beginning() {
        let inherited = ["PATH".to_owned(), "LC_*".to_owned()];
        for (name, expected) in
            [("PATH", true), ("PATHS", false), ("LC_ALL", true), ("LC", false), ("SECRET", false)]
        {
            assert_eq!(is_inherited(&name.into(), &inherited), expected, "{name}");
        }
    }
}
