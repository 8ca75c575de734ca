//! The result of a task: set once, waited for or awaited, and taken once.

use std::task::{Poll, Waker};

use super::sync::{self, Condvar, Mutex};

pub(crate) struct Outcome<V> {
    state: Mutex<State<V>>,
    changed: Condvar,
}

enum State<V> {
    /// Not there yet; and the waker to call then.
    Open(Option<Waker>),
    Ready(V),
    Taken,
}

impl<V> Outcome<V> {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::Open(None)), changed: Condvar::new() }
    }

    /// Sets the result. Only the first call counts.
    pub(crate) fn settle(&self, value: V) {
        let mut state = sync::lock(&self.state);
        let State::Open(waker) = &mut *state else { return };
        let waker = waker.take();
        // A waker that came in between would never be called.
        state = sync::unbroken(state, &self.state);
        *state = State::Ready(value);
        drop(state);
        self.changed.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn is_settled(&self) -> bool {
        !matches!(*sync::lock(&self.state), State::Open(_))
    }

    /// Waits until the result is there.
    pub(crate) fn wait(&self) {
        let mut state = sync::lock(&self.state);
        while matches!(*state, State::Open(_)) {
            state = sync::wait(&self.changed, state);
        }
    }

    /// Takes the result, which is there and was not taken before.
    pub(crate) fn take(&self) -> V {
        match std::mem::replace(&mut *sync::lock(&self.state), State::Taken) {
            State::Ready(value) => value,
            State::Open(_) | State::Taken => unreachable!("it is taken once, when it is ready"),
        }
    }

    /// Takes the result, or registers the waker to call when it is there.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<V> {
        let ours = waker.clone();
        let mut state = sync::lock(&self.state);
        if let State::Open(there) = &mut *state {
            let old = there.replace(ours);
            drop(state);
            // Not under the lock: dropping a waker may run any code.
            drop(old);
            return Poll::Pending;
        }
        drop(state);
        Poll::Ready(self.take())
    }
}
