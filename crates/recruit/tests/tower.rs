//! Enlisting after cheap responses.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use filch_recruit::tower::{Cheap, EnlistLayer};
use filch_recruit::{Duty, Rate, Recruiter, Slice};
use http::{Request, Response, StatusCode};
use tower_layer::Layer as _;
use tower_service::Service;

const LONG: Duration = Duration::from_secs(60);

/// Makes a response.
type Make = fn() -> Response<&'static str>;

/// A service that always returns this.
#[derive(Clone)]
struct Answers<E>(Result<Make, E>);

impl<E: Clone> Service<Request<()>> for Answers<E> {
    type Response = Response<&'static str>;
    type Error = E;
    type Future = Ready<Result<Response<&'static str>, E>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(self.0.clone().map(|response| response()))
    }
}

fn not_modified() -> Response<&'static str> {
    let builder = Response::builder().status(StatusCode::NOT_MODIFIED).header("etag", "7");
    builder.body("").expect("valid")
}

fn empty() -> Response<&'static str> {
    Response::builder().status(StatusCode::NO_CONTENT).body("").expect("valid")
}

fn marked() -> Response<&'static str> {
    Response::builder().extension(Cheap).body("from the cache").expect("valid")
}

fn aged() -> Response<&'static str> {
    Response::builder().header("age", "3").body("from a proxy").expect("valid")
}

fn expensive() -> Response<&'static str> {
    Response::new("computed for a long time")
}

/// A recruiter that recruits every caller, and the thread of each slice.
fn recruiter() -> (Arc<Recruiter>, Receiver<ThreadId>) {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let job = move |_: &mut Slice| {
        sender.lock().expect("no code panics with the lock").send(thread::current().id())?;
        Ok(Duty::Done)
    };
    let builder = Recruiter::builder().unbounded().job("j", Rate::ALL, job);
    (Arc::new(builder.build().expect("valid")), receiver)
}

async fn ask(layer: &EnlistLayer, response: Make) {
    let mut service = layer.layer(Answers::<Infallible>(Ok(response)));
    let Ok(answer) = service.call(Request::new(())).await;
    let wanted = response();
    assert_eq!(answer.status(), wanted.status());
    assert_eq!(answer.headers(), wanted.headers());
    assert_eq!(answer.extensions().get::<Cheap>(), wanted.extensions().get());
    assert_eq!(answer.body(), wanted.body());
}

#[tokio::test]
async fn cheap_responses_enlist_and_others_do_not() {
    let (recruiter, slices) = recruiter();
    let layer = EnlistLayer::new(Arc::clone(&recruiter));
    let with_age = layer.clone().when(|response| response.headers.contains_key("age"));
    let cases: [(&EnlistLayer, Make, bool); 10] = [
        (&layer, not_modified, true),
        (&layer, empty, true),
        (&layer, marked, true),
        (&layer, aged, false),
        (&layer, expensive, false),
        (&with_age, not_modified, true),
        (&with_age, empty, true),
        (&with_age, marked, true),
        (&with_age, aged, true),
        (&with_age, expensive, false),
    ];
    for (layer, response, enlists) in cases {
        let before = recruiter.stats().enlisted;
        ask(layer, response).await;
        assert_eq!(recruiter.stats().enlisted - before, u64::from(enlists));
        if enlists {
            let thread = slices.recv_timeout(LONG).expect("a slice runs");
            assert_ne!(
                thread,
                thread::current().id(),
                "slices do not run on the thread of the responses"
            );
        }
    }
    assert!(slices.try_recv().is_err());
}

#[tokio::test]
async fn errors_pass_through_unchanged() {
    let (recruiter, _slices) = recruiter();
    let mut service = EnlistLayer::new(Arc::clone(&recruiter)).layer(Answers(Err("broken")));
    assert_eq!(service.call(Request::new(())).await.expect_err("it fails"), "broken");
    assert_eq!(recruiter.stats().enlisted, 0);
}

#[tokio::test]
async fn readiness_is_passed_through() {
    #[derive(Clone)]
    struct Full;
    impl Service<Request<()>> for Full {
        type Response = Response<()>;
        type Error = &'static str;
        type Future = Ready<Result<Response<()>, &'static str>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
            Poll::Ready(Err("full"))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            ready(Err("called although not ready"))
        }
    }
    let (recruiter, _slices) = recruiter();
    let mut service = EnlistLayer::new(recruiter).layer(Full);
    let ready = std::future::poll_fn(|context| service.poll_ready(context)).await;
    assert_eq!(ready, Err("full"));
}

/// A job whose slices last until the test ends them.
fn endless() -> (Arc<Recruiter>, Sender<()>, Arc<AtomicU32>) {
    let (sender, receiver) = mpsc::channel::<()>();
    let (receiver, begun) = (Mutex::new(receiver), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&begun);
    let job = move |_: &mut Slice| {
        count.fetch_add(1, SeqCst);
        receiver.lock().expect("no code panics with the lock").recv()?;
        Ok(Duty::Done)
    };
    let builder = Recruiter::builder().unbounded().job("slow", Rate::ALL, job);
    (Arc::new(builder.build().expect("valid")), sender, begun)
}

async fn wait_until(is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "timed out");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn slow_slices_delay_no_response_and_their_number_is_limited() {
    let (recruiter, end, begun) = endless();
    let layer = EnlistLayer::new(Arc::clone(&recruiter)).concurrency_limit(2);
    // All requests are answered on one thread, although no slice can end before the last of them.
    for _ in 0..20 {
        ask(&layer, marked).await;
    }
    wait_until(|| begun.load(SeqCst) == 2).await;
    let counts = recruiter.stats().jobs[0].counts.clone();
    assert_eq!((counts.over_budget, counts.slices()), (18, 0));
    for _ in 0..2 {
        end.send(()).expect("a slice waits");
    }
    wait_until(|| recruiter.stats().jobs[0].counts.recruited == 2).await;
    // More slices may run now, but the limit is released only just after a slice is counted.
    let asked = Instant::now();
    while begun.load(SeqCst) < 3 {
        ask(&layer, marked).await;
        assert!(asked.elapsed() < LONG, "no slice starts");
    }
    drop(end);
}

#[tokio::test]
async fn a_panicking_predicate_does_not_affect_the_response() {
    let (recruiter, _slices) = recruiter();
    let layer = EnlistLayer::new(Arc::clone(&recruiter)).when(|_| panic!("planned"));
    ask(&layer, expensive).await;
    assert_eq!(recruiter.stats().enlisted, 0);
}

#[tokio::test]
async fn async_jobs_run_as_well() {
    let awaits = |_: Slice| async {
        tokio::task::yield_now().await;
        Ok(Duty::Done)
    };
    let builder = Recruiter::builder().unbounded().async_job("awaits", Rate::ALL, awaits);
    let recruiter = Arc::new(builder.build().expect("valid"));
    ask(&EnlistLayer::new(Arc::clone(&recruiter)), marked).await;
    wait_until(|| recruiter.stats().jobs[0].counts.recruited == 1).await;
}

#[test]
fn without_a_runtime_the_draw_is_only_counted() {
    let (recruiter, slices) = recruiter();
    let layer = EnlistLayer::new(Arc::clone(&recruiter));
    let mut asked = Box::pin(ask(&layer, marked));
    let poll = asked.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
    assert!(poll.is_ready());
    assert_eq!(recruiter.stats().jobs[0].counts.over_budget, 1);
    assert!(slices.try_recv().is_err());
}
