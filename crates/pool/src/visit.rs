//! Into the pool from outside: a closure is run by a worker while its caller waits, or its caller
//! joins in.
#![expect(unsafe_code, reason = "the closure borrows from a caller who waits for it")]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use crate::blocking::blocking;
use crate::core::Core;
use crate::current;
use crate::local::Local;
use crate::protocol::bell::Bell;
use crate::raw_task::Task;
use crate::shared_queue::Priority;

/// A closure and where its result goes. In this order: should it never be called, the closure is
/// dropped before the bell rings.
struct Visit<'a, F, R> {
    f: F,
    outcome: &'a mut Option<thread::Result<R>>,
    bell: RingAtEnd,
}

impl<F: FnOnce() -> R, R> Visit<'_, F, R> {
    fn call(self) {
        let Self { f, outcome, bell } = self;
        *outcome = Some(catch_unwind(AssertUnwindSafe(f)));
        drop(bell);
    }
}

/// Tells the caller when the closure is gone, whether it was run or not.
struct RingAtEnd(Arc<Bell>);

impl Drop for RingAtEnd {
    fn drop(&mut self) {
        self.0.ring();
    }
}

/// Runs `f` on the calling thread as a worker on that seat, which it gives back.
pub(crate) fn enter<R>(core: &Core, seat: usize, f: impl FnOnce() -> R) -> R {
    struct Leave<'a, 'c>(&'a Local<'c>);
    impl Drop for Leave<'_, '_> {
        fn drop(&mut self) {
            let Local { core, index, .. } = *self.0;
            self.0.hand_over();
            core.sleep.leave(index);
            core.free_seat(index);
        }
    }
    let local = Local::new(core, seat);
    core.sleep.sit(seat);
    let _leave = Leave(&local);
    #[cfg(feature = "tokio")]
    let _entered = core.enter_tokio();
    current::enter(&local, f)
}

pub(crate) fn install<R: Send>(core: &Core, f: impl FnOnce() -> R + Send) -> R {
    let mut outcome = None;
    let bell = Arc::new(Bell::new());
    let visit = Visit { f, outcome: &mut outcome, bell: RingAtEnd(Arc::clone(&bell)) };
    // SAFETY: we wait until the closure has been run or dropped, which the bell tells in both cases,
    // after everything that is borrowed was used for the last time.
    let task = unsafe { Task::borrowing(move || visit.call()) };
    drop(core.submit(task, Priority::Normal));
    // On a thread of another pool, somebody else takes its place there.
    blocking(|| bell.wait());
    match outcome {
        Some(Ok(value)) => value,
        Some(Err(panic)) => resume_unwind(panic),
        None => panic!("the pool `{}` is closed: nothing can be installed into it", core.name),
    }
}
