//! The node as a program: it answers while its input is still open, and ends well.

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
    let mut input = child.stdin.take().expect("asked for");
    let mut answers = BufReader::new(child.stdout.take().expect("asked for")).lines();
    let mut next = || answers.next().expect("it goes on").expect("it is text");

    // No newline after it: the last brace is enough.
    input.write_all(STEAL.as_bytes()).expect("it listens");
    assert!(next().contains(r#""victim": "w1""#));

    // A bad line is known to be bad before the next one comes, and does not hold it up.
    input.write_all(b"{\"unfinished\": \"line\n").expect("it listens");
    input.write_all(STEAL.as_bytes()).expect("it listens");
    assert!(next().contains(r#""victim": "w1""#));

    drop(input);
    let ended = child.wait_with_output().expect("it was started");
    assert_eq!(ended.status.code(), Some(0));
    let talk = String::from_utf8(ended.stderr).expect("it is text");
    assert_eq!(talk, format!("byte {}: not JSON; skipped to the next line\n", STEAL.len()));
}

#[test]
fn the_seed_chooses_the_victim() {
    for (words, victim) in [(&[][..], "w1"), (&["--seed", "42"], "w2")] {
        let mut child = node(words);
        child.stdin.take().expect("asked for").write_all(STEAL.as_bytes()).expect("it listens");
        let ended = child.wait_with_output().expect("it was started");
        assert_eq!(ended.status.code(), Some(0));
        let answer = String::from_utf8(ended.stdout).expect("it is text");
        assert!(answer.contains(&format!(r#""victim": "{victim}""#)), "{answer}");
    }
}

#[test]
fn a_seed_is_a_number() {
    let ended = node(&["--seed", "many"]).wait_with_output().expect("it was started");
    assert_eq!(ended.status.code(), Some(2));
}

#[test]
fn nobody_need_listen_to_the_end() {
    let mut child = node(&[]);
    drop(child.stdout.take());
    // It may be gone before all of it is written.
    let _ = child.stdin.take().expect("asked for").write_all(STEAL.repeat(1_000).as_bytes());
    assert_eq!(child.wait().expect("it was started").code(), Some(0));
}
