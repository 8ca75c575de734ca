//! One attempt at a command, from the first check to the last byte of its output.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::group::{Exit, Group, Pipes};
use super::guard::{Lost, Unwatched, Watched};
use super::last_words::LastWords;
use super::launcher::{Failure, NOT_EXECUTED, Order, Step};
use super::log::Log;
use super::result::{LastLine, ResultFile, judge};
use super::{Command, Finished, How, Runner, Stream};

/// How long to wait for output once the whole group has ended: the rest is in the pipes already,
/// and is read without waiting. Only a process that has left the group keeps a pipe open for longer
/// than this.
const SILENCE: Duration = Duration::from_millis(50);

/// How much is read then, at most, since such a process may go on printing: no pipe holds more than
/// this.
const REST_BYTES: usize = 1 << 20;

/// How often the other members of a group are checked for once the leader has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

const UNGUARDED: &str = "the guardian of this worker's commands has died, so they were stopped";

pub(super) async fn run(
    runner: &Runner,
    command: Command,
    output: impl FnMut(Stream, &[u8]) + Send,
    stop: impl Future<Output = ()> + Send,
) -> Finished {
    let mut started = match start(runner, &command).await {
        Ok(started) => started,
        Err(how) => return Finished::without_output(how),
    };
    let mut record = Record::new(output);
    let how = started.attend(runner.grace, &mut record, stop).await;
    finish(started, record, how, &command).await
}

/// A launcher whose group is watched, and the bytes that it waits for.
struct Started {
    group: Group,
    lost: Lost,
    stdin: Option<ChildStdin>,
    outputs: Outputs,
    words: Vec<u8>,
    result_file: ResultFile,
}

async fn start(runner: &Runner, command: &Command) -> Result<Started, How> {
    check(command).map_err(How::NotStarted)?;
    let (helper, environment) = (runner.helper.clone(), runner.environment.clone());
    let (guard, workplace) = (runner.guard.clone(), runner.workplace.clone());
    let start = move || {
        let result_file = workplace.folder().and_then(ResultFile::create).map_err(|error| {
            let folder = std::env::temp_dir();
            format!("cannot make a file for the result in {} ({error})", folder.display())
        })?;
        let started = Group::start(&helper, &environment, guard).map_err(|error| {
            format!("cannot start {} for the command ({error})", helper.program.display())
        })?;
        Ok((result_file, started))
    };
    let started = tokio::task::spawn_blocking(start).await;
    let started = started.unwrap_or_else(|_| Err("this worker is shutting down".to_owned()));
    let (result_file, (mut group, pipes)) = started.map_err(How::Unstarted)?;
    let words = words(command, result_file.path()).map_err(How::NotStarted)?;
    let lost = match group.watch(result_file.folder()).await {
        Ok(lost) => lost,
        Err(unwatched) => {
            group.end().await;
            return Err(match unwatched {
                // The same as if it had been killed a moment after its start.
                Unwatched::Late => How::Stopped,
                Unwatched::Failed(reason) => How::Unstarted(reason),
            });
        }
    };
    let Pipes { stdin, stdout, stderr } = pipes;
    let outputs = Outputs::new(stdout, stderr);
    Ok(Started { group, lost, stdin: Some(stdin), outputs, words, result_file })
}

/// Checks for commands that no system could execute.
fn check(command: &Command) -> Result<(), String> {
    if command.argv.first().is_none_or(String::is_empty) {
        return Err("the command is empty: its first word must be a program".to_owned());
    }
    if command.argv.iter().any(|word| word.contains('\0')) {
        return Err("an argument of the command contains a NUL byte, which no program can receive"
            .to_owned());
    }
    for (name, value) in &command.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!(
                "invalid environment variable {name:?}: its name must not be empty or contain `=`, \
                 and neither name nor value may contain a NUL byte"
            ));
        }
    }
    Ok(())
}

