//! The I/O budget: how much a future may do in one poll before other tasks get their turn.
//!
//! A future gives its thread back when it has to wait. With sockets that are always ready it never
//! has to, and other tasks would starve. So each poll may use sockets a fixed number of times;
//! after that, the future has to wait for its next turn.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::task::Poll;

/// How often a future may use sockets in one poll: a few hundred microseconds' worth.
const USES: u32 = 128;

thread_local! {
    /// How many uses the future that is being polled has left. None outside of a pool's futures,
    /// where no other task waits for the thread.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Polls a future with a full budget.
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

/// Waits for the next poll if the budget is used up.
pub(crate) fn some_left() -> impl Future<Output = ()> {
    poll_fn(|context| match LEFT.get() {
        Some(0) => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        Some(_) | None => Poll::Ready(()),
    })
}

/// Counts one use of a socket that was ready.
pub(crate) fn spend() {
    LEFT.set(LEFT.get().map(|left| left.saturating_sub(1)));
}
