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
pub(crate) struct Roster(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// What came over connections whose session has not begun: the worker may not be the sender's.
    sent: HashMap<LinkNo, (WorkerId, About)>,
    known: HashMap<WorkerId, (LinkNo, About)>,
}

impl Roster {
    /// These facts came over a connection. They count once its session begins.
    pub(crate) fn introduce(&self, link: LinkNo, worker: WorkerId, about: About) {
        self.entries().sent.insert(link, (worker, about));
    }

    /// The worker's session has begun over this connection.
    pub(crate) fn admit(&self, link: LinkNo, worker: WorkerId) {
        let mut entries = self.entries();
        let Entries { sent, known } = &mut *entries;
        if let Some((_, about)) = sent.remove(&link).filter(|(sender, _)| *sender == worker) {
            known.insert(worker, (link, about));
        }
    }

    /// The connection is over. Its facts are dropped, unless the worker has reconnected.
    pub(crate) fn forget(&self, link: LinkNo, worker: WorkerId) {
        let mut entries = self.entries();
        entries.sent.remove(&link);
        if entries.known.get(&worker).is_some_and(|(by, _)| *by == link) {
            entries.known.remove(&worker);
        }
    }

    pub(crate) fn about(&self, worker: WorkerId) -> Option<About> {
        self.entries().known.get(&worker).map(|(_, about)| about.clone())
    }

    /// The kinds that these workers have handlers for; `None` if one of them has not sent its
    /// kinds.
    pub(crate) fn kinds(&self, workers: &[WorkerId]) -> Option<Vec<String>> {
        let entries = self.entries();
        let mut kinds = Vec::new();
        for worker in workers {
            kinds.extend(entries.known.get(worker)?.1.kinds.as_ref()?.iter().cloned());
        }
        kinds.sort_unstable();
        kinds.dedup();
        Some(kinds)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().expect("no panic while it is locked")
    }
}
