//! L1 every job ends, L2 orphans are taken back, L3 nobody is idle beside plenty, L4 a server that
//! is back gives out work, L7 a drain comes to its end.

use super::{OWNED, breaks};
use crate::check::Rule::{L1, L2, L3, L4, L7};

#[test]
fn l1_a_job_never_ends() {
    let what = "a never ends: it is leased, its owner is worker 1";
    let history = "
        -  5s    healed
        +  5s    healed
        +  5s    w1 runs a.1 finished
        +    -> commit 3: write a succeeded fence 1
        +2 5s    healed
        +2 5s    cancel a
        +2   -> commit 3: write a cancelled fence 2 held-by w1 because request
        +2   -> tell w1: cancel a.1
        # Nobody promises anything as long as things break.
        +3 5s    tick
           6s    over
    ";
    breaks(L1, what, &[OWNED, history]);
}

#[test]
fn l1_a_job_is_never_assigned() {
    let history = "
           0s    submit a
             -> commit 1: put #1 at 0s: a: queued
           5s    healed
        +  6s    cancel a
        +    -> commit 2: write a cancelled fence 1
           9s    over
    ";
    breaks(L1, "a never ends: it is queued, its owner is none", &[history]);
}

#[test]
fn l2_the_jobs_of_a_lost_worker_are_not_reclaimed() {
    let what = "a is still owned by worker 1, which has ended";
    let history = "
        -  5s    w1 crashes
        -2 5s    w1 leaves
        +  5s    w1 crashes
        +2 5s    w1 pauses
        +3 5s    w1 crashes
        +4 5s    w1 crashes
        -  20s   healed
        -2 20s   healed
        +  20s   healed
        +2 20s   healed
        +3 20s   healed
        +4 20s   healed
        +    -> commit 3: note lost w1 with 1, lease 2 nobody lost-by w1 a.2 at 20s
        +4 31500ms tick
        +4   -> commit 3: note lost w1 with 1, lease 2 nobody lost-by w1 a.2 at 31500ms
        -  31500001us tick
        -2 31500001us tick
        +  31500001us tick
        +2 31500001us tick
        +3 31500ms tick
        +4 31500001us tick
        # The server may find a longer lease in the store.
        +5 5s    w1 crashes
        +5 6s    tick
        +5   -> commit 3: lease-length 11s
        +5 20s   healed
        +5 32500ms tick
    ";
    breaks(L2, what, &[OWNED, history]);
}

#[test]
fn l2_orphans_are_looked_for_again_and_again() {
    let history = "
           20s   healed
           25s   w1 crashes
           25s   closed w1
        # A job that was cancelled counts as well.
        -2 26s   cancel a
        -2   -> commit 3: write a cancelled fence 2 held-by w1 because request
        +3 26s   cancel a
        +3   -> commit 3: write a cancelled fence 2 held-by w1 because request
        +2 36500ms tick
        +2   -> commit 4: note lost w1 with 1, lease 2 nobody lost-by w1 a.2 at 36500ms
        +3 36500ms tick
        +3   -> commit 4: note lost w1 with 1, write a cancelled fence 2 because request
        -  36500001us tick
        -2 36500001us tick
        +  36500ms tick
        +2 39s   tick
        +3 39s   tick
    ";
    breaks(L2, "a is still owned by worker 1, which has ended", &[OWNED, history]);
}

#[test]
fn l2_a_server_that_has_just_started_gives_all_workers_time() {
    let history = "
           5s    w1 crashes
           18s   server crashes
           20s   healed
           22s   server starts
        -  33500001us tick
        +  33500ms tick
    ";
    breaks(L2, "a is still owned by worker 1, which has ended", &[OWNED, history]);
}

#[test]
fn l2_another_incarnation_on_the_same_node_does_not_own_it() {
    let history = "
        -  5s    w2: hello new replacing w1 slots 1 want 1
        +  5s    w2: hello new slots 1 want 1
           20s   healed
           31500001us tick
    ";
    breaks(L2, "a is still owned by worker 1, which has ended", &[OWNED, history]);
}

