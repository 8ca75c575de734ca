//! A stranger that connects to the server and claims to be a worker of somebody else.

use std::sync::Arc;

use filch_engine::server::{LinkNo, LinkScope, ServerInput};
use filch_scheduler::id::{Hold, MessageNo, SessionNo, WorkerId};
use filch_scheduler::message::{Ending, FromWorker, Hello, HelloKind, Report, Serves, WorkerBatch};
use filch_scheduler::name::Name;

use super::World;
use crate::log::Observer;
use crate::plan::Intrusion;

/// Ids of strangers, which no drawn id has.
const STRANGERS: u64 = 0xbad;

/// How many workers a stranger introduces over one connection.
const MANY: u64 = 5;

impl<W: Observer> World<'_, W> {
    /// Only against a worker that is connected: an id that no token has introduced since the server
    /// started is free.
    pub(super) fn intrude(&mut self, place: usize, deed: Intrusion) {
        let Some((worker, session, hold)) = self.connected(place) else {
            return;
        };
        self.connections += 1;
        let link = LinkNo(self.connections);
        let is_own = matches!(deed, Intrusion::SameSession | Intrusion::OldSession);
        let scope = if is_own { self.scope_of(place) } else { stranger() };
        self.serve(ServerInput::LinkOpened { link, scope });
        let own = |number: u64| WorkerId::apart(STRANGERS + (self.connections << 16) + number);
        let hello = |kind| FromWorker::Hello(Hello { kind, ..greeting() });
        let forged = || hold.map(|hold| FromWorker::Report(Report::plain(hold, Ending::Finished)));
        let batches = match deed {
            Intrusion::Resume => vec![(worker, session.next(), hello(HelloKind::Resume))],
            Intrusion::Goodbye => vec![(worker, session, FromWorker::Goodbye)],
            Intrusion::SameSession => vec![(worker, session, FromWorker::Heartbeat)],
            Intrusion::OldSession => {
                forged().map(|report| (worker, SessionNo(0), report)).into_iter().collect()
            }
            Intrusion::Report => {
                let reports = hold.map(|hold| Report::plain(hold, Ending::Finished));
                let reports: Vec<Report> = reports.into_iter().collect();
                let hello = Hello { reports, ..greeting() };
                let batch = (own(0), SessionNo(1), FromWorker::Hello(hello));
                hold.map(|_| batch).into_iter().collect()
            }
            Intrusion::ManyIds => {
                let one = |number| (own(number), SessionNo(1), hello(HelloKind::New));
                (0..MANY).map(one).collect()
            }
        };
        // What is allowed, or is ignored later, may reach the scheduler.
        let is_rejected = !matches!(deed, Intrusion::OldSession | Intrusion::ManyIds);
        self.impersonated = is_rejected.then_some(worker);
        for (worker, session, message) in batches {
            let (number, messages) = (MessageNo(1), vec![message]);
            let batch = WorkerBatch { worker, session, number, messages };
            self.serve(ServerInput::Batch { link, batch });
        }
        self.impersonated = None;
        self.lose_link(link);
    }

    /// A job that the worker of this node holds.
    fn connected(&self, place: usize) -> Option<(WorkerId, SessionNo, Option<Hold>)> {
        let (worker, session, dispatch) = self.connected_worker(place)?;
        let job = dispatch.held_by(worker).next().and_then(|job| dispatch.job_at(job));
        let hold = job.map(|view| Hold { job: view.seq, fence: view.fence });
        Some((worker, session, hold))
    }
}

fn stranger() -> LinkScope {
    LinkScope {
        token: Some(Arc::from("stranger")),
        queues: Some(Arc::from([Name::from("elsewhere")])),
        ..LinkScope::default()
    }
}

const fn greeting() -> Hello {
    Hello {
        kind: HelloKind::New,
        slots: 1,
        want: 0,
        serves: Serves::All,
        reports: Vec::new(),
        started: Vec::new(),
        holds: Vec::new(),
    }
}
