//! Who ran when: every execution of a job writes down its start and its end, outside filch.
//!
//! There is one file per job, to which its executions append, each line in one write:
//!
//! ```text
//! start FENCE ATTEMPT PID BORN PARENT MICROS WALL
//! end FENCE OUTCOME MICROS WALL
//! beside FENCE OTHER_FENCE MICROS
//! ```
//!
//! Times are microseconds since boot, and milliseconds of the wall clock as the execution was told it. An execution that was killed has no second line, and nobody wrote
//! down when it died. So each looks, after it has written its own first line, whether one before it
//! without an end is still alive, and says so: that is the line `beside`, of which there must be none.
//! As both write before they look, two that begin at the same moment cannot miss each other.
//!
//! What must hold of all this is not said here: see [`crate::story`].

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use filch_scheduler::time::Wall;

use crate::process::{self, Known};
use crate::{since_boot, wall};

/// An execution that has begun, seen from inside.
pub struct Execution {
    /// The job's UUID.
    pub job: String,
    /// The number of its owner.
    pub fence: u64,
    file: File,
}

impl Execution {
    /// Writes down that this process begins to run the job which its environment names.
    ///
    /// # Panics
    /// If this process was not started by a worker.
    #[must_use]
    pub fn begin(folder: &Path) -> Self {
        let variable = |name: &str| {
            std::env::var(name)
                .unwrap_or_else(|_| panic!("no {name}: this is run by filch workers"))
        };
        let number = |name: &str| variable(name).parse::<u64>().expect("a number of filch's");
        let (job, fence) = (variable("FILCH_JOB"), number("FILCH_FENCE"));
        let path = folder.join(&job);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let mut execution = Self { job, fence, file: file.expect("the folder of runs is there") };
        let this = process::this();
        let parent = process::parent_of(this.pid).expect("this process is alive");
        let (attempt, Known { pid, born }) = (number("FILCH_ATTEMPT"), this);
        let (start, Wall(wall)) = (since_boot(), wall());
        execution.write(&format!("start {fence} {attempt} {pid} {born} {parent} {start} {wall}"));
        for run in read_file(&path) {
            if run.fence != fence && run.end.is_none() && run.process.is_alive() {
                execution.write(&format!("beside {fence} {} {}", run.fence, since_boot()));
            }
        }
        execution
    }

    /// Writes down that the work is over, and how.
    pub fn end(mut self, outcome: Outcome) {
        let (fence, outcome, at, Wall(wall)) = (self.fence, outcome.word(), since_boot(), wall());
        self.write(&format!("end {fence} {outcome} {at} {wall}"));
    }

    fn write(&mut self, line: &str) {
        self.file.write_all(format!("{line}\n").as_bytes()).expect("a line can be written");
    }
}

/// How an execution ended that was not killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its work is done.
    Done,
    /// Its work could not be done.
    Failed,
}

impl Outcome {
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
pub struct End {
    /// How.
    pub outcome: Outcome,
    /// When, in microseconds since boot.
    pub at: u64,
    /// And by the wall clock.
    pub wall: Wall,
}

/// An execution, seen from outside.
#[derive(Clone, Debug)]
pub struct Run {
    /// The number of the owner that ran it.
    pub fence: u64,
    /// Which attempt it was told to be.
    pub attempt: u16,
    /// Who ran.
    pub process: Known,
    /// The worker that started it.
    pub worker: i32,
    /// When it began, in microseconds since boot.
    pub start: u64,
    /// And by the wall clock.
    pub wall: Wall,
    /// How it ended; nothing if it was killed or still runs.
    pub end: Option<End>,
    /// The fence of an execution that was still alive when this one began.
    pub beside: Option<u64>,
}

/// What was written down of one job, in the order of its starts.
#[must_use]
pub fn of(folder: &Path, job: &str) -> Vec<Run> {
    read_file(&folder.join(job))
}

/// What was written down of all jobs.
///
/// # Panics
/// If the folder cannot be read.
#[must_use]
pub fn all(folder: &Path) -> BTreeMap<String, Vec<Run>> {
    let files = std::fs::read_dir(folder).expect("the folder of runs can be read");
    let paths = files.map(|file| file.expect("the folder of runs can be read").path());
    paths.map(|path| (name(&path), read_file(&path))).collect()
}

fn name(path: &Path) -> String {
    path.file_name().and_then(|name| name.to_str()).expect("the name of a job").to_owned()
}

/// Of a file that is not there yet, nothing.
fn read_file(path: &Path) -> Vec<Run> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut runs: Vec<Run> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let nonsense = || -> ! { panic!("{}: what is {line:?}?", path.display()) };
        let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| nonsense());
        let pid = |word: &str| word.parse::<i32>().unwrap_or_else(|_| nonsense());
        match words[..] {
            ["start", fence, attempt, process, born, parent, start, wall] => runs.push(Run {
                fence: number(fence),
                attempt: attempt.parse().unwrap_or_else(|_| nonsense()),
                process: Known { pid: pid(process), born: number(born) },
                worker: pid(parent),
                start: number(start),
                wall: Wall(number(wall)),
                end: None,
                beside: None,
            }),
            ["end", fence, outcome, at, wall] => {
                let outcome = Outcome::read(outcome).unwrap_or_else(|| nonsense());
                let end = End { outcome, at: number(at), wall: Wall(number(wall)) };
                of_fence(&mut runs, number(fence)).end = Some(end);
            }
            ["beside", fence, other, _] => {
                of_fence(&mut runs, number(fence)).beside = Some(number(other));
            }
            _ => nonsense(),
        }
    }
    runs
}

fn of_fence(runs: &mut [Run], fence: u64) -> &mut Run {
    runs.iter_mut().rev().find(|run| run.fence == fence).expect("it has begun")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_down_can_be_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "start 1 1 7 8 2 100 40\nstart 3 2 9 8 2 200 41\nbeside 3 1 201\n\
                    end 3 failed 300 42\n";
        std::fs::write(file.path(), text).unwrap();
        let runs = read_file(file.path());
        assert_eq!(runs.len(), 2);
        assert_eq!((runs[0].end, runs[0].beside, runs[0].attempt), (None, None, 1));
        let failed = End { outcome: Outcome::Failed, at: 300, wall: Wall(42) };
        assert_eq!((runs[1].end, runs[1].beside, runs[1].start), (Some(failed), Some(1), 200));
        assert_eq!((runs[0].wall, runs[1].wall), (Wall(40), Wall(41)));
        assert_eq!(runs[1].process, Known { pid: 9, born: 8 });
    }
}
