//! S11 not before its time, S12 after its parents, S13 within limits, L5 in its turn, L6 not round
//! and round.

use super::{LOST, OWNED, breaks};
use crate::check::Rule::{L5, L6, S11, S12, S13};

#[test]
fn s11_a_job_is_assigned_before_its_time() {
    let history = "
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
    breaks(S11, "a is assigned before its time, 10000 ms", &[history]);
}

#[test]
fn s11_what_the_wall_clock_showed_before_the_submit_does_not_count() {
    let history = "
        -  0s/10s tick
           1s/1s  submit a not-before 10s
             -> commit 1: put #1 at 1s: a not-before 10s: scheduled
        +  2s/10s tick
           3s/3s  w1: hello new slots 1 want 1
             -> commit 2: lease 1 w1 claimed a.1 at 3s
    ";
    breaks(S11, "a is assigned before its time, 10000 ms", &[history]);
}

#[test]
fn s11_a_second_attempt_comes_too_soon() {
    let history = r#"
          1s    w1 runs a.1 failed
            -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s
        - 1999ms tick
        + 2s    tick
            -> commit 4: lease 2 w1 claimed a.2 at 2s
    "#;
    breaks(S11, "a is assigned before its time, 2000 ms", &[OWNED, history]);
}

#[test]
fn s11_a_second_attempt_is_due_too_soon() {
    let history = r#"
        -  1s    w1 runs a.1 failed
        -    -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 1999ms
        +  1s    w1 runs a.1 failed
        +    -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s
        # It says itself for how long it wants to be left alone.
        -2 1s    w1: report a.1 snoozed 5s
        -2   -> commit 3: note attempt a.1 by w1 snoozed, write a scheduled fence 1 due 5999ms
        +2 1s    w1: report a.1 snoozed 5s
        +2   -> commit 3: note attempt a.1 by w1 snoozed, write a scheduled fence 1 due 6s
        +3 1s    w1: report a.1 snoozed 100ms
        +3   -> commit 3: note attempt a.1 by w1 snoozed, write a scheduled fence 1 due 1100ms
    "#;
    breaks(S11, " ms, but should wait until ", &[OWNED, history]);
    // The more attempts, the longer.
    let history = r#"
           11s   w2 runs a.3 failed
        -    -> commit 5: note attempt a.3 by w2 failed "x", write a scheduled fence 3 charged 2 due 12999ms
        +    -> commit 5: note attempt a.3 by w2 failed "x", write a scheduled fence 3 charged 2 due 13s
    "#;
    breaks(S11, "a is due at 12999 ms, but should wait until 13000 ms", &[OWNED, LOST, history]);
}

#[test]
fn s11_a_report_in_the_store_does_not_change_the_time() {
    let history = "
           0s    submit a not-before 10s
             -> commit 1: put #1 at 0s: a not-before 10s: scheduled
           1s    w1: hello new slots 1 want 1
        -    -> commit 2: write a queued due 10s
        +    -> commit 2: write a scheduled due 10s
        +  10s   tick
             -> commit 3: lease 1 w1 claimed a.1 at 10s
    ";
    breaks(S11, "a is assigned before its time, 10000 ms", &[history]);
}

const TOO_SOON: &str = " is assigned, but its parents' condition does not hold";

