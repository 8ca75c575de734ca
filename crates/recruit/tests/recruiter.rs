//! Set-up, enlisting, budgets and statistics.

mod virtual_clock;

use std::fmt;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use filch_recruit::{
    AsyncSideJob, Contended, Duty, Enlisted, Lottery, Rate, Recruiter, SetupError, SideError,
    SideFuture, Slice, StatsD,
};

use virtual_clock::{advance, now};

fn done(_: &mut Slice) -> Result<Duty, SideError> {
    Ok(Duty::Done)
}

fn rate(part: f64) -> Rate {
    Rate::new(part).expect("valid rate")
}

#[test]
fn invalid_rates_are_rejected() {
    for bad in [-0.001, 1.000_001, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = Rate::new(bad).expect_err("outside 0 to 1");
        assert!(error.to_string().contains("from 0 to 1"), "{error}");
    }
    for small in [4e-7, f64::MIN_POSITIVE] {
        let error = Rate::new(small).expect_err("it would be rounded to 0");
        assert!(error.to_string().contains("too small"), "{error}");
    }
    assert_eq!(rate(5e-7), Rate::per_million(1));
    assert_eq!(rate(1.0), Rate::ALL);
    assert_eq!(rate(0.0), Rate::NONE);
}

#[test]
fn an_inconsistent_set_up_is_rejected() {
    let error =
        |builder: filch_recruit::RecruiterBuilder| builder.build().expect_err("it is rejected");
    let two = Recruiter::builder().unbounded().job("a", rate(0.1), done).job("a", rate(0.1), done);
    assert_eq!(error(two), SetupError::DuplicateId("a".to_owned()));
    assert_eq!(
        error(Recruiter::builder().unbounded().job("", rate(0.1), done)),
        SetupError::EmptyId
    );
    let much =
        Recruiter::builder().unbounded().job("a", rate(0.6), done).job("b", rate(0.400_001), done);
    assert_eq!(error(much), SetupError::RatesTooHigh { parts_per_million: 1_000_001 });
    let adaptive =
        Recruiter::builder().unbounded().job("a", rate(0.1), done).adaptive(rate(0.2), rate(0.3));
    assert_eq!(error(adaptive), SetupError::OutOfBounds("a".to_owned()));
    let (long, short) = (Duration::from_millis(60), Duration::from_millis(50));
    let slice = Recruiter::builder().unbounded().budget(long, short);
    assert_eq!(error(slice), SetupError::BadSlice { slice: long, max: short });
    assert!(matches!(error(Recruiter::builder().time_share(1.5)), SetupError::BadTimeShare(_)));
    let early = Recruiter::builder().adaptive(rate(0.1), rate(0.3)).job("a", rate(0.2), done);
    assert_eq!(error(early), SetupError::NoJobToAdapt);
    let needless = Recruiter::builder().unbounded().load(|| 0.5);
    assert_eq!(error(needless), SetupError::LoadWithoutBudget);
}

/// Ten slices of five milliseconds, one after the other: how many ran, and how many were over
/// budget.
fn ten_slices(builder: filch_recruit::RecruiterBuilder) -> (u64, u64) {
    let millis = Duration::from_millis(5);
    let job = move |_: &mut Slice| {
        advance(millis);
        Ok(Duty::Done)
    };
    let builder = builder.clock(now).job("j", Rate::ALL, job).budget(millis, millis);
    let recruiter = builder.build().expect("valid set-up");
    for _ in 0..10 {
        recruiter.enlist();
    }
    let counts = &recruiter.stats().jobs[0].counts;
    (counts.recruited, counts.over_budget)
}

#[test]
fn the_default_time_share_is_two_percent() {
    // 2 % of a second are saved up, which is enough for four slices.
    assert_eq!(ten_slices(Recruiter::builder()), (4, 6));
    assert_eq!(ten_slices(Recruiter::builder().unbounded()), (10, 0));
    // `load` also applies to the default share.
    assert_eq!(ten_slices(Recruiter::builder().load(|| 1.0)), (0, 10));
}

