//! Waiting for a future on a thread that is not a worker.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::current;
use crate::protocol::event::Event;

impl Wake for Event {
    fn wake(self: Arc<Self>) {
        self.set();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set();
    }
}

/// Runs a future to completion on the calling thread, which does nothing else meanwhile. Timers and
/// sockets that it uses are watched by the [global pool](crate::Pool::global).
///
/// ```
/// let sum = filch_pool::block_on(async { 1 + 2 });
/// assert_eq!(sum, 3);
/// ```
///
/// # Panics
/// If called on a thread of a pool: waiting there would keep a worker from its work, and perhaps
/// from the very work that it waits for. Await the future in `spawn_future` instead, or wait within
/// `blocking`.
#[track_caller]
pub fn block_on<F: Future>(future: F) -> F::Output {
    if let Some(name) = current::with(|local| local.map(|local| local.core.name.clone())) {
        panic!(
            "`block_on` was called on a thread of the pool `{name}`, which must not wait: \
             await the future in `spawn_future`, or wait for it within `blocking`"
        );
    }
    let event = Arc::new(Event::new());
    let waker = Waker::from(Arc::clone(&event));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        event.wait();
    }
}
