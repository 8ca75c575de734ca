//! Two machines from nothing, as docs/security.md says it: its commands, typed as they stand there, on two
//! machines that see nothing of each other but a wire.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use filch_api::token;
use filch_e2e::machine::{Network, Shell, blocks, folder};
use filch_e2e::program;
use filch_e2e::until::{until_blocking, when};
use serde_json::{Value, json};

/// In place of the one that needs a server on the other side: `scp FILE... ADDRESS:FOLDER/`.
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

/// The codes with which commands were refused, in order.
fn refusals(transcript: &str) -> Vec<i32> {
    let lines = transcript.lines().filter_map(|line| line.strip_prefix("refused with code "));
    lines.map(|code| code.parse().unwrap()).collect()
}

/// The guide has revoked the worker's token: it has gone, cannot come again, and what is submitted now waits
/// for somebody else.
fn expect_locked_out(server: &mut Shell, worker: &mut Shell) {
    let gone = worker.type_in(r#"wait $! || echo "refused with code $?""#);
    assert_eq!(refusals(&gone), [5], "{gone}");
    let again = worker.type_in(r#"filch worker start --slots 2 || echo "refused with code $?""#);
    assert_eq!(refusals(&again), [5], "{again}");
    until_blocking("the worker is forgotten", || {
        when(server.type_in("filch worker list --jsonl").is_empty())
    });
    let id = server.type_in("filch submit -- hostname -I");
    let shown = server.type_in(&format!("filch job show {} --json", id.trim()));
    let job: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&job["state"], &job["fence"]), (&json!("queued"), &json!(0)), "{shown}");
}

#[test]
fn the_guide_leads_to_two_machines_that_work_together() {
    let stage = crate::stage();
    let root = stage.path("machines");
    let programs = stage.path("programs");
    install(&programs, &root);
    let guide = include_str!("../../../../docs/security.md");
    let blocks = blocks(guide);
    assert!(blocks.len() >= 5, "the guide has lost its commands: {blocks:?}");

    let network = Network::new(["192.168.7.1", "192.168.7.2"]);
    let mut server = network.shell(0, &folder(&root, "server"), &programs);
    let mut worker = network.shell(1, &folder(&root, "worker"), &programs);
    for block in &blocks {
        let shell = match &*block.machine {
            "server" => &mut server,
            "worker" => &mut worker,
            other => panic!("there is no machine {other}"),
        };
        shell.type_in(&block.text);
    }
    let said = &server.transcript;
    assert!(said.contains("192.168.7.2"), "the job did not run on the worker:\n{said}");
    assert_eq!(refusals(&worker.transcript), [5, 5, 6], "{}", worker.transcript);
    expect_locked_out(&mut server, &mut worker);

    // Whatever was printed or logged on either machine holds no token but in the files made for it.
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