#[test]
fn ten_jobs_with_a_tenth_each_leave_no_call_dismissed() {
    let tenths = (0..10).fold(Recruiter::builder().unbounded(), |builder, n| {
        builder.job(format!("job {n}"), rate(0.1), done)
    });
    let recruiter = tenths.build().expect("the rates add up to exactly 1");
    for _ in 0..10_000 {
        assert_ne!(recruiter.enlist(), Enlisted::Dismissed);
    }
}

#[test]
fn a_rate_of_zero_is_never_drawn() {
    let builder =
        Recruiter::builder().unbounded().job("none", Rate::NONE, done).job("all", Rate::ALL, done);
    let recruiter = builder.build().expect("valid set-up");
    for _ in 0..10_000 {
        assert_eq!(recruiter.enlist(), Enlisted::Recruited { job: "all" });
    }
    let empty = Recruiter::builder().unbounded().build().expect("a recruiter may have no jobs");
    assert_eq!(empty.enlist(), Enlisted::Dismissed);
}

#[test]
fn each_job_gets_its_share() {
    for (lottery, sigmas) in [(Lottery::Weyl, 0.1), (Lottery::Random, 3.0)] {
        let rates = [("a", 0.003), ("b", 0.01), ("c", 0.05)];
        let builder = rates.iter().fold(
            Recruiter::builder().unbounded().lottery(lottery).seed(1),
            |builder, (id, part)| builder.job(*id, rate(*part), done),
        );
        let recruiter = builder.build().expect("valid set-up");
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
            assert!(error <= sigmas * sigma + 2.0, "{lottery:?} {}: error {error}", job.id);
        }
    }
}

#[test]
fn failures_and_panics_do_not_reach_the_caller() {
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
        .expect("valid set-up");
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

/// An error that panics when it is formatted or dropped.
struct PanicsAgain;

impl fmt::Debug for PanicsAgain {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("planned")
    }
}

impl fmt::Display for PanicsAgain {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("planned")
    }
}

impl std::error::Error for PanicsAgain {}

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        // A second panic while a thread unwinds would abort the process.
        assert!(std::thread::panicking(), "planned");
    }
}

#[test]
fn a_panic_in_the_error_of_a_job_does_not_reach_the_caller() {
    let throws = |_: &mut Slice| std::panic::panic_any(PanicsAgain);
    let returns = |_: &mut Slice| -> Result<Duty, SideError> { Err(Box::new(PanicsAgain)) };
    let recruiter = Recruiter::builder()
        .unbounded()
        .job("throws", rate(0.4), throws)
        .job("returns", rate(0.4), returns)
        .async_job("awaits", rate(0.2), PanickingErrorJob)
        .build()
        .expect("valid set-up");
    for _ in 0..20 {
        assert!(matches!(ready(recruiter.enlist_async()), Enlisted::Failed { .. }));
    }
    assert!(recruiter.stats().jobs.iter().all(|job| job.counts.panicked > 0));
}

struct PanickingErrorJob;

impl AsyncSideJob for PanickingErrorJob {
    fn recruited<'a>(&'a self, _: &'a mut Slice) -> SideFuture<'a> {
        Box::pin(async { Err(Box::new(PanicsAgain).into()) })
    }
}

#[test]
fn the_next_recruit_continues_the_work() {
    let left = Arc::new(AtomicU32::new(3));
    let job = {
        let left = Arc::clone(&left);
        move |slice: &mut Slice| {
            assert!(!slice.out_of_time(), "it has just started");
            match left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)) {
                Ok(3) => Err("contended".into()),
                Ok(_) => Ok(Duty::Done),
                Err(_) => Ok(Duty::NoWork),
            }
        }
    };
    let recruiter =
        Recruiter::builder().unbounded().job("j", Rate::ALL, job).build().expect("valid set-up");
    let became: Vec<_> = (0..4).map(|_| recruiter.enlist()).collect();
    let job = "j";
    assert_eq!(became[0], Enlisted::Failed { job });
    assert_eq!(became[1..3], [Enlisted::Recruited { job }; 2]);
    assert_eq!(became[3], Enlisted::NoWork { job });
}

