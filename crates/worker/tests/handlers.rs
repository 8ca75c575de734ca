//! Handlers as a worker runs them, with a server that is played by hand.

use std::sync::Arc;
use std::time::Duration;

use filch_api::session::{Up, UpFrame, WireEnding, WireHold, WireReport};
use filch_scheduler::agent::{Home, Reserve};
use filch_scheduler::id::{CommitNo, Fence, Hold, JobId, MessageNo, Seq, SessionNo};
use filch_scheduler::message::Delivery;
use filch_scheduler::message::{Assignment, Placement, StartMode, ToWorker};
use filch_scheduler::name::Name;
use filch_worker::connect::{Connect, Wire};
use filch_worker::handler::{Handlers, Outcome};
use filch_worker::side_job::{Duty, Rate, Slice};
use filch_worker::{RunningWorker, WorkerConfig};
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
        let session = SessionNo(1);
        let delivery = Delivery { session, number, messages, works, grace: None };
        self.down.send(delivery).await.expect("the worker is connected");
    }

    /// Has a job of this kind run, and hears how it ended.
    async fn run(&mut self, seq: u64, kind: &str) -> (WireReport, Option<String>) {
        let hold = self.assign(seq, kind).await;
        let end = self.hear_end(hold).await;
        // Until it is answered the worker tells of nothing else.
        self.accept(hold).await;
        end
    }

    /// Has a job of this kind run that succeeds, and returns its result.
    async fn finish(&mut self, seq: u64, kind: &str) -> Option<String> {
        let (report, result) = self.run(seq, kind).await;
        assert_eq!(report.ending, WireEnding::Finished);
        result
    }

    async fn accept(&mut self, hold: Hold) {
        self.say(vec![ToWorker::Accepted(vec![hold])], Vec::new()).await;
    }

    async fn assign(&mut self, seq: u64, kind: &str) -> Hold {
        let hold = Hold { job: Seq(seq), fence: Fence(1) };
        let assignment = Assignment {
            hold,
            id: JobId(u128::from(seq)),
            queue: Name::from("default"),
            kind: Name::from(kind),
            era: CommitNo(0),
            rank: 0,
            attempt: 1,
            start: StartMode::Freely,
            place: Placement::Anywhere,
            timeout: None,
        };
        let work = vec![(hold, Arc::from(r#"{"args":[1,2]}"#))];
        self.say(vec![ToWorker::Assign(vec![assignment])], work).await;
        hold
    }

    async fn hear_end(&mut self, hold: Hold) -> (WireReport, Option<String>) {
        loop {
            for message in self.hear().await {
                match message {
                    Up::Report(report) if report.job == WireHold::from(hold) => {
                        let result = report.result.as_ref().map(|result| result.get().to_owned());
                        return (report, result);
                    }
                    Up::Finished(jobs) if jobs.contains(&WireHold::from(hold)) => {
                        return (WireReport::plain(hold.into(), WireEnding::Finished), None);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// A worker with one slot and these handlers that has been let in.
async fn worker(handlers: Handlers) -> (RunningWorker, Server) {
    worker_with(1, handlers).await
}

async fn worker_with(slots: u32, handlers: Handlers) -> (RunningWorker, Server) {
    let (up, heard) = channel(64);
    let (down, told) = channel(64);
    let wire = std::sync::Mutex::new(Some(Wire { up, down: told }));
    let connect: Connect = Arc::new(move || {
        let wire = wire.lock().expect("no panic while it is locked").take();
        Box::pin(async move { Ok(wire.expect("one connection is enough")) })
    });
    let config = WorkerConfig {
        slots,
        home: Home::Apart,
        grace: Duration::ZERO,
        reserve: Reserve::Fixed(0),
        ..WorkerConfig::default()
    };
    let worker = RunningWorker::start(config, handlers, connect);
    let mut server = Server { up: heard, down, said: 0 };
    assert!(matches!(server.hear().await[..], [Up::Hello(_), ..]));
    let lease = Duration::from_secs(3_600);
    let reconcile = ToWorker::Reconcile { lease, keep: Vec::new() };
    server.say(vec![ToWorker::Renewed(MessageNo(1)), reconcile], Vec::new()).await;
    (worker, server)
}

#[tokio::test]
async fn results_of_handlers_are_reported() {
    let handlers = Handlers::new()
        .asynchronous("async", |attempt| async move { Outcome::Finished(Some(attempt.args())) })
        .sync("sync", |attempt| Outcome::Finished(Some(attempt.number().to_string())))
        .sync("fails", |_| Outcome::failed("no paper"));
    let (_worker, mut server) = worker(handlers).await;
    assert_eq!(server.finish(1, "async").await, Some("[1,2]".into()));
    assert_eq!(server.finish(2, "sync").await, Some("1".into()));
    let (report, result) = server.run(3, "fails").await;
    assert_eq!((report.ending, report.forever, result), (WireEnding::Failed, false, None));
    assert_eq!(report.error.as_deref(), Some("no paper"));
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
        assert_eq!((ended.ending, ended.forever), (WireEnding::Failed, false), "{kind}: {ended:?}");
    }
    assert_eq!(server.finish(4, "fine").await, None);
}

#[tokio::test]
async fn a_result_that_is_too_large_is_a_permanent_failure() {
    let large = || format!("\"{}\"", "x".repeat(filch_api::limits::RESULT_BYTES));
    let handlers = Handlers::new()
        .asynchronous("large", move |_| async move { Outcome::Finished(Some(large())) });
    let (_worker, mut server) = worker(handlers).await;
    let (ended, result) = server.run(1, "large").await;
    assert_eq!((ended.ending, ended.forever), (WireEnding::Failed, true));
    assert!(ended.error.is_some_and(|error| error.contains("bytes")));
    assert_eq!(result, None);
}

#[tokio::test]
async fn an_unknown_kind_is_reported_with_the_known_ones() {
    let handlers = Handlers::new().sync("resize", |_| Outcome::Finished(None));
    let (_worker, mut server) = worker(handlers).await;
    let (ended, _) = server.run(1, "resise").await;
    assert_eq!((ended.ending, ended.forever), (WireEnding::Failed, false));
    let error = ended.error.expect("a failed report says why");
    assert!(error.contains("\"resise\"") && error.contains("resize"), "{error}");
}

#[tokio::test]
async fn side_jobs_run_while_the_worker_is_idle_and_not_while_it_runs_jobs() {
    let (slices, mut done) = tokio::sync::mpsc::unbounded_channel();
    let side_job = move |_: &mut Slice| {
        let _ = slices.send(());
        Ok(Duty::Done)
    };
    let (release, released) = tokio::sync::watch::channel(false);
    let (started, mut has_started) = channel(1);
    let handlers = Handlers::new()
        .asynchronous("waits", move |_| {
            let (started, mut released) = (started.clone(), released.clone());
            async move {
                started.send(()).await.expect("the test listens");
                let _ = released.wait_for(|released| *released).await;
                Outcome::Finished(None)
            }
        })
        .side_job("count", Rate::ALL, side_job);
    let (worker, mut server) = worker(handlers).await;
    // One slice after the other: a slice that did something is followed by another idle moment.
    for _ in 0..3 {
        done.recv().await.expect("the side job goes on");
    }
    let hold = server.assign(1, "waits").await;
    has_started.recv().await.expect("the handler has started");
    let enlisted = || worker.side_jobs().expect("there is one").enlisted;
    let before = enlisted();
    for _ in 0..50 {
        server.say(vec![ToWorker::Renewed(MessageNo(1))], Vec::new()).await;
        tokio::task::yield_now().await;
    }
    // One slice may have been under way when the job came.
    assert!(enlisted() <= before + 1, "idle moments of a busy worker");
    release.send_replace(true);
    let (report, result) = server.hear_end(hold).await;
    assert_eq!((report.ending, result), (WireEnding::Finished, None));
    server.accept(hold).await;
    while done.try_recv().is_ok() {}
    done.recv().await.expect("the side job goes on");
    let stats = worker.side_jobs().expect("there is one");
    assert_eq!((stats.jobs[0].id.as_str(), stats.jobs[0].counts.failed), ("count", 0));
}

#[tokio::test]
#[should_panic(expected = "`gc`")]
async fn side_jobs_of_the_same_name_are_refused() {
    let gc = |_: &mut Slice| Ok(Duty::NoWork);
    let handlers = Handlers::new().side_job("gc", Rate::ALL, gc).side_job("gc", Rate::ALL, gc);
    let connect: Connect = Arc::new(|| Box::pin(std::future::pending()));
    drop(RunningWorker::start(WorkerConfig::default(), handlers, connect));
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = filch_pool::join(|| fib(n - 1), || fib(n - 2));
    a + b
}

fn thread_name() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_sync_handler_forks_on_the_threads_of_the_pool() {
    let handlers = Handlers::new()
        .sync("fib", |_| Outcome::Finished(Some(fib(20).to_string())))
        .sync("where", |_| {
            let (a, b) = filch_pool::join(thread_name, thread_name);
            Outcome::Finished(Some(format!("[{:?},{a:?},{b:?}]", thread_name())))
        })
        // As on any thread that a runtime has made for what blocks.
        .sync("runtime", |_| {
            let runtime = tokio::runtime::Handle::current();
            Outcome::Finished(Some(runtime.block_on(async { 7 }).to_string()))
        });
    let (_worker, mut server) = worker_with(2, handlers).await;
    assert_eq!(server.finish(1, "fib").await, Some("6765".into()));
    let (_, names) = server.run(2, "where").await;
    let names: Vec<String> = serde_json::from_str(&names.unwrap()).unwrap();
    let is_its = |name: &String| ["filch-worker-0", "filch-worker-1"].contains(&name.as_str());
    assert!(names.len() == 3 && names.iter().all(is_its), "{names:?}");
    assert_eq!(server.finish(3, "runtime").await, Some("7".into()));
}

#[tokio::test]
async fn as_many_handlers_wait_as_there_are_slots() {
    // Each waits for the other: both run at once, whatever they say to the pool.
    let meeting = Arc::new(std::sync::Barrier::new(2));
    let handlers = Handlers::new().sync("meet", move |_| {
        meeting.wait();
        Outcome::Finished(None)
    });
    let (_worker, mut server) = worker_with(2, handlers).await;
    let holds = [server.assign(1, "meet").await, server.assign(2, "meet").await];
    let mut awaited = holds.map(WireHold::from).to_vec();
    while !awaited.is_empty() {
        for message in server.hear().await {
            if let Up::Finished(jobs) = message {
                awaited.retain(|job| !jobs.contains(job));
            }
        }
    }
}

#[tokio::test]
async fn blocking_leaves_the_thread_to_others() {
    let (give, take) = std::sync::mpsc::channel();
    let take = std::sync::Mutex::new(take);
    let handlers = Handlers::new().sync("wait", move |_| {
        let (heard, ()) = filch_pool::join(
            || filch_pool::blocking(|| take.lock().expect("one waits").recv()),
            // With the only thread asleep, somebody else does this.
            || give.send("hello").expect("it is waited for"),
        );
        Outcome::Finished(heard.ok().map(|word| format!("{word:?}")))
    });
    let (_worker, mut server) = worker(handlers).await;
    assert_eq!(server.finish(1, "wait").await, Some("\"hello\"".into()));
}

#[tokio::test]
async fn an_idle_thread_is_reported_at_once() {
    let handlers = Handlers::new().sync("quick", |_| Outcome::Finished(None));
    let (_worker, mut server) = worker_with(2, handlers).await;
    let first = server.assign(1, "quick").await;
    server.hear_end(first).await;
    // The first is not answered yet, and no heartbeat is due for a long time: if the thread had not
    // reported that it is idle, this end would wait for one.
    let second = server.assign(2, "quick").await;
    server.hear_end(second).await;
    server.accept(first).await;
    server.accept(second).await;
    // And that is all it says: as many messages as there are ends, however often a thread is idle.
    for seq in 3..30 {
        let hold = server.assign(seq, "quick").await;
        let said = server.hear().await;
        // On a slow machine it says before that it has begun.
        assert!(
            matches!(said.last(), Some(Up::Finished(jobs)) if jobs[..] == [WireHold::from(hold)]),
            "{said:?}"
        );
        server.accept(hold).await;
    }
}

#[tokio::test]
async fn a_sync_handler_is_asked_to_stop() {
    let handlers = Handlers::new().sync("long", |attempt| {
        while !attempt.should_stop() {
            std::thread::yield_now();
        }
        Outcome::Stopped
    });
    let (worker, mut server) = worker(handlers).await;
    let hold = server.assign(1, "long").await;
    // What was assigned before is begun, and then told to stop: there is no grace.
    worker.drain(Duration::ZERO);
    assert_eq!(server.hear_end(hold).await.0.ending, WireEnding::Interrupted);
}
