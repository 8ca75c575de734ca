//! S1 by true time, whatever the wall clock shows; L9 what is overdue is purged.

use super::{OWNED, breaks};
use crate::check::Rule::{L9, S1};

#[test]
fn s1_a_jump_of_the_wall_clock_makes_no_job_older() {
    let history = "
           1s    w1 runs a.1 finished
             -> commit 3: write a succeeded fence 1 written 1s
        -  30s/3600s expired [#1 a]
        # The clock was set back; the job is old all the same.
        +  61s/5s expired [#1 a]
        # A server that starts has only its wall clock.
        +2 30s/3600s server crashes
        +2 31s/3601s server starts
        +2 32s/3602s expired [#1 a]
        -2 30s   server crashes
        -2 31s   server starts
        -2 32s/3602s expired [#1 a]
             -> commit 4: purge a
    ";
    breaks(S1, "a is purged, but is succeeded for ", &[OWNED, history]);
}

#[test]
fn l9_an_overdue_job_is_not_purged() {
    let history = "
           1s    w1 runs a.1 finished
             -> commit 3: write a succeeded fence 1 written 1s
        +  61s   expired [#1 a]
        +    -> commit 4: purge a
        +2 121s  tick
        # A job waits for it.
        +3 2s    submit b after a
        +3   -> commit 4: put #2 at 2s: b after a: blocked
        # Faults, and a restart.
        +4 100s  trouble until 110s
        +4 170s  tick
        +5 100s  server crashes
        +5 110s  server starts
        +5 170s  tick
        # The clock was set: it takes two retentions until every time is known to be old.
        +6 50s/3600s tick
        +6 230s/3780s tick
        -2 50s/3600s tick
        -2 231s/3781s tick
        -2 232s/3782s tick
        -  121001ms tick
        +  121001ms tick
        +3 121001ms tick
    ";
    breaks(L9, "a ended ", &[OWNED, history]);
}
