//! `filch why`: the explanation, and the command that would change it.

use crate::server::Server;

#[test]
fn each_reason_not_to_run_is_explained() {
    let server = Server::idle();
    let why = |id: &str| server.filch(&["why", id]).fine().stdout;

    let id = server.id(&["submit", "--queue", "img", "--", "true"]);
    let said = "queued: no worker serves queue img\n  try: filch worker start --queues img\n";
    assert_eq!(why(&id), said);
    server.filch(&["queue", "pause", "img"]).fine();
    assert_eq!(why(&id), "queued: queue img is paused\n  try: filch queue resume img\n");

    let child = server.id(&["submit", "--after", &id, "--", "true"]);
    assert_eq!(why(&child), format!("blocked: waits for {} (queued)\n", &id[28..]));
    let later = server.id(&["submit", "--at", "2100-01-01T00:00:00Z", "--", "true"]);
    assert_eq!(why(&later), "scheduled: not before 2100-01-01T00:00:00Z\n");

    server.filch(&["job", "cancel", &id]).fine();
    assert_eq!(why(&id), "cancelled: cancelled by a user\n");
    assert!(why(&child).starts_with("cancelled: its dependencies did not meet its condition"));

    let document = server.filch(&["why", "--json", &later]).fine().json();
    assert_eq!((&document["code"], &document["id"]), (&"scheduled".into(), &later.as_str().into()));
    server.filch(&["why", "0123abcd"]).refused(3, "no job 0123abcd");
}

#[test]
fn an_ended_job_is_explained_by_its_outcome() {
    let server = Server::up();
    let fine = server.id(&["submit", "--", "true"]);
    server.filch(&["wait", &fine]).fine();
    assert_eq!(server.filch(&["why", &fine]).fine().stdout, "succeeded: the job has succeeded\n");
    let dead = server.dead(&[]);
    let said = format!(
        "dead: the only attempt failed: exit code 1\n  try: filch job retry {}\n",
        &dead[28..]
    );
    assert_eq!(server.filch(&["why", "@last"]).fine().stdout, said);
}

#[test]
fn a_kind_without_a_handler_is_named() {
    let server = Server::up();
    server.filch(&["queue", "set", "default", "--limit", "1"]).fine();
    let gate = server.id(&["submit", "--", "sleep", "1000"]);
    let ids: Vec<String> = (0..3).map(|_| server.id(&["enqueue", "slepe", "{}"])).collect();
    server.id(&["enqueue", "sleep", r#"{"ms": 1}"#]);
    let said = server.filch(&["why", &ids[1]]).fine().stdout;
    let first = "queued: no worker handles kind \"slepe\" (3 jobs wait); did you mean \"sleep\"?";
    assert_eq!(said.lines().next(), Some(first), "{said}");
    let document = server.filch(&["why", "--json", &ids[1]]).fine().json();
    assert_eq!(document["code"], "no-handler");
    // A kind with a handler waits for its turn.
    let said = server.filch(&["why", "@last"]).fine().stdout;
    assert!(said.contains("queue default has 1 of 1 slots busy; 3 jobs ahead"), "{said}");
    let document = server.filch(&["why", "--json", "@last"]).fine().json();
    assert_eq!(document["turn"]["ahead"], 3, "{document}");
    server.filch(&["job", "cancel", &gate]).fine();
}
