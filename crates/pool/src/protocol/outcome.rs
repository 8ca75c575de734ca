//! What comes of a task: told once, waited for or awaited, and taken once.

use std::task::{Poll, Waker};

use super::sync::{self, Condvar, Mutex};

pub(crate) struct Outcome<V> {
    state: Mutex<State<V>>,
    changed: Condvar,
}

enum State<V> {
    /// Not yet; and who is to be woken then.
    Open(Option<Waker>),
    Ready(V),
    Taken,
}

impl<V> Outcome<V> {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(State::Open(None)), changed: Condvar::new() }
    }

    /// This came of it. Only the first time counts.
    pub(crate) fn settle(&self, value: V) {
        let mut state = sync::lock(&self.state);
        let State::Open(waker) = &mut *state else { return };
        let waker = waker.take();
        // Who comes between would leave a waker that nobody calls.
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

    /// Waits until it is settled.
    pub(crate) fn wait(&self) {
        let mut state = sync::lock(&self.state);
        while matches!(*state, State::Open(_)) {
            state = sync::wait(&self.changed, state);
        }
    }

    /// What came of it. It is settled, and was not taken before.
    pub(crate) fn take(&self) -> V {
        match std::mem::replace(&mut *sync::lock(&self.state), State::Taken) {
            State::Ready(value) => value,
            State::Open(_) | State::Taken => unreachable!("it is taken once, when it is ready"),
        }
    }

    /// What came of it; or the waker is called when something has.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<V> {
        let ours = waker.clone();
        let mut state = sync::lock(&self.state);
        if let State::Open(there) = &mut *state {
            let old = there.replace(ours);
            drop(state);
            // Not under the lock: it may be anybody's.
            drop(old);
            return Poll::Pending;
        }
        drop(state);
        Poll::Ready(self.take())
    }
}
