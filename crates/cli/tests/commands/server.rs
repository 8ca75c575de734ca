//! A server for a test, and the program that runs against it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use filch_api::token::is_in;
use serde_json::Value;
use tempfile::TempDir;

/// The output and exit code of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Asserts success.
    #[track_caller]
    pub(crate) fn fine(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Asserts the exit code and a part of stderr.
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

    /// The value of the field with this name.
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

    /// The JSON lines on stdout.
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

/// The program, without settings from the environment.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_filch"));
    let ours = std::env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.to_string_lossy().starts_with("FILCH_")) {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").env("XDG_CONFIG_HOME", "/nowhere");
    command
}

/// Runs a command to its end, with this input.
pub(crate) fn end(command: &mut Command, input: &str) -> Ended {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built for this test");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_owned();
    // The program may exit without reading its input, and its output must be read while it gets
    // input.
    let feeding = std::thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().expect("it was started");
    feeding.join().expect("feeding does not panic");
    Ended {
        code: output.status.code().expect("it was not killed"),
        stdout: String::from_utf8(output.stdout).expect("it prints text"),
        stderr: String::from_utf8(output.stderr).expect("it prints text"),
    }
}

/// Runs `filch` without a server.
pub(crate) fn filch(words: &[&str]) -> Ended {
    end(program().args(words), "")
}

/// The data directory, below the directory of the test.
pub(crate) const DATA: &str = "data";

/// A server with its own directory. It is killed on drop.
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

    /// A server without workers.
    pub(crate) fn idle() -> Self {
        Self::start(&["server", "start"])
    }

    fn start(words: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().expect("a directory can be created"), words)
    }

    /// A server on a copy of this file.
    pub(crate) fn restored(file: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a directory can be created");
        let data = folder.path().join(DATA);
        std::fs::create_dir(&data).expect("a directory can be created");
        std::fs::copy(file, data.join("filch.db")).expect("a file can be written");
        Self::start_in(folder, &["up", "--slots", "2"])
    }

    fn start_in(folder: TempDir, words: &[&str]) -> Self {
        let (child, url) = Self::serve(words, folder.path(), "127.0.0.1:0");
        Self { child, url, folder }
    }

    /// Kills the server, and starts one without workers at the same address.
    pub(crate) fn restart(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let address = self.url.trim_start_matches("http://").to_owned();
        (self.child, self.url) = Self::serve(&["server", "start"], self.folder.path(), &address);
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
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it prints its URL");
        let url = line.trim().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "unexpected URL {url:?}");
        (child, url)
    }

    /// The directory for files of the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        path
    }

    /// The program with these arguments, for this server.
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

    /// Submits a job, and returns its id.
    #[track_caller]
    pub(crate) fn id(&self, words: &[&str]) -> String {
        self.filch(words).fine().line().to_owned()
    }

    /// Runs a command until it is dead, and returns its id.
    #[track_caller]
    pub(crate) fn dead(&self, words: &[&str]) -> String {
        let words = [&["submit", "--retry", "1"], words, &["--", "false"]].concat();
        let id = self.id(&words);
        self.filch(&["wait", &id]).refused(100, "exit code 1");
        id
    }

    /// `filch job show --json`.
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

/// The stderr of a server in this directory.
fn log(folder: &Path) -> PathBuf {
    folder.join("server.log")
}

/// A background process, killed on drop.
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
        line(self.0.stdout.as_mut().expect("it is piped"))
    }

    /// A line on stdout, if one begins within this time.
    pub(crate) fn line_within(&mut self, patience: Duration) -> Option<String> {
        let stdout = self.0.stdout.as_ref().expect("it is piped");
        let mut fds = [rustix::event::PollFd::new(stdout, rustix::event::PollFlags::IN)];
        let patience = rustix::time::Timespec::try_from(patience).expect("it is short");
        let ready = rustix::event::poll(&mut fds, Some(&patience)).expect("it can be waited for");
        (ready > 0).then(|| self.next_line())
    }

    /// Waits for a line on stderr that is not a line of the log.
    pub(crate) fn next_stderr_line(&mut self) -> String {
        loop {
            let line = line(self.0.stderr.as_mut().expect("it is piped"));
            let is_log = line.starts_with("20") && line.contains("Z ");
            if !is_log {
                return line;
            }
        }
    }

    /// Waits for a line on stderr that contains this text.
    pub(crate) fn stderr_line_with(&mut self, text: &str) -> String {
        loop {
            let line = line(self.0.stderr.as_mut().expect("it is piped"));
            assert!(!line.is_empty(), "it ended without {text:?}");
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Kills the process, and returns the rest of stderr.
    pub(crate) fn kill_and_read_stderr(&mut self) -> String {
        let _ = self.0.kill();
        let mut said = String::new();
        let stderr = self.0.stderr.as_mut().expect("it is piped");
        stderr.read_to_string(&mut said).expect("it prints text");
        said
    }

    /// Lets it shut down gracefully, and returns what is left on stderr.
    pub(crate) fn stop(&mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let mut stderr = String::new();
        self.0.stderr.as_mut().expect("it is piped").read_to_string(&mut stderr).expect("text");
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

/// Waits until a condition holds, for a minute at most.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "timed out: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Interrupts a program once it handles SIGINT; before that, the signal would kill it.
pub(crate) fn interrupt(running: &Running) {
    let pid = running.pid();
    until("the program handles SIGINT", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught
            .and_then(|caught| u64::from_str_radix(caught.trim(), 16).ok())
            .is_some_and(|it| it & 2 != 0)
    });
    let sent = Command::new("kill").args(["-INT", &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()));
}
