//! The worker that the calling thread is.
#![expect(unsafe_code, reason = "a thread-local pointer to what lives on this thread's stack")]

use std::cell::Cell;
use std::ptr;

use crate::local::Local;

thread_local! {
    static CURRENT: Cell<*const Local<'static>> = const { Cell::new(ptr::null()) };
}

/// Calls `f` with the worker that this thread is, if it is one.
#[inline(always)]
pub(crate) fn with<R>(f: impl FnOnce(Option<&Local<'_>>) -> R) -> R {
    let local = CURRENT.get();
    // SAFETY: the pointer is null or was set by `enter` on this thread, below on the stack, which
    // holds the worker in place until it has set the pointer back. `f` cannot keep the reference.
    f(unsafe { local.as_ref() })
}

/// Runs `f` as that worker.
pub(crate) fn enter<R>(local: &Local<'_>, f: impl FnOnce() -> R) -> R {
    struct Leave(*const Local<'static>);
    impl Drop for Leave {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _leave = Leave(CURRENT.replace(ptr::from_ref(local).cast()));
    f()
}

/// Runs `f` as a thread that is not a worker.
pub(crate) fn outside<R>(f: impl FnOnce() -> R) -> R {
    struct Back(*const Local<'static>);
    impl Drop for Back {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _back = Back(CURRENT.replace(ptr::null()));
    f()
}
