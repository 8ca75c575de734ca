//! S14: after a cancel is acknowledged nothing starts, and a running job is told within one
//! heartbeat.

use super::{OWNED, breaks};
use crate::check::Rule::S14;

#[test]
fn s14_a_job_starts_after_its_cancel_is_acknowledged() {
    let history = "
           1s    r1 cancel a
             -> commit 3: note act cancel a by -, write a cancelled fence 2 held-by w1 because request
             -> tell w1: cancel a.1
        +  1s    w1 starts a.1
        +  1s    w1 stops a.1 cancelled
           2s    w1: stopping a.1
        -    -> reply r1 done
        +    -> reply r1 done
        +2   -> reply r1 refused busy
        -  2s    w1 starts a.1
        +2 2s    w1 starts a.1
    ";
    breaks(S14, "a starts on node 1 after its cancel", &[OWNED, history]);
}

#[test]
fn s14_a_cancel_is_acknowledged_and_not_stored() {
    let history = "
           0s    w1 runs a.1 finished
           1s    r1 cancel a
        -    -> reply r1 done
        -2   -> commit 3: write a succeeded fence 1
        -2   -> reply r1 done
             -> commit 4: note act cancel a by -
        +    -> commit 5: write a cancelled fence 2
        +    -> reply r1 done
        +2   -> commit 5: write a succeeded fence 1
        +2   -> reply r1 refused wrong-state a is succeeded
    ";
    breaks(S14, "the cancel of a is acknowledged, but it is", &[OWNED, history]);
}

#[test]
fn s14_an_answer_to_something_else_is_no_acknowledgement() {
    let history = "
        -  1s    r1 cancel a
        +  1s    r1 set-priority a 0
             -> reply r1 done
    ";
    breaks(S14, "the cancel of a is acknowledged, but it is", &[OWNED, history]);
}

/// The cancel of what the first worker owns is stored, and has its receipt.
const CANCELLED: &str = "
    1s    cancel a
      -> commit 3: note act cancel a by -, write a cancelled fence 2 held-by w1 because request
";

const UNTOLD: &str = "the holder of #1 was not told within a heartbeat that it is cancelled";

#[test]
fn s14_the_holder_is_not_told_for_a_heartbeat() {
    let history = "
        -2 2s    w2: hello new slots 1 want 1
        -2   -> tell w2: reconcile lease 10s keep []
        -3 2s    w1: heartbeat
        -3   -> tell w1: renewed 2
        -4 2s    w2: hello new slots 1 want 1
        -4   -> tell w2: gone
        # Somebody else is told, or of something else.
        -5 2s    w2: hello new slots 1 want 1
        -5   -> tell w2: cancel a.1
        -6 2s    submit b
        -6   -> commit 4: put #2 at 2s: b: queued
        -6   -> tell w1: cancel b.1
        +  2s    tick
        +    -> tell w1: cancel a.1
        +2 2s    w1: heartbeat
        +2   -> tell w1: gone
        -  2000001us tick
        -2 2000001us tick
        -3 2000001us tick
        -4 2000001us tick
        -5 2000001us tick
        -6 2000001us tick
        +  9s    tick
        +2 9s    tick
        +3 2s    tick
    ";
    breaks(S14, UNTOLD, &[OWNED, CANCELLED, history]);
}

#[test]
fn s14_a_worker_says_that_it_stops_what_continues() {
    let history = "
           0s    w1 starts a.1
    ";
    let after = "
             -> tell w1: cancel a.1
        +  1s    w1 stops a.1 cancelled
        +2 1s    w1 ends a.1 stopped
           1s    w1: stopping a.1
    ";
    breaks(
        S14,
        "node 1 reports that it stops a.1, but it does not",
        &[OWNED, history, CANCELLED, after],
    );
}

#[test]
fn s14_no_holder_is_connected() {
    let history = "
        +  2s    closed w1
        +2 2s    closed w1
        +2 2s    w1: hello resume slots 1 want 1 holds a.1
        +2   -> tell w1: reconcile lease 10s keep []
        +3 2s    server crashes
        +3 3s    server starts
        # It has let go already.
        +4 2s    w1: report a.1 stopped
        +4   -> commit 4: write a cancelled fence 2 because request
           9s    tick
    ";
    breaks(S14, UNTOLD, &[OWNED, CANCELLED, history]);
}

#[test]
fn s14_another_connection_is_closed() {
    let history = "
           0s    w1: hello resume slots 1 want 1 holds a.1
             -> tell w1: reconcile lease 10s keep a.1
    ";
    let after = "
        -  2s    closed w1/1
        +  2s    closed w1/2
           9s    tick
    ";
    breaks(S14, UNTOLD, &[OWNED, history, CANCELLED, after]);
}

#[test]
fn s14_a_holder_without_a_connection_is_told_when_it_comes_back() {
    let history = "
        +  0s    closed w1
    ";
    breaks(S14, UNTOLD, &[OWNED, history, CANCELLED, "9s tick"]);
}

#[test]
fn s14_a_hello_lists_all_holds() {
    let history = "
           0s    w1: hello resume slots 1 want 1 holds a.1
        -    -> tell w1: reconcile lease 10s keep a.1
        -2   -> tell w1: reconcile lease 10s keep a.1
        -2 0s    w1/1#1: hello new slots 1 want 1
        # What it is told then will not have the job in it.
        +2   -> tell w1: reconcile lease 10s keep a.1
    ";
    let after = "
        +2 2s    w1: hello resume slots 1 want 1 holds a.1
           9s    tick
    ";
    breaks(S14, UNTOLD, &[OWNED, history, CANCELLED, after]);
}

#[test]
fn s14_the_heartbeat_begins_with_the_receipt() {
    let history = "
           1s    cancel a
           1s    store commit 3: note act cancel a by -, write a cancelled fence 2 held-by w1 because request
        -  3s    committed 3
        +  3s    committed 2
           4000001us tick
    ";
    breaks(S14, UNTOLD, &[OWNED, history]);
    let history = "
           1s    cancel a
           1s    store commit 3: note act cancel a by -, write a cancelled fence 2 held-by w1 because request
           3s    committed 4
           3500ms committed 5
        -  4000001us tick
        +  4s    tick
    ";
    breaks(S14, UNTOLD, &[OWNED, history]);
}

#[test]
fn s14_a_cancelled_job_is_released_without_a_report() {
    let history = "
           1s    tick
             -> tell w1: cancel a.1
        -  2s    w1: heartbeat
        -2 2s    w1: hello resume slots 1 want 1 holds a.1
        +  2s    w1: report a.1 dropped
        +2 2s    w1: hello resume slots 1 want 1
           2s    store commit 4: write a cancelled fence 2 because request
    ";
    breaks(
        S14,
        "a is cancelled and released, but worker 1 has not released it",
        &[OWNED, CANCELLED, history],
    );
}
