//! Handlers as a worker runs them, with a server that is played by hand.

use std::sync::Arc;
use std::time::Duration;

use filch_api::delivery::Delivery;
use filch_api::session::{Ended, Held, Up, UpFrame};
use filch_scheduler::agent::{Home, Reserve};
use filch_scheduler::id::{CommitNo, Fence, Hold, JobId, MessageNo, Seq, SessionNo};
use filch_scheduler::message::{Assignment, Place, Start, ToWorker};
use filch_scheduler::name::Name;
use filch_worker::connect::{Connect, Wire};
use filch_worker::handler::{Handlers, Outcome};
use filch_worker::{Config, Worker};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// The server's end of a connection.
struct Server {
    up: Receiver<UpFrame>,
    down: Sender<Delivery>,
    said: u64,
}

impl Server {
    async fn hear(&mut self) -> Vec<Up> {
        self.up.recv().await.expect("the worker is connected").messages
    }

    async fn say(&mut self, messages: Vec<ToWorker>, works: Vec<(Hold, Arc<str>)>) {
        self.said += 1;
        let number = MessageNo(self.said);
        let delivery = Delivery { session: SessionNo(1), number, messages, works };
        self.down.send(delivery).await.expect("the worker is connected");
    }

    /// Has a job of this kind run, and hears how it ended.
    async fn run(&mut self, seq: u64, kind: &str) -> (Ended, Option<String>) {
        let hold = Hold { job: Seq(seq), fence: Fence(1) };
        let assignment = Assignment {
            hold,
            id: JobId(u128::from(seq)),
            queue: Name::from("default"),
            kind: Name::from(kind),
            era: CommitNo(0),
            rank: 0,
            attempt: 1,
            start: Start::Freely,
            place: Place::Anywhere,
            timeout: None,
        };
        let work = vec![(hold, Arc::from(r#"{"args":[1,2]}"#))];
        self.say(vec![ToWorker::Assign(vec![assignment])], work).await;
        let (ended, result) = self.hear_end(hold).await;
        // Until it is answered the worker tells of nothing else.
        self.say(vec![ToWorker::Accepted(vec![hold])], Vec::new()).await;
        (ended, result)
    }

    async fn hear_end(&mut self, hold: Hold) -> (Ended, Option<String>) {
        loop {
            for message in self.hear().await {
                match message {
                    Up::Report(report) if report.job == Held::from(hold) => {
                        let result = report.result.map(|result| result.get().to_owned());
                        return (report.ending, result);
                    }
                    Up::Finished(jobs) if jobs.contains(&Held::from(hold)) => {
                        return (Ended::Finished, None);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// A worker with these handlers that has been let in.
async fn worker(handlers: Handlers) -> (Worker, Server) {
    let (up, heard) = channel(64);
    let (down, told) = channel(64);
    let wire = std::sync::Mutex::new(Some(Wire { up, down: told }));
    let connect: Connect = Arc::new(move || {
        let wire = wire.lock().expect("nobody panics").take();
        Box::pin(async move { Ok(wire.expect("one connection is enough")) })
    });
    let config = Config {
        slots: 1,
        queues: None,
        home: Home::Apart,
        grace: Duration::ZERO,
        reserve: Reserve::Fixed(0),
    };
    let worker = Worker::start(config, handlers, connect);
    let mut server = Server { up: heard, down, said: 0 };
    assert!(matches!(server.hear().await[..], [Up::Hello(_), ..]));
    let lease = Duration::from_secs(3_600);
    let truth = ToWorker::Truth { lease, keep: Vec::new() };
    server.say(vec![ToWorker::Renewed(MessageNo(1)), truth], Vec::new()).await;
    (worker, server)
}

#[tokio::test]
async fn what_a_handler_returns_is_reported() {
    let handlers = Handlers::new()
        .asynchronous("async", |attempt| async move { Outcome::Finished(Some(attempt.args())) })
        .sync("sync", |attempt| Outcome::Finished(Some(attempt.number().to_string())))
        .sync("fails", |_| Outcome::failed("no paper"));
    let (_worker, mut server) = worker(handlers).await;
    assert_eq!(server.run(1, "async").await, (Ended::Finished, Some("[1,2]".into())));
    assert_eq!(server.run(2, "sync").await, (Ended::Finished, Some("1".into())));
    let failed = Ended::Failed { error: "no paper".into(), forever: false };
    assert_eq!(server.run(3, "fails").await, (failed, None));
}

#[tokio::test]
async fn a_handler_that_panics_fails_its_job_and_nothing_else() {
    let handlers = Handlers::new()
        .asynchronous("at once", |_| -> std::future::Ready<Outcome> { panic!("before any future") })
        .asynchronous("later", |_| async { panic!("in the future") })
        .sync("thread", |_| panic!("on a thread"))
        .asynchronous("fine", |_| async { Outcome::Finished(None) });
    let (_worker, mut server) = worker(handlers).await;
    for (seq, kind) in [(1, "at once"), (2, "later"), (3, "thread")] {
        let (ended, _) = server.run(seq, kind).await;
        assert!(matches!(ended, Ended::Failed { forever: false, .. }), "{kind}: {ended:?}");
    }
    assert_eq!(server.run(4, "fine").await, (Ended::Finished, None));
}

#[tokio::test]
async fn a_result_that_is_too_large_is_a_lasting_failure() {
    let large = || format!("\"{}\"", "x".repeat(filch_api::limits::RESULT_BYTES));
    let handlers = Handlers::new()
        .asynchronous("large", move |_| async move { Outcome::Finished(Some(large())) });
    let (_worker, mut server) = worker(handlers).await;
    let (ended, result) = server.run(1, "large").await;
    assert!(matches!(&ended, Ended::Failed { forever: true, error } if error.contains("bytes")));
    assert_eq!(result, None);
}

#[tokio::test]
async fn a_kind_that_nobody_knows_is_named_with_those_that_are_known() {
    let handlers = Handlers::new().sync("resize", |_| Outcome::Finished(None));
    let (_worker, mut server) = worker(handlers).await;
    let (ended, _) = server.run(1, "resise").await;
    let Ended::Failed { error, forever: false } = ended else { panic!("{ended:?}") };
    assert!(error.contains("\"resise\"") && error.contains("resize"), "{error}");
}
