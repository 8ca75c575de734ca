//! A thread that waits hands its tasks over to others.

use std::sync::mpsc;

use filch_pool::{Pool, blocking};

#[test]
fn tasks_queued_behind_a_blocked_one_run_meanwhile() {
    let pool = Pool::builder().threads(1).build().unwrap();
    let (go, gate) = mpsc::channel::<()>();
    pool.spawn_detached(move || gate.recv().unwrap());
    // The only worker takes both at once, since no other worker could want one of them.
    let (sender, receiver) = mpsc::channel();
    let reply = pool.spawn(move || blocking(|| receiver.recv().unwrap()));
    pool.spawn_detached(move || sender.send("hello").unwrap());
    go.send(()).unwrap();
    assert_eq!(reply.wait().unwrap(), "hello");
}
