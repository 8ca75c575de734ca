//! The executions of jobs: each records its start and its end, outside filch.
//!
//! There is one file per job, to which its executions append, each line in one write:
//!
//! ```text
//! start FENCE ATTEMPT PID BORN PARENT MICROS WALL
//! end FENCE OUTCOME MICROS WALL
//! beside FENCE OTHER_FENCE MICROS
//! ```
//!
//! Times are microseconds since boot, and milliseconds of the wall clock as the execution sees it.
//! An execution that was killed has no second line, and the time of its death is not recorded. So
//! each execution checks, after it has written its first line, whether an earlier one without an
//! end is still alive, and records that: this is the line `beside`, of which there must be none.
//! Both write before they look, so two that start at the same moment cannot miss each other.
//!
//! The rules that all this must follow are in [`crate::job_history`].

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use filch_scheduler::time::Wall;

use crate::process::{self, ProcessIdentity};
use crate::{since_boot, wall};

/// A running execution, seen from inside.
pub struct Execution {
    /// The job's UUID.
    pub job: String,
    /// Its fence.
    pub fence: u64,
    file: File,
}

impl Execution {
    /// Records that this process starts to run the job that its environment names.
    ///
    /// # Panics
    /// If this process was not started by a worker.
    #[must_use]
    pub fn begin(folder: &Path) -> Self {
        let variable = |name: &str| {
            std::env::var(name)
                .unwrap_or_else(|_| panic!("{name} is not set: filch workers run this program"))
        };
        let number = |name: &str| variable(name).parse::<u64>().expect("filch sets a number");
        let (job, fence) = (variable("FILCH_JOB"), number("FILCH_FENCE"));
        let path = folder.join(&job);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let mut execution = Self { job, fence, file: file.expect("the folder of runs exists") };
        let this = process::this();
        let parent = process::parent_of(this.pid).expect("this process is alive");
        let (attempt, ProcessIdentity { pid, born }) = (number("FILCH_ATTEMPT"), this);
        let (start, Wall(wall)) = (since_boot(), wall());
        execution.write(&format!("start {fence} {attempt} {pid} {born} {parent} {start} {wall}"));
        for run in read_file(&path) {
            if run.fence != fence && run.end.is_none() && run.process.is_alive() {
                execution.write(&format!("beside {fence} {} {}", run.fence, since_boot()));
            }
        }
        execution
    }

    /// Records that the execution is over, and its outcome.
    pub fn end(mut self, outcome: RunOutcome) {
        let (fence, outcome, at, Wall(wall)) = (self.fence, outcome.word(), since_boot(), wall());
        self.write(&format!("end {fence} {outcome} {at} {wall}"));
    }

    fn write(&mut self, line: &str) {
        self.file.write_all(format!("{line}\n").as_bytes()).expect("a line can be written");
    }
}

/// How an execution ended that was not killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunOutcome {
    /// It succeeded.
    Done,
    /// It failed.
    Failed,
}

impl RunOutcome {
    const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    fn read(word: &str) -> Option<Self> {
        [Self::Done, Self::Failed].into_iter().find(|outcome| outcome.word() == word)
    }
}

/// The end of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The outcome.
    pub outcome: RunOutcome,
    /// When, in microseconds since boot.
    pub at: u64,
    /// The same by the wall clock.
    pub wall: Wall,
}

/// An execution, seen from outside.
#[derive(Clone, Debug)]
pub struct JobRun {
    /// The fence under which it ran.
    pub fence: u64,
    /// The number of the attempt, as the worker passed it.
    pub attempt: u16,
    /// The process.
    pub process: ProcessIdentity,
    /// The process id of its worker.
    pub worker: i32,
    /// When it started, in microseconds since boot.
    pub start: u64,
    /// The same by the wall clock.
    pub wall: Wall,
    /// How it ended; `None` if it was killed or still runs.
    pub end: Option<RunEnd>,
    /// The fence of an execution that was still alive when this one started.
    pub beside: Option<u64>,
}

/// The executions of one job, in the order of their starts.
#[must_use]
pub fn of(folder: &Path, job: &str) -> Vec<JobRun> {
    read_file(&folder.join(job))
}

/// The executions of all jobs.
///
/// # Panics
/// If the folder cannot be read.
#[must_use]
pub fn all(folder: &Path) -> BTreeMap<String, Vec<JobRun>> {
    let files = std::fs::read_dir(folder).expect("the folder of runs can be read");
    let paths = files.map(|file| file.expect("the folder of runs can be read").path());
    paths.map(|path| (name(&path), read_file(&path))).collect()
}

fn name(path: &Path) -> String {
    path.file_name().and_then(|name| name.to_str()).expect("the name of a job").to_owned()
}

/// Returns nothing if the file does not exist yet.
fn read_file(path: &Path) -> Vec<JobRun> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut runs: Vec<JobRun> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let malformed = || -> ! { panic!("{}: malformed line {line:?}", path.display()) };
        let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| malformed());
        let pid = |word: &str| word.parse::<i32>().unwrap_or_else(|_| malformed());
        match words[..] {
            ["start", fence, attempt, process, born, parent, start, wall] => runs.push(JobRun {
                fence: number(fence),
                attempt: attempt.parse().unwrap_or_else(|_| malformed()),
                process: ProcessIdentity { pid: pid(process), born: number(born) },
                worker: pid(parent),
                start: number(start),
                wall: Wall(number(wall)),
                end: None,
                beside: None,
            }),
            ["end", fence, outcome, at, wall] => {
                let outcome = RunOutcome::read(outcome).unwrap_or_else(|| malformed());
                let end = RunEnd { outcome, at: number(at), wall: Wall(number(wall)) };
                of_fence(&mut runs, number(fence)).end = Some(end);
            }
            ["beside", fence, other, _] => {
                of_fence(&mut runs, number(fence)).beside = Some(number(other));
            }
            _ => malformed(),
        }
    }
    runs
}

fn of_fence(runs: &mut [JobRun], fence: u64) -> &mut JobRun {
    runs.iter_mut().rev().find(|run| run.fence == fence).expect("it has started")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_executions_can_be_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "start 1 1 7 8 2 100 40\nstart 3 2 9 8 2 200 41\nbeside 3 1 201\n\
                    end 3 failed 300 42\n";
        std::fs::write(file.path(), text).unwrap();
        let runs = read_file(file.path());
        assert_eq!(runs.len(), 2);
        assert_eq!((runs[0].end, runs[0].beside, runs[0].attempt), (None, None, 1));
        let failed = RunEnd { outcome: RunOutcome::Failed, at: 300, wall: Wall(42) };
        assert_eq!((runs[1].end, runs[1].beside, runs[1].start), (Some(failed), Some(1), 200));
        assert_eq!((runs[0].wall, runs[1].wall), (Wall(40), Wall(41)));
        assert_eq!(runs[1].process, ProcessIdentity { pid: 9, born: 8 });
    }
}