#[test]
fn a_slice_has_20_milliseconds_and_at_most_50_by_default() {
    let job = |slice: &mut Slice| {
        assert_eq!(slice.deadline() - now(), Duration::from_millis(20));
        advance(Duration::from_millis(19));
        assert!(!slice.out_of_time());
        advance(Duration::from_millis(1));
        assert!(slice.out_of_time());
        advance(Duration::from_millis(30));
        Ok(Duty::Done)
    };
    let longer = |_: &mut Slice| {
        advance(Duration::from_millis(51));
        Ok(Duty::Done)
    };
    let overruns = |builder: filch_recruit::RecruiterBuilder| {
        let recruiter = builder.unbounded().clock(now).build().expect("valid set-up");
        assert_eq!(recruiter.enlist(), Enlisted::Recruited { job: "j" });
        recruiter.stats().jobs[0].counts.overrun
    };
    assert_eq!(overruns(Recruiter::builder().job("j", Rate::ALL, job)), 0);
    assert_eq!(overruns(Recruiter::builder().job("j", Rate::ALL, longer)), 1);
}

#[test]
fn overruns_are_counted() {
    let long = |slice: &mut Slice| {
        advance(Duration::from_millis(3));
        assert!(slice.out_of_time());
        Ok(Duty::Done)
    };
    let (slice, max) = (Duration::from_millis(1), Duration::from_millis(2));
    let builder = Recruiter::builder().unbounded().clock(now);
    let builder = builder.job("long", Rate::ALL, long).budget(slice, max);
    let recruiter = builder.build().expect("valid set-up");
    recruiter.enlist();
    let counts = &recruiter.stats().jobs[0].counts;
    assert_eq!((counts.recruited, counts.overrun), (1, 1));
    assert_eq!(counts.time, Duration::from_millis(3));
}

#[test]
fn a_fully_busy_host_dismisses_every_caller() {
    let builder =
        Recruiter::builder().unbounded().job("j", Rate::ALL, done).time_share(0.5).load(|| 1.0);
    let recruiter = builder.build().expect("valid set-up");
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
    let recruiter = builder.build().expect("valid set-up");
    for _ in 0..10_000 {
        recruiter.enlist();
    }
    let stats = recruiter.stats();
    assert_eq!(stats.jobs[0].parts_per_million, 400_000);
    assert_eq!(stats.jobs[1].parts_per_million, 10_000);
}

#[test]
fn contention_does_not_change_an_adaptive_rate() {
    let contended = |_: &mut Slice| -> Result<Duty, SideError> { Err(Contended.into()) };
    let builder = Recruiter::builder()
        .unbounded()
        .seed(1)
        .job("contended", rate(0.5), contended)
        .adaptive(rate(0.01), Rate::ALL);
    let recruiter = builder.build().expect("valid set-up");
    for _ in 0..100 {
        assert_eq!(recruiter.enlist(), Enlisted::Dismissed);
    }
    let stats = recruiter.stats();
    let job = &stats.jobs[0];
    assert_eq!(job.parts_per_million, 500_000);
    let count = job.counts.selected;
    assert!((49..=51).contains(&count), "{count}");
    assert_eq!((job.counts.contended, job.counts.slices()), (count, count));
    let line =
        format!("recruiter_slices_total{{job=\"contended\",outcome=\"contended\"}} {count}\n");
    assert!(stats.metrics().contains(&line), "{}", stats.metrics());
}

