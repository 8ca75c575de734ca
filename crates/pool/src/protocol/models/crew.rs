//! Whoever is started while the pool is closed is waited for, or is not started.

use std::convert::Infallible;
use std::sync::Arc;

use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread::{self, JoinHandle};

use super::{beside, explore_and_plant};
use crate::protocol::crew::Crew;

struct Story {
    crew: Crew<JoinHandle<()>>,
    started: AtomicUsize,
}

impl Story {
    /// Somebody waits, or all compute for long: one more is needed.
    fn call(&self) {
        let start = || {
            self.started.fetch_add(1, Relaxed);
            Ok::<_, Infallible>(thread::spawn(|| ()))
        };
        let Ok(_) = self.crew.start(start);
    }
}

#[test]
fn who_is_started_while_the_pool_is_closed_is_waited_for() {
    explore_and_plant(3, "who was started is waited for", || {
        let story = Arc::new(Story { crew: Crew::new(), started: AtomicUsize::new(0) });
        let caller = beside(&story, Story::call);
        let members = story.crew.close();
        let count = members.len();
        members.into_iter().for_each(|member| member.join().unwrap());
        caller.join().unwrap();
        assert_eq!(story.started.load(Relaxed), count, "who was started is waited for");
    });
}
