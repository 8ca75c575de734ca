//! What workers say of themselves when they connect: a name, and the kinds of jobs they have handlers for.
//!
//! The brain does not need it, so it is not kept: it goes with the connection that brought it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use filch_api::session::About;
use filch_scheduler::id::WorkerId;

use crate::link::LinkNo;

/// Those that are connected and have said something of themselves.
#[derive(Default)]
pub(crate) struct Roster(Mutex<HashMap<WorkerId, (LinkNo, About)>>);

impl Roster {
    pub(crate) fn introduce(&self, link: LinkNo, worker: WorkerId, about: About) {
        self.entries().insert(worker, (link, about));
    }

    /// The connection is over. Unless the worker has come back by another one, nothing is known of it.
    pub(crate) fn forget(&self, link: LinkNo, worker: WorkerId) {
        let mut entries = self.entries();
        if entries.get(&worker).is_some_and(|(by, _)| *by == link) {
            entries.remove(&worker);
        }
    }

    pub(crate) fn about(&self, worker: WorkerId) -> Option<About> {
        self.entries().get(&worker).map(|(_, about)| about.clone())
    }

    /// The kinds that these workers have handlers for; `None` if one of them does not say.
    pub(crate) fn kinds(&self, workers: &[WorkerId]) -> Option<Vec<String>> {
        let entries = self.entries();
        let mut kinds = Vec::new();
        for worker in workers {
            kinds.extend(entries.get(worker)?.1.kinds.as_ref()?.iter().cloned());
        }
        kinds.sort_unstable();
        kinds.dedup();
        Some(kinds)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<WorkerId, (LinkNo, About)>> {
        self.0.lock().expect("nobody panics with it")
    }
}
