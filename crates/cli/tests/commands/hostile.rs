//! Terminal control characters in untrusted text: no command prints them unescaped.
//!
//! A command that prints is a line of [`COMMANDS`].

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};

use crate::server::{Ended, Running, Server, end, program, until};
use crate::terminal::on_terminal;

/// Clears the screen, sets the title, rings, moves back, ends the line; then the same as C1 control
/// characters; then Unicode characters that change the reading order and end the line.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;pwned\u{7}\u{8}\r\u{7f}\u{9b}2J\u{9d}0;x\u{9c}\u{85}\u{202e}\u{2066}\u{2028}end";

/// For names, which may not contain control characters.
const NAME: &str = "n\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}\u{2029}end";

/// A data directory without a server.
const TOKENS: &str = "tokens";

/// The commands, each run in a pipe and on a terminal. All of them print untrusted text.
const COMMANDS: &[&str] = &[
    "job list",
    "job list --json",
    "job list --jsonl",
    "job list --queue {name}",
    "job events {dead}",
    "job events --json {dead}",
    "job events --jsonl {dead}",
    "job events {hostile}",
    "events",
    "events --jsonl",
    "events --queue {name}",
    "events --worker {hostile}",
    "job show {dead}",
    "job show --json {dead}",
    "job show {done}",
    "job show --json {done}",
    "job show {waits}",
    "job show --json {waits}",
    "job result {done}",
    "job result --json {done}",
    "job result {dead}",
    "job show {hostile}",
    "job cancel {hostile}",
    "job retry {hostile}",
    "job priority {hostile} 1",
    "job list --state {hostile}",
    "job list --since {hostile}",
    "wait {dead}",
    "wait --json {dead}",
    "wait --jsonl {dead}",
    "wait {hostile}",
    "why {dead}",
    "why --json {dead}",
    "why {waits}",
    "why --json {waits}",
    "why {hostile}",
    "logs --jsonl {dead}",
    "logs {hostile}",
    "dead list",
    "dead list --json",
    "dead list --jsonl",
    "dead list --queue {name}",
    "dead groups",
    "dead groups --json",
    "dead groups --jsonl",
    "dead retry --yes {hostile}",
    "dead discard --yes {hostile}",
    "dead discard --yes --group {hostile}",
    "queue list",
    "queue list --json",
    "queue show {name}",
    "queue show --json {name}",
    "queue show {hostile}",
    "queue purge --dry-run {name}",
    "queue purge --yes {hostile}",
    "queue pause {name}",
    "queue resume {name}",
    "queue set {name} --limit 4",
    "queue set {hostile} --limit 4",
    "queue strategy {hostile}",
    "worker list",
    "worker list --json",
    "worker list --jsonl",
    "worker drain {hostile}",
    "worker stop {hostile}",
    "server verify {hostile}",
    "token list --data {tokens}",
    "token list --json --data {tokens}",
    "token list --jsonl --data {tokens}",
    "token revoke --yes {hostile} --data {tokens}",
    "token create --role {hostile} --data {tokens}",
    "token create --role view --expires {hostile} --data {tokens}",
    "token create --role view --queue {hostile} --data {tokens}",
    "config show {hostile}",
    "submit --queue {hostile} -- true",
    "submit --key {hostile} -- true",
    "submit --at {hostile} -- true",
    "submit --after {hostile} -- true",
    "enqueue {hostile}",
    "flow check {flow}",
    "flow check --json {flow}",
    "flow show {flow}",
    "flow show --dot {flow}",
    "flow show --svg {flow}",
    "flow show --json {flow}",
    "flow run {flow}",
    "flow run --json {flow}",
    "flow check {badflow}",
    "flow check {hostile}",
    "simulate --replay {hostile}",
    "{hostile}",
    "job {hostile}",
    "--{hostile}",
    "job list --server http://{hostile}",
];

/// Sends a plain HTTP request, like a minimal worker.
fn post(server: &Server, path: &str, body: &Value) -> Value {
    let address = server.url.strip_prefix("http://").expect("a URL");
    let mut stream = TcpStream::connect(address).expect("the server listens");
    let body = body.to_string();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .expect("it takes a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 2"), "{answer}");
    serde_json::from_str(body).expect("JSON")
}

/// A cluster in which all user-provided text is hostile.
struct HostileCluster {
    server: Server,
    done: String,
    dead: String,
    waits: String,
    _worker: Running,
}

