//! A dismissed call is cheap: it allocates no memory.

use std::alloc::System;

use cap::Cap;
use filch_recruit::{Duty, Enlisted, Lottery, Rate, Recruiter};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// The only test of its program, because others would allocate.
#[test]
fn a_dismissed_call_allocates_nothing() {
    for lottery in [Lottery::Weyl, Lottery::Random] {
        let mut builder = Recruiter::builder().lottery(lottery).time_share(0.5);
        for (id, parts) in [("a", 3_000), ("b", 10_000), ("c", 50_000)] {
            builder = builder.job(id, Rate::per_million(parts), |_: &mut _| Ok(Duty::Done));
        }
        let recruiter = builder.build().expect("valid set-up");
        // The first call of a thread registers it, which allocates.
        let before = ALLOCATOR.total_allocated();
        recruiter.enlist();
        assert!(ALLOCATOR.total_allocated() > before, "allocations are counted");
        // The test harness allocates a little on its own thread, at any moment. If `enlist`
        // allocated, it would show in every window; so one window without allocations is proof.
        let is_quiet = (0..1_000).any(|_| {
            let before = ALLOCATOR.total_allocated();
            let all = (0..10_000).map(|_| recruiter.enlist());
            let dismissed = all.filter(|enlisted| *enlisted == Enlisted::Dismissed).count();
            let after = ALLOCATOR.total_allocated();
            assert!(dismissed > 9_000, "{dismissed}");
            after == before
        });
        assert!(is_quiet, "every window has allocations");
    }
}
