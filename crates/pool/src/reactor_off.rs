//! Stands in for `reactor` when the feature `net` is off: a pool without sockets and timers has no
//! reactor.

use crate::core::Core;

/// Never exists.
pub(crate) enum Reactor {}

#[expect(dead_code, reason = "what a reactor would return")]
pub(crate) enum Watch {
    Over(Woken),
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

    pub(crate) fn is_unwatched(&self) -> bool {
        match *self {}
    }

    pub(crate) fn glance(&self) -> Option<Woken> {
        match *self {}
    }

    pub(crate) fn look_for_others(&self) -> Option<Woken> {
        match *self {}
    }

    pub(crate) fn watch(&self, _core: &Core, _seat: usize) -> Watch {
        match *self {}
    }

    pub(crate) fn unwatch(&self, _seat: usize) {
        match *self {}
    }

    pub(crate) fn close(&self) {
        match *self {}
    }
}
