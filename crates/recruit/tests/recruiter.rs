//! Setting up, enlisting, and what is counted.

use std::fmt;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use filch_recruit::{
    AsyncSideJob, Contended, Duty, Enlisted, Lottery, Rate, Recruiter, SetupError, SideError,
    SideFuture, Slice, StatsD,
};

fn done(_: &mut Slice) -> Result<Duty, SideError> {
    Ok(Duty::Done)
}

fn rate(part: f64) -> Rate {
    Rate::new(part).expect("it is a rate")
}

#[test]
fn rates_that_are_none_are_refused() {
    for bad in [-0.001, 1.000_001, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = Rate::new(bad).expect_err("no part of those who enlist");
        assert!(error.to_string().contains("from 0 to 1"), "{error}");
    }
    for small in [4e-7, f64::MIN_POSITIVE] {
        let error = Rate::new(small).expect_err("it would be nobody");
        assert!(error.to_string().contains("too small"), "{error}");
    }
    assert_eq!(rate(5e-7), Rate::per_million(1));
    assert_eq!(rate(1.0), Rate::ALL);
    assert_eq!(rate(0.0), Rate::NONE);
}

#[test]
fn a_set_up_that_makes_no_sense_is_refused() {
    let refused =
        |builder: filch_recruit::RecruiterBuilder| builder.build().expect_err("it is refused");
    let two = Recruiter::builder().unbounded().job("a", rate(0.1), done).job("a", rate(0.1), done);
    assert_eq!(refused(two), SetupError::DuplicateId("a".to_owned()));
    assert_eq!(
        refused(Recruiter::builder().unbounded().job("", rate(0.1), done)),
        SetupError::EmptyId
    );
    let much =
        Recruiter::builder().unbounded().job("a", rate(0.6), done).job("b", rate(0.400_001), done);
    assert_eq!(refused(much), SetupError::RatesTooHigh { parts_per_million: 1_000_001 });
    let adaptive =
        Recruiter::builder().unbounded().job("a", rate(0.1), done).adaptive(rate(0.2), rate(0.3));
    assert_eq!(refused(adaptive), SetupError::OutOfBounds("a".to_owned()));
    let (long, short) = (Duration::from_millis(60), Duration::from_millis(50));
    let slice = Recruiter::builder().unbounded().budget(long, short);
    assert_eq!(refused(slice), SetupError::BadSlice { slice: long, max: short });
    assert!(matches!(refused(Recruiter::builder().time_share(1.5)), SetupError::BadTimeShare(_)));
    let early = Recruiter::builder().adaptive(rate(0.1), rate(0.3)).job("a", rate(0.2), done);
    assert_eq!(refused(early), SetupError::NoJobToAdapt);
    let needless = Recruiter::builder().unbounded().load(|| 0.5);
    assert_eq!(refused(needless), SetupError::LoadWithoutBudget);
}

/// Ten slices of five milliseconds, one after the other: how many were done, and how many denied.
fn ten_slices(builder: filch_recruit::RecruiterBuilder) -> (u64, u64) {
    let millis = Duration::from_millis(5);
    let job = move |slice: &mut Slice| {
        while slice.used() < millis {
            std::hint::spin_loop();
        }
        Ok(Duty::Done)
    };
    let builder = builder.job("j", Rate::ALL, job).budget(millis, millis);
    let recruiter = builder.build().expect("it makes sense");
    for _ in 0..10 {
        recruiter.enlist();
    }
    let counts = &recruiter.stats().jobs[0].counts;
    (counts.recruited, counts.over_budget)
}

#[test]
fn two_percent_are_spared_if_nothing_else_is_said() {
    let (done, denied) = ten_slices(Recruiter::builder());
    assert!(done > 0 && denied > 0 && done + denied == 10, "{done} and {denied}");
    assert_eq!(ten_slices(Recruiter::builder().unbounded()), (10, 0));
    // The load counts without anything else, too.
    assert_eq!(ten_slices(Recruiter::builder().load(|| 1.0)), (0, 10));
}

#[test]
fn ten_tenths_are_a_whole() {
    let tenths = (0..10).fold(Recruiter::builder().unbounded(), |builder, n| {
        builder.job(format!("job {n}"), rate(0.1), done)
    });
    let recruiter = tenths.build().expect("exactly everybody is wanted");
    for _ in 0..10_000 {
        assert_ne!(recruiter.enlist(), Enlisted::Dismissed);
    }
}

