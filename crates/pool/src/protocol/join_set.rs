//! The threads of a pool: whoever was started is waited for in the end.

use super::sync::{self, Mutex};

/// `T` is what one waits with for a thread.
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

    /// One more, if `start` can start it; not any more once it is closed. Says whether it was tried.
    pub(crate) fn start<E>(&self, start: impl FnOnce() -> Result<T, E>) -> Result<bool, E> {
        let mut members = sync::lock(&self.members);
        if members.is_closed {
            return Ok(false);
        }
        // Whoever closes it between would not hear of this one.
        members = sync::unbroken(members, &self.members);
        members.started.push(start()?);
        Ok(true)
    }

    /// Nobody is started any more. Says who was.
    pub(crate) fn close(&self) -> Vec<T> {
        let mut members = sync::lock(&self.members);
        members.is_closed = true;
        std::mem::take(&mut members.started)
    }
}