#[test]
fn calls_from_many_threads_are_all_counted() {
    let recruiter = Arc::new(
        Recruiter::builder().unbounded().job("j", rate(0.01), done).build().expect("valid set-up"),
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
        threads.into_iter().for_each(|thread| thread.join().expect("the thread does not panic"));
    }
    let stats = recruiter.stats();
    assert_eq!(stats.enlisted, 240_000);
    // The share of each thread is exact within a few slices.
    let recruited = stats.jobs[0].counts.recruited;
    assert!((2_400 - 24 * 3..=2_400 + 24 * 3).contains(&recruited), "{recruited}");
}

/// A type that implements the trait; a closure would do.
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

/// The output of a future that is ready at the first poll.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = Box::pin(future);
    let pinned: Pin<&mut _> = future.as_mut();
    match pinned.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the future is not ready"),
    }
}

#[test]
fn async_callers_run_both_kinds_of_jobs() {
    let builder = Recruiter::builder().unbounded().async_job("awaits", Rate::ALL, Awaiting);
    let recruiter = builder.build().expect("valid set-up");
    assert_eq!(ready(recruiter.enlist_async()), Enlisted::Recruited { job: "awaits" });
    let builder =
        Recruiter::builder()
            .unbounded()
            .async_job("panics", Rate::ALL, |_: Slice| async { panic!("planned") });
    let recruiter = builder.build().expect("valid set-up");
    assert_eq!(ready(recruiter.enlist_async()), Enlisted::Failed { job: "panics" });
    let recruiter = Recruiter::builder()
        .unbounded()
        .job("plain", Rate::ALL, done)
        .build()
        .expect("valid set-up");
    assert_eq!(ready(recruiter.enlist_async()), Enlisted::Recruited { job: "plain" });
}

#[test]
fn sync_callers_skip_async_jobs_and_that_is_counted() {
    let builder = Recruiter::builder().unbounded().async_job("awaits", Rate::ALL, Awaiting);
    let recruiter = builder.build().expect("valid set-up");
    for _ in 0..3 {
        assert_eq!(recruiter.enlist(), Enlisted::Dismissed, "the caller cannot await");
    }
    let stats = recruiter.stats();
    let counts = &stats.jobs[0].counts;
    assert_eq!((counts.selected, counts.not_awaited, counts.slices()), (3, 3, 0));
    let line = "recruiter_not_awaited_total{job=\"awaits\"} 3\n";
    assert!(stats.metrics().contains(line), "{}", stats.metrics());
}

#[tokio::test]
async fn an_async_job_that_does_not_finish_in_time_is_dropped() {
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
    let recruiter = builder.async_job("stuck", Rate::ALL, stuck).build().expect("valid set-up");
    assert_eq!(recruiter.enlist_async().await, Enlisted::Failed { job: "stuck" });
    assert_eq!(dropped.load(SeqCst), 1);
    let counts = &recruiter.stats().jobs[0].counts;
    assert_eq!(counts.failed, 1);
    assert!(counts.time >= max, "it had the maximum time");
}

