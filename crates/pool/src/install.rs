//! Entering a pool from outside: a worker runs the closure while its caller waits (`install`), or
//! the calling thread becomes a worker for a while (`enter`).
#![expect(unsafe_code, reason = "the closure borrows from a caller that waits for it")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use crate::blocking::blocking;
use crate::core::Core;
use crate::current;
use crate::local::Local;
use crate::protocol::event::Event;
use crate::raw_task::Task;
use crate::shared_queue::Priority;

/// A closure and the place for its result. In this order: if the closure is never called, it is
/// dropped before the event is set.
struct Installed<'a, F, R> {
    f: F,
    outcome: &'a mut Option<thread::Result<R>>,
    event: SetOnDrop,
}

impl<F: FnOnce() -> R, R> Installed<'_, F, R> {
    fn call(self) {
        let Self { f, outcome, event } = self;
        *outcome = Some(catch_unwind(AssertUnwindSafe(f)));
        drop(event);
    }
}

/// Wakes the caller when the closure is gone, whether it was run or not.
struct SetOnDrop(Arc<Event>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs `f` on the calling thread as the worker in that slot, and frees the slot afterwards.
pub(crate) fn enter<R>(core: &Core, worker: usize, f: impl FnOnce() -> R) -> R {
    struct Leave<'a, 'c>(&'a Local<'c>);
    impl Drop for Leave<'_, '_> {
        fn drop(&mut self) {
            let Local { core, index, .. } = *self.0;
            self.0.hand_over_tasks();
            core.sleep.unregister(index);
            core.free_slot(index);
        }
    }
    let local = Local::new(core, worker);
    core.sleep.register(worker);
    let _leave = Leave(&local);
    #[cfg(feature = "tokio")]
    let _entered = core.enter_tokio();
    current::enter(&local, f)
}

pub(crate) fn install<R: Send>(core: &Core, f: impl FnOnce() -> R + Send) -> R {
    let mut outcome = None;
    let event = Arc::new(Event::new());
    let installed = Installed { f, outcome: &mut outcome, event: SetOnDrop(Arc::clone(&event)) };
    // SAFETY: we wait until the closure has been run or dropped. In both cases the event is set
    // after everything that is borrowed was used for the last time.
    let task = unsafe { Task::borrowing(move || installed.call()) };
    drop(core.submit(task, Priority::Normal));
    // On a thread of another pool, a reserve takes its place there.
    blocking(|| event.wait());
    match outcome {
        Some(Ok(value)) => value,
        Some(Err(panic)) => resume_unwind(panic),
        None => panic!("the pool `{}` is closed: `install` cannot run", core.name),
    }
}
