//! Stands in for `reactor` when the feature `net` is off: a pool without sockets and timers has no
//! reactor.

use crate::core::Core;

/// Never exists.
pub(crate) enum Reactor {}

#[expect(dead_code, reason = "what a reactor would return")]
pub(crate) enum PollerSleep {
    Done(Woken),
    Taken,
    Busy,
}

/// Never holds a waker.
#[must_use]
#[derive(Default)]
pub(crate) struct Woken {}

impl Woken {
    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn wake(self) {}
}

impl Reactor {
    pub(crate) fn is_wanted(&self) -> bool {
        match *self {}
    }

    pub(crate) fn is_unattended(&self) -> bool {
        match *self {}
    }

    pub(crate) fn poll_in_passing(&self) -> Option<Woken> {
        match *self {}
    }

    pub(crate) fn poll_for_busy_workers(&self) -> Option<Woken> {
        match *self {}
    }

    pub(crate) fn sleep_in_poller(&self, _core: &Core, _worker: usize) -> PollerSleep {
        match *self {}
    }

    pub(crate) fn interrupt(&self, _worker: usize) {
        match *self {}
    }

    pub(crate) fn close(&self) {
        match *self {}
    }
}
