//! `filch node` as a process: it answers while its input is still open, and exits with 0.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

fn node(words: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_filch"))
        .arg("node")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built for this test")
}

const STEAL: &str = r#"{"src":"c","dest":"n","body":{"type":"steal_job","msg_id":1,"thief_worker":"w3","busy_workers":["w1","w2"]}}"#;

#[test]
fn each_message_is_answered_at_once() {
    let mut child = node(&[]);
    let mut input = child.stdin.take().expect("it is piped");
    let mut answers = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut next = || answers.next().expect("it goes on").expect("it is UTF-8");

    // No newline is needed after the last brace.
    input.write_all(STEAL.as_bytes()).expect("it listens");
    assert!(next().contains(r#""victim": "w1""#));

    // An invalid line is skipped and does not delay the next one.
    input.write_all(b"{\"unfinished\": \"line\n").expect("it listens");
    input.write_all(STEAL.as_bytes()).expect("it listens");
    assert!(next().contains(r#""victim": "w1""#));

    drop(input);
    let ended = child.wait_with_output().expect("it was started");
    assert_eq!(ended.status.code(), Some(0));
    let stderr = String::from_utf8(ended.stderr).expect("it is UTF-8");
    assert_eq!(stderr, format!("byte {}: not JSON; skipped to the next line\n", STEAL.len()));
}

#[test]
fn the_seed_chooses_the_victim() {
    for (words, victim) in [(&[][..], "w1"), (&["--seed", "42"], "w2")] {
        let mut child = node(words);
        child.stdin.take().expect("it is piped").write_all(STEAL.as_bytes()).expect("it listens");
        let ended = child.wait_with_output().expect("it was started");
        assert_eq!(ended.status.code(), Some(0));
        let answer = String::from_utf8(ended.stdout).expect("it is UTF-8");
        assert!(answer.contains(&format!(r#""victim": "{victim}""#)), "{answer}");
    }
}

#[test]
fn a_seed_is_a_number() {
    let ended = node(&["--seed", "many"]).wait_with_output().expect("it was started");
    assert_eq!(ended.status.code(), Some(2));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let mut child = node(&[]);
    drop(child.stdout.take());
    // The node may exit before all of it is written.
    let _ = child.stdin.take().expect("it is piped").write_all(STEAL.repeat(1_000).as_bytes());
    assert_eq!(child.wait().expect("it was started").code(), Some(0));
}