/// The first worker runs `a` and has `b` and `c` to spare.
const PLENTY: &str = "
    0s    submit [a; b; c]
      -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b: queued, put #3 at 0s: c: queued
    0s    w1: hello new slots 1 want 3
      -> commit 2: lease 1 w1 claimed [a.1 b.1 c.1] at 0s
      -> tell w1: renewed 1, reconcile lease 10s keep [], assign [a.1; b.1; c.1]
    0s    w1 starts a.1
";

const UNFAIR: &str = "node 2 is idle although node 1 has jobs to spare";

#[test]
fn l3_a_worker_is_idle_although_another_has_plenty() {
    let history = "
           1s    healed
           17s   w2: hello new slots 1 want 1
        +2 17100ms w1: give 1 c.1
        +3 17100ms submit d
        +3   -> commit 3: put #4 at 17s: d: queued, lease 2 w2 claimed d.1 at 17s
        +3   -> tell w2: assign d.1
        -  17100001us tick
        +  17100ms tick
        +2 17100001us tick
        +3 17100001us tick
    ";
    breaks(L3, UNFAIR, &[PLENTY, history]);
}

#[test]
fn l3_a_worker_is_idle_from_the_end_of_its_pause() {
    let history = "
           1s    healed
           1s    w2: hello new slots 1 want 1
           1s    w2 pauses
           17s   w2 resumes
        +2 17100ms w2 pauses
        +3 17100ms w2 drains until 30s
        +4 17100ms w2 leaves
        -  17100001us tick
        +  17100ms tick
        +2 17100001us tick
        +3 17100001us tick
        +4 17100001us tick
    ";
    breaks(L3, UNFAIR, &[PLENTY, history]);
}

#[test]
fn l3_each_of_two_is_idle_by_itself() {
    let history = "
           1s    healed
           17s   w2: hello new slots 1 want 3
           17s   w3: hello new slots 1 want 1
           17050ms submit [d; e; f]
             -> commit 3: put #4 at 17s: d: queued, put #5 at 17s: e: queued, put #6 at 17s: f: queued
        -    -> commit 4: lease 2 w2 claimed d.1 at 17s
        -    -> tell w2: assign d.1
        # It does not matter who has jobs to spare.
        -2   -> commit 4: lease 2 w2 claimed [d.1 e.1] at 17s
        -2   -> tell w2: assign [d.1; e.1]
        -2 17060ms w1: give 1 [b.1 c.1]
        +    -> commit 4: lease 2 w2 claimed d.1 at 17s, lease 3 w3 claimed e.1 at 17s
        +    -> tell w2: assign d.1
        +    -> tell w3: assign e.1
        # For a moment nobody had any.
        +2 17060ms w1: give 1 [b.1 c.1]
        +2   -> commit 4: lease 2 w2 claimed [d.1 e.1] at 17s
        +2   -> tell w2: assign [d.1; e.1]
           17100001us tick
    ";
    breaks(L3, "node 3 is idle although node 1 has jobs to spare", &[PLENTY, history]);
}

#[test]
fn l3_while_others_are_in_trouble_two_seconds_will_do() {
    let history = "
           17s   w2: hello new slots 1 want 1
        -2 18s   healed
        +2 18s   healed
        +2 19s   tick
        -  19000001us tick
        -2 19000001us tick
        +  19s   tick
    ";
    breaks(L3, UNFAIR, &[PLENTY, history]);
}

#[test]
fn l3_a_worker_with_recent_faults_is_excused() {
    let history = "
           1s    healed
           1s    w2: hello new slots 1 want 1
        -  2s    trouble until 3s
        -2 2s    w1 has trouble until 3s
        -3 2s    w2 has trouble until 3s
        -4 2s    w3: hello new slots 1 want 0 serves [mail]
        -4 2s    w3 has trouble until 39s
        +  2s    trouble until 39s
        +2 2s    w1 has trouble until 39s
        +2 2s    w1 has trouble until 3s
        +3 2s    w2 has trouble until 39s
        +4 2s    server crashes
        +4 39s   server starts
        +4 39s   w1: hello resume slots 1 want 3 started a.1 holds [a.1 b.1 c.1]
        +4 39s   w2: hello resume slots 1 want 1
           40s   w2: heartbeat
           40200ms tick
    ";
    breaks(L3, UNFAIR, &[PLENTY, history]);
}

