//! S11 not before its time, S12 after its parents, S13 within limits, L5 in its turn, L6 not round and round.

use super::{OWNED, breaks};
use crate::check::Rule::{L5, L6, S11, S12, S13};

#[test]
fn s11_a_job_is_handed_out_before_its_time() {
    let story = "
           0s    submit a not-before 10s
             -> commit 1: put #1 at 0s: a not-before 10s: scheduled
           1s    w1: hello new slots 1 want 1
        -  9999ms tick
        +  10s   tick
        # Another wall clock, another time.
        -2 11s/9s tick
        +2 2s/10s tick
        # The wall clock was there once, and was set back.
        +3 2s/10s tick
        +3 3s/3s tick
             -> commit 2: lease 1 w1 claimed a.1 at 10s
    ";
    breaks(S11, "a is handed out before its time, 10000 ms", &[story]);
}

#[test]
fn s11_what_the_wall_clock_showed_before_the_submit_does_not_count() {
    let story = "
        -  0s/10s tick
           1s/1s  submit a not-before 10s
             -> commit 1: put #1 at 1s: a not-before 10s: scheduled
        +  2s/10s tick
           3s/3s  w1: hello new slots 1 want 1
             -> commit 2: lease 1 w1 claimed a.1 at 3s
    ";
    breaks(S11, "a is handed out before its time, 10000 ms", &[story]);
}

#[test]
fn s11_a_second_attempt_comes_too_soon() {
    let story = r#"
          1s    w1: report a.1 failed again "x"
            -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 3s
        - 2999ms tick
        + 3s    tick
            -> commit 4: lease 2 w1 claimed a.2 at 3s
    "#;
    breaks(S11, "a is handed out before its time, 3000 ms", &[OWNED, story]);
}

