//! Proof that the sanitizer would find races: with races planted in the pool, it reports each of
//! them.
//!
//! Only in a build with the sanitizer (`--cfg filch_sanitized`), as `cargo xtask test` makes it.
#![cfg(filch_sanitized)]
#![expect(unsafe_code, reason = "the sanitizer looks for functions by their names")]

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use filch_pool::{Pool, plant_races, scope, task::spawn_detached};

/// How many races were reported.
static REPORTS: AtomicUsize = AtomicUsize::new(0);

/// Called for each.
#[unsafe(no_mangle)]
extern "C" fn __tsan_on_report(_report: *const c_void) {
    REPORTS.fetch_add(1, Relaxed);
}

/// Reports are not failures here, and repeated ones of the same kind count, too.
#[unsafe(no_mangle)]
extern "C" fn __tsan_default_options() -> *const c_char {
    c"exitcode=0 suppress_equal_stacks=0".as_ptr()
}

/// Repeats it until a race is reported.
fn is_reported(way: &str, pool: &Pool, mut hand_over: impl FnMut(&Pool)) {
    let before = REPORTS.load(Relaxed);
    let is_reported = (0..10_000).any(|_| {
        hand_over(pool);
        REPORTS.load(Relaxed) > before
    });
    assert!(is_reported, "{way}: the sanitizer saw nothing");
}

/// One test, because they count the same reports.
#[test]
fn every_planted_race_is_reported() {
    plant_races();
    let pool = Pool::builder().threads(3).build().expect("threads can be started");
    is_reported("what is installed", &pool, |pool| {
        let mut plain = 0;
        pool.install(|| plain += 1);
        assert_eq!(plain, 1);
    });
    // From here on the calling thread is a worker, and waits for no event.
    is_reported("what the tasks of a scope do", &pool, |pool| {
        pool.enter(|| {
            let mut plain = [0; 64];
            scope(|s| {
                for number in &mut plain {
                    s.spawn(move |_| *number += 1);
                }
            });
            assert_eq!(plain, [1; 64]);
        });
    });
    is_reported("what a task was made of", &pool, |pool| {
        pool.enter(|| {
            for number in 0..64 {
                let plain = Box::new(number);
                spawn_detached(move || assert_eq!(*plain, number));
            }
        });
    });
}
