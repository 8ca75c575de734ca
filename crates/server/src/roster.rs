//! Facts that workers send when they connect: a name, and the kinds of jobs they have handlers for.
//!
//! The scheduler does not need them, so they are not stored: they last as long as the connection.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use filch_api::session::About;
use filch_engine::server::LinkNo;
use filch_scheduler::id::WorkerId;

/// Facts about connected workers.
#[derive(Default)]
pub(crate) struct Roster(Mutex<HashMap<WorkerId, (LinkNo, About)>>);

impl Roster {
    pub(crate) fn introduce(&self, link: LinkNo, worker: WorkerId, about: About) {
        self.entries().insert(worker, (link, about));
    }

    /// The connection is over. Its facts are dropped, unless the worker has reconnected.
    pub(crate) fn forget(&self, link: LinkNo, worker: WorkerId) {
        let mut entries = self.entries();
        if entries.get(&worker).is_some_and(|(by, _)| *by == link) {
            entries.remove(&worker);
        }
    }

    pub(crate) fn about(&self, worker: WorkerId) -> Option<About> {
        self.entries().get(&worker).map(|(_, about)| about.clone())
    }

    /// The kinds that these workers have handlers for; `None` if one of them has not sent its
    /// kinds.
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
        self.0.lock().expect("no panic while it is locked")
    }
}
