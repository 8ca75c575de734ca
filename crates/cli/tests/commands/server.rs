//! A server that lives as long as a test, and the program that is run against it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use filch_api::token::is_in;
use serde_json::Value;
use tempfile::TempDir;

/// What a command printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// The same, if it went well.
    #[track_caller]
    pub(crate) fn fine(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// The same, if it ended with this code and said this.
    #[track_caller]
    pub(crate) fn refused(self, code: i32, said: &str) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains(said), "{said:?} is not in {self:?}");
        self
    }

    /// The one line on stdout.
    #[track_caller]
    pub(crate) fn line(&self) -> &str {
        let lines: Vec<&str> = self.stdout.lines().collect();
        let [line] = lines[..] else { panic!("one line in {self:?}") };
        line
    }

    pub(crate) fn lines(&self) -> Vec<&str> {
        self.stdout.lines().collect()
    }

    /// Rows of cells, without the heading.
    pub(crate) fn rows(&self) -> Vec<Vec<&str>> {
        self.stdout.lines().skip(1).map(|line| line.split('\t').collect()).collect()
    }

    /// What is said of one thing under this name.
    #[track_caller]
    pub(crate) fn fact(&self, name: &str) -> &str {
        let facts = self.stdout.lines().filter_map(|line| line.split_once('\t'));
        let mut named = facts.filter(|(fact, _)| *fact == name);
        named.next().unwrap_or_else(|| panic!("no {name} in {self:?}")).1
    }

    /// The one document on stdout.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let document: Value = serde_json::from_str(&self.stdout).expect("one JSON document");
        assert_eq!(document["v"], 1, "{document}");
        document
    }

    /// The objects on stdout, one a line.
    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let read = |line: &str| {
            let object: Value = serde_json::from_str(line).expect("one JSON object a line");
            assert_eq!(object["v"], 1, "{object}");
            object
        };
        self.stdout.lines().map(read).collect()
    }
}

/// The program, away from whatever the machine has set.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_filch"));
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.to_string_lossy().starts_with("FILCH_")) {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").env("XDG_CONFIG_HOME", "/nowhere");
    command
}

/// Runs a command with this input to its end.
pub(crate) fn end(command: &mut Command, input: &str) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built for this test");
    let mut stdin = child.stdin.take().expect("asked for");
    let input = input.to_owned();
    // Who does not read its input may be gone already; who answers meanwhile must be read.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().expect("it was started");
    feeding.join().expect("feeding does not panic");
    Ended {
        code: output.status.code().expect("it was not killed"),
        stdout: String::from_utf8(output.stdout).expect("it prints text"),
        stderr: String::from_utf8(output.stderr).expect("it prints text"),
    }
}

/// Runs `filch` where no server is meant.
pub(crate) fn filch(words: &[&str]) -> Ended {
    end(program().args(words), "")
}

/// Where a server keeps its jobs, below the folder of the test.
pub(crate) const DATA: &str = "data";

/// A server over a folder of its own. It is killed at the end.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    folder: TempDir,
}

impl Server {
    /// A server with two slots for jobs.
    pub(crate) fn up() -> Self {
        Self::start(&["up", "--slots", "2"])
    }

    /// A server on which nothing ever starts.
    pub(crate) fn idle() -> Self {
        Self::start(&["server", "start"])
    }