#[test]
fn l3_a_worker_that_cannot_be_assigned_anything_is_not_idle() {
    let history = "
           1s    healed
        -  2s    w2: hello new slots 1 want 1
        +  2s    w2: hello new slots 1 want 1
        +2 2s    w2: hello new slots 1 want 1
        +3 2s    w2: hello new slots 1 want 1
        +4 2s    w2: hello new slots 1 want 1
        +5 2s    w2: hello new slots 1 want 1
        +6 2s    w2: hello new slots 1 want 1
        +7 2s    w2: hello new slots 1 want 1 serves [mail]
        +8 2s    w2: hello new slots 1 want 1
        +  2s    w2 pauses
        +2 2s    w2 drains until 30s
        +3 2s    w2: drain
        +4 2s    closed w2
        +5 2s    w2 crashes
        +6 2s    submit d queue mail
        +6   -> commit 3: put #4 at 2s: d queue mail: queued, lease 2 w2 claimed d.1 at 2s
        +6   -> tell w2: assign d.1 queue mail
        +6 2s    w2 starts d.1 queue mail
        # It has something in its deque.
        +8 2s    submit d
        +8   -> commit 3: put #4 at 2s: d: queued, lease 2 w2 claimed d.1 at 2s
        +8   -> tell w2: assign d.1
           17s   w1: heartbeat
           17200ms tick
    ";
    breaks(L3, UNFAIR, &[PLENTY, history]);
}

#[test]
fn l3_a_worker_from_which_nothing_can_be_stolen_has_nothing_to_spare() {
    let history = "
           2s    w2: hello new slots 1 want 1
        +  2s    closed w1
        +2 2s    w1: report b.1 dropped
        +2   -> commit 3: lease 2 nobody returned-by w1 b.2 at 2s
        +3 2s    w1 ends a.1 finished
        +3 2s    w1 starts b.1
        +4 2s    cancel b
        +4   -> commit 3: write b cancelled fence 2 held-by w1 because request
        +4   -> tell w1: cancel b.1
        +5 2s    w1: hello resume slots 1 want 3 started a.1 holds [a.1 b.1]
        +5   -> tell w1: reconcile lease 10s keep [a.1 b.1]
        +6 2s    w1 crashes
        +7 2s    w1 leaves
        +8 2s    w3: hello new replacing w1 slots 1 want 3
        # What is suspected is not stolen.
        +9 2s    tick
        +9   -> commit 3: write b running fence 1 suspicions 1 held-by w1
           17s   w2: heartbeat
           19200ms tick
    ";
    breaks(L3, UNFAIR, &[PLENTY, history]);
}

#[test]
fn l4_a_server_that_restarted_assigns_nothing() {
    let what = "a is queued, but the server has assigned nothing";
    let history = "
           0s    submit a
             -> commit 1: put #1 at 0s: a: queued
        +3   -> commit 2: queue default paused
        +4   -> commit 2: queue default limit 1
        +6   -> commit 2: write a queued suspicions 1
        +7   -> commit 2: write a scheduled due 99s
        +8 0s    w1: hello new slots 1 want 1
        +8   -> commit 2: put #2 at 0s: b queue mail: queued, lease 1 w1 claimed b.1 at 0s
        +8   -> tell w1: assign b.1 queue mail
        +8 0s    w1 starts b.1 queue mail
           5s    server crashes
           10s   server starts
           10s   healed
        -  10s   w1: hello new slots 1 want 1
        +  10s   w1: hello new slots 1 want 1
        +2 10s   w1: hello new slots 1 want 1
        +3 10s   w1: hello new slots 1 want 1
        +4 10s   w1: hello new slots 1 want 1
        +5 10s   w1: hello new slots 1 want 1 serves [mail]
        +6 10s   w1: hello new slots 1 want 1
        +7 10s   w1: hello new slots 1 want 1
        +8 10s   w1: hello resume slots 1 want 1 started b.1 holds b.1
        # Something was given out.
        +9 10s   w1: hello new slots 1 want 1
        +9   -> commit 3: put #2 at 10s: b queue mail: queued, lease 1 w1 claimed b.1 at 10s
        +  15s   tick
        +    -> commit 3: lease 1 w1 claimed a.1 at 15s
        +2 15s   tick
        -  15000001us tick
        +  15000001us tick
        +3 15000001us tick
        +4 15000001us tick
        +5 15000001us tick
        +6 15000001us tick
        +7 15000001us tick
        +8 15000001us tick
        +9 15000001us tick
    ";
    breaks(L4, what, &[history]);
}

