//! A thread that is started while the pool is closed is joined, or is not started.

use std::convert::Infallible;
use std::sync::Arc;

use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread::{self, JoinHandle};

use super::{beside, explore_and_plant};
use crate::protocol::join_set::JoinSet;

struct Model {
    join_set: JoinSet<JoinHandle<()>>,
    started: AtomicUsize,
}

impl Model {
    /// A thread waits, or all compute for long: one more is needed.
    fn call(&self) {
        let start = || {
            self.started.fetch_add(1, Relaxed);
            Ok::<_, Infallible>(thread::spawn(|| ()))
        };
        let Ok(_) = self.join_set.start(start);
    }
}

#[test]
fn a_thread_started_while_the_pool_is_closed_is_joined() {
    explore_and_plant(3, "every started thread is joined", || {
        let model = Arc::new(Model { join_set: JoinSet::new(), started: AtomicUsize::new(0) });
        let caller = beside(&model, Model::call);
        let members = model.join_set.close();
        let count = members.len();
        members.into_iter().for_each(|member| member.join().unwrap());
        caller.join().unwrap();
        assert_eq!(model.started.load(Relaxed), count, "every started thread is joined");
    });
}
