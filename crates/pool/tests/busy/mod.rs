//! A worker that is busy until it is told to go on.

use std::sync::mpsc;

use filch_pool::Pool;

/// One worker is at a task that waits for the sender, and has begun it.
pub(crate) fn occupy(pool: &Pool) -> mpsc::Sender<()> {
    let (sender, receiver) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    pool.spawn_detached(move || {
        begun.send(()).expect("somebody waits for it");
        receiver.recv().expect("it is told to go on");
    });
    has_begun.recv().expect("it begins");
    sender
}