#[test]
fn l4_to_reclaim_a_job_is_not_to_give_it_out() {
    let history = "
           5s    server crashes
           10s   server starts
           10s   healed
           10s   w1: hello resume slots 1 want 0 holds a.1
           10s   w2: hello new slots 1 want 1
           11s   w1: report a.1 dropped
             -> commit 3: lease 2 nobody returned-by w1 a.2 at 11s
        +    -> commit 4: lease 3 w2 claimed a.3 at 11s
           16s   tick
    ";
    breaks(L4, "a is queued, but the server has assigned nothing", &[OWNED, history]);
}

#[test]
fn l4_a_server_that_was_there_all_along_is_not_back() {
    let history = "
           0s    submit a
             -> commit 1: put #1 at 0s: a: queued
           4s    server crashes
        -  10s   server starts
        -2 5000001us server starts
        +  5s    server starts
           10s   healed
           10s   w1: hello new slots 1 want 1
           16s   tick
    ";
    breaks(L4, "a is queued, but the server has assigned nothing", &[history]);
}

const STAYS: &str = "the worker of node 1 was told to stop and is still running";

#[test]
fn l7_a_worker_does_not_leave() {
    let history = "
           1s    healed
           2s    w1 drains until 5s
        +  8500ms w1 leaves
        +2 8500ms w1 crashes
        # It has been told before, and by somebody else.
        -2 3s    drain-worker w1
        -2   -> tell w1: drain-now
        -3 6s    w1 is late
        -  8500001us tick
        -2 8500001us tick
        -3 8500001us tick
        +  9s    tick
        +2 9s    tick
        +3 8500ms tick
    ";
    breaks(L7, STAYS, &[OWNED, history]);
}

#[test]
fn l7_a_pause_stops_the_clock_of_a_drain() {
    let history = "
           1s    healed
           2s    w1 drains until 5s
           5s    w1 pauses
        -  8s    w1 resumes
        +  8s    w1 resumes
        -  11500001us tick
        +  11500ms tick
        +2 99s   tick
        # Another process in the same place has not been told anything.
        +3 6s    w1 crashes
        +3 7s    w2: hello new replacing w1 slots 1 want 1
        +3   -> commit 3: lease 2 nobody returned-by w1 a.2 at 7s
        +3 8s    w2 pauses
        +3 9s    w2 resumes
        +3 99s   tick
    ";
    breaks(L7, STAYS, &[OWNED, history]);
}

#[test]
fn l7_while_things_break_a_drain_takes_two_leases_more() {
    let history = "
           2s    w1 drains until 5s
        -  25500001us tick
        +  25500ms tick
    ";
    breaks(L7, STAYS, &[OWNED, history]);
}

#[test]
fn l7_a_worker_does_not_leave_although_the_server_says_so() {
    let history = "
           1s    healed
           2s    drain-worker w1
        -    -> tell w1: drain-now
        -2   -> tell w1: renewed 2, drain-now
        +    -> tell w1: drain-now
        +2   -> tell w1: drain-now
        +3   -> tell w1: drain-now
        +  48500ms w1 leaves
        # It did not have to listen any more.
        +2 3s    w1 is late
        -  48500001us tick
        -2 48500001us tick
        +  49s   tick
        +2 49s   tick
        +3 48500ms tick
    ";
    breaks(L7, STAYS, &[OWNED, history]);
    let history = "
           2s    drain-worker w1
             -> tell w1: drain-now
        # Somebody else is late.
           2s    w2: hello new slots 1 want 1
           2s    w2 is late
        -2 5s    w1 drains until 6s
        -  65500001us tick
        -2 26500001us tick
        +  65500ms tick
    ";
    breaks(L7, STAYS, &[OWNED, history]);
}