/// The order for the launcher, followed by the payload for the program.
fn words(command: &Command, result_file: &Path) -> Result<Vec<u8>, String> {
    let text = result_file.to_str().ok_or("the path of the temporary folder is not valid UTF-8")?;
    let mut env = command.env.clone();
    let ours = [
        ("FILCH_JOB", Some(command.job.clone())),
        ("FILCH_ATTEMPT", Some(command.attempt.to_string())),
        ("FILCH_FENCE", Some(command.fence.to_string())),
        ("FILCH_RESULT", Some(text.to_owned())),
        ("TRACEPARENT", command.traceparent.clone()),
    ];
    for (name, value) in ours {
        match value {
            Some(value) => env.insert(name.to_owned(), value),
            None => env.remove(name),
        };
    }
    let order = Order {
        argv: command.argv.clone(),
        env,
        dir: command.dir.clone(),
        report: result_file.to_owned(),
    };
    let mut words =
        order.to_bytes().map_err(|error| format!("the command cannot be passed on: {error}"))?;
    words.extend_from_slice(command.stdin.as_bytes());
    Ok(words)
}

impl Started {
    /// Lets the program run, and returns when its whole group has ended.
    async fn attend(
        &mut self,
        grace: Duration,
        record: &mut Record<impl FnMut(Stream, &[u8])>,
        stop: impl Future<Output = ()>,
    ) -> How {
        let Started { group, lost, stdin, outputs, words, .. } = self;
        let mut feeding = pin!(feed(stdin.take(), std::mem::take(words)));
        let mut is_fed = false;
        let mut stop = pin!(stop);
        // Set when it should stop: the outcome, and when it is killed.
        let mut stopping: Option<(How, Instant)> = None;
        let exit = loop {
            let reason = tokio::select! {
                // In this order: one that has ended by itself was not stopped, and one that prints
                // without end can be.
                biased;
                exit = group.exited() => break Some(exit),
                () = &mut stop, if stopping.is_none() => How::Stopped,
                () = lost.lost(), if stopping.is_none() => How::Interrupted(UNGUARDED.to_owned()),
                () = patience_ends(&stopping) => break None,
                () = &mut feeding, if !is_fed => {
                    is_fed = true;
                    continue;
                }
                (stream, bytes) = outputs.next() => {
                    record.push(stream, bytes);
                    continue;
                }
            };
            // Its end may be known before the stop signal: then it was not stopped.
            if let Some(exit) = group.has_exited().filter(|_| stopping.is_none()) {
                break Some(exit);
            }
            group.signal(Signal::TERM);
            // A process that was stopped by SIGSTOP would not receive it.
            group.signal(Signal::CONT);
            stopping = Some((reason, Instant::now() + grace));
        };
        if exit.is_some() && stopping.is_some() {
            // The leader may be a shell that ends before the programs it started.
            let others = async {
                while group.has_living_members().await {
                    sleep(LOOK_INTERVAL).await;
                }
            };
            let patience_or_others = async {
                tokio::select! { () = others => {}, () = patience_ends(&stopping) => {} }
            };
            outputs.record_while(record, patience_or_others).await;
        }
        let watched = outputs.record_while(record, group.end()).await;
        outputs.record_rest(record).await;
        match (stopping, exit) {
            (Some((reason, _)), _) => reason,
            (None, Some(Exit::Code(code))) => How::Exited(code),
            // The guardian killed it because the lease expired: it is not the job's fault.
            (None, Some(Exit::Signal(_))) if watched == Watched::Killed => How::Stopped,
            (None, Some(Exit::Signal(signal))) => How::Signalled(signal),
            (None, Some(Exit::Unknown) | None) => How::Interrupted(
                "its exit code is unknown: another part of the worker's process has reaped it"
                    .to_owned(),
            ),
        }
    }
}

/// Waits for ever if there is no deadline.
async fn patience_ends(stopping: &Option<(How, Instant)>) {
    match stopping {
        Some((_, end)) => sleep_until(*end).await,
        None => std::future::pending().await,
    }
}

