//! The shell sessions in the README and in docs/, run as written.
//!
//! In a `console` block, lines after `$ ` are typed, and the lines up to the next `$ ` must be
//! printed. A `python` block starts with a comment that names its file. All blocks of a page are
//! one session with one server.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The URL of the server on the pages.
const DEFAULT_URL: &str = "http://127.0.0.1:7420";

#[test]
fn the_session_in_the_readme_works() {
    check_sessions(include_str!("../../../README.md"), &[]);
}

#[test]
fn the_sessions_in_first_job_work() {
    let page = include_str!("../../../docs/first-job.md");
    let handler = include_str!("../../../examples/handler.rs");
    let example = folder_of_programs().join("examples/handler");
    assert!(example.exists(), "build it first: cargo build -p filch-cli --example handler");
    assert!(blocks(page, "rust").any(|block| block == handler), "the page shows the example");
    check_sessions(page, &["--queues", "default"]);
}

fn check_sessions(page: &str, arguments: &[&str]) {
    let folder = tempfile::tempdir().expect("a directory can be created");
    let server = Server::start(folder.path(), arguments);
    let page = page.replace(DEFAULT_URL, &server.url);
    for block in blocks(&page, "python") {
        let name = block.lines().next().and_then(|line| line.strip_prefix("# "));
        let name = name.expect("a block of code begins with the name of its file");
        std::fs::write(folder.path().join(name), block).expect("a file can be written");
    }
    let session: String = blocks(&page, "console").collect();
    // One shell for all lines, since they use variables of earlier ones.
    let script: String = session
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .map(|typed| format!("printf '%s\\n' '$ {}'\n{typed}\n", typed.replace('\'', "'\\''")))
        .collect();
    let output = Command::new("bash")
        .args(["-c", &format!("exec 2>&1\n{script}")])
        .current_dir(folder.path())
        .env("PATH", path())
        .output()
        .expect("there is a shell");
    assert_eq!(String::from_utf8_lossy(&output.stdout), session);
}

/// The code blocks of this language, in order.
fn blocks<'a>(page: &'a str, language: &str) -> impl Iterator<Item = &'a str> {
    let fence = format!("```{language}\n");
    let starts: Vec<usize> =
        page.match_indices(&fence).map(|(start, fence)| start + fence.len()).collect();
    starts.into_iter().filter_map(|start| page[start..].split_once("```").map(|(block, _)| block))
}

fn folder_of_programs() -> &'static Path {
    let program = Path::new(env!("CARGO_BIN_EXE_filch"));
    program.parent().expect("a program lies in a folder")
}

/// The PATH with the examples and the program first.
fn path() -> String {
    let folder = folder_of_programs();
    let others = std::env::var("PATH").expect("there is a path");
    format!("{}:{}:{others}", folder.join("examples").display(), folder.display())
}

/// `filch up`, until it is dropped.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_filch"))
            .args(["up", "--listen", "127.0.0.1:0"])
            .args(arguments)
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program was built for this test");
        let stdout = process.stdout.take().expect("it is piped");
        let mut url = String::new();
        BufReader::new(stdout).read_line(&mut url).expect("the server prints its URL");
        Self { process, url: url.trim_end().to_owned() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
