//! `filch run`: a durable job without a server, in any folder.

use std::path::Path;

use filch_api::client::Client;
use filch_e2e::jobs::{jobs, show, until_state};
use filch_e2e::test_env::{LaunchOptions, StartedProgram, TestEnv};
use filch_e2e::until::{until, when};

use crate::test_env;

/// An empty folder for the data.
fn empty(env: &TestEnv) -> std::path::PathBuf {
    let folder = env.path("empty");
    std::fs::create_dir(&folder).unwrap();
    folder
}

fn run(env: &TestEnv, folder: &Path, command: &[&str]) -> StartedProgram {
    env.filch(folder, &[&["run", "--"], command].concat())
}

/// `filch run` in an empty folder looks there first.
fn expect_no_server_on_default_port() {
    let default_port = std::net::TcpStream::connect(("127.0.0.1", 7420));
    assert!(
        default_port.is_err(),
        "a server listens on the default port 7420: stop it to run this test"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_an_empty_folder_becomes_a_durable_job() {
    let env = test_env();
    let folder = empty(&env);
    expect_no_server_on_default_port();

    let mut first = run(&env, &folder, &["sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(first.code().await, Some(7), "{}", first.stderr());
    assert_eq!(first.stdout(), "out\n");
    assert!(first.stderr().contains("err\n"), "{}", first.stderr());
    assert!(folder.join("filch.db").exists());

    let mut second = run(&env, &folder, &["echo", "hello"]);
    assert_eq!(second.code().await, Some(0), "{}", second.stderr());
    assert_eq!(second.stdout(), "hello\n");
    let mut killed = run(&env, &folder, &["sh", "-c", "kill -9 $$"]);
    assert_eq!(killed.code().await, Some(128 + 9), "{}", killed.stderr());

    let mut up = env.filch(&folder, &["up", "--listen", "127.0.0.1:0"]);
    let client = Client::new(&up.first_line().await).unwrap();
    let kept = jobs(&client).await;
    let states: Vec<_> = kept.iter().map(|job| (job.state.as_str(), job.attempts)).collect();
    assert_eq!(states, [("dead", 1), ("succeeded", 1), ("dead", 1)]);
    let (_, details) = show(&client, &kept[0].id).await;
    assert_eq!(details.run.unwrap()[0], "sh");
    assert_eq!(details.error.as_deref(), Some("exit code 7: err"));

    // A command in a folder that a server has open uses that server.
    let mut third = run(&env, &folder, &["echo", "again"]);
    assert_eq!(third.code().await, Some(0), "{}", third.stderr());
    assert_eq!(third.stdout(), "again\n");
    assert_eq!(jobs(&client).await.len(), 4);
    let mut other = env.filch(&folder, &["up", "--listen", "127.0.0.1:0"]);
    assert_eq!(other.code().await, Some(4), "{}", other.stderr());
    assert!(other.stderr().contains(client.url()), "{}", other.stderr());

    up.process.signal(rustix::process::Signal::TERM);
    assert_eq!(up.code().await, Some(0), "{}", up.stderr());
    env.verify(&LaunchOptions::default(), &folder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_commands_in_one_folder_share_the_server_of_the_first() {
    let env = test_env();
    let folder = empty(&env);
    expect_no_server_on_default_port();
    let gate = env.path("gate");
    let script = "echo waiting; while ! [ -e \"$0\" ]; do sleep 0.01; done; echo done";
    let mut first = run(&env, &folder, &["sh", "-c", script, gate.to_str().unwrap()]);
    until("the first runs", async || when(first.stdout() == "waiting\n")).await;

    let mut second = run(&env, &folder, &["echo", "beside"]);
    assert_eq!(second.code().await, Some(0), "{}", second.stderr());
    assert_eq!(second.stdout(), "beside\n");
    assert_eq!(first.process.ended(), None);

    std::fs::write(gate, "").unwrap();
    assert_eq!(first.code().await, Some(0), "{}", first.stderr());
    assert_eq!(first.stdout(), "waiting\ndone\n");

    let mut up = env.filch(&folder, &["up", "--listen", "127.0.0.1:0"]);
    let client = Client::new(&up.first_line().await).unwrap();
    let kept = jobs(&client).await;
    assert_eq!(kept.len(), 2);
    for job in kept {
        until_state(&client, &job.id, "succeeded").await;
    }
}
