//! The worker's end of the pipe to its guardian.
//!
//! One task owns the guardian process: it starts it before the first command, writes to it, and
//! notices when it is gone. It writes one line at a time and waits for the answer, so the pipes
//! cannot fill up. `guardian` documents the lines.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use filch_scheduler::time::Monotonic;
use rustix::process::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Helper;
use crate::guardian::{GREETING, Line, Reply};

/// How long a guardian may take to answer. It has nothing else to do; one that takes longer is
/// stuck or was stopped, and guards nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// The moment, by the time since boot, after which nothing may run.
pub(super) type Deadline = Option<Monotonic>;

/// Passes groups to the guardian.
#[derive(Clone)]
pub(super) struct Guard {
    /// Unbounded, but each command has at most one request in it.
    requests: mpsc::UnboundedSender<Request>,
}

enum Request {
    Watch(Pid, PathBuf, oneshot::Sender<Result<Lost, Unwatched>>),
    Forget(Pid, oneshot::Sender<Watched>),
}

/// Why a group is not watched, and so may not run.
#[derive(Clone, Debug)]
pub(super) enum Unwatched {
    /// The deadline has passed.
    Late,
    /// There is no guardian that could watch it, for this reason.
    Failed(String),
}

/// What happened to a group while it was watched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Watched {
    /// Nothing, as far as is known.
    LeftAlone,
    /// The deadline passed, and the guardian killed it.
    Killed,
}

/// Notifies when the guardian of a group is gone.
#[derive(Debug)]
pub(super) struct Lost {
    guardian: watch::Receiver<()>,
}

impl Lost {
    /// Returns when it is gone.
    pub(super) async fn lost(&mut self) {
        // Nothing is ever sent: the other end is held while the guardian lives.
        while self.guardian.changed().await.is_ok() {}
    }
}

impl Guard {
    /// Starts the task; it ends, and with it the guardian, when the last guard and group are gone.
    pub(super) fn start(
        helper: Helper,
        deadline: watch::Receiver<Deadline>,
    ) -> (Guard, JoinHandle<()>) {
        let (requests, received) = mpsc::unbounded_channel();
        (Guard { requests }, tokio::spawn(attend(helper, deadline, received)))
    }