/// Counts how often it is dropped.
struct Guard(Arc<AtomicU32>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_panic_while_a_job_is_dropped_does_not_reach_the_caller() {
    let panics_again = |_: Slice| async {
        let _kept = PanicsAgain;
        std::future::pending::<()>().await;
        Ok(Duty::Done)
    };
    let over = |_: Duration| std::future::ready(());
    let builder = Recruiter::builder().unbounded().timer(over);
    let recruiter =
        builder.async_job("panics_again", Rate::ALL, panics_again).build().expect("valid set-up");
    assert_eq!(ready(recruiter.enlist_async()), Enlisted::Failed { job: "panics_again" });
    let builder = Recruiter::builder().unbounded().timer(|_| async { panic!("planned") });
    let recruiter = builder
        .async_job("waits", Rate::ALL, |_: Slice| std::future::pending())
        .build()
        .expect("valid set-up");
    assert_eq!(ready(recruiter.enlist_async()), Enlisted::Failed { job: "waits" });
}

/// The lines sent to StatsD for one slice of the job, whose maximum is a millisecond.
fn lines(job: fn(&mut Slice) -> Result<Duty, SideError>) -> Vec<String> {
    lines_of(|builder| builder.job("g:c", Rate::ALL, job))
}

/// The lines sent to StatsD for one enlist call with this set-up.
fn lines_of(
    set_up: impl FnOnce(filch_recruit::RecruiterBuilder) -> filch_recruit::RecruiterBuilder,
) -> Vec<String> {
    let server = UdpSocket::bind("127.0.0.1:0").expect("there is a port");
    server.set_read_timeout(Some(Duration::from_secs(60))).expect("it can be set");
    let address = server.local_addr().expect("it is bound");
    let statsd = StatsD::connect(address).expect("there is a socket").prefix("side work");
    let millisecond = Duration::from_millis(1);
    let builder = set_up(Recruiter::builder().unbounded().clock(now).statsd(statsd));
    builder.budget(millisecond, millisecond).build().expect("valid set-up").enlist();
    let mut buffer = [0; 1500];
    let length = server.recv(&mut buffer).expect("it arrives");
    let text = std::str::from_utf8(&buffer[..length]).expect("it is text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn each_slice_is_sent_to_statsd() {
    let long = lines(|_| {
        advance(Duration::from_micros(2_345));
        Ok(Duty::Done)
    });
    assert_eq!(
        long,
        [
            "side_work.g_c.recruited:1|c",
            "side_work.g_c.slice:2.345|ms",
            "side_work.g_c.selected:1|c",
            "side_work.g_c.overrun:1|c",
        ]
    );
    assert_eq!(lines(|_| Ok(Duty::NoWork))[0], "side_work.g_c.no_work:1|c");
    assert_eq!(lines(|_| Err(Contended.into()))[0], "side_work.g_c.contended:1|c");
    assert_eq!(lines(|_| Err("no network".into()))[0], "side_work.g_c.failed:1|c");
    assert_eq!(lines(|_| panic!("planned"))[0], "side_work.g_c.panicked:1|c");
}

#[test]
fn draws_without_a_slice_are_sent_to_statsd() {
    let over_budget = lines_of(|builder| builder.time_share(0.0).job("j", Rate::ALL, done));
    assert_eq!(over_budget, ["side_work.j.over_budget:1|c", "side_work.j.selected:1|c"]);
    let not_awaited = lines_of(|builder| builder.async_job("j", Rate::ALL, Awaiting));
    assert_eq!(not_awaited, ["side_work.j.not_awaited:1|c", "side_work.j.selected:1|c"]);
}

#[test]
fn the_process_wide_recruiter_is_built_once() {
    assert_eq!(filch_recruit::enlist(), Enlisted::Dismissed);
    assert_eq!(filch_recruit::enlisted_before_setup(), 1);
    assert_eq!(ready(filch_recruit::enlist_async()), Enlisted::Dismissed);
    assert_eq!(filch_recruit::enlisted_before_setup(), 2);
    let builder = || Recruiter::builder().unbounded().job("j", Rate::ALL, done);
    builder().build_global().expect("none was built yet");
    assert_eq!(filch_recruit::enlist(), Enlisted::Recruited { job: "j" });
    assert_eq!(ready(filch_recruit::enlist_async()), Enlisted::Recruited { job: "j" });
    assert_eq!(builder().build_global().expect_err("one was built"), SetupError::AlreadyBuilt);
    assert_eq!(filch_recruit::enlisted_before_setup(), 2);
    let stats = filch_recruit::global().expect("it was built").stats();
    assert_eq!((stats.enlisted, stats.enlisted_before_setup), (2, 2));
    let line = "recruiter_enlisted_before_setup_total 2\n";
    assert!(stats.metrics().contains(line), "{}", stats.metrics());
}