#[test]
fn s12_a_child_is_assigned_before_its_parent_has_ended() {
    let history = "
           0s    submit [p; c after p]
             -> commit 1: put #1 at 0s: p: queued, put #2 at 0s: c after p: blocked
           0s    w1: hello new slots 2 want 2
        -    -> commit 2: lease 1 w1 claimed [p.1 c.1] at 0s
        +    -> commit 2: lease 1 w1 claimed p.1 at 0s
        +2   -> commit 2: lease 1 w1 claimed p.1 at 0s
        +  1s    w1 runs p.1 finished
        +2 1s    w1 runs p.1 finished
        +    -> commit 3: write p succeeded fence 1, lease 2 w1 claimed c.1 at 1s
        # A parent is forgotten long after its end.
        +2   -> commit 3: write p succeeded fence 1
        +2 61s   expired [#1 p]
        +2   -> commit 4: purge p
        +2   -> commit 5: lease 2 w1 claimed c.1 at 61s
    ";
    breaks(S12, TOO_SOON, &[history]);
}

/// How a parent ends that the first worker owns.
fn ends(mark: &str, commit: u32, parent: &str, state: &str) -> String {
    let (run, stored) = match state {
        "leased" => return String::new(),
        "succeeded" => (format!("w1 runs {parent}.1 finished"), "fence 1"),
        "dead" => (format!("w1 runs {parent}.1 failed for-good"), "fence 1 charged 1"),
        "cancelled" => (format!("cancel {parent}"), "fence 2 held-by w1 because request"),
        _ => panic!("no parent ends as {state}"),
    };
    let note = match state {
        "dead" => format!(r#"note attempt {parent}.1 by w1 failed "x", "#),
        _ => String::new(),
    };
    format!("{mark} 1s {run}\n{mark} -> commit {commit}: {note}write {parent} {state} {stored}\n")
}

/// `c` waits for `p` and `q`, of which this is said; in one log they end in some way, in the other
/// in another.
fn with_parents(said: &str, broken: [&str; 2], legal: [&str; 2]) -> String {
    let mut history = format!(
        "
        0s    submit [p; q; c after [p q] {said}]
          -> commit 1: put #1 at 0s: p: queued, put #2 at 0s: q: queued, put #3 at 0s: c after [p q] {said}: blocked
        0s    w1: hello new slots 3 want 3
          -> commit 2: lease 1 w1 claimed [p.1 q.1] at 0s
        "
    );
    for (mark, [p, q]) in [("-", broken), ("+", legal)] {
        history += &ends(mark, 3, "p", p);
        history += &ends(mark, 4, "q", q);
    }
    history
}

#[test]
fn s12_each_condition_on_parents() {
    let cases = [
        // What is said of the child, ends of its parents that are not enough, ends that are.
        ("", ["succeeded", "dead"], ["succeeded", "succeeded"]),
        ("", ["succeeded", "cancelled"], ["succeeded", "succeeded"]),
        ("", ["succeeded", "leased"], ["succeeded", "succeeded"]),
        ("when any-succeeded", ["dead", "leased"], ["succeeded", "leased"]),
        ("when any-succeeded", ["dead", "cancelled"], ["dead", "succeeded"]),
        ("when all-done", ["dead", "leased"], ["dead", "cancelled"]),
        ("when any-failed", ["succeeded", "leased"], ["dead", "leased"]),
        ("when any-failed", ["succeeded", "succeeded"], ["succeeded", "cancelled"]),
        ("else run", ["succeeded", "leased"], ["dead", "leased"]),
        ("when any-succeeded else run", ["dead", "leased"], ["dead", "dead"]),
        ("when any-failed else run", ["succeeded", "leased"], ["succeeded", "succeeded"]),
        ("when all-done else run", ["succeeded", "leased"], ["succeeded", "dead"]),
        ("else hold", ["succeeded", "dead"], ["succeeded", "succeeded"]),
    ];
    for (said, broken, legal) in cases {
        let history = with_parents(said, broken, legal);
        breaks(
            S12,
            "c is assigned, but its parents' condition does not hold",
            &[&history, "-> commit 5: lease 2 w1 claimed c.1 at 1s"],
        );
    }
}

#[test]
fn s12_a_child_is_cancelled_that_may_still_run() {
    let cases = [
        // What is said of the child, ends of its parents that leave hope, ends that do not.
        ("", ["succeeded", "leased"], ["leased", "dead"]),
        ("", ["succeeded", "succeeded"], ["succeeded", "cancelled"]),
        ("when any-succeeded", ["dead", "leased"], ["dead", "cancelled"]),
        ("when any-succeeded", ["succeeded", "dead"], ["dead", "dead"]),
        ("when any-failed", ["succeeded", "leased"], ["succeeded", "succeeded"]),
        ("when any-failed", ["dead", "succeeded"], ["succeeded", "succeeded"]),
    ];
    let cancelled = "-> commit 5: write c cancelled fence 1 because condition";
    let what = "c is cancelled, but its parents' condition can still hold";
    for (said, broken, legal) in cases {
        breaks(S12, what, &[&with_parents(said, broken, legal), cancelled]);
    }
    // There is always hope for a job that only wants its parents to end, or has none.
    let done = with_parents("when all-done", ["dead", "dead"], ["dead", "dead"]);
    let alone =
        "0s submit c when any-failed\n-> commit 1: put #1 at 0s: c when any-failed: queued\n";
    for history in [&done, alone] {
        breaks(S12, what, &[history, "- ", cancelled]);
    }
}

#[test]
fn s12_a_child_is_cancelled_that_was_not_to_be() {
    let history = "
           1s    cancel c
        -    -> commit 5: write c cancelled fence 1 because condition
        +    -> commit 5: write c cancelled fence 1 because request
    ";
    for said in ["else run", "else hold"] {
        let parents = with_parents(said, ["dead", "leased"], ["dead", "leased"]);
        breaks(
            S12,
            "c is cancelled, but its parents' condition can still hold",
            &[&parents, history],
        );
    }
}

#[test]
fn s12_a_parent_is_known_by_its_number() {
    let history = "
           0s    submit [p; c after p]
             -> commit 1: put #1 at 0s: p: queued, put #2 at 0s: c after p: blocked
           0s    w1: hello new slots 2 want 2
             -> commit 2: lease 1 w1 claimed p.1 at 0s
           1s    w1 runs p.1 finished
             -> commit 3: write p succeeded fence 1 written 1s
           61s   expired [#1 p]
             -> commit 4: purge p
        # Another job by the name of an older one.
           61s   submit [p; d after p]
             -> commit 5: put #3 at 61s: p: queued, put #4 at 61s: d after p: blocked
        -    -> commit 6: lease 2 w1 claimed d.1 at 61s
        +    -> commit 6: lease 2 w1 claimed c.1 at 61s
    ";
    breaks(S12, TOO_SOON, &[history]);
}

#[test]
fn s12_what_a_parents_end_has_allowed_stays_allowed() {
    let history = r#"
           0s    submit p
             -> commit 1: put #1 at 0s: p: queued
        # It had not been allowed before.
        -2 0s    submit c after p else hold
        -2   -> commit 2: put #2 at 0s: c after p else hold: blocked
        +  0s    submit c after p when any-failed
        +    -> commit 2: put #2 at 0s: c after p when any-failed: blocked
           0s    w1: hello new slots 1 want 1
             -> commit 3: lease 1 w1 claimed p.1 at 0s
           0s    w1 runs p.1 failed for-good
             -> commit 4: note attempt p.1 by w1 failed "x", write p dead fence 1 charged 1
           1s    retry p
             -> commit 5: note act retry p by -, write p queued fence 2, lease 2 w1 claimed p.3 at 1s
        -  1s    submit c after p when any-failed
        -    -> commit 6: put #2 at 1s: c after p when any-failed: blocked
           2s    w2: hello new slots 1 want 1
             -> commit 7: lease 3 w2 claimed c.1 at 2s
    "#;
    breaks(S12, TOO_SOON, &[history]);
}

#[test]
fn s12_a_child_may_be_stored_before_its_parent() {
    let history = r#"
           0s    tick
        -    -> commit 1: put #1 at 0s: c after p else hold: blocked, put #2 at 0s: p: queued
        +    -> commit 1: put #1 at 0s: c after p when any-failed: blocked, put #2 at 0s: p: queued
           0s    w1: hello new slots 2 want 2
             -> commit 2: lease 1 w1 claimed p.1 at 0s
           0s    w1 runs p.1 failed for-good
             -> commit 3: note attempt p.1 by w1 failed "x", write p dead fence 1 charged 1
           1s    retry p
             -> commit 4: note act retry p by -, write p queued fence 2, lease 2 w1 claimed p.3 at 1s
             -> commit 5: lease 3 w1 claimed c.1 at 1s
    "#;
    breaks(S12, TOO_SOON, &[history]);
}

#[test]
fn s12_a_cycle_is_stored() {
    let history = "
           0s    tick
        -    -> commit 1: put #1 at 0s: a after b: blocked, put #2 at 0s: b after a: blocked
        -2   -> commit 1: put #1 at 0s: a after a: blocked
        -3   -> commit 1: put #1 at 0s: x: queued, put #2 at 0s: a after [x c]: blocked, put #3 at 0s: b after a: blocked, put #4 at 0s: c after b: blocked, put #5 at 0s: d after c: blocked
        +    -> commit 1: put #1 at 0s: a after b: blocked, put #2 at 0s: b: queued
        +2   -> commit 1: put #1 at 0s: a: queued
        +3   -> commit 1: put #1 at 0s: x: queued, put #2 at 0s: a after x: blocked, put #3 at 0s: b after a: blocked, put #4 at 0s: c after [a b]: blocked, put #5 at 0s: d after [a c]: blocked
    ";
    breaks(S12, "a is stored in a cycle of jobs that wait for one another", &[history]);
}

#[test]
fn s12_a_child_is_stored_without_its_parent() {
    let history = "
           0s    submit c after p
        +    -> commit 1: put #1 at 0s: p: queued
             -> commit 2: put #2 at 0s: c after p: blocked
    ";
    breaks(S12, "c is stored without its parent p", &[history]);
}

#[test]
fn s12_a_child_is_released_twice() {
    let history = "
           0s    submit [p; c after p]
             -> commit 1: put #1 at 0s: p: queued, put #2 at 0s: c after p: blocked
           0s    w1: hello new slots 1 want 1
             -> commit 2: lease 1 w1 claimed p.1 at 0s
           1s    w1 runs p.1 finished
             -> commit 3: write p succeeded fence 1, lease 2 w1 claimed c.1 at 1s
           2s    w2: hello new slots 1 want 1
           2s    w1: give 1 c.1
        -    -> commit 4: lease 3 w2 claimed c.2 at 2s
        +    -> commit 4: lease 3 w2 stolen-from w1 c.2 at 2s
    ";
    breaks(S12, "c.2 changes owner by Claim, but its owner is worker 1", &[history]);
}

#[test]
fn s13_more_jobs_of_a_queue_are_owned_than_its_limit() {
    let what = "b is number 2 of its queue to be owned, but the limit is 1";
    let history = "
           0s    set-queue default limit 1
        -    -> commit 3: queue default limit 1
        +    -> commit 3: queue default limit 2
        +2   -> commit 3: queue default limit 1
        +3   -> commit 3: queue default limit 1
        +4   -> commit 3: queue default limit 1
        +5   -> commit 3: queue default limit 1, queue default
        +3 0s    w1 runs a.1 finished
        +4 0s    w1 runs a.1 snoozed
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
    breaks(S13, what, &[OWNED, history]);
}

#[test]
fn s13_more_than_the_limit_in_one_commit() {
    let history = "
           0s    submit [a; b]
             -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b: queued, queue default limit 1
           0s    w1: hello new slots 2 want 2
        -    -> commit 2: lease 1 w1 claimed [a.1 b.1] at 0s
        +    -> commit 2: lease 1 w1 claimed a.1 at 0s
        +  1s    w1 runs a.1 finished
        +    -> commit 3: write a succeeded fence 1, lease 2 w1 claimed b.1 at 1s
    ";
    breaks(S13, "b is number 2 of its queue to be owned, but the limit is 1", &[history]);
}

#[test]
fn s13_a_stolen_job_counts_once() {
    let history = "
           0s    submit b
             -> commit 3: put #2 at 0s: b: queued, queue default limit 1
           1s    w2: hello new slots 1 want 1
           1s    w1: give 1 a.1
             -> commit 4: lease 2 w2 stolen-from w1 a.2 at 1s
        +  1s    w2 runs a.2 finished
        +    -> commit 5: write a succeeded fence 2
             -> commit 6: lease 3 w1 claimed b.1 at 1s
    ";
    breaks(S13, "b is number 2 of its queue to be owned", &[OWNED, history]);
}

#[test]
fn s13_a_cancelled_job_counts_until_it_is_released() {
    let history = "
           0s    submit b
             -> commit 3: put #2 at 0s: b: queued, queue default limit 1
           1s    cancel a
             -> commit 4: write a cancelled fence 2 held-by w1
        +  1s    w1: report a.1 stopped
        +    -> commit 5: write a cancelled fence 2
           1s    w2: hello new slots 1 want 1
             -> commit 6: lease 2 w2 claimed b.1 at 1s
    ";
    breaks(S13, "b is number 2 of its queue to be owned", &[OWNED, history]);
}

#[test]
fn s13_what_comes_back_counts_no_more() {
    let history = "
           0s    submit b
             -> commit 3: put #2 at 0s: b: queued, queue default limit 1
           10s   w2: hello new slots 2 want 2
        -    -> commit 4: note lost w1 with 1, lease 2 nobody lost-by w1 a.2 at 10s, lease 3 w2 claimed [a.3 b.1] at 10s
        +    -> commit 4: note lost w1 with 1, lease 2 nobody lost-by w1 a.2 at 10s, lease 3 w2 claimed a.3 at 10s
    ";
    breaks(S13, "b is number 2 of its queue to be owned", &[OWNED, history]);
}

#[test]
fn s13_a_lower_limit_takes_nothing_away() {
    let history = "
           0s    submit [b; c]
             -> commit 3: put #2 at 0s: b: queued, put #3 at 0s: c: queued
           1s    w2: hello new slots 2 want 2
             -> commit 4: lease 2 w2 claimed b.1 at 1s
             -> commit 5: queue default limit 2, queue default limit 1
        -    -> commit 6: lease 3 w2 claimed c.1 at 2s
        # What is owned may change hands.
        +  2s    w1: give 1 a.1
        +    -> commit 6: lease 3 w2 stolen-from w1 a.2 at 2s
        +  3s    w2 runs a.2 finished
        +  3s    w2 runs b.1 finished
        +    -> commit 7: write a succeeded fence 2, write b succeeded fence 1
        +    -> commit 8: lease 4 w2 claimed c.1 at 3s
    ";
    breaks(S13, "c is number 3 of its queue to be owned, but the limit is 1", &[OWNED, history]);
}

#[test]
fn s13_a_job_is_taken_from_a_paused_queue() {
    let history = "
           0s    submit b
        -    -> commit 3: put #2 at 0s: b: queued, queue default paused
        +    -> commit 3: put #2 at 0s: b: queued, queue default paused, queue default
        +2   -> commit 3: put #2 at 0s: b: queued, queue mail paused
        +3   -> commit 3: put #2 at 0s: b: queued, queue default paused
           1s    w2: hello new slots 1 want 1
        -    -> commit 4: lease 2 w2 claimed b.1 at 1s
        +    -> commit 4: lease 2 w2 claimed b.1 at 1s
        +2   -> commit 4: lease 2 w2 claimed b.1 at 1s
        # What is owned may change hands.
        +3 1s    w1: give 1 a.1
        +3   -> commit 4: lease 2 w2 stolen-from w1 a.2 at 1s
    ";
    breaks(S13, "b is claimed from its queue, which is paused", &[OWNED, history]);
}

#[test]
fn s13_a_job_goes_to_whom_does_not_serve_its_queue() {
    let history = "
           0s    submit b queue mail
             -> commit 3: put #2 at 0s: b queue mail: queued
        -  1s    w2: hello new slots 1 want 1 serves [fax]
        -2 1s    w2: hello new slots 1 want 1 serves [mail]
        +  1s    w2: hello new slots 1 want 1 serves [fax mail]
        +2 1s    w2: hello new slots 1 want 1 serves [default]
           1s    w1: give 1 a.1
        -    -> commit 4: lease 2 w2 claimed b.1 at 1s
        -2   -> commit 4: lease 2 w2 stolen-from w1 a.2 at 1s
        +    -> commit 4: lease 2 w2 claimed b.1 at 1s
        +2   -> commit 4: lease 2 w2 stolen-from w1 a.2 at 1s
    ";
    breaks(S13, " goes to worker 2, which does not serve its queue", &[OWNED, history]);
}

#[test]
fn l5_the_first_of_a_queue_is_passed_over() {
    let history = "
           0s    submit [a; b; c queue mail; d]
             -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b: queued, put #3 at 0s: c queue mail: queued, put #4 at 0s: d: queued
           0s    w1: hello new slots 3 want 3
        -    -> commit 2: lease 1 w1 claimed b.1 at 0s
        -2   -> commit 2: lease 1 w1 claimed [c.1 d.1 b.1] at 0s
        -3   -> commit 2: lease 1 w1 claimed [a.1 d.1] at 0s
        +    -> commit 2: lease 1 w1 claimed a.1 at 0s
        +2   -> commit 2: lease 1 w1 claimed [b.1 a.1] at 0s
        +3   -> commit 2: lease 1 w1 claimed c.1 at 0s
        +4 0s    cancel a
        +4   -> commit 2: write a cancelled fence 1, lease 1 w1 claimed b.1 at 0s
        +5   -> commit 2: write a queued suspicions 1, lease 1 w1 claimed b.1 at 0s
        # Only what waits in the queue has a turn.
        +6   -> commit 2: lease 1 w1 claimed [a.1 b.1] at 0s
        +6 1s    w2: hello new slots 1 want 1
        +6 1s    w1: report a.1 dropped, give 1 b.1
        +6   -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s, lease 3 w2 stolen-from w1 b.2 at 1s
    ";
    breaks(L5, " is passed over by ", &[history]);
}

#[test]
fn l5_a_suspected_job_may_go_out_of_turn() {
    let history = "
           0s    submit b
             -> commit 1: put #1 at 0s: b: queued
           0s    submit a
        -    -> commit 2: put #2 at 0s: a: queued
        +    -> commit 2: put #2 at 0s: a: queued suspicions 1
           0s    w1: hello new slots 1 want 1
             -> commit 3: lease 1 w1 claimed a.1 at 0s
    ";
    breaks(L5, "b is passed over by a in its queue", &[history]);
}

#[test]
fn l5_a_higher_priority_is_passed_over() {
    let history = "
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
    breaks(L5, "b is passed over by a in its queue", &[history]);
}

#[test]
fn l5_a_job_that_has_waited_long_enough_is_passed_over() {
    let history = "
           0s    submit a
             -> commit 1: strategy priority 60s, put #1 at 0s: a: queued
           60s   submit b priority 1
        -    -> commit 2: put #2 at 60s: b priority 1: queued
        +    -> commit 2: put #2 at 59999ms: b priority 1: queued
           60s   w1: hello new slots 1 want 1
             -> commit 3: lease 1 w1 claimed b.1 at 60s
    ";
    breaks(L5, "a is passed over by b in its queue", &[history]);
}

/// `a` is stolen twice, and is about to be stolen again; the second worker has one slot.
const STOLEN_TWICE: &str = "
    0s    submit b
      -> commit 3: put #2 at 0s: b: queued
    1s    w2: hello new slots 1 want 2
    1s    w3: hello new slots 1 want 1
    1s    w1: give 1 a.1
      -> commit 4: lease 2 w3 stolen-from w1 a.2 at 1s
    1s    w3: give 2 a.2
      -> commit 5: lease 3 w1 stolen-from w3 a.3 at 1s
";

const ROUND_AND_ROUND: &str = "a is stolen 3 times, now by worker 2, which has no free slot";

#[test]
fn l6_a_job_stolen_twice_moves_where_no_slot_is_free() {
    let history = "
           2s    w1: give 3 a.3
        -    -> commit 6: lease 4 w2 claimed b.1 at 2s
        +2   -> commit 6: lease 4 w2 claimed b.1 at 2s
        +2 2s    w2 runs b.1 finished
        +2   -> commit 7: write b succeeded fence 1
        # How often it was stolen is not kept.
        +3   -> commit 6: lease 4 w2 claimed b.1 at 2s
        +3 2s    server crashes
        +3 3s    server starts
             -> commit 8: lease 5 w2 stolen-from w1 a.4 at 3s
    ";
    breaks(L6, ROUND_AND_ROUND, &[OWNED, STOLEN_TWICE, history]);
}

#[test]
fn l6_a_retry_forgets_the_steals() {
    let history = r#"
             -> commit 6: lease 4 w2 claimed b.1 at 2s
        +  2s    w1 runs a.3 failed for-good
        +    -> commit 7: note attempt a.3 by w1 failed "x", write a dead fence 3 charged 1
        +  2s    retry a
        +    -> commit 8: note act retry a by -, write a queued fence 4, lease 5 w1 claimed a.5 at 2s
        -  3s    w1: give 3 a.3
        +  3s    w1: give 3 a.5
             -> commit 9: lease 6 w2 stolen-from w1 a.6 at 3s
    "#;
    breaks(L6, ROUND_AND_ROUND, &[OWNED, STOLEN_TWICE, history]);
}

#[test]
fn l6_the_second_steal_may_go_into_any_deque() {
    let history = "
             -> commit 6: lease 4 w2 claimed b.1 at 2s
           2s    w1: give 3 a.3
           2s    w2: give 4 b.1
        -    -> commit 7: lease 5 w2 stolen-from w1 a.4 at 2s
        +    -> commit 7: lease 5 w3 stolen-from w2 b.2 at 2s
        +  2s    w3: give 5 b.2
        +    -> commit 8: lease 6 w1 stolen-from w3 b.3 at 2s
    ";
    breaks(L6, ROUND_AND_ROUND, &[OWNED, STOLEN_TWICE, history]);
}