/// Writes to stdin; the program need not read all of it.
async fn feed(stdin: Option<ChildStdin>, words: Vec<u8>) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(&words).await;
    }
}

/// Both pipes out of a command, until they are closed.
struct Outputs {
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    stdout_buffer: Vec<u8>,
    stderr_buffer: Vec<u8>,
}

impl Outputs {
    fn new(stdout: ChildStdout, stderr: ChildStderr) -> Outputs {
        let buffer = || vec![0; 16 << 10];
        Outputs {
            stdout: Some(stdout),
            stderr: Some(stderr),
            stdout_buffer: buffer(),
            stderr_buffer: buffer(),
        }
    }

    /// The next output; waits for ever when both are closed. Nothing is lost if this is dropped.
    async fn next(&mut self) -> (Stream, &[u8]) {
        loop {
            let (stream, count) = tokio::select! {
                count = read(&mut self.stdout, &mut self.stdout_buffer) => (Stream::Stdout, count),
                count = read(&mut self.stderr, &mut self.stderr_buffer) => (Stream::Stderr, count),
            };
            match (stream, count) {
                (Stream::Stdout, 0) => self.stdout = None,
                (Stream::Stderr, 0) => self.stderr = None,
                (Stream::Stdout, _) => return (stream, &self.stdout_buffer[..count]),
                (Stream::Stderr, _) => return (stream, &self.stderr_buffer[..count]),
            }
        }
    }

    async fn record_while<T>(
        &mut self,
        record: &mut Record<impl FnMut(Stream, &[u8])>,
        action: impl Future<Output = T>,
    ) -> T {
        let mut action = pin!(action);
        loop {
            tokio::select! {
                biased;
                value = &mut action => return value,
                (stream, bytes) = self.next() => record.push(stream, bytes),
            }
        }
    }

    /// Reads the rest when no process of the group is left.
    async fn record_rest(&mut self, record: &mut Record<impl FnMut(Stream, &[u8])>) {
        let mut room = REST_BYTES;
        while room > 0 && (self.stdout.is_some() || self.stderr.is_some()) {
            let Ok((stream, bytes)) = timeout(SILENCE, self.next()).await else { return };
            room = room.saturating_sub(bytes.len());
            record.push(stream, bytes);
        }
    }
}

