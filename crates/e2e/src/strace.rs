//! `strace`, attached to a server: records the calls by which it changes its store, and lets one of
//! them fail or kill the server.
//!
//! A call that kills is not carried out, and neither is one that fails. Calls are counted per
//! thread; only one thread writes to an open store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::process::Process;
use crate::test_env::{LaunchOptions, StartedProgram, TestEnv};
use crate::until::{until, when};

/// The calls that change or sync a file. Those with a question mark do not exist on all systems.
const CALLS: &str = "write,pwrite64,writev,pwritev,pwritev2,ftruncate,fallocate,?unlink,unlinkat,\
                     ?rename,?renameat,renameat2,fsync,fdatasync";

/// The files of a store, and their folder.
pub const STORE: &[&str] =
    &["", "filch.db", "filch.db-wal", "filch.db-journal", "filch.db.lock", "filch.db.ballast"];

/// A call of a thread to a file of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallPoint {
    /// The name of the call.
    pub call: String,
    /// How many calls of this name the thread has made, including this one.
    pub number: usize,
}

impl CallPoint {
    /// The `strace` expression that kills the server instead of making this call.
    #[must_use]
    pub fn kill(&self) -> String {
        format!("inject={}:signal=KILL:when={}", self.call, self.number)
    }
}

/// A tracer that is attached to a process.
pub struct Strace {
    tracer: StartedProgram,
    calls: PathBuf,
}

impl Strace {
    /// Attaches to a server with its data in the folder `data` of the environment, and records what
    /// it does to these files. `expressions` are arguments of `strace -e`.
    pub async fn attach(
        env: &TestEnv,
        server: &Process,
        files: &[&str],
        expressions: &[String],
    ) -> Self {
        let calls = env.path("calls");
        let _ = std::fs::remove_file(&calls);
        let pid = server.pid().to_string();
        let mut arguments = arguments(&env.path("data"), files, &calls, expressions);
        arguments.extend(["-p".to_owned(), pid]);
        let tracer = start(env, &arguments);
        let mut trace = Self { tracer, calls };
        until("the tracer is attached", async || {
            let has_ended = trace.tracer.process.ended().is_some();
            let text = trace.tracer.stderr();
            // It may have ended with the server since, at the very first call.
            let is_attached = text.contains("attached");
            assert!(is_attached || !has_ended, "`strace` cannot trace here: {text}");
            when(is_attached)
        })
        .await;
        trace
    }

    /// The calls, in order. The tracer ends with the process.
    pub async fn end(mut self) -> Vec<CallPoint> {
        self.tracer.process.end().await;
        read(&self.calls)
    }
}

/// Starts a server under a tracer, and shuts it down once it is up. Returns whether it was killed
/// before that was done, and its calls.
///
/// # Panics
/// If nothing can be traced here.
pub async fn start_and_stop(env: &TestEnv, expressions: &[String]) -> (bool, Vec<CallPoint>) {
    let calls = env.path("calls");
    let _ = std::fs::remove_file(&calls);
    let data = env.path("data");
    let mut wrapper = vec!["strace".to_owned()];
    wrapper.extend(arguments(&data, STORE, &calls, expressions));
    let options = LaunchOptions { wrapper, ..LaunchOptions::default() };
    let data = data.to_str().expect("a path in UTF-8");
    let words = ["server", "start", "--listen", "127.0.0.1:0", "--data", data];
    let mut program = env.filch_with(&options, &env.path(""), &words);
    until("the server is up, or gone", async || {
        when(program.stdout().contains('\n') || program.process.ended().is_some())
    })
    .await;
    if program.process.ended().is_none() {
        program.process.signal_children(Signal::TERM);
    }
    let status = program.process.end().await;
    // The tracer ends with the exit status of the server.
    assert!(status.success() || status.code().is_none(), "{status}: {}", program.stderr());
    (!status.success(), read(&calls))
}

fn read(calls: &Path) -> Vec<CallPoint> {
    points(&std::fs::read_to_string(calls).expect("the tracer writes this file"))
}

fn start(env: &TestEnv, arguments: &[String]) -> StartedProgram {
    let options = LaunchOptions { program: Some("strace".into()), ..LaunchOptions::default() };
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    env.filch_with(&options, &env.path(""), &words)
}

fn arguments(data: &Path, files: &[&str], calls: &Path, expressions: &[String]) -> Vec<String> {
    let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    let mut arguments: Vec<String> = ["-f", "-o"].map(str::to_owned).into();
    arguments.push(text(calls));
    let data = data.canonicalize().expect("the folder of the data is there");
    let paths = files.iter().map(|file| text(&data.join(file)));
    // The folder itself has no slash at the end.
    let paths = paths.map(|path| path.trim_end_matches('/').to_owned());
    arguments.extend(paths.flat_map(|path| ["-P".to_owned(), path]));
    let usual = [format!("trace={CALLS}"), "signal=none".to_owned()];
    let expressions = usual.iter().chain(expressions);
    arguments.extend(expressions.flat_map(|it| ["-e".to_owned(), it.clone()]));
    arguments
}

/// Each line begins with the thread id and the name of the call. A resumed call was already
/// counted.
fn points(text: &str) -> Vec<CallPoint> {
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let calls = text.lines().filter_map(|line| {
        let (thread, rest) = line.split_once(' ')?;
        let (call, _) = rest.trim_start().split_once('(')?;
        let is_name = call.chars().all(|it| it.is_ascii_alphanumeric() || it == '_');
        is_name.then_some((thread, call))
    });
    let mut points = Vec::new();
    for (thread, call) in calls {
        let count = counts.entry((thread, call)).or_default();
        *count += 1;
        points.push(CallPoint { call: call.to_owned(), number: *count });
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_per_thread() {
        let text = "\
7 pwrite64(9, \"a\"..., 24, 0) = 24
8 pwrite64(9, \"a\", 1, 0 <unfinished ...>
7 fdatasync(9) = 0
8 <... pwrite64 resumed>) = 1
7 pwrite64(9, \"(\", 1, 0) = ? ERESTARTNOINTR (To be restarted)
7 +++ killed by SIGKILL +++
";
        let points = points(text);
        let found: Vec<_> = points.iter().map(|it| (it.call.as_str(), it.number)).collect();
        let expected = [("pwrite64", 1), ("pwrite64", 1), ("fdatasync", 1), ("pwrite64", 2)];
        assert_eq!(found, expected);
    }
}
