//! Who is dismissed costs nearly nothing: no memory is asked for, however many enlist.

use std::alloc::System;

use cap::Cap;
use filch_recruit::{Duty, Enlisted, Lottery, Rate, Recruiter};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Alone in its program: whatever else would run might allocate.
#[test]
fn nothing_is_allocated() {
    for lottery in [Lottery::Weyl, Lottery::Random] {
        let mut builder = Recruiter::builder().lottery(lottery).time_share(0.5);
        for (id, parts) in [("a", 3_000), ("b", 10_000), ("c", 50_000)] {
            builder = builder.job(id, Rate::per_million(parts), |_: &mut _| Ok(Duty::Done));
        }
        let recruiter = builder.build().expect("it makes sense");
        // A thread that comes for the first time gets a number of its own.
        let before = ALLOCATOR.total_allocated();
        recruiter.enlist();
        assert!(ALLOCATOR.total_allocated() > before, "what is allocated is seen");
        // The thread that waits for this one allocates too, a little, once it comes to it. That is over soon;
        // what an enlist allocates shows in every window.
        let is_quiet = (0..10).any(|_| {
            let before = ALLOCATOR.total_allocated();
            let all = (0..100_000).map(|_| recruiter.enlist());
            let dismissed = all.filter(|enlisted| *enlisted == Enlisted::Dismissed).count();
            let after = ALLOCATOR.total_allocated();
            assert!(dismissed > 90_000, "{dismissed}");
            after == before
        });
        assert!(is_quiet, "something was allocated in every window");
    }
}
