//! Blocking calls: while a worker waits, a reserve thread takes its place, so that the pool keeps
//! computing on as many threads as it was built with.
//!
//! A reserve is a thread with its own worker slot, started when one is first needed. When the
//! waiting threads are back, a surplus reserve finishes its task, hands its queue over to others,
//! and sleeps until it is needed again.

use crate::core::Core;
use crate::current;
use crate::local::Local;
use crate::protocol::reserve::Reserve;
use crate::protocol::sync::thread;

/// Runs `f`, which may wait: for a lock, a reply, a disk. Meanwhile another thread takes the place
/// of this one, so the pool keeps its number of running threads. On a thread that belongs to no
/// pool, this is a plain call.
///
/// While `f` runs, the thread is not a worker: tasks that it spawns and forks that it makes are run
/// by others.
///
/// ```
/// let pool = filch_pool::Pool::builder().threads(1).build()?;
/// let (sender, receiver) = std::sync::mpsc::channel();
/// let reply = pool.spawn(move || filch_pool::blocking(|| receiver.recv()));
/// // The only thread waits, and yet this is run.
/// pool.spawn_detached(move || sender.send("hello").expect("it waits"));
/// assert_eq!(reply.wait()?, Ok("hello"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    struct Back<'a>(&'a Reserve);
    impl Drop for Back<'_> {
        fn drop(&mut self) {
            self.0.release(1);
        }
    }
    current::with(|local| {
        let Some(local) = local else { return f() };
        if let Some(script) = local.core.script() {
            script.wait(local, || false);
            return current::outside(f);
        }
        request_reserve(local.core);
        let _back = Back(&local.core.reserve);
        local.hand_over_tasks();
        // Only now that another worker exists: a worker that is alone exposes nothing.
        local.expose_all();
        current::outside(f)
    })
}

/// Requests one more reserve, because a thread waits or for another reason.
pub(crate) fn request_reserve(core: &Core) {
    let start = || {
        if core.is_closed() {
            // There is nothing left to do.
            return false;
        }
        let Some(worker) = core.take_slot() else { return false };
        // Without a thread, one fewer computes; nothing else goes wrong.
        let is_started = core.start_thread(worker).unwrap_or(false);
        if !is_started {
            core.free_slot(worker);
        }
        is_started
    };
    if let Some(worker) = core.reserve.request(start) {
        core.unpark(worker);
    }
}

/// If the calling reserve is surplus, it sleeps until it is needed again.
pub(crate) fn wait_in_reserve(local: &Local<'_>) {
    let Local { core, index, .. } = *local;
    if !core.reserve.go_idle(index) {
        return;
    }
    local.hand_over_tasks();
    while core.reserve.is_idle(index) && !core.is_closed() {
        thread::park();
    }
}