#[test]
fn who_wants_nobody_gets_nobody() {
    let builder =
        Recruiter::builder().unbounded().job("none", Rate::NONE, done).job("all", Rate::ALL, done);
    let recruiter = builder.build().expect("it makes sense");
    for _ in 0..10_000 {
        assert_eq!(recruiter.enlist(), Enlisted::Recruited { job: "all" });
    }
    let empty = Recruiter::builder().unbounded().build().expect("no jobs are fine");
    assert_eq!(empty.enlist(), Enlisted::Dismissed);
}

#[test]
fn shares_are_what_was_asked_for() {
    // That chance keeps to three sigmas is tested where its seed is given; here it must not fail by itself.
    for (lottery, sigmas) in [(Lottery::Weyl, 0.1), (Lottery::Random, 5.0)] {
        let rates = [("a", 0.003), ("b", 0.01), ("c", 0.05)];
        let builder = rates
            .iter()
            .fold(Recruiter::builder().unbounded().lottery(lottery), |builder, (id, part)| {
                builder.job(*id, rate(*part), done)
            });
        let recruiter = builder.build().expect("it makes sense");
        let count = 100_000;
        for _ in 0..count {
            recruiter.enlist();
        }
        let stats = recruiter.stats();
        assert_eq!(stats.enlisted, count);
        for (job, (_, part)) in stats.jobs.iter().zip(rates) {
            let wanted = count as f64 * part;
            let sigma = (wanted * (1.0 - part)).sqrt();
            let error = (job.counts.recruited as f64 - wanted).abs();
            assert!(error <= sigmas * sigma + 2.0, "{lottery:?} {}: off by {error}", job.id);
        }
    }
}

#[test]
fn whatever_a_job_does_its_host_goes_on() {
    let calls = Arc::new(AtomicU32::new(0));
    let counting = |f: fn() -> Result<Duty, SideError>| {
        let calls = Arc::clone(&calls);
        move |_: &mut Slice| {
            calls.fetch_add(1, SeqCst);
            f()
        }
    };
    let recruiter = Recruiter::builder()
        .unbounded()
        .job("fails", rate(0.3), counting(|| Err("no network".into())))
        .job("panics", rate(0.3), counting(|| panic!("planned")))
        .job("idles", rate(0.4), counting(|| Ok(Duty::NoWork)))
        .build()
        .expect("it makes sense");
    for round in 1..=300 {
        let enlisted = recruiter.enlist();
        let is_as_it_should = match enlisted {
            Enlisted::Failed { job } => job == "fails" || job == "panics",
            Enlisted::NoWork { job } => job == "idles",
            Enlisted::Dismissed | Enlisted::Recruited { .. } => false,
        };
        assert!(is_as_it_should, "{enlisted:?}");
        assert_eq!(calls.load(SeqCst), round, "one job each time, and no second try");
    }
    let stats = recruiter.stats();
    let [fails, panics, idles] = &stats.jobs[..] else { panic!("three jobs") };
    assert_eq!(fails.counts.failed, fails.counts.selected);
    assert_eq!(panics.counts.panicked, panics.counts.selected);
    assert_eq!(idles.counts.no_work, idles.counts.selected);
    assert_eq!(stats.jobs.iter().map(|job| job.counts.slices()).sum::<u64>(), 300);
}

/// Goes wrong once more when it is looked at, or thrown away.
struct Spiteful;

impl fmt::Debug for Spiteful {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("planned")
    }
}

impl fmt::Display for Spiteful {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("planned")
    }
}

impl std::error::Error for Spiteful {}

impl Drop for Spiteful {
    fn drop(&mut self) {
        // A second panic while a thread unwinds would end the program, here as everywhere.
        assert!(std::thread::panicking(), "planned");
    }
}

#[test]
fn what_a_job_fails_with_cannot_fail_its_host() {
    let throws = |_: &mut Slice| std::panic::panic_any(Spiteful);
    let returns = |_: &mut Slice| -> Result<Duty, SideError> { Err(Box::new(Spiteful)) };
    let recruiter = Recruiter::builder()
        .unbounded()
        .job("throws", rate(0.4), throws)
        .job("returns", rate(0.4), returns)
        .async_job("awaits", rate(0.2), SpitefulJob)
        .build()
        .expect("it makes sense");
    for _ in 0..20 {
        assert!(matches!(now(recruiter.enlist_async()), Enlisted::Failed { .. }));
    }
    assert!(recruiter.stats().jobs.iter().all(|job| job.counts.panicked > 0));
}

struct SpitefulJob;

impl AsyncSideJob for SpitefulJob {
    fn recruited<'a>(&'a self, _: &'a mut Slice) -> SideFuture<'a> {
        Box::pin(async { Err(Box::new(Spiteful).into()) })
    }
}

