//! Setting up two machines as in docs/security.md: the commands of that guide, on two machines that
//! share nothing but a network.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use filch_api::token;
use filch_e2e::machine::{Network, Shell, blocks, folder};
use filch_e2e::program;
use filch_e2e::until::{until_blocking, when};
use serde_json::{Value, json};

/// Replaces the `scp` that needs an SSH server on the other side: `scp FILE... ADDRESS:FOLDER/`.
const SCP: &str = r#"#!/bin/bash
set -euo pipefail
to=${@: -1}
folder=$ROOT/worker/${to#*:}
mkdir -p "$folder"
cp -- "${@:1:$#-1}" "$folder"
"#;

fn install(programs: &Path, root: &Path) {
    std::fs::create_dir(programs).unwrap();
    std::os::unix::fs::symlink(program::filch(), programs.join("filch")).unwrap();
    let scp = programs.join("scp");
    std::fs::write(&scp, SCP.replace("$ROOT", root.to_str().unwrap())).unwrap();
    std::fs::set_permissions(&scp, PermissionsExt::from_mode(0o755)).unwrap();
}

/// The exit codes of refused commands, in order.
fn refusals(transcript: &str) -> Vec<i32> {
    let lines = transcript.lines().filter_map(|line| line.strip_prefix("refused with code "));
    lines.map(|code| code.parse().unwrap()).collect()
}

/// The guide has revoked the worker's token: the worker has exited, cannot reconnect, and new jobs
/// wait for another worker.
fn expect_locked_out(server: &mut Shell, worker: &mut Shell) {
    let gone = worker.run(r#"wait $! || echo "refused with code $?""#);
    assert_eq!(refusals(&gone), [5], "{gone}");
    let again = worker.run(r#"filch worker start --slots 2 || echo "refused with code $?""#);
    assert_eq!(refusals(&again), [5], "{again}");
    until_blocking("the worker is gone", || {
        when(server.run("filch worker list --jsonl").is_empty())
    });
    let id = server.run("filch submit -- hostname -I");
    let shown = server.run(&format!("filch job show {} --json", id.trim()));
    let job: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&job["state"], &job["fence"]), (&json!("queued"), &json!(0)), "{shown}");
}

#[test]
fn the_guide_sets_up_two_machines_that_work_together() {
    let env = crate::test_env();
    let root = env.path("machines");
    let programs = env.path("programs");
    install(&programs, &root);
    let guide = include_str!("../../../../docs/security.md");
    let blocks = blocks(guide);
    assert!(blocks.len() >= 5, "too few commands in the guide: {blocks:?}");

    let network = Network::new(["192.168.7.1", "192.168.7.2"]);
    let mut server = network.shell(0, &folder(&root, "server"), &programs);
    let mut worker = network.shell(1, &folder(&root, "worker"), &programs);
    for block in &blocks {
        let shell = match &*block.machine {
            "server" => &mut server,
            "worker" => &mut worker,
            other => panic!("unknown machine {other}"),
        };
        shell.run(&block.text);
    }
    let transcript = &server.transcript;
    assert!(transcript.contains("192.168.7.2"), "the job did not run on the worker:\n{transcript}");
    assert_eq!(refusals(&worker.transcript), [5, 5, 6], "{}", worker.transcript);
    expect_locked_out(&mut server, &mut worker);

    // No token is in any output or log: tokens are only in the files made for them.
    let mut logs = 0;
    for machine in ["server", "worker"] {
        for entry in std::fs::read_dir(root.join(machine).join("filch")).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "log") {
                logs += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                assert!(!token::is_in(&text), "a token is in {}", path.display());
            }
        }
    }
    assert_eq!(logs, 2, "the guide writes a log on each machine");
    for shell in [&server, &worker] {
        assert!(!token::is_in(&shell.transcript), "a token was printed");
    }
}
