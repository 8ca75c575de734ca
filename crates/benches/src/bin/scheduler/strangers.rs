//! How many bytes a server keeps of a worker that greets it once and is never seen again.
//!
//! Anyone who may work can invent ids. A bounded number of them is remembered; this measures what
//! each further one adds.

use filch_engine::server::{LinkNo, LinkScope, ServerEngine, ServerInput};
use filch_scheduler::dispatch::{Dispatch, DispatchConfig};
use filch_scheduler::id::{MessageNo, SessionNo, WorkerId};
use filch_scheduler::message::{FromWorker, Hello, HelloKind, Serves, WorkerBatch};
use filch_scheduler::time::Now;

struct Strangers {
    engine: ServerEngine,
    count: u64,
}

impl Strangers {
    fn new() -> Self {
        let now = Now::default();
        let dispatch = Dispatch::new(DispatchConfig::default(), now);
        let engine = ServerEngine::new(dispatch, Vec::new(), None, now, now, &mut Vec::new());
        Self { engine, count: 0 }
    }

    /// So many more connect, greet the server and disconnect, each under its own id.
    fn come_and_go(&mut self, count: u64) {
        let scope = LinkScope { token: Some("work".into()), ..LinkScope::default() };
        let mut actions = Vec::new();
        for _ in 0..count {
            self.count += 1;
            let (link, worker) = (LinkNo(self.count), WorkerId::apart(self.count));
            let hello = FromWorker::Hello(Hello {
                kind: HelloKind::New,
                slots: 1,
                want: 1,
                serves: Serves::All,
                reports: Vec::new(),
                started: Vec::new(),
                holds: Vec::new(),
            });
            let (session, number) = (SessionNo(1), MessageNo(1));
            let batch = WorkerBatch { worker, session, number, messages: vec![hello] };
            for input in [
                ServerInput::LinkOpened { link, scope: scope.clone() },
                ServerInput::Batch { link, batch },
                ServerInput::LinkClosed(link),
            ] {
                self.engine.handle(Now::default(), input, &mut actions);
                actions.clear();
            }
        }
    }
}

/// Bytes per id of the second half of `count`. `allocated` returns the number of bytes in use.
pub(crate) fn bytes_an_id(count: usize, allocated: impl Fn() -> usize) -> f64 {
    let half = count as u64 / 2;
    let mut strangers = Strangers::new();
    strangers.come_and_go(half);
    let before = allocated();
    strangers.come_and_go(half);
    let after = allocated();
    (after as f64 - before as f64) / half as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stranger_is_another_worker_without_a_connection() {
        let mut strangers = Strangers::new();
        strangers.come_and_go(50);
        let dispatch = strangers.engine.dispatch();
        assert_eq!(dispatch.worker_views().filter(|view| !view.connected).count(), 50);
        assert_eq!(dispatch.audit(), Ok(()));
    }
}