    /// Returns when the guardian watches the group, and will remove the folder after it.
    pub(super) async fn watch(&self, group: Pid, folder: PathBuf) -> Result<Lost, Unwatched> {
        let (answer, answered) = oneshot::channel();
        // If it cannot be sent, the answer is dropped with it.
        let _ = self.requests.send(Request::Watch(group, folder, answer));
        let ended = || Unwatched::Failed("this worker is shutting down".to_owned());
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Returns when the group's id may be reused.
    pub(super) async fn forget(&self, group: Pid) -> Watched {
        let (answer, answered) = oneshot::channel();
        let _ = self.requests.send(Request::Forget(group, answer));
        // No answer is fine, too: then the guardian has ended.
        answered.await.unwrap_or(Watched::LeftAlone)
    }
}

enum Event {
    Request(Request),
    Deadline,
    /// It wrote something unasked, or is gone.
    Lost(String),
    End,
}

async fn attend(
    helper: Helper,
    mut deadline: watch::Receiver<Deadline>,
    mut requests: mpsc::UnboundedReceiver<Request>,
) {
    let mut guardian: Option<Guardian> = None;
    loop {
        let event = tokio::select! {
            request = requests.recv() => request.map_or(Event::End, Event::Request),
            Ok(()) = deadline.changed() => Event::Deadline,
            reason = unasked(&mut guardian) => Event::Lost(reason),
        };
        let failure = match event {
            Event::Request(Request::Watch(group, folder, answer)) => {
                let outcome = watch(&mut guardian, &helper, &mut deadline, group, &folder).await;
                let (reply, failure) = match outcome {
                    Ok(reply) => (reply, None),
                    Err(failure) => (Err(Unwatched::Failed(failure.clone())), Some(failure)),
                };
                // Before the answer, or an abandoned guardian might kill a group that is no longer
                // ours.
                end_failed(&mut guardian, failure).await;
                let _ = answer.send(reply);
                None
            }
            Event::Request(Request::Forget(group, answer)) => {
                let outcome = forget(&mut guardian, group).await;
                let watched = *outcome.as_ref().unwrap_or(&Watched::LeftAlone);
                end_failed(&mut guardian, outcome.err()).await;
                let _ = answer.send(watched);
                None
            }
            Event::Deadline => tell_deadline(&mut guardian, &mut deadline).await.err(),
            Event::Lost(reason) => Some(reason),
            Event::End => break,
        };
        end_failed(&mut guardian, failure).await;
    }
    if let Some(guardian) = guardian {
        guardian.leave().await;
    }
}

/// The outer error means that the guardian failed; the inner one is its refusal.
async fn watch(
    guardian: &mut Option<Guardian>,
    helper: &Helper,
    deadline: &mut watch::Receiver<Deadline>,
    group: Pid,
    folder: &Path,
) -> Result<Result<Lost, Unwatched>, String> {
    if guardian.is_none() {
        *guardian = Some(Guardian::start(helper).await?);
    }
    // First: a new guardian has no deadline yet, and one with an outdated deadline would kill a
    // group that was started after the deadline was moved.
    tell_deadline(guardian, deadline).await?;
    let guardian = guardian.as_mut().expect("it was started above");
    guardian.tell_folder(folder).await?;
    let reply = guardian.ask(Line::Watch(group)).await?;
    if reply == Reply::Watching(group).to_string() {
        Ok(Ok(Lost { guardian: guardian.alive.subscribe() }))
    } else if reply == Reply::Late(group).to_string() {
        Ok(Err(Unwatched::Late))
    } else {
        Err(format!("the guardian answered {reply:?}"))
    }
}

async fn forget(guardian: &mut Option<Guardian>, group: Pid) -> Result<Watched, String> {
    let Some(guardian) = guardian else { return Ok(Watched::LeftAlone) };
    let reply = guardian.ask(Line::Forget(group)).await?;
    if reply == Reply::Forgotten(group).to_string() {
        Ok(Watched::LeftAlone)
    } else if reply == Reply::Killed(group).to_string() {
        Ok(Watched::Killed)
    } else {
        Err(format!("the guardian answered {reply:?}"))
    }
}

async fn tell_deadline(
    guardian: &mut Option<Guardian>,
    deadline: &mut watch::Receiver<Deadline>,
) -> Result<(), String> {
    let Some(guardian) = guardian else { return Ok(()) };
    let moment = *deadline.borrow_and_update();
    guardian.say(Line::Deadline(moment)).await
}

/// Waits for ever if there is no guardian.
async fn unasked(guardian: &mut Option<Guardian>) -> String {
    match guardian {
        Some(guardian) => match guardian.replies.next_line().await {
            Ok(Some(line)) => format!("unexpected line {line:?} from the guardian"),
            Ok(None) => "the guardian is gone".to_owned(),
            Err(error) => format!("cannot read from the guardian ({error})"),
        },
        None => std::future::pending().await,
    }
}

async fn end_failed(guardian: &mut Option<Guardian>, failure: Option<String>) {
    if failure.is_some()
        && let Some(guardian) = guardian.take()
    {
        guardian.kill().await;
    }
}

/// A running guardian process.
struct Guardian {
    process: Child,
    lines: ChildStdin,
    replies: Lines<BufReader<ChildStdout>>,
    /// Dropped when it is gone, which the other ends notice.
    alive: watch::Sender<()>,
    /// The folder that it will remove.
    folder: PathBuf,
}

impl Guardian {
    async fn start(helper: &Helper) -> Result<Guardian, String> {
        let program = helper.program.display();
        // Never killed when dropped: it has to outlive this process, and ends by itself.
        let spawned = tokio::process::Command::from(command(helper)).spawn();
        let mut process = spawned.map_err(|error| {
            format!("cannot start the guardian of commands, {program} ({error})")
        })?;
        let lines = process.stdin.take().expect("it is piped");
        let stdout = process.stdout.take().expect("it is piped");
        let replies = BufReader::new(stdout).lines();
        let (alive, folder) = (watch::channel(()).0, PathBuf::new());
        let mut guardian = Guardian { process, lines, replies, alive, folder };
        match guardian.reply().await {
            Ok(line) if line == GREETING => Ok(guardian),
            other => {
                guardian.kill().await;
                let words = helper.guardian.join(" ");
                let seen = other.map_or_else(|reason| reason, |line| format!("it wrote {line:?}"));
                Err(format!("`{program} {words}` is not a guardian of commands: {seen}"))
            }
        }
    }

    async fn say(&mut self, line: Line) -> Result<(), String> {
        let text = format!("{line}\n");
        in_time(self.lines.write_all(text.as_bytes())).await
    }

    async fn tell_folder(&mut self, folder: &Path) -> Result<(), String> {
        // No command is given a folder whose name is not text.
        if let Some(text) = folder.to_str().filter(|_| self.folder != folder) {
            self.say(Line::Folder(text.to_owned())).await?;
            self.folder = folder.to_owned();
        }
        Ok(())
    }

    async fn ask(&mut self, line: Line) -> Result<String, String> {
        self.say(line).await?;
        self.reply().await
    }

    async fn reply(&mut self) -> Result<String, String> {
        in_time(self.replies.next_line()).await?.ok_or_else(|| "the guardian is gone".to_owned())
    }

    /// For one that failed: returns when it is dead, so that it kills nothing any more.
    async fn kill(mut self) {
        let _ = self.process.kill().await;
    }

    /// For one that is no longer needed: it kills all groups that it still watches.
    async fn leave(mut self) {
        drop(self.lines);
        if timeout(PATIENCE, self.process.wait()).await.is_err() {
            let _ = self.process.kill().await;
        }
    }
}

fn command(helper: &Helper) -> std::process::Command {
    let mut command = std::process::Command::new(&helper.program);
    command
        .args(&helper.guardian)
        // Signals to the worker's group, such as Ctrl-C, do not reach it.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // It would keep a terminal or a pipe of ours open, and prints nothing.
        .stderr(Stdio::null());
    command
}

async fn in_time<T>(action: impl Future<Output = io::Result<T>>) -> Result<T, String> {
    match timeout(PATIENCE, action).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(format!("cannot write to the guardian ({error})")),
        Err(_) => Err(format!("the guardian did not answer for {} s", PATIENCE.as_secs())),
    }
}
