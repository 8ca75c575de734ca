//! Threads that wait: another takes the place of each, so that as many compute as should.
//!
//! A reserve is a thread with a seat of its own, started when one is first needed. When those who
//! waited are back, a reserve ends what it does, gives away what it has, and sits on the bench until
//! it is needed again.

use crate::core::Core;
use crate::current;
use crate::local::Local;
use crate::protocol::reserve::Reserve;
use crate::protocol::sync::thread;

/// Tells the pool that this thread will wait: for a lock, a reply, a disk. Meanwhile another thread
/// takes its place, so the pool goes on with as many as it should have. On a thread that belongs to no
/// pool this is a plain call.
///
/// While `f` runs, the thread is no worker: what it spawns or forks is done by others.
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
        // Not before: a worker that is alone lays nothing open.
        local.expose_all();
        current::outside(f)
    })
}

/// One more thread of this pool waits, or is needed for another reason.
pub(crate) fn request_reserve(core: &Core) {
    let start = || {
        if core.is_closed() {
            // Nothing is left to be done.
            return false;
        }
        let Some(worker) = core.take_slot() else { return false };
        // Without a thread there is one less that computes, and nothing else.
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

/// The reserve that calls this waits on the bench, if it is one too many.
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
