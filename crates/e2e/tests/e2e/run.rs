//! `filch run`: a durable job without a server, in any folder.

use std::path::Path;

use filch_api::client::Client;
use filch_e2e::stage::{Manner, Program, Stage};
use filch_e2e::until::{until, when};

use crate::{jobs, show, stage, until_state};

/// A folder for the data that is empty.
fn empty(stage: &Stage) -> std::path::PathBuf {
    let folder = stage.path("empty");
    std::fs::create_dir(&folder).unwrap();
    folder
}

fn run(stage: &Stage, folder: &Path, command: &[&str]) -> Program {
    stage.filch(folder, &[&["run", "--"], command].concat())
}

/// Whoever runs a command in an empty folder looks there first.
fn expect_no_usual_server() {
    let usual = std::net::TcpStream::connect(("127.0.0.1", 7420));
    assert!(usual.is_err(), "a server listens on the usual port 7420: stop it to run this test");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_an_empty_folder_is_a_job_that_outlives_its_process() {
    let stage = stage();
    let folder = empty(&stage);
    expect_no_usual_server();

    let mut first = run(&stage, &folder, &["sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(first.code().await, Some(7), "{}", first.said());
    assert_eq!(first.printed(), "out\n");
    assert!(first.said().contains("err\n"), "{}", first.said());
    assert!(folder.join("filch.db").exists());

    let mut second = run(&stage, &folder, &["echo", "hello"]);
    assert_eq!(second.code().await, Some(0), "{}", second.said());
    assert_eq!(second.printed(), "hello\n");
    let mut killed = run(&stage, &folder, &["sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.code().await, Some(128 + 9), "{}", killed.said());

    let mut up = stage.filch(&folder, &["up", "--listen", "127.0.0.1:0"]);
    let client = Client::new(&up.first_line().await).unwrap();
    let kept = jobs(&client).await;
    let states: Vec<_> = kept.iter().map(|job| (job.state.as_str(), job.attempts)).collect();
    assert_eq!(states, [("dead", 1), ("succeeded", 1), ("dead", 1)]);
    let (_, details) = show(&client, &kept[0].id).await;
    assert_eq!(details.run.unwrap()[0], "sh");
    assert_eq!(details.error.as_deref(), Some("exit code 7: err"));

    // Who comes to a folder that is open uses the server that has it.
    let mut third = run(&stage, &folder, &["echo", "again"]);
    assert_eq!(third.code().await, Some(0), "{}", third.said());
    assert_eq!(third.printed(), "again\n");
    assert_eq!(jobs(&client).await.len(), 4);
    let mut other = stage.filch(&folder, &["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(other.code().await, Some(4), "{}", other.said());
    assert!(other.said().contains(client.url()), "{}", other.said());

    up.process.signal(rustix::process::Signal::TERM);
    assert_eq!(up.code().await, Some(0), "{}", up.said());
    stage.verify(&Manner::default(), &folder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commands_in_one_folder_share_the_first_one_s_server() {
    let stage = stage();
    let folder = empty(&stage);
    expect_no_usual_server();
    let gate = stage.path("gate");
    let script = "echo waiting; while ! [ -e \"$0\" ]; do sleep 0.01; done; echo done";
    let mut first = run(&stage, &folder, &["sh", "-c", script, gate.to_str().unwrap()]);
    until("the first runs", async || when(first.printed() == "waiting\n")).await;

    let mut second = run(&stage, &folder, &["echo", "beside"]);
    assert_eq!(second.code().await, Some(0), "{}", second.said());
    assert_eq!(second.printed(), "beside\n");
    assert_eq!(first.process.ended(), None);

    std::fs::write(gate, "").unwrap();
    assert_eq!(first.code().await, Some(0), "{}", first.said());
    assert_eq!(first.printed(), "waiting\ndone\n");

    let mut up = stage.filch(&folder, &["up", "--listen", "127.0.0.1:0"]);
    let client = Client::new(&up.first_line().await).unwrap();
    let kept = jobs(&client).await;
    assert_eq!(kept.len(), 2);
    for job in kept {
        until_state(&client, &job.id, "succeeded").await;
    }
}