#[test]
fn the_next_recruit_takes_over() {
    let left = Arc::new(AtomicU32::new(3));
    let job = {
        let left = Arc::clone(&left);
        move |slice: &mut Slice| {
            assert!(!slice.out_of_time(), "it has just begun");
            match left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
                Ok(3) => Err("contended".into()),
                Ok(_) => Ok(Duty::Done),
                Err(_) => Ok(Duty::NoWork),
            }
        }
    };
    let recruiter =
        Recruiter::builder().unbounded().job("j", Rate::ALL, job).build().expect("it makes sense");
    let became: Vec<_> = (0..4).map(|_| recruiter.enlist()).collect();
    let job = "j";
    assert_eq!(became[0], Enlisted::Failed { job });
    assert_eq!(became[1..3], [Enlisted::Recruited { job }; 2]);
    assert_eq!(became[3], Enlisted::NoWork { job });
}

#[test]
fn a_slice_has_20_milliseconds_and_at_most_50_if_nothing_else_is_said() {
    let job = |slice: &mut Slice| {
        let length = slice.deadline() + slice.used() - Instant::now();
        // What passed between the three looks at the clock is missing, or too much.
        assert!(length > Duration::from_millis(15) && length < Duration::from_millis(25));
        while slice.used() <= Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        Ok(Duty::Done)
    };
    let recruiter =
        Recruiter::builder().unbounded().job("j", Rate::ALL, job).build().expect("it makes sense");
    // On a machine that is very busy the clock may run on between two looks.
    let begun = Instant::now();
    while recruiter.enlist() != (Enlisted::Recruited { job: "j" }) {
        assert!(begun.elapsed() < Duration::from_secs(60), "a slice has other bounds");
    }
    let counts = &recruiter.stats().jobs[0].counts;
    assert!(counts.overrun > 0, "it was longer than 50 ms");
}

#[test]
fn overruns_are_counted() {
    let long = |slice: &mut Slice| {
        while slice.used() <= Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert!(slice.out_of_time());
        Ok(Duty::Done)
    };
    let (slice, max) = (Duration::from_millis(1), Duration::from_millis(2));
    let builder = Recruiter::builder().unbounded().job("long", Rate::ALL, long).budget(slice, max);
    let recruiter = builder.build().expect("it makes sense");
    recruiter.enlist();
    let counts = &recruiter.stats().jobs[0].counts;
    assert_eq!((counts.recruited, counts.overrun), (1, 1));
    assert!(counts.time > max);
}

#[test]
fn a_host_without_time_dismisses() {
    let builder =
        Recruiter::builder().unbounded().job("j", Rate::ALL, done).time_share(0.5).load(|| 1.0);
    let recruiter = builder.build().expect("it makes sense");
    assert_eq!(recruiter.enlist(), Enlisted::Dismissed);
    let counts = &recruiter.stats().jobs[0].counts;
    assert_eq!((counts.selected, counts.over_budget, counts.slices()), (1, 1, 0));
}

#[test]
fn a_rate_follows_the_work() {
    let found =
        |is_there: bool| move |_: &mut Slice| Ok(if is_there { Duty::Done } else { Duty::NoWork });
    let builder = Recruiter::builder()
        .unbounded()
        .job("busy", rate(0.1), found(true))
        .adaptive(rate(0.01), rate(0.4))
        .job("idle", rate(0.1), found(false))
        .adaptive(rate(0.01), rate(0.4));
    let recruiter = builder.build().expect("it makes sense");
    for _ in 0..10_000 {
        recruiter.enlist();
    }
    let stats = recruiter.stats();
    assert_eq!(stats.jobs[0].parts_per_million, 400_000);
    assert_eq!(stats.jobs[1].parts_per_million, 10_000);
}

#[test]
fn nothing_is_learned_from_who_is_contended() {
    let contended = |_: &mut Slice| -> Result<Duty, SideError> { Err(Contended.into()) };
    let builder = Recruiter::builder()
        .unbounded()
        .job("contended", rate(0.5), contended)
        .adaptive(rate(0.01), Rate::ALL);
    let recruiter = builder.build().expect("it makes sense");
    for _ in 0..100 {
        assert_eq!(recruiter.enlist(), Enlisted::Dismissed);
    }
    let stats = recruiter.stats();
    let job = &stats.jobs[0];
    assert_eq!(job.parts_per_million, 500_000);
    let count = job.counts.selected;
    // Of those who are drawn; an offset by chance decides about the last one.
    assert!((45..=55).contains(&count), "{count}");
    assert_eq!((job.counts.contended, job.counts.slices()), (count, count));
    let line =
        format!("recruiter_slices_total{{job=\"contended\",outcome=\"contended\"}} {count}\n");
    assert!(stats.metrics().contains(&line), "{}", stats.metrics());
}

