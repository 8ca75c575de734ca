//! Stands in for `deterministic` when that feature is off: no seed ever decides what happens.

use crate::local::Local;

/// Never exists.
pub(crate) enum Script {}

impl Script {
    pub(crate) fn is_here(&self) -> bool {
        match *self {}
    }

    pub(crate) fn point(&self, _local: &Local<'_>) {
        match *self {}
    }

    pub(crate) fn wait(&self, _local: &Local<'_>, _is_over: impl Fn() -> bool) {
        match *self {}
    }
}

pub(crate) fn wait(_is_over: impl Fn() -> bool) {}
