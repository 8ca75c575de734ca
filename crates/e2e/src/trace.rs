//! `strace`, attached to a server: sees what it does to its store, and lets a call fail or kill at an exact
//! point.
//!
//! A call that kills is not carried out, and neither is one that fails. Calls are counted for each thread
//! by itself; one thread alone writes to a store that is open.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::process::Process;
use crate::stage::{Manner, Program, Stage};
use crate::until::{until, when};

/// The calls by which a file changes, or is made to last. Those with a question mark exist not everywhere.
const CALLS: &str = "write,pwrite64,writev,pwritev,pwritev2,ftruncate,fallocate,?unlink,unlinkat,\
                     ?rename,?renameat,renameat2,fsync,fdatasync";

/// The files of a store, and the folder that they are in.
pub const STORE: &[&str] =
    &["", "filch.db", "filch.db-wal", "filch.db-journal", "filch.db.lock", "filch.db.ballast"];

/// A call of a thread to a file of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// What was called.
    pub call: String,
    /// How many of these the thread has made, this one included.
    pub number: usize,
}

impl Point {
    /// Kills the server instead of it.
    #[must_use]
    pub fn kill(&self) -> String {
        format!("inject={}:signal=KILL:when={}", self.call, self.number)
    }
}

/// A tracer that is attached to a process.
pub struct Trace {
    tracer: Program,
    calls: PathBuf,
}

impl Trace {
    /// Attaches to a server whose data are in the folder `data` of the stage, and looks at what it does
    /// to these files there. `expressions` are what `strace` takes after `-e`.
    pub async fn attach(
        stage: &Stage,
        server: &Process,
        files: &[&str],
        expressions: &[String],
    ) -> Self {
        let calls = stage.path("calls");
        let _ = std::fs::remove_file(&calls);
        let pid = server.pid().to_string();
        let mut arguments = arguments(&stage.path("data"), files, &calls, expressions);
        arguments.extend(["-p".to_owned(), pid]);
        let tracer = start(stage, &arguments);
        let mut trace = Self { tracer, calls };
        until("the tracer is attached", async || {
            let has_ended = trace.tracer.process.ended().is_some();
            let said = trace.tracer.said();
            // It may have ended with the server since, at the very first call.
            let is_attached = said.contains("attached");
            assert!(is_attached || !has_ended, "nothing can be traced here: {said}");
            when(is_attached)
        })
        .await;
        trace
    }

    /// What was called, in order. The tracer ends with the process.
    pub async fn end(mut self) -> Vec<Point> {
        self.tracer.process.end().await;
        read(&self.calls)
    }
}

/// Starts a server under a tracer, and stops it when it is up. Returns whether it was killed before it had
/// stopped, and what was called.
///
/// # Panics
/// If nothing can be traced here.
pub async fn up_and_down(stage: &Stage, expressions: &[String]) -> (bool, Vec<Point>) {
    let calls = stage.path("calls");
    let _ = std::fs::remove_file(&calls);
    let data = stage.path("data");
    let mut through = vec!["strace".to_owned()];
    through.extend(arguments(&data, STORE, &calls, expressions));
    let manner = Manner { through, ..Manner::default() };
    let data = data.to_str().expect("a path in UTF-8");
    let words = ["server", "start", "--listen", "127.0.0.1:0", "--data", data];
    let mut program = stage.filch_in(&manner, &stage.path(""), &words);
    until("the server is up, or gone", async || {
        when(program.printed().contains('\n') || program.process.ended().is_some())
    })
    .await;
    if program.process.ended().is_none() {
        program.process.signal_children(Signal::TERM);
    }
    let status = program.process.end().await;
    // The tracer ends as the server did.
    assert!(status.success() || status.code().is_none(), "{status}: {}", program.said());
    (!status.success(), read(&calls))
}

fn read(calls: &Path) -> Vec<Point> {
    points(&std::fs::read_to_string(calls).expect("the tracer writes it all down"))
}

fn start(stage: &Stage, arguments: &[String]) -> Program {
    let manner = Manner { program: Some("strace".into()), ..Manner::default() };
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    stage.filch_in(&manner, &stage.path(""), &words)
}

fn arguments(data: &Path, files: &[&str], calls: &Path, expressions: &[String]) -> Vec<String> {
    let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
    let mut arguments: Vec<String> = ["-f", "-o"].map(str::to_owned).into();
    arguments.push(text(calls));
    let data = data.canonicalize().expect("the folder of the data is there");
    let paths = files.iter().map(|file| text(&data.join(file)));
    // The folder itself has no slash behind its name.
    let paths = paths.map(|path| path.trim_end_matches('/').to_owned());
    arguments.extend(paths.flat_map(|path| ["-P".to_owned(), path]));
    let usual = [format!("trace={CALLS}"), "signal=none".to_owned()];
    let expressions = usual.iter().chain(expressions);
    arguments.extend(expressions.flat_map(|it| ["-e".to_owned(), it.clone()]));
    arguments
}

/// Each line begins with the number of the thread and the name of the call; what is resumed has been told
/// before.
fn points(text: &str) -> Vec<Point> {
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
        points.push(Point { call: call.to_owned(), number: *count });
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_for_each_thread() {
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