    fn start(words: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().expect("there is room for a folder"), words)
    }

    /// A server over a folder that holds what this file holds.
    pub(crate) fn restored(file: &Path) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let data = folder.path().join(DATA);
        std::fs::create_dir(&data).expect("there is room for a folder");
        std::fs::copy(file, data.join("filch.db")).expect("there is room for a file");
        Self::start_in(folder, &["up", "--slots", "2"])
    }

    fn start_in(folder: TempDir, words: &[&str]) -> Self {
        let (child, url) = Self::serve(words, folder.path(), "127.0.0.1:0");
        Self { child, url, folder }
    }

    /// Kills it, and starts one without workers at the same place.
    pub(crate) fn restart(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let place = self.url.trim_start_matches("http://").to_owned();
        (self.child, self.url) = Self::serve(&["server", "start"], self.folder.path(), &place);
    }

    fn serve(words: &[&str], folder: &Path, listen: &str) -> (Child, String) {
        let mut child = program()
            .args(words)
            .args(["--listen", listen, "--data"])
            .arg(folder.join(DATA))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::options().create(true).append(true).open(log(folder)).expect("a log"))
            .spawn()
            .expect("the program was built for this test");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("asked for");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it is");
        let url = line.trim().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{url:?} is no place");
        (child, url)
    }

    /// A folder for files of the test's own.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder().join(name);
        std::fs::write(&path, text).expect("there is room for a file");
        path
    }

    /// The program with these words, for this server.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = program();
        command.args(words).env("FILCH_URL", &self.url).current_dir(self.folder());
        command
    }

    pub(crate) fn filch(&self, words: &[&str]) -> Ended {
        end(&mut self.command(words), "")
    }

    pub(crate) fn feed(&self, words: &[&str], input: &str) -> Ended {
        end(&mut self.command(words), input)
    }

    /// Submits by these words, and gives the id.
    #[track_caller]
    pub(crate) fn id(&self, words: &[&str]) -> String {
        self.filch(words).fine().line().to_owned()
    }

    /// A command that died, and its id.
    #[track_caller]
    pub(crate) fn dead(&self, words: &[&str]) -> String {
        let words = [&["submit", "--retry", "1"], words, &["--", "false"]].concat();
        let id = self.id(&words);
        self.filch(&["wait", &id]).refused(100, "exit code 1");
        id
    }

    /// The job as the program shows it.
    #[track_caller]
    pub(crate) fn job(&self, id: &str) -> Value {
        self.filch(&["job", "show", "--json", id]).fine().json()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !std::thread::panicking() {
            let said = std::fs::read(log(self.folder())).expect("it was made");
            assert!(!is_in(&String::from_utf8_lossy(&said)), "a token is in the server's log");
        }
    }
}

/// What a server in this folder says on stderr.
fn log(folder: &Path) -> PathBuf {
    folder.join("server.log")
}

/// A program that runs beside the test, and is killed if it still does at the end.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("the program was built for this test"))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for a line on stdout.
    pub(crate) fn next_line(&mut self) -> String {
        line(self.0.stdout.as_mut().expect("asked for"))
    }

    /// A line on stdout, if one begins within this time.
    pub(crate) fn line_within(&mut self, patience: Duration) -> Option<String> {
        let stdout = self.0.stdout.as_ref().expect("asked for");
        let mut fds = [rustix::event::PollFd::new(stdout, rustix::event::PollFlags::IN)];
        let patience = rustix::time::Timespec::try_from(patience).expect("it is short");
        let ready = rustix::event::poll(&mut fds, Some(&patience)).expect("it can be waited for");
        (ready > 0).then(|| self.next_line())
    }

    /// Waits for a line on stderr that is not a line of the log.
    pub(crate) fn next_stderr_line(&mut self) -> String {
        loop {
            let line = line(self.0.stderr.as_mut().expect("asked for"));
            let is_log = line.starts_with("20") && line.contains("Z ");
            if !is_log {
                return line;
            }
        }
    }

    /// Waits for a line on stderr that contains this text.
    pub(crate) fn stderr_line_with(&mut self, text: &str) -> String {
        loop {
            let line = line(self.0.stderr.as_mut().expect("asked for"));
            assert!(!line.is_empty(), "it ended without {text:?}");
            if line.contains(text) {
                return line;
            }
        }
    }

    /// What it has said on stderr, after which it is ended.
    pub(crate) fn kill_and_read_stderr(&mut self) -> String {
        let _ = self.0.kill();
        let mut said = String::new();
        let stderr = self.0.stderr.as_mut().expect("asked for");
        stderr.read_to_string(&mut said).expect("it says text");
        said
    }

    /// Lets it shut down gracefully, and returns what is left on stderr.
    pub(crate) fn stop(&mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let mut stderr = String::new();
        self.0.stderr.as_mut().expect("asked for").read_to_string(&mut stderr).expect("text");
        assert_eq!(self.code(), Some(0), "{stderr}");
        stderr
    }

    pub(crate) fn code(&mut self) -> Option<i32> {
        self.0.wait().expect("it was started").code()
    }
}

/// The next line, and not a byte more.
fn line(stream: &mut impl Read) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).expect("it can be read") == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("it prints text")
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until this holds, and no longer than a minute.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Interrupts a program, once it listens to that: before, the signal would simply kill it.
pub(crate) fn interrupt(running: &Running) {
    let pid = running.pid();
    until("it listens to SIGINT", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught
            .and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok())
            .is_some_and(|it| it & 2 != 0)
    });
    let told = Command::new("kill").args(["-INT", &pid.to_string()]).status();
    assert!(told.is_ok_and(|status| status.success()));
}