impl HostileCluster {
    fn start() -> Self {
        let server = Server::idle();
        let submit = |more: Value| {
            let mut job = json!({"queue": NAME, "env": {HOSTILE: HOSTILE}, "dir": HOSTILE,
                "args": {HOSTILE: HOSTILE}, "run": [HOSTILE, HOSTILE, ""], "retry": {"max": 1},
                "traceparent": HOSTILE});
            let more = more.as_object().expect("an object").clone();
            job.as_object_mut().expect("an object").extend(more);
            post(&server, "/v1/jobs", &job)["id"].as_str().expect("an id").to_owned()
        };
        let done = submit(json!({"key": NAME}));
        let dead = submit(json!({"run": null, "kind": NAME, "env": {}, "dir": null}));
        let waits = submit(json!({"after": [dead], "when": "any-failed", "otherwise": "hold"}));
        let claim =
            json!({"instance": "i", "number": 1, "slots": 2, "queues": [NAME], "wait": "10s"});
        let claimed = post(&server, "/v1/work/00000000000000a1/claim", &claim);
        for (job, report) in claimed["jobs"].as_array().expect("two jobs").iter().zip([
            json!({"ending": "finished", "result": {HOSTILE: HOSTILE}, "log": HOSTILE}),
            json!({"ending": "failed", "error": format!("{HOSTILE}\nsecond {HOSTILE}"),
                "log": format!("{HOSTILE}\n")}),
        ]) {
            let mut report = report;
            report["job"] = job["job"].clone();
            let reports = json!({"instance": "i", "reports": [report]});
            let answered = post(&server, "/v1/work/00000000000000a1/report", &reports);
            assert_eq!(answered["accepted"].as_array().map(Vec::len), Some(1), "{answered}");
        }
        let job = json!({"run": [HOSTILE], "dir": HOSTILE});
        let flow = json!({"name": NAME, "job": {NAME: job, "b": {"kind": NAME, "after": [NAME]}}});
        server.file("flow.json", &flow.to_string());
        let flow = json!({"name": HOSTILE, "job": {HOSTILE: {HOSTILE: HOSTILE}}});
        server.file("bad.json", &flow.to_string());
        let words = ["token", "create", "--role", "admin", "--name", NAME, "--data", TOKENS];
        end(program().args(words).current_dir(server.folder()), "").fine();
        // It serves another queue, so that the waiting job keeps waiting.
        let name = format!("worker {HOSTILE}");
        let words = ["worker", "start", "--name", &name, "--queues", "other", "--slots", "1"];
        let worker = Running::start(&mut server.command(&words));
        until("the worker is listed", || {
            server.filch(&["worker", "list"]).fine().stdout.contains("end")
        });
        Self { server, done, dead, waits, _worker: worker }
    }

    fn words(&self, line: &str) -> Vec<String> {
        let word = |word: &str| {
            let file = |name: &str| self.server.folder().join(name).display().to_string();
            word.replace("{hostile}", HOSTILE)
                .replace("{name}", NAME)
                .replace("{done}", &self.done)
                .replace("{dead}", &self.dead)
                .replace("{waits}", &self.waits)
                .replace("{tokens}", TOKENS)
                .replace("{flow}", &file("flow.json"))
                .replace("{badflow}", &file("bad.json"))
        };
        line.split(' ').map(word).collect()
    }

    /// Commands with --data must not ask the server.
    fn command(&self, line: &str) -> Command {
        let mut command = self.server.command(&[]);
        if line.contains(" --data ") {
            command.env_remove("FILCH_URL");
        }
        command.args(self.words(line));
        command
    }

    fn in_a_pipe(&self, line: &str) -> Ended {
        end(&mut self.command(line), "")
    }

    fn on_a_terminal(&self, line: &str) -> Ended {
        on_a_terminal(&mut self.command(line))
    }
}

/// Runs a command on a terminal.
fn on_a_terminal(command: &mut Command) -> Ended {
    let (code, stdout) = on_terminal(command, "");
    Ended { code, stdout, stderr: String::new() }
}

fn is_control(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(character, '\u{2066}'..='\u{2069}')
        || (character.is_control() && !matches!(character, '\n' | '\t'))
}

#[test]
fn no_command_prints_control_characters() {
    let cluster = HostileCluster::start();
    let mut wrong = Vec::new();
    for line in COMMANDS {
        for (place, ended) in
            [("a pipe", cluster.in_a_pipe(line)), ("a terminal", cluster.on_a_terminal(line))]
        {
            let printed = format!("{}{}", ended.stdout, ended.stderr);
            // Without the end of the hostile text the case would prove nothing.
            let is_shown = printed.contains("end");
            if !is_shown || printed.contains(is_control) || printed.contains("panicked") {
                wrong.push(format!("filch {line}, in {place}: {printed:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Job output is unchanged in a pipe, and escaped on a terminal.
#[test]
fn logs_are_bytes_in_a_pipe_and_text_on_a_terminal() {
    let cluster = HostileCluster::start();
    let line = format!("logs {}", cluster.dead);
    assert_eq!(cluster.in_a_pipe(&line).fine().stdout, format!("{HOSTILE}\n"));
    let shown = cluster.on_a_terminal(&line).fine().stdout;
    assert!(shown.contains(r"\u001b[2J") && !shown.contains(is_control), "{shown:?}");
    let raw = cluster.on_a_terminal(&format!("{line} --raw")).fine().stdout;
    assert!(raw.contains(HOSTILE), "{raw:?}");
}

/// A directory from another user may contain a settings file.
#[test]
fn control_characters_in_settings_are_escaped() {
    let folder = tempfile::tempdir().expect("a directory can be created");
    let quoted = json!(HOSTILE).to_string();
    for text in [
        format!("data = {quoted}\n"),
        format!("server = {quoted}\n"),
        format!("{quoted} = 1\n"),
        format!("data = 1 {HOSTILE}\n"),
    ] {
        std::fs::write(folder.path().join("filch.toml"), text).expect("a file can be written");
        for words in [&["config", "show", "--origin"][..], &["job", "list"]] {
            let mut command = program();
            command.args(words).current_dir(folder.path());
            for ended in [end(&mut command, ""), on_a_terminal(&mut command)] {
                let printed = format!("{}{}", ended.stdout, ended.stderr);
                assert!(printed.contains("end"), "{words:?}: {printed:?}");
                assert!(!printed.contains(is_control), "{words:?}: {printed:?}");
            }
        }
    }
}