#[test]
fn many_threads_enlist_and_all_are_counted() {
    let recruiter = Arc::new(
        Recruiter::builder()
            .unbounded()
            .job("j", rate(0.01), done)
            .build()
            .expect("it makes sense"),
    );
    for _ in 0..3 {
        let barrier = Arc::new(Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (recruiter, barrier) = (Arc::clone(&recruiter), Arc::clone(&barrier));
                std::thread::spawn(move || {
                    barrier.wait();
                    for _ in 0..10_000 {
                        recruiter.enlist();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
    }
    let stats = recruiter.stats();
    assert_eq!(stats.enlisted, 240_000);
    // Each thread's own share is exact but for a few.
    let recruited = stats.jobs[0].counts.recruited;
    assert!((2_400 - 24 * 3..=2_400 + 24 * 3).contains(&recruited), "{recruited}");
}

/// As a type of its own; a closure would do.
struct Awaiting;

impl AsyncSideJob for Awaiting {
    fn recruited<'a>(&'a self, slice: &'a mut Slice) -> SideFuture<'a> {
        Box::pin(async move {
            std::future::ready(()).await;
            assert!(!slice.out_of_time());
            Ok(Duty::Done)
        })
    }
}

/// What a future that never waits comes to.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    let pinned: Pin<&mut _> = future.as_mut();
    match pinned.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it never waits"),
    }
}

#[test]
fn who_awaits_can_do_both_kinds() {
    let builder = Recruiter::builder().unbounded().async_job("awaits", Rate::ALL, Awaiting);
    let recruiter = builder.build().expect("it makes sense");
    assert_eq!(now(recruiter.enlist_async()), Enlisted::Recruited { job: "awaits" });
    let builder =
        Recruiter::builder()
            .unbounded()
            .async_job("panics", Rate::ALL, |_: Slice| async { panic!("planned") });
    let recruiter = builder.build().expect("it makes sense");
    assert_eq!(now(recruiter.enlist_async()), Enlisted::Failed { job: "panics" });
    let recruiter = Recruiter::builder()
        .unbounded()
        .job("plain", Rate::ALL, done)
        .build()
        .expect("it makes sense");
    assert_eq!(now(recruiter.enlist_async()), Enlisted::Recruited { job: "plain" });
}

#[test]
fn who_cannot_await_is_counted() {
    let builder = Recruiter::builder().unbounded().async_job("awaits", Rate::ALL, Awaiting);
    let recruiter = builder.build().expect("it makes sense");
    for _ in 0..3 {
        assert_eq!(recruiter.enlist(), Enlisted::Dismissed, "who cannot await is of no use");
    }
    let stats = recruiter.stats();
    let counts = &stats.jobs[0].counts;
    assert_eq!((counts.selected, counts.not_awaited, counts.slices()), (3, 3, 0));
    let line = "recruiter_not_awaited_total{job=\"awaits\"} 3\n";
    assert!(stats.metrics().contains(line), "{}", stats.metrics());
}

#[tokio::test]
async fn a_job_that_does_not_end_is_thrown_away_in_time() {
    let dropped = Arc::new(AtomicU32::new(0));
    let stuck = {
        let dropped = Arc::clone(&dropped);
        move |slice: Slice| {
            let guard = Guard(Arc::clone(&dropped));
            async move {
                let _guard = guard;
                std::future::pending::<()>().await;
                Ok(if slice.out_of_time() { Duty::Done } else { Duty::NoWork })
            }
        }
    };
    let (slice, max) = (Duration::from_millis(1), Duration::from_millis(5));
    let builder = Recruiter::builder().unbounded().budget(slice, max).timer(tokio::time::sleep);
    let recruiter = builder.async_job("stuck", Rate::ALL, stuck).build().expect("it makes sense");
    let begun = Instant::now();
    assert_eq!(recruiter.enlist_async().await, Enlisted::Failed { job: "stuck" });
    assert_eq!(dropped.load(SeqCst), 1);
    assert!(begun.elapsed() >= max, "it has all of its time");
    assert_eq!(recruiter.stats().jobs[0].counts.failed, 1);
}

/// Counts how often it is thrown away.
struct Guard(Arc<AtomicU32>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn what_is_thrown_away_cannot_fail_its_host() {
    let spiteful = |_: Slice| async {
        let _kept = Spiteful;
        std::future::pending::<()>().await;
        Ok(Duty::Done)
    };
    let over = |_: Duration| std::future::ready(());
    let builder = Recruiter::builder().unbounded().timer(over);
    let recruiter =
        builder.async_job("spiteful", Rate::ALL, spiteful).build().expect("it makes sense");
    assert_eq!(now(recruiter.enlist_async()), Enlisted::Failed { job: "spiteful" });
    let builder = Recruiter::builder().unbounded().timer(|_| async { panic!("planned") });
    let recruiter = builder
        .async_job("waits", Rate::ALL, |_: Slice| std::future::pending())
        .build()
        .expect("it makes sense");
    assert_eq!(now(recruiter.enlist_async()), Enlisted::Failed { job: "waits" });
}

/// What is told to a server of one slice of the job, which may take a millisecond.
fn told(job: fn(&mut Slice) -> Result<Duty, SideError>) -> Vec<String> {
    told_of(|builder| builder.job("g:c", Rate::ALL, job))
}

/// What is told to a server of one who enlists for the job of this set-up.
fn told_of(
    set_up: impl FnOnce(filch_recruit::RecruiterBuilder) -> filch_recruit::RecruiterBuilder,
) -> Vec<String> {
    let server = UdpSocket::bind("127.0.0.1:0").expect("there is a port");
    server.set_read_timeout(Some(Duration::from_secs(60))).expect("it can be set");
    let address = server.local_addr().expect("it is bound");
    let statsd = StatsD::connect(address).expect("there is a socket").prefix("side work");
    let millisecond = Duration::from_millis(1);
    let builder = set_up(Recruiter::builder().unbounded().statsd(statsd));
    builder.budget(millisecond, millisecond).build().expect("it makes sense").enlist();
    let mut buffer = [0; 1500];
    let length = server.recv(&mut buffer).expect("it arrives");
    let text = std::str::from_utf8(&buffer[..length]).expect("it is text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn each_slice_is_told_over_udp() {
    let lines = told(|slice| {
        while slice.used() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        Ok(Duty::Done)
    });
    let [outcome, time, selected, overrun] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(outcome, "side_work.g_c.recruited:1|c");
    let millis =
        time.strip_prefix("side_work.g_c.slice:").and_then(|rest| rest.strip_suffix("|ms"));
    let millis: f64 = millis.expect("it is a time").parse().expect("it is a number");
    assert!(millis >= 2.0, "{millis}");
    assert!(time.contains('.'), "parts of a millisecond are told: {time}");
    assert_eq!(selected, "side_work.g_c.selected:1|c");
    assert_eq!(overrun, "side_work.g_c.overrun:1|c");
    assert_eq!(told(|_| Ok(Duty::NoWork))[0], "side_work.g_c.no_work:1|c");
    assert_eq!(told(|_| Err(Contended.into()))[0], "side_work.g_c.contended:1|c");
    assert_eq!(told(|_| Err("no network".into()))[0], "side_work.g_c.failed:1|c");
    assert_eq!(told(|_| panic!("planned"))[0], "side_work.g_c.panicked:1|c");
}

#[test]
fn who_is_drawn_for_nothing_is_told_over_udp() {
    let denied = told_of(|builder| builder.time_share(0.0).job("j", Rate::ALL, done));
    assert_eq!(denied, ["side_work.j.over_budget:1|c", "side_work.j.selected:1|c"]);
    let passed = told_of(|builder| builder.async_job("j", Rate::ALL, Awaiting));
    assert_eq!(passed, ["side_work.j.not_awaited:1|c", "side_work.j.selected:1|c"]);
}

#[test]
fn the_recruiter_of_the_process_is_set_up_once() {
    assert_eq!(filch_recruit::enlist(), Enlisted::Dismissed);
    assert_eq!(filch_recruit::enlisted_before_setup(), 1);
    assert_eq!(now(filch_recruit::enlist_async()), Enlisted::Dismissed);
    assert_eq!(filch_recruit::enlisted_before_setup(), 2);
    let builder = || Recruiter::builder().unbounded().job("j", Rate::ALL, done);
    builder().build_global().expect("there is none yet");
    assert_eq!(filch_recruit::enlist(), Enlisted::Recruited { job: "j" });
    assert_eq!(now(filch_recruit::enlist_async()), Enlisted::Recruited { job: "j" });
    assert_eq!(builder().build_global().expect_err("there is one"), SetupError::AlreadyBuilt);
    assert_eq!(filch_recruit::enlisted_before_setup(), 2);
    let stats = filch_recruit::global().expect("it is set up").stats();
    assert_eq!((stats.enlisted, stats.enlisted_before_setup), (2, 2));
    let line = "recruiter_enlisted_before_setup_total 2\n";
    assert!(stats.metrics().contains(line), "{}", stats.metrics());
}