#[test]
fn s12_a_child_is_handed_out_before_its_parent_has_ended() {
    let story = "
           0s    submit [p; c after p]
             -> commit 1: put #1 at 0s: p: queued, put #2 at 0s: c after p: blocked
           0s    w1: hello new slots 2 want 2
        +2   -> commit 2: write p cancelled fence 1, write c cancelled fence 1
        # A parent is forgotten long after its end.
        +3   -> commit 2: write p succeeded
        +3 61s   expired [#1 p]
        +3   -> commit 3: purge p
        +3   -> commit 4: lease 1 w1 claimed c.1 at 61s
        -    -> commit 3: lease 1 w1 claimed [p.1 c.1] at 0s
        +    -> commit 3: lease 1 w1 claimed p.1 at 0s
        +    -> commit 4: write p succeeded fence 1, lease 2 w1 claimed c.1 at 1s
    ";
    breaks(S12, "c is handed out, and its parents have not ended as they must", &[story]);
}

#[test]
fn s12_each_condition_on_parents() {
    let cases = [
        // What is said of the child, ends of its parents that are not enough, ends that are.
        ("", ["succeeded", "dead"], ["succeeded", "succeeded"]),
        ("", ["succeeded", "cancelled"], ["succeeded", "succeeded"]),
        ("", ["succeeded", "queued"], ["succeeded", "succeeded"]),
        ("when any-succeeded", ["dead", "queued"], ["succeeded", "queued"]),
        ("when any-succeeded", ["dead", "cancelled"], ["dead", "succeeded"]),
        ("when all-done", ["dead", "queued"], ["dead", "cancelled"]),
        ("when any-failed", ["succeeded", "queued"], ["dead", "queued"]),
        ("when any-failed", ["succeeded", "succeeded"], ["succeeded", "cancelled"]),
        ("else run", ["succeeded", "queued"], ["dead", "queued"]),
        ("when any-succeeded else run", ["dead", "queued"], ["dead", "dead"]),
        ("when any-failed else run", ["succeeded", "queued"], ["succeeded", "succeeded"]),
        ("when all-done else run", ["succeeded", "queued"], ["succeeded", "dead"]),
        ("else hold", ["succeeded", "dead"], ["succeeded", "succeeded"]),
    ];
    for (said, [p, q], [good_p, good_q]) in cases {
        let story = format!(
            "
               0s    submit [p; q; c after [p q] {said}]
                 -> commit 1: put #1 at 0s: p: queued, put #2 at 0s: q: queued, put #3 at 0s: c after [p q] {said}: blocked
               0s    w1: hello new slots 3 want 3
                 -> commit 2: lease 1 w1 claimed [p.1 q.1] at 0s
            -    -> commit 3: write p {p} fence 1, write q {q} fence 1
            +    -> commit 3: write p {good_p} fence 1, write q {good_q} fence 1
            # Its turn comes before that of parents that wait.
                 -> commit 4: strategy priority 1ms, priority c 1, lease 2 w1 claimed c.1 at 1s
            "
        );
        breaks(S12, "c is handed out", &[&story]);
    }
}

#[test]
fn s12_what_a_parents_end_has_allowed_stays_allowed() {
    let story = r#"
           0s    submit p
             -> commit 1: put #1 at 0s: p: queued
        # It had not been allowed before.
        -2 0s    submit c after p else hold
        -2   -> commit 2: put #2 at 0s: c after p else hold: blocked
        +  0s    submit c after p when any-failed
        +    -> commit 2: put #2 at 0s: c after p when any-failed: blocked
           0s    w1: hello new slots 1 want 1
             -> commit 3: lease 1 w1 claimed p.1 at 0s
             -> commit 4: note attempt p.1 by w1 failed "x", write p dead fence 1 charged 1
           1s    retry p
             -> commit 5: note retried p, write p queued fence 2, lease 2 w1 claimed p.3 at 1s
        -  1s    submit c after p when any-failed
        -    -> commit 6: put #2 at 1s: c after p when any-failed: blocked
           2s    w2: hello new slots 1 want 1
             -> commit 7: lease 3 w2 claimed c.1 at 2s
    "#;
    breaks(S12, "c is handed out, and its parents have not ended as they must", &[story]);
}

#[test]
fn s12_a_child_may_be_stored_before_its_parent() {
    let story = r#"
           0s    tick
        -    -> commit 1: put #1 at 0s: c after p else hold: blocked, put #2 at 0s: p: queued
        +    -> commit 1: put #1 at 0s: c after p when any-failed: blocked, put #2 at 0s: p: queued
           0s    w1: hello new slots 2 want 2
             -> commit 2: lease 1 w1 claimed p.1 at 0s
             -> commit 3: note attempt p.1 by w1 failed "x", write p dead fence 1 charged 1
           1s    retry p
             -> commit 4: note retried p, write p queued fence 2, lease 2 w1 claimed p.3 at 1s
             -> commit 5: lease 3 w1 claimed c.1 at 1s
    "#;
    breaks(S12, "c is handed out, and its parents have not ended as they must", &[story]);
}

#[test]
fn s12_a_circle_is_stored() {
    let story = "
           0s    tick
        -    -> commit 1: put #1 at 0s: a after b: blocked, put #2 at 0s: b after a: blocked
        -2   -> commit 1: put #1 at 0s: a after a: blocked
        -3   -> commit 1: put #1 at 0s: x: queued, put #2 at 0s: a after [x c]: blocked, put #3 at 0s: b after a: blocked, put #4 at 0s: c after b: blocked, put #5 at 0s: d after c: blocked
        +    -> commit 1: put #1 at 0s: a after b: blocked, put #2 at 0s: b: queued
        +2   -> commit 1: put #1 at 0s: a: queued
        +3   -> commit 1: put #1 at 0s: x: queued, put #2 at 0s: a after x: blocked, put #3 at 0s: b after a: blocked, put #4 at 0s: c after [a b]: blocked, put #5 at 0s: d after [a c]: blocked
    ";
    breaks(S12, "a is stored in a circle of jobs that wait for one another", &[story]);
}

#[test]
fn s12_a_child_is_stored_without_its_parent() {
    let story = "
           0s    submit c after p
        +    -> commit 1: put #1 at 0s: p: queued
             -> commit 2: put #2 at 0s: c after p: blocked
    ";
    breaks(S12, "c is stored without its parent p", &[story]);
}

#[test]
fn s12_a_child_is_released_twice() {
    let story = "
           0s    submit [p; c after p]
             -> commit 1: put #1 at 0s: p: queued, put #2 at 0s: c after p: blocked
           0s    w1: hello new slots 1 want 1
             -> commit 2: lease 1 w1 claimed p.1 at 0s
             -> commit 3: write p succeeded fence 1, lease 2 w1 claimed c.1 at 1s
           2s    w2: hello new slots 1 want 1
        -    -> commit 4: lease 3 w2 claimed c.2 at 2s
        +    -> commit 4: lease 3 w2 stolen-from w1 c.2 at 2s
    ";
    breaks(S12, "c.2 changes hands by Claim, and its owner is worker 1", &[story]);
}

#[test]
fn s13_more_jobs_of_a_queue_are_owned_than_its_limit() {
    let what = "b is number 2 of its queue to be owned, the limit is 1";
    let story = "
           0s    set-queue default limit 1
        -    -> commit 3: queue default limit 1
        +    -> commit 3: queue default limit 2
        +2   -> commit 3: queue default limit 1
        +3   -> commit 3: queue default limit 1
        +4   -> commit 3: queue default limit 1
        +5   -> commit 3: queue default limit 1, queue default
           1s    submit b
        +2 1s    submit b queue mail
        -    -> commit 4: put #2 at 1s: b: queued
        +    -> commit 4: put #2 at 1s: b: queued
        +2   -> commit 4: put #2 at 1s: b queue mail: queued
        +3   -> commit 4: put #2 at 1s: b: queued, write a succeeded fence 1
        +4   -> commit 4: put #2 at 1s: b: queued, write a scheduled fence 1 due 9s
        +5   -> commit 4: put #2 at 1s: b: queued
           2s    w2: hello new slots 1 want 1
             -> commit 5: lease 2 w2 claimed b.1 at 2s
    ";
    breaks(S13, what, &[OWNED, story]);
}

#[test]
fn s13_more_than_the_limit_in_one_commit() {
    let story = "
           0s    submit [a; b]
             -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b: queued, queue default limit 1
           0s    w1: hello new slots 2 want 2
        -    -> commit 2: lease 1 w1 claimed [a.1 b.1] at 0s
        +    -> commit 2: lease 1 w1 claimed a.1 at 0s
        +    -> commit 3: write a succeeded fence 1, lease 2 w1 claimed b.1 at 1s
    ";
    breaks(S13, "b is number 2 of its queue to be owned, the limit is 1", &[story]);
}

#[test]
fn s13_a_stolen_job_counts_once() {
    let story = "
           0s    submit b
             -> commit 3: put #2 at 0s: b: queued, queue default limit 1
           1s    w2: hello new slots 1 want 1
             -> commit 4: lease 2 w2 stolen-from w1 a.2 at 1s
        +    -> commit 5: write a succeeded fence 2
             -> commit 6: lease 3 w1 claimed b.1 at 1s
    ";
    breaks(S13, "b is number 2 of its queue to be owned", &[OWNED, story]);
}

#[test]
fn s13_a_cancelled_job_counts_until_it_is_let_go_of() {
    let story = "
           0s    submit b
             -> commit 3: put #2 at 0s: b: queued, queue default limit 1
           1s    cancel a
        -    -> commit 4: write a cancelled fence 2 held-by w1
        +    -> commit 4: write a cancelled fence 2
        +2   -> commit 4: write a cancelled fence 2 held-by w1
        +2   -> commit 5: write a cancelled fence 2
           1s    w2: hello new slots 1 want 1
             -> commit 6: lease 2 w2 claimed b.1 at 1s
    ";
    breaks(S13, "b is number 2 of its queue to be owned", &[OWNED, story]);
}

#[test]
fn s13_what_comes_back_counts_no_more() {
    let story = "
           0s    submit b
             -> commit 3: put #2 at 0s: b: queued, queue default limit 1
           10s   w2: hello new slots 2 want 2
        -    -> commit 4: note lost w1 with 1, lease 2 nobody lost-by w1 a.2 at 10s, lease 3 w2 claimed [a.3 b.1] at 10s
        +    -> commit 4: note lost w1 with 1, lease 2 nobody lost-by w1 a.2 at 10s, lease 3 w2 claimed a.3 at 10s
    ";
    breaks(S13, "b is number 2 of its queue to be owned", &[OWNED, story]);
}

#[test]
fn s13_a_lower_limit_takes_nothing_away() {
    let story = "
           0s    submit [b; c]
             -> commit 3: put #2 at 0s: b: queued, put #3 at 0s: c: queued
           1s    w2: hello new slots 2 want 2
             -> commit 4: lease 2 w2 claimed b.1 at 1s
             -> commit 5: queue default limit 2, queue default limit 1
        -    -> commit 6: lease 3 w2 claimed c.1 at 2s
        # What is owned may change hands.
        +    -> commit 6: lease 3 w2 stolen-from w1 a.2 at 2s
        +    -> commit 7: write a succeeded fence 2, write b succeeded fence 1
        +    -> commit 8: lease 4 w2 claimed c.1 at 3s
    ";
    breaks(S13, "c is number 3 of its queue to be owned, the limit is 1", &[OWNED, story]);
}

#[test]
fn l5_the_first_of_a_queue_is_passed_over() {
    let story = "
           0s    submit [a; b; c queue mail; d]
             -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b: queued, put #3 at 0s: c queue mail: queued, put #4 at 0s: d: queued
           0s    w1: hello new slots 3 want 3
        -    -> commit 2: lease 1 w1 claimed b.1 at 0s
        -2   -> commit 2: lease 1 w1 claimed [c.1 d.1 b.1] at 0s
        -3   -> commit 2: lease 1 w1 claimed [a.1 d.1] at 0s
        +    -> commit 2: lease 1 w1 claimed a.1 at 0s
        +2   -> commit 2: lease 1 w1 claimed [b.1 a.1] at 0s
        +3   -> commit 2: lease 1 w1 claimed c.1 at 0s
        +4   -> commit 2: write a cancelled fence 1, lease 1 w1 claimed b.1 at 0s
        +5   -> commit 2: write a queued suspicions 1, lease 1 w1 claimed b.1 at 0s
        # Only what waits in the queue has a turn.
        +6   -> commit 2: lease 1 w1 claimed [a.1 b.1] at 0s
        +6 1s    w2: hello new slots 1 want 1
        +6   -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s, lease 3 w2 stolen-from w1 b.2 at 1s
    ";
    breaks(L5, " is passed over by ", &[story]);
}

#[test]
fn l5_what_is_suspected_may_go_out_of_turn() {
    let story = "
           0s    submit b
             -> commit 1: put #1 at 0s: b: queued
           0s    submit a
        -    -> commit 2: put #2 at 0s: a: queued
        +    -> commit 2: put #2 at 0s: a: queued suspicions 1
           0s    w1: hello new slots 1 want 1
             -> commit 3: lease 1 w1 claimed a.1 at 0s
    ";
    breaks(L5, "b is passed over by a in its own queue", &[story]);
}

#[test]
fn l5_a_higher_priority_is_passed_over() {
    let story = "
           0s    submit [a; b priority 1]
        -    -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b priority 1: queued
        -2   -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b: queued
        +    -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b priority 1: queued
        +2   -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b: queued
        +3   -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b: queued
        -    -> commit 2: strategy priority 60s
        -2   -> commit 2: strategy round-robin, priority b 1
        +    -> commit 2: strategy fifo
        +2   -> commit 2: strategy fair
        +3   -> commit 2: strategy priority 60s, priority b 1, priority b 0
           0s    w1: hello new slots 1 want 1
             -> commit 3: lease 1 w1 claimed a.1 at 0s
    ";
    breaks(L5, "b is passed over by a in its own queue", &[story]);
}

#[test]
fn l5_who_has_waited_long_enough_is_passed_over() {
    let story = "
           0s    submit a
             -> commit 1: strategy priority 60s, put #1 at 0s: a: queued
           60s   submit b priority 1
        -    -> commit 2: put #2 at 60s: b priority 1: queued
        +    -> commit 2: put #2 at 59999ms: b priority 1: queued
           60s   w1: hello new slots 1 want 1
             -> commit 3: lease 1 w1 claimed b.1 at 60s
    ";
    breaks(L5, "a is passed over by b in its own queue", &[story]);
}

/// `a` is stolen twice; the second worker has one slot.
const STOLEN_TWICE: &str = "
    0s    submit b
      -> commit 3: put #2 at 0s: b: queued
    1s    w2: hello new slots 1 want 2
    1s    w3: hello new slots 1 want 1
      -> commit 4: lease 2 w3 stolen-from w1 a.2 at 1s
      -> commit 5: lease 3 w1 stolen-from w3 a.3 at 1s
";

#[test]
fn l6_a_job_stolen_twice_moves_where_no_slot_is_free() {
    let what = "by worker 2, busy itself";
    let story = "
        -    -> commit 6: lease 4 w2 claimed b.1 at 2s
        +2   -> commit 6: lease 4 w2 claimed b.1 at 2s
        +2   -> commit 7: write b succeeded fence 1
        # How often it was stolen is not kept.
        +3   -> commit 6: lease 4 w2 claimed b.1 at 2s
        +3 2s    server crashes
        +3 3s    server starts
             -> commit 8: lease 5 w2 stolen-from w1 a.4 at 3s
    ";
    breaks(L6, what, &[OWNED, STOLEN_TWICE, story]);
}

#[test]
fn l6_a_retry_forgets_the_thefts() {
    let story = r#"
             -> commit 6: lease 4 w2 claimed b.1 at 2s
        +    -> commit 7: note attempt a.3 by w1 failed "x", write a dead fence 3 charged 1
        +    -> commit 8: note retried a, write a queued fence 4, lease 5 w1 claimed a.5 at 2s
             -> commit 9: lease 6 w2 stolen-from w1 a.6 at 3s
    "#;
    breaks(L6, "a is stolen for the 3", &[OWNED, STOLEN_TWICE, story]);
}

#[test]
fn l6_the_second_theft_may_go_into_any_deque() {
    let story = "
             -> commit 6: lease 4 w2 claimed b.1 at 2s
        -    -> commit 7: lease 5 w2 stolen-from w1 a.4 at 2s
        +    -> commit 7: lease 5 w3 stolen-from w2 b.2 at 2s
        +    -> commit 8: lease 6 w1 stolen-from w3 b.3 at 2s
    ";
    breaks(L6, "a is stolen for the 3", &[OWNED, STOLEN_TWICE, story]);
}
