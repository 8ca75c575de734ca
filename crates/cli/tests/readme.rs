//! The session in the README, typed into a shell as it stands there.
//!
//! What follows `$ ` is typed; what follows until the next `$ ` is what must be printed.

use std::path::Path;
use std::process::Command;

#[test]
fn the_session_in_the_readme_goes_as_it_says() {
    let readme = include_str!("../../../README.md");
    let (_, rest) = readme.split_once("```console\n").expect("the README has a session");
    let (session, _) = rest.split_once("```").expect("the session ends");

    let program = Path::new(env!("CARGO_BIN_EXE_filch"));
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let mut server = Command::new(program)
        .args(["up", "--listen", "127.0.0.1:0"])
        .current_dir(folder.path())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the program was built for this test");
    let mut url = String::new();
    let stdout = server.stdout.take().expect("asked for");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut url)
        .expect("the server says where it is");

    // All of it in one shell, since lines use what earlier ones have set.
    let script: String = session
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .map(|typed| format!("printf '%s\\n' '$ {}'\n{typed}\n", typed.replace('\'', "'\\''")))
        .collect();
    let path = format!(
        "{}:{}",
        program.parent().expect("a program lies in a folder").display(),
        std::env::var("PATH").expect("there is a path")
    );
    let output = Command::new("bash")
        .args(["-c", &format!("exec 2>&1\n{script}")])
        .current_dir(folder.path())
        .env("PATH", path)
        .output()
        .expect("there is a shell");
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(String::from_utf8_lossy(&output.stdout), session);
}
