//! The log: one JSON object a line, with the fields that operators look for and without secrets.

use serde_json::Value;

use crate::server::{Running, end, program};

/// The JSON objects among the lines on stderr.
fn events(stderr: &str) -> Vec<Value> {
    let objects = stderr.lines().filter(|line| line.starts_with('{'));
    objects.map(|line| serde_json::from_str(line).expect("a log line is JSON")).collect()
}

/// The first event with this message.
#[track_caller]
fn event<'a>(events: &'a [Value], message: &str) -> &'a Value {
    let found = events.iter().find(|event| event["message"] == message);
    found.unwrap_or_else(|| panic!("no {message:?} in {events:#?}"))
}

#[test]
fn the_log_has_what_operators_need_and_no_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |words: &[&str]| {
        let mut command = program();
        command.args(words).current_dir(folder.path());
        command
    };
    let token = end(&mut in_folder(&["token", "create", "--role", "admin"]), "").fine();
    let token = token.line().to_owned();
    let words = ["up", "--slots", "1", "--listen", "127.0.0.1:0"];
    let log = ["--log-level", "trace", "--log-format", "json"];
    let mut up = Running::start(&mut in_folder(&[&words[..], &log[..]].concat()));
    let url = up.next_line();
    let filch = |words: &[&str], token: &str| {
        end(in_folder(words).env("FILCH_URL", &url).env("FILCH_TOKEN", token), "")
    };

    let words = ["--env", "PASSWORD=hidden-in-env", "--", "echo", "hidden-in-args"];
    let submit = [&["submit", "--key", "hidden-in-key"], &words[..]].concat();
    let id = filch(&submit, &token).fine().line().to_owned();
    filch(&["wait", &id], &token).fine();
    filch(&["enqueue", "noop", "{\"card\": \"hidden-in-arguments\"}"], &token).fine();
    let unknown = format!("{}{}", &token[..token.len() - 8], "00000000");
    filch(&["job", "list"], &unknown).refused(5, "");
    let worker = ["worker", "start", "--slots", "1", "--name", "w2"];
    let mut worker = in_folder(&[&worker[..], &log[..]].concat());
    let mut worker = Running::start(worker.env("FILCH_URL", &url).env("FILCH_TOKEN", &token));
    worker.stderr_line_with("connected to the server");
    let stderr = up.stop();
    let worker_stderr = worker.stop();

    let events = events(&stderr);
    assert!(
        events.iter().all(|event| event["timestamp"].is_string() && event["level"].is_string())
    );
    let started = event(&events, "server started");
    assert_eq!(started["level"], "INFO");
    assert_eq!(started["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&started["url"], &started["tokens_required"]), (&url.into(), &true.into()));
    assert!(event(&events, "worker connected")["name"].is_string());
    assert!(
        events.iter().any(|event| event["message"] == "worker connected" && event["name"] == "w2")
    );
    let failed = event(&events, "authentication failed");
    assert_eq!((&failed["level"], &failed["code"]), (&"WARN".into(), &"bad-token".into()));
    assert!(failed["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:")));
    for message in ["draining: no new jobs; waiting for running jobs", "server stopped"] {
        event(&events, message);
    }
    for log in [&stderr, &worker_stderr] {
        assert!(!log.contains("hidden-in"), "{log}");
        assert!(!filch_api::token::is_in(log), "{log}");
        assert!(!log.contains(&token[token.len() - 24..]), "{log}");
        assert!(!log.contains(&unknown[token.len() - 24..]), "{log}");
    }
}

#[test]
fn the_level_decides_what_is_logged_and_run_logs_only_warnings() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = program();
    let ended = end(run.args(["run", "--", "true"]).current_dir(folder.path()), "").fine();
    // On a slow disk there may be warnings.
    assert!(!ended.stderr.contains(" INFO "), "{ended:?}");
    let mut command = program();
    command.args(["up", "--slots", "0", "--listen", "127.0.0.1:0"]).current_dir(folder.path());
    let mut up = Running::start(command.env("FILCH_LOG", "error"));
    up.next_line();
    let stderr = up.stop();
    assert!(!stderr.contains("server started"), "{stderr}");
}
