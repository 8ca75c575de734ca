//! Processes that do not outlive their test, and what `/proc` shows of others.

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
/// If the test itself is killed, the kernel kills the process: it is started through a launcher
/// (`filch-e2e-job die-with-parent`), which asks for that. The kernel watches the *thread* that
/// starts the process, so start processes on the test's own thread.
///
/// The commands that workers start have their own process groups; the workers' guardians kill
/// those.
pub struct Process {
    name: String,
    child: Child,
    stderr: PathBuf,
}

/// What to start, and how.
#[derive(Clone, Copy)]
pub struct ProcessSpec<'a> {
    /// Its name in error messages.
    pub name: &'a str,
    /// The program that ties it to its parent: `filch-e2e-job`.
    pub launcher: &'a Path,
    /// The program to start.
    pub program: &'a Path,
    /// Its arguments.
    pub arguments: &'a [&'a str],
    /// Environment variables, in addition to those of the test.
    pub environment: &'a [(String, String)],
    /// Its working directory.
    pub folder: &'a Path,
    /// The file that receives its stdout.
    pub stdout: &'a Path,
    /// The file that receives its stderr.
    pub stderr: &'a Path,
}

impl Process {
    /// Starts one.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(start: ProcessSpec<'_>) -> Self {
        let file = |path: &Path| File::create(path).expect("the folder of the test can be written");
        let child = Command::new(start.launcher)
            .arg("die-with-parent")
            .arg(std::process::id().to_string())
            .arg(start.program)
            .args(start.arguments)
            .current_dir(start.folder)
            // No settings but those of the test.
            .env_remove("FILCH_URL")
            .env_remove("FILCH_DATA")
            .envs(start.environment.iter().cloned())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(file(start.stdout))
            .stderr(file(start.stderr))
            .spawn();
        let child = child
            .unwrap_or_else(|error| panic!("cannot start {}: {error}", start.program.display()));
        Self { name: start.name.to_owned(), child, stderr: start.stderr.to_owned() }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    fn number(&self) -> Pid {
        Pid::from_raw(self.pid()).expect("process ids begin at 1")
    }

    /// Sends it a signal. Its process id cannot be reused before it is waited for.
    ///
    /// # Panics
    /// If the kernel refuses.
    pub fn signal(&self, signal: Signal) {
        let sent = kill_process(self.number(), signal);
        sent.unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.name));
    }

    /// Suspends it with SIGSTOP; when this returns none of its threads runs.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
        let pid = self.pid();
        until_blocking("a process is suspended", || when(threads(pid).all(|state| state == 'T')));
    }

    /// Resumes it with SIGCONT.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// `kill -9`; when this returns it is gone.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("a child can be waited for");
    }

    /// Its exit status, if it has ended.
    ///
    /// # Panics
    /// If the kernel does not report it.
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
            // A child that is gone needs no signal.
            let _ = kill_process(Pid::from_raw(child).expect("process ids begin at 1"), signal);
        }
    }

    /// The CPU time that it has used, on all cores together.
    ///
    /// # Panics
    /// If it is gone.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let ticks = Stat::of(self.pid()).expect("a process that was not waited for").ticks;
        Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64)
    }

    /// Its resident memory in bytes.
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

    /// The jobs that it runs at this moment, found among its children.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobProcess> {
        self.children().filter_map(JobProcess::look).collect()
    }

    /// The process id of this worker's guardian, if it has one at this moment.
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
            // The group has its process id, so no other group can be hit.
            let _ = kill_process_group(self.number(), Signal::KILL);
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            let text = std::fs::read_to_string(&self.stderr).unwrap_or_default();
            let from = text.len().saturating_sub(4_000);
            let from = (from..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            eprintln!("--- stderr of {} ({}):\n{}", self.name, self.pid(), &text[from..]);
        }
    }
}

/// A process. Its start time distinguishes it from a later process with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// Its process id.
    pub pid: i32,
    /// When it was started, in clock ticks since boot.
    pub born: u64,
}

impl ProcessIdentity {
    /// Whether it can still do anything. A zombie cannot.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Stat::of(self.pid)
            .is_some_and(|stat| stat.born == self.born && !matches!(stat.state, 'Z' | 'X'))
    }
}

/// This process.
///
/// # Panics
/// If `/proc` cannot be read.
#[must_use]
pub fn this() -> ProcessIdentity {
    let pid = i32::try_from(std::process::id()).expect("a process id");
    ProcessIdentity { pid, born: Stat::of(pid).expect("this process is alive").born }
}

/// The parent of a process.
#[must_use]
pub fn parent_of(pid: i32) -> Option<i32> {
    Stat::of(pid).map(|stat| stat.parent)
}

/// A process that runs a job.
#[derive(Clone, Debug)]
pub struct JobProcess {
    /// The process.
    pub process: ProcessIdentity,
    /// The job's UUID.
    pub id: String,
    /// The fence under which it runs.
    pub fence: u64,
}

impl JobProcess {
    /// A process runs a job once it has become the command: before that it is a launcher that waits
    /// for its command.
    fn look(pid: i32) -> Option<Self> {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let variable = |name: &str| {
            let mut variables = environment.split(|&byte| byte == 0);
            let value = variables.find_map(|it| it.strip_prefix(format!("{name}=").as_bytes()))?;
            String::from_utf8(value.to_vec()).ok()
        };
        let (id, fence) = (variable("FILCH_JOB")?, variable("FILCH_FENCE")?.parse().ok()?);
        let process = ProcessIdentity { pid, born: Stat::of(pid)?.born };
        process.is_alive().then_some(Self { process, id, fence })
    }
}

/// The beginning of `/proc/PID/stat`.
struct Stat {
    state: char,
    parent: i32,
    /// CPU time in clock ticks.
    ticks: u64,
    born: u64,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::read(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn read(text: &str) -> Option<Self> {
        // The name may contain anything, also parentheses.
        let mut fields = text.rsplit_once(") ")?.1.split(' ');
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        // The state is the third field; user and system time are the 14th and 15th; the start time
        // is the 22nd.
        let user: u64 = fields.nth(9)?.parse().ok()?;
        let system: u64 = fields.next()?.parse().ok()?;
        let ticks = user + system;
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
    fn a_reused_process_id_is_another_process() {
        let this = this();
        assert!(this.is_alive());
        assert!(!ProcessIdentity { born: this.born + 1, ..this }.is_alive());
        assert!(parent_of(this.pid).is_some_and(|parent| parent != this.pid));
        assert_eq!(parent_of(-1), None);
    }
}
