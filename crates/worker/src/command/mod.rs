//! Command jobs: a program is run as an attempt, heard, and cleaned up after.
//!
//! A [`Command`] is a list of words, and no shell reads them. It runs in a process group of its own
//! with the payload on stdin, the environment it was given, and what filch adds:
//!
//! | variable | |
//! |---|---|
//! | `FILCH_JOB` | the job's id |
//! | `FILCH_ATTEMPT` | 1 for the first |
//! | `FILCH_FENCE` | grows when the job changes hands; effects outside filch can be guarded by it |
//! | `FILCH_RESULT` | a file, empty, into which JSON can be written as the job's result |
//! | `TRACEPARENT` | the trace to which the job belongs, if to any |
//!
//! A [`Runner`] promises that when [`Runner::run`] returns nothing of the group runs any more; that
//! the same holds, at once, when its future is dropped; and that a worker's death or standstill
//! does not change that, for which there is a second process (`guardian`). It does not watch the
//! time: who runs a command says when to stop.
//!
//! How it is made: `attempt` is the loop around one command, `group` its processes, `launcher` the
//! way to start them only once they are watched, `guard` the pipe to the guardian, `log` and
//! `result` what the command leaves behind, `folder` where that lies.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use self::folder::Workplace;
use self::guard::{Deadline, Guard};
use crate::guardian::since_boot;

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
    /// The program and its arguments. A program without a slash is looked for in `PATH`.
    pub argv: Vec<String>,
    /// What it reads on stdin: the job's arguments, as they were submitted.
    pub stdin: String,
    /// Variables in addition to those that a worker keeps; the names of the table above are not
    /// theirs to set.
    pub env: BTreeMap<String, String>,
    /// Where it runs; in the worker's own folder if nothing is said.
    pub dir: Option<PathBuf>,
    /// The job's id.
    pub job: String,
    /// 1 for the first.
    pub attempt: u16,
    /// The number of the job's owner.
    pub fence: u64,
    /// The trace to which the job belongs, in the form of W3C.
    pub traceparent: Option<String>,
}

/// What a command prints on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// What an attempt came to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finished {
    /// How it ended.
    pub how: How,
    /// JSON: what is in the file `$FILCH_RESULT`, else the last line on stdout if it is JSON of any
    /// kind. Only if the command ended by itself; its exit code does not matter.
    pub result: Option<String>,
    /// The last line on stderr that says something, as plain text; of a long one the beginning.
    pub last_words: Option<String>,
    /// What it printed on both streams as text, the first 16 KiB and the last 48 KiB, and a line
    /// between that says how much was left out. Lines of filch's own stand at the end.
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
    /// By itself, with this code.
    Exited(i32),
    /// By a signal that was not ours.
    Signalled(i32),
    /// The program could not be executed: the text says why, and what to do about it.
    NotStarted(String),
    /// It was told to stop, and did or was killed.
    Stopped,
    /// Through no fault of its own: the worker could not start it, or could no longer guard it.
    Interrupted(String),
}

/// How a worker runs commands.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that guards and launches.
    pub helper: Helper,
    /// Names of the variables that commands inherit from the worker. A star at the end stands for
    /// any ending.
    pub inherited: Vec<String>,
    /// How long a command that was told to stop may take before it is killed.
    pub grace: Duration,
}

impl Options {
    /// The usual ones, with filch itself as the helper: `program` is where it is.
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
    /// An absolute path; `/proc/self/exe` is ourselves even after an update has replaced the file.
    pub program: PathBuf,
    /// The arguments that make it a guardian.
    pub guardian: Vec<String>,
    /// The arguments that make it a launcher.
    pub launcher: Vec<String>,
}

/// What commands inherit.
type Environment = Vec<(OsString, OsString)>;

/// Runs commands, as many at once as it is asked to; one per worker.
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

    /// From this much time on, nothing may run unless it is said anew: if by then the worker has
    /// not moved the deadline, for whatever reason, the guardian kills every command, and until it
    /// is moved also those that are started. Without a deadline only the worker's death ends them.
    ///
    /// It is passed on without waiting, but before any command that is started later: to be told
    /// before [`Runner::run`], not after. The time also counts while the machine sleeps.
    pub fn deadline(&self, after: Option<Duration>) {
        // Made a moment at once: from here on it may be passed on as late as it likes.
        self.deadline.send_replace(after.map(|after| since_boot() + after));
    }

    /// Runs a command until it ends by itself or `stop` completes, and until nothing of its process
    /// group is left. If it is told to stop, it first gets SIGTERM, and is killed after the grace.
    ///
    /// `output` is called with whatever is printed, as soon as it is. If the future is dropped, the
    /// whole group is killed at once.
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
