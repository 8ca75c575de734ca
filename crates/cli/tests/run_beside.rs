//! Two `filch run` in one directory: the second uses the server of the first, and outlives it.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn filch(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_filch"));
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command.env_remove("FILCH_URL").env_remove("FILCH_DATA");
    command
}

/// A command that creates a file when it starts, and ends once another file exists.
fn run_until(folder: &Path, name: &str) -> Child {
    let script =
        format!("touch {name}-began; while [ ! -e {name} ]; do sleep 0.02; done; echo {name}");
    filch(folder, &["run", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program was built for this test")
}

fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn printed(mut child: Child) -> (Option<i32>, String) {
    let mut text = String::new();
    child.stdout.take().expect("it is piped").read_to_string(&mut text).expect("it is UTF-8");
    (child.wait().expect("it was started").code(), text)
}

#[test]
fn a_run_outlives_the_run_whose_server_it_used() {
    let folder = tempfile::tempdir().expect("a directory can be created");
    let path = folder.path();
    let first = run_until(path, "first");
    wait_for("the first runs", || path.join("first-began").exists());
    let second = run_until(path, "second");
    wait_for("the second runs", || path.join("second-began").exists());

    std::fs::write(path.join("first"), "").expect("the folder can be written to");
    assert_eq!(printed(first), (Some(0), "first\n".into()));

    std::fs::write(path.join("second"), "").expect("the folder can be written to");
    assert_eq!(printed(second), (Some(0), "second\n".into()));
}
