//! What has happened, for whoever listens: a bounded ring of events, each under the number of its commit
//! and its place in it. Who asks for what the ring has lost is told to begin anew.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use filch_api::event::Event;
use filch_scheduler::id::CommitNo;
use filch_scheduler::record::Mutation;
use tokio::sync::watch;

/// Events that are held.
const EVENTS: usize = 16_384;

/// Where an event stands: its commit, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct EventNo(pub(crate) u64, pub(crate) u32);

pub(crate) struct Events {
    ring: Mutex<Ring>,
    /// The newest, for whoever waits.
    newest: watch::Sender<EventNo>,
}

#[derive(Default)]
struct Ring {
    events: VecDeque<(EventNo, Arc<Event>)>,
    /// The newest event that was let go.
    lost: Option<EventNo>,
}

/// What came after an event.
pub(crate) enum Since {
    These(Vec<(EventNo, Arc<Event>)>),
    /// Some of it is not held any more; what is held begins after this.
    Lost(EventNo),
}

impl Events {
    pub(crate) fn new(last: CommitNo) -> Self {
        let lost = Some(EventNo(last.0, u32::MAX));
        let ring = Mutex::new(Ring { events: VecDeque::new(), lost });
        Self { ring, newest: watch::Sender::new(EventNo(last.0, u32::MAX)) }
    }

    /// Whether anybody listens: without them nothing need be made into words.
    pub(crate) fn is_heard(&self) -> bool {
        self.newest.receiver_count() > 0
    }

    /// This commit is durable.
    pub(crate) fn tell(&self, commit: CommitNo, mutations: &[Mutation]) {
        let mut ring = self.ring.lock().expect("nobody panics while telling");
        let mut newest = EventNo(commit.0, 0);
        for (event, index) in mutations.iter().filter_map(Event::of).zip(0..) {
            newest = EventNo(commit.0, index);
            ring.events.push_back((newest, Arc::new(event)));
        }
        while ring.events.len() > EVENTS
            && let Some((number, _)) = ring.events.pop_front()
        {
            ring.lost = Some(number);
        }
        drop(ring);
        self.newest.send_replace(newest);
    }

    /// Commits up to this one were not made into words, because nobody listened.
    pub(crate) fn skip(&self, commit: CommitNo) {
        let mut ring = self.ring.lock().expect("nobody panics while telling");
        ring.events.clear();
        ring.lost = Some(EventNo(commit.0, u32::MAX));
        drop(ring);
        self.newest.send_replace(EventNo(commit.0, u32::MAX));
    }

    pub(crate) fn since(&self, after: EventNo) -> Since {
        let ring = self.ring.lock().expect("nobody panics while telling");
        // An id from the future is one of another store.
        let newest = self.newest();
        if after > newest {
            return Since::Lost(newest);
        }
        if let Some(lost) = ring.lost
            && after < lost
        {
            return Since::Lost(lost);
        }
        let from = ring.events.partition_point(|(number, _)| *number <= after);
        Since::These(ring.events.range(from..).cloned().collect())
    }

    pub(crate) fn newest(&self) -> EventNo {
        *self.newest.borrow()
    }

    pub(crate) fn listen(&self) -> watch::Receiver<EventNo> {
        self.newest.subscribe()
    }
}