/// Reads a pipe: returns 0 at its end, and waits for ever after that.
async fn read(pipe: &mut Option<impl AsyncReadExt + Unpin>, buffer: &mut [u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.read(buffer).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

/// Collects the output of a command, and passes it on.
struct Record<O> {
    output: O,
    log: Log,
    last_line: LastLine,
    last_words: LastWords,
}

impl<O: FnMut(Stream, &[u8])> Record<O> {
    fn new(output: O) -> Self {
        let (log, last_line, last_words) = Default::default();
        Self { output, log, last_line, last_words }
    }

    fn push(&mut self, stream: Stream, bytes: &[u8]) {
        (self.output)(stream, bytes);
        self.log.push(stream, bytes);
        match stream {
            Stream::Stdout => self.last_line.push(bytes),
            Stream::Stderr => self.last_words.push(bytes),
        }
    }
}

async fn finish<O>(started: Started, record: Record<O>, how: How, command: &Command) -> Finished {
    let Started { result_file, .. } = started;
    let Record { mut log, last_line, last_words, .. } = record;
    let last_words = last_words.finish();
    let How::Exited(code) = how else {
        return Finished { how, result: None, last_words, log: log.finish() };
    };
    // Also removes the file. If the runtime is shutting down, the result is not needed.
    let read = tokio::task::spawn_blocking(move || result_file.read()).await;
    let file = read.unwrap_or_else(|error| Err(error.into()));
    if code == NOT_EXECUTED
        && let Ok(bytes) = &file
        && let Some(failure) = Failure::parse(bytes)
    {
        let how = How::NotStarted(explain(failure, command));
        return Finished { how, result: None, last_words, log: log.finish() };
    }
    let result = judge(file, &last_line).unwrap_or_else(|objection| {
        log.note(&objection);
        None
    });
    Finished { how, result, last_words, log: log.finish() }
}

/// An error for a program that could not be executed, with what to do about it.
fn explain(failure: Failure, command: &Command) -> String {
    let Failure { step, errno } = failure;
    let error = std::io::Error::from_raw_os_error(errno);
    let program = command.argv.first().map_or("", String::as_str);
    if step == Step::EnterFolder {
        let dir = command.dir.as_deref().unwrap_or(Path::new(".")).display();
        return format!(
            "cannot enter the folder {dir} ({error}); create it on this worker, or submit the \
             job with another `dir`"
        );
    }
    let what_to_do = match error.kind() {
        std::io::ErrorKind::NotFound if program.contains(char::is_whitespace) => {
            "commands run without a shell: pass each argument separately, or use `sh -c`"
        }
        std::io::ErrorKind::NotFound if program.contains('/') => {
            "this worker has no such file, or not the interpreter in its `#!` line: install it, or \
             correct the path"
        }
        std::io::ErrorKind::NotFound => {
            "it is not in PATH on this worker: install it, or use its full path"
        }
        std::io::ErrorKind::PermissionDenied => {
            "permission denied: run `chmod +x`, or run it with its interpreter"
        }
        std::io::ErrorKind::ArgumentListTooLong => {
            "its arguments and environment are too long for this system: use stdin"
        }
        _ => "this worker's system cannot execute it",
    };
    format!("cannot execute {program:?} ({error}); {what_to_do}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(argv: &[&str]) -> Command {
        Command { argv: argv.iter().map(|word| (*word).to_owned()).collect(), ..Command::default() }
    }

    #[test]
    fn impossible_commands_are_refused() {
        assert!(check(&command(&[])).unwrap_err().contains("the command is empty"));
        assert!(check(&command(&[""])).unwrap_err().contains("the command is empty"));
        assert!(check(&command(&["a", "b\0"])).unwrap_err().contains("NUL"));
        for (name, value) in [("", "x"), ("A=B", "x"), ("A", "\0")] {
            let env = [(name.to_owned(), value.to_owned())].into();
            assert!(check(&Command { env, ..command(&["a"]) }).is_err(), "{name}={value}");
        }
        assert_eq!(check(&command(&["a", ""])), Ok(()));
    }

    #[test]
    fn variables_of_filch_cannot_be_overridden() {
        let env =
            ["FILCH_FENCE", "TRACEPARENT", "OWN"].map(|name| (name.to_owned(), "x".to_owned()));
        let command = Command { env: env.into(), fence: 7, ..command(&["a"]) };
        let words = words(&command, Path::new("/tmp/result")).unwrap();
        let order: Order = serde_json::from_slice(&words[4..]).unwrap();
        assert_eq!(order.env["FILCH_FENCE"], "7");
        assert_eq!(order.env["OWN"], "x");
        assert!(!order.env.contains_key("TRACEPARENT"));
    }

    #[test]
    fn explanations_fit_the_mistake() {
        let execute =
            |program, errno| explain(Failure { step: Step::Execute, errno }, &command(&[program]));
        assert!(execute("nonesuch", 2).contains("not in PATH"));
        assert!(execute("echo hello", 2).contains("commands run without a shell"));
        assert!(execute("/no/such", 2).contains("no such file"));
        assert!(execute("/etc/passwd", 13).contains("chmod +x"));
        let inside = Command { dir: Some("/no/such".into()), ..command(&["a"]) };
        let failure = Failure { step: Step::EnterFolder, errno: 2 };
        assert!(explain(failure, &inside).contains("enter the folder /no/such"));
    }
}
