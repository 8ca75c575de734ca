//! How much a future may do in one step before it lets others go first.
//!
//! A future gives its thread back when it has to wait. With sockets that are always ready it never has
//! to, and others would wait for it instead. So each of its steps may use sockets so many times; then it
//! is made to wait once, for its next turn.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::task::Poll;

/// How often a future may use sockets in one step: a few hundred microseconds' worth.
const USES: u32 = 128;

thread_local! {
    /// How many uses are left to the future whose step this is; none outside of those of pools, where
    /// nobody waits for the thread.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Runs one step of a future, with all of its uses.
pub(crate) fn step<R>(f: impl FnOnce() -> R) -> R {
    struct Back(Option<u32>);
    impl Drop for Back {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    let _back = Back(LEFT.replace(Some(USES)));
    f()
}

/// Waits for the next step if nothing is left in this one.
pub(crate) fn some_left() -> impl Future<Output = ()> {
    poll_fn(|context| match LEFT.get() {
        Some(0) => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        Some(_) | None => Poll::Ready(()),
    })
}

/// A socket was ready, and was used.
pub(crate) fn spend() {
    LEFT.set(LEFT.get().map(|left| left.saturating_sub(1)));
}
