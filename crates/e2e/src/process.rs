//! Processes that do not outlive their test, and what the system says of others.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::until::{until_blocking, when};

/// A process that is killed when this is dropped, with its group.
///
/// Should the test itself be killed, the system does the same: the process is started through a leash
/// (`filch-e2e-job leash`), which asks for that. The leash hangs on the *thread* that starts it, so
/// start processes on the test's own.
///
/// What workers start is in groups of its own; their guardians see to it.
pub struct Process {
    name: String,
    child: Child,
    talk: PathBuf,
}

/// What is started, and how.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// What it is called when something is wrong with it.
    pub name: &'a str,
    /// The program that holds the leash.
    pub leash: &'a Path,
    /// What is started.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [&'a str],
    /// Variables that it finds in its environment, beside those of the test.
    pub environment: &'a [(String, String)],
    /// Where it runs.
    pub folder: &'a Path,
    /// Where its stdout goes.
    pub data: &'a Path,
    /// Where its stderr goes.
    pub talk: &'a Path,
}

impl Process {
    /// Starts one.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(start: Start<'_>) -> Self {
        let file = |path: &Path| File::create(path).expect("the folder of the test can be written");
        let child = Command::new(start.leash)
            .arg("leash")
            .arg(std::process::id().to_string())
            .arg(start.program)
            .args(start.arguments)
            .current_dir(start.folder)
            // Nobody's settings but those of the test.
            .env_remove("FILCH_URL")
            .env_remove("FILCH_DATA")
            .envs(start.environment.iter().cloned())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(file(start.data))
            .stderr(file(start.talk))
            .spawn();
        let child = child
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", start.program.display()));
        Self { name: start.name.to_owned(), child, talk: start.talk.to_owned() }
    }

    /// Its number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("the number of a process")
    }

    fn number(&self) -> Pid {
        Pid::from_raw(self.pid()).expect("processes are numbered from 1 on")
    }

    /// Sends it a signal. It is not reaped before it is waited for, so the number is its own.
    ///
    /// # Panics
    /// If that cannot be done.
    pub fn signal(&self, signal: Signal) {
        let sent = kill_process(self.number(), signal);
        sent.unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.name));
    }

    /// Stops it as it stands; when this returns no thread of it runs.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let pid = self.pid();
        until_blocking("a process is stopped", || when(threads(pid).all(|state| state == 'T')));
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// `kill -9`; when this returns it is gone.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("a child can be waited for");
    }

    /// How it ended, if it has.
    ///
    /// # Panics
    /// If the system does not say.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits until it has ended.
    pub async fn end(&mut self) -> ExitStatus {
        let what = format!("{} ends", self.name);
        crate::until::until(&what, async || self.ended()).await
    }

    /// Sends its children a signal.
    pub fn signal_children(&self, signal: Signal) {
        for child in self.children() {
            // Who is gone needs no signal.
            let _ = kill_process(Pid::from_raw(child).expect("numbers of processes"), signal);
        }
    }

    /// How long it has been at work on a processor, alone or on several at once.
    ///
    /// # Panics
    /// If it is gone.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let ticks = Stat::of(self.pid()).expect("a process that was not waited for").ticks;
        Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64)
    }

    /// The bytes of memory that it takes up.
    ///
    /// # Panics
    /// If it is gone.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/statm", self.pid()));
        let text = text.expect("a process that was not waited for");
        let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
        pages.expect("the second number is the resident set") * page_size() as u64
    }

    /// The jobs that it runs at this moment: its children that are such.
    #[must_use]
    pub fn jobs(&self) -> Vec<Job> {
        self.children().filter_map(Job::look).collect()
    }

    /// The number of the guardian of this worker, if it has one at this moment.
    #[must_use]
    pub fn guardian(&self) -> Option<i32> {
        let is_guardian = |pid: &i32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|&byte| byte == 0).nth(1) == Some(b"guardian")
        };
        self.children().find(is_guardian)
    }

    fn children(&self) -> impl Iterator<Item = i32> + use<> {
        let mine = self.pid();
        numbers("/proc").filter(move |&pid| parent_of(pid) == Some(mine))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            // It may have left a group of its own behind, but never one of somebody else.
            let _ = kill_process_group(self.number(), Signal::KILL);
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let talk = std::fs::read_to_string(&self.talk).unwrap_or_default();
            let from = talk.len().saturating_sub(4_000);
            let from = (from..=talk.len()).find(|&at| talk.is_char_boundary(at)).unwrap_or(0);
            eprintln!("--- {} ({}) said:\n{}", self.name, self.pid(), &talk[from..]);
        }
    }
}

/// A process, told apart from a later one with the same number by when it was born.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its number.
    pub pid: i32,
    /// When it was started, as the system counts.
    pub born: u64,
}

impl Known {
    /// Whether it can still do anything. The dead whom nobody has reaped cannot.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Stat::of(self.pid)
            .is_some_and(|stat| stat.born == self.born && !matches!(stat.state, 'Z' | 'X'))
    }
}

/// This very process.
///
/// # Panics
/// If the system does not say.
#[must_use]
pub fn this() -> Known {
    let pid = i32::try_from(std::process::id()).expect("the number of a process");
    Known { pid, born: Stat::of(pid).expect("this process is alive").born }
}

/// Who started a process, or has taken it over.
#[must_use]
pub fn parent_of(pid: i32) -> Option<i32> {
    Stat::of(pid).map(|stat| stat.parent)
}

/// A process that runs a job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Who runs it.
    pub process: Known,
    /// The job's UUID.
    pub id: String,
    /// The number of its owner.
    pub fence: u64,
}

impl Job {
    /// A process is a job once it has become the command: before that it is a launcher, which was not
    /// told yet for which job.
    fn look(pid: i32) -> Option<Self> {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let variable = |name: &str| {
            let mut variables = environment.split(|&byte| byte == 0);
            let value = variables.find_map(|it| it.strip_prefix(format!("{name}=").as_bytes()))?;
            String::from_utf8(value.to_vec()).ok()
        };
        let (id, fence) = (variable("FILCH_JOB")?, variable("FILCH_FENCE")?.parse().ok()?);
        let process = Known { pid, born: Stat::of(pid)?.born };
        process.is_alive().then_some(Self { process, id, fence })
    }
}

/// The beginning of `/proc/PID/stat`.
struct Stat {
    state: char,
    parent: i32,
    /// How long it was on a processor, in the system's ticks.
    ticks: u64,
    born: u64,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::read(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn read(text: &str) -> Option<Self> {
        // The name may contain anything, parentheses too.
        let mut fields = text.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        // The state is the third field, work for itself and in the system the 14th and 15th, and the
        // birth the 22nd.
        let own: u64 = fields.nth(9)?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let ticks = own + system;
        Some(Self { state, parent, ticks, born: fields.nth(6)?.parse().ok()? })
    }
}

/// The state of each of its threads.
fn threads(pid: i32) -> impl Iterator<Item = char> {
    numbers(&format!("/proc/{pid}/task")).filter_map(move |thread| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
        Some(Stat::read(&stat)?.state)
    })
}

fn numbers(folder: &str) -> impl Iterator<Item = i32> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_of_another_time_is_not() {
        let this = this();
        assert!(this.is_alive());
        assert!(!Known { born: this.born + 1, ..this }.is_alive());
        assert!(parent_of(this.pid).is_some_and(|parent| parent != this.pid));
        assert_eq!(parent_of(-1), None);
    }
}
