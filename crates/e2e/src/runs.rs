//! Who ran when: every execution of a job writes down its start and its end, outside filch.
//!
//! There is one file per job, to which its executions append, each line in one write:
//!
//! ```text
//! start FENCE ATTEMPT PID BORN PARENT MICROS
//! end FENCE MICROS
//! beside FENCE OTHER_FENCE MICROS
//! ```
//!
//! Times are microseconds since boot. An execution that was killed has no second line, and nobody wrote
//! down when it died. So each looks, after it has written its own first line, whether one before it
//! without an end is still alive, and says so: that is the line `beside`, of which there must be none.
//! As both write before they look, two that begin at the same moment cannot miss each other.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use crate::process::{self, Known};
use crate::since_boot;

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
        let start = since_boot();
        execution.write(&format!("start {fence} {attempt} {pid} {born} {parent} {start}"));
        for run in read_file(&path) {
            if run.fence != fence && run.end.is_none() && run.process.is_alive() {
                execution.write(&format!("beside {fence} {} {}", run.fence, since_boot()));
            }
        }
        execution
    }

    /// Writes down that the work is done.
    pub fn end(mut self) {
        self.write(&format!("end {} {}", self.fence, since_boot()));
    }

    fn write(&mut self, line: &str) {
        self.file.write_all(format!("{line}\n").as_bytes()).expect("a line can be written");
    }
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
    /// When it was done; nothing if it was killed or still runs.
    pub end: Option<u64>,
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

/// What must hold of the executions of any job, whoever was killed meanwhile: no two at once, and every
/// owner has a higher fence than the one before. Says what does not hold.
#[must_use]
pub fn objection(runs: &[Run]) -> Option<String> {
    if let Some(run) = runs.iter().find(|run| run.beside.is_some()) {
        return Some(format!("another was alive when this one began: {run:?}"));
    }
    let mut pairs = runs.windows(2);
    pairs.find_map(|pair| match pair {
        [older, newer] if older.fence >= newer.fence => {
            Some(format!("the fence does not grow: {older:?} {newer:?}"))
        }
        [older, newer] if older.end.is_some_and(|end| end > newer.start) => {
            Some(format!("two at once: {older:?} {newer:?}"))
        }
        [older, _] if older.end.is_none() && older.process.is_alive() => {
            Some(format!("it outlives its successor: {older:?}"))
        }
        _ => None,
    })
}

fn name(path: &Path) -> String {
    path.file_name().and_then(|name| name.to_str()).expect("the name of a job").to_owned()
}

/// Of a file that is not there yet, nothing.
fn read_file(path: &Path) -> Vec<Run> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut runs: Vec<Run> = Vec::new();
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').expect("a word and numbers");
        let numbers: Vec<u64> =
            rest.split(' ').map(|number| number.parse().expect("a number")).collect();
        let narrow = |number: u64| i32::try_from(number).expect("the number of a process");
        match (word, &numbers[..]) {
            ("start", &[fence, attempt, pid, born, parent, start]) => runs.push(Run {
                fence,
                attempt: u16::try_from(attempt).expect("the number of an attempt"),
                process: Known { pid: narrow(pid), born },
                worker: narrow(parent),
                start,
                end: None,
                beside: None,
            }),
            ("end", &[fence, end]) => of_fence(&mut runs, fence).end = Some(end),
            ("beside", &[fence, other, _]) => of_fence(&mut runs, fence).beside = Some(other),
            _ => panic!("{}: what is {line:?}?", path.display()),
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

    fn read(text: &str) -> Vec<Run> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read_file(file.path())
    }

    #[test]
    fn runs_one_after_the_other_are_fine() {
        // No process was ever born so late.
        let born = u64::MAX;
        let runs = read(&format!(
            "start 1 1 1 {born} 1 100\nstart 3 1 1 {born} 1 200\nend 3 300\nstart 4 2 1 1 1 300\n"
        ));
        assert_eq!(runs.len(), 3);
        assert_eq!((runs[0].end, runs[1].end, runs[2].end), (None, Some(300), None));
        assert_eq!(objection(&runs), None);
    }

    #[test]
    fn a_checker_that_finds_nothing_is_no_checker() {
        let Known { pid, born } = process::this();
        for (text, complaint) in [
            ("start 1 1 1 9 1 100\nstart 2 1 1 9 1 200\nend 1 201\nend 2 300\n".into(), "two at"),
            ("start 2 1 1 9 1 100\nend 2 110\nstart 2 1 1 9 1 200\n".into(), "does not grow"),
            ("start 1 1 1 9 1 100\nstart 2 1 1 9 1 200\nbeside 2 1 201\n".into(), "was alive"),
            (format!("start 1 1 {pid} {born} 1 100\nstart 2 1 1 9 1 200\n"), "outlives"),
        ] {
            let found = objection(&read(&text)).unwrap_or_default();
            assert!(found.contains(complaint), "{text}: {found}");
        }
    }
}
