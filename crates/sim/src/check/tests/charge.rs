//! S19: who is charged for a failure, and for a lost worker.

use super::{OWNED, breaks};
use crate::check::Rule::S19;

/// `a` and `b` are owned by the first worker.
const BOTH: &str = "
    0s    submit [a; b]
      -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b: queued
    0s    w1: hello new slots 2 want 2
      -> commit 2: lease 1 w1 claimed [a.1 b.1] at 0s
      -> tell w1: renewed 1, reconcile lease 10s keep [], assign [a.1; b.1]
";

#[test]
fn s19_one_of_several_suspects_is_charged() {
    let history = "
          10s   tick
        -   -> commit 3: note lost w1 with 2, note attempt a.1 by w1 lost-alone, write a queued fence 2 charged 1 suspicions 1, note attempt b.1 by w1 lost-among-others, write b queued fence 2 suspicions 1, lease 2 nobody lost-by w1 [a.2 b.2] at 10s
        +   -> commit 3: note lost w1 with 2, note attempt a.1 by w1 lost-among-others, write a queued fence 2 suspicions 1, note attempt b.1 by w1 lost-among-others, write b queued fence 2 suspicions 1, lease 2 nobody lost-by w1 [a.2 b.2] at 10s
    ";
    breaks(S19, "is charged to #1, but no job can have caused it", &[BOTH, history]);
}

#[test]
fn s19_a_lone_suspect_is_not_charged() {
    let history = "
          10s   tick
        -   -> commit 3: note lost w1 with 1, note attempt a.1 by w1 lost-among-others, write a queued fence 2 suspicions 1, lease 2 nobody lost-by w1 a.2 at 10s
        +   -> commit 3: note lost w1 with 1, note attempt a.1 by w1 lost-alone, write a queued fence 2 charged 1 suspicions 1, lease 2 nobody lost-by w1 a.2 at 10s
    ";
    breaks(S19, "is charged to no job, but #1 can have caused it", &[OWNED, history]);
}

#[test]
fn s19_a_cancelled_job_that_was_not_released_may_have_been_the_cause() {
    let history = "
          1s    cancel b
            -> commit 3: write b cancelled fence 2 held-by w1 because request written 1s
            -> tell w1: cancel b.1
          11s   tick
        -   -> commit 4: note lost w1 with 2, note attempt a.1 by w1 lost-alone, write a queued fence 2 charged 1 suspicions 1, write b cancelled fence 2 because request, lease 2 nobody lost-by w1 a.2 at 11s
        +   -> commit 4: note lost w1 with 2, note attempt a.1 by w1 lost-among-others, write a queued fence 2 suspicions 1, write b cancelled fence 2 because request, lease 2 nobody lost-by w1 a.2 at 11s
    ";
    breaks(S19, "is charged to #1, but no job can have caused it", &[BOTH, history]);
}

#[test]
fn s19_a_suspect_that_did_not_ask_for_its_start_is_suspected_again() {
    let history = "
          10s   tick
            -> commit 3: note lost w1 with 1, note attempt a.1 by w1 lost-alone, write a queued fence 2 charged 1 suspicions 1, lease 2 nobody lost-by w1 a.2 at 10s
          10s   w2: hello new slots 1 want 1
            -> commit 4: lease 3 w2 claimed a.3 at 10s
            -> tell w2: renewed 1, reconcile lease 10s keep [], assign a.3
          20s   tick
        -   -> commit 5: note lost w2 with 1, note attempt a.3 by w2 lost-alone, write a queued fence 4 charged 2 suspicions 2, lease 4 nobody lost-by w2 a.4 at 20s
        +   -> commit 5: note lost w2 with 1, lease 4 nobody lost-by w2 a.4 at 20s
    ";
    breaks(S19, "is charged to #1, but no job can have caused it", &[OWNED, history]);
}

#[test]
fn s19_a_failure_is_accepted_but_not_charged() {
    let history = r#"
          1s    w1 runs a.1 failed
        -   -> commit 3: note attempt a.1 by w1 snoozed, write a scheduled fence 1 due 1s written 1s
        +   -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s written 1s
            -> tell w1: accepted a.1
    "#;
    breaks(S19, "the failure of #1.1 is accepted, but not charged", &[OWNED, history]);
}
