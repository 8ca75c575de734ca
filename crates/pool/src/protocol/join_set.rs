//! The threads of a pool: every thread that was started is joined in the end.

use super::sync::{self, Mutex};

/// `T` is a join handle.
pub(crate) struct JoinSet<T> {
    members: Mutex<Members<T>>,
}

struct Members<T> {
    started: Vec<T>,
    is_closed: bool,
}

impl<T> JoinSet<T> {
    pub(crate) fn new() -> Self {
        Self { members: Mutex::new(Members { started: Vec::new(), is_closed: false }) }
    }

    /// Starts one more thread with `start`, unless the set is closed. Returns whether it tried.
    pub(crate) fn start<E>(&self, start: impl FnOnce() -> Result<T, E>) -> Result<bool, E> {
        let mut members = sync::lock(&self.members);
        if members.is_closed {
            return Ok(false);
        }
        // If the set were closed in between, this thread would not be joined.
        members = sync::unbroken(members, &self.members);
        members.started.push(start()?);
        Ok(true)
    }

    /// Closes the set: no more threads are started. Returns those that were.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut members = sync::lock(&self.members);
        members.is_closed = true;
        std::mem::take(&mut members.started)
    }
}
