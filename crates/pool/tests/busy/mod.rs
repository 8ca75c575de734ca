//! A worker that is busy until a test releases it.

use std::sync::mpsc;

use filch_pool::Pool;

/// Keeps one worker in a task that waits for the sender, and has started.
pub(crate) fn occupy(pool: &Pool) -> mpsc::Sender<()> {
    let (sender, receiver) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    pool.spawn_detached(move || {
        begun.send(()).expect("the test receives it");
        receiver.recv().expect("the test sends it");
    });
    has_begun.recv().expect("it begins");
    sender
}
