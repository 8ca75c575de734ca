//! S2 overlap, S4 words of the owner, S7 fences, S8 leases, S10 thefts.

use super::{LOST, OWNED, OWNED_ONCE, breaks};
use crate::check::Rule::{S2, S4, S7, S8, S10};

/// The first worker says that it has stopped `a`, true or not, and a second one is given it.
const HANDED_BACK: &str = "
    10s   w1: report a.1 interrupted
      -> commit 3: lease 2 nobody returned-by w1 a.2 at 10s
    10s   w2: hello new slots 1 want 1
      -> commit 4: lease 3 w2 claimed a.3 at 10s
      -> tell w2: renewed 1, reconcile lease 10s keep [], assign a.3
";

#[test]
fn s2_the_older_run_continues() {
    let history = "
           0s    w1 starts a.1
        -2 9s    w1 stops a.1
        -3 9s    w1 is late
        -4 9s    w1 stops a.1
        -6 9s    w1 pauses alone
        +  9s    w1 ends a.1 stopped
    ";
    let after = "
        -4 10s   w2 is late
        -5 10s   w2 pauses
           11s   w2 starts a.3
    ";
    let what = "a runs on node 1 under fence 1 and on node 2 under fence 3";
    breaks(S2, what, &[OWNED, history, HANDED_BACK, after]);
}

/// `a` runs when the first worker stands still, which costs it the job.
const FROZEN: &str = "
    0s    w1 starts a.1
    5s    w1 pauses
";

#[test]
fn s2_the_older_run_continues_after_a_pause() {
    let history = "
           11s   w2 starts a.3
        +2 12s   w2 ends a.3 finished
           12s   w1 resumes
        +  12s   w1 is late
        +  12s   w1 stops a.1
        -2 12s   w1 is late
        +3 12s   w1 ends a.1 killed
           12000001us tick
    ";
    let what = "a runs on node 1 under fence 1 and on node 2 under fence 3";
    breaks(S2, what, &[OWNED, FROZEN, LOST, history]);
}

#[test]
fn s2_a_third_run_beside_two_older_ones() {
    let history = "
          11s   w2 starts a.3
        # The end of another run is not the end of this one.
        -2 12s   w1 resumes
        -2 12s   w1 is late
        -2 12s   w1 stops a.1
        -2 12s   w1 ends a.1 stopped
        + 19s   w2 ends a.3 stopped
          20s   w2: report a.3 interrupted
            -> commit 5: lease 4 nobody returned-by w2 a.4 at 20s
          20s   w3: hello new slots 1 want 1
            -> commit 6: lease 5 w3 claimed a.5 at 20s
          20s   w3 starts a.5
    ";
    let what = "a runs on node 2 under fence 3 and on node 3 under fence 5";
    breaks(S2, what, &[OWNED, FROZEN, LOST, history]);
}

#[test]
fn s2_the_oldest_of_three_runs_continues_after_a_pause() {
    let history = "
          10s   w2: start a.3
            -> commit 5: write a running fence 3 charged 1 suspicions 1 held-by w2
          11s   w2 starts a.3
          19s   w2 pauses
          20s   tick
            -> commit 6: note lost w2 with 1, note attempt a.3 by w2 lost-alone, write a queued fence 4 charged 2 suspicions 2, lease 4 nobody lost-by w2 a.4 at 20s
          20s   w3: hello new slots 1 want 1
            -> commit 7: lease 5 w3 claimed a.5 at 20s
          20s   w3 starts a.5
          21s   w1 resumes
        + 21s   w1 is late
        + 21s   w1 stops a.1
          22s   tick
    ";
    let what = "a runs on node 1 under fence 1 and on node 3 under fence 5";
    breaks(S2, what, &[OWNED, FROZEN, LOST, history]);
}

#[test]
fn s2_the_end_of_an_older_run_on_the_same_node_is_not_the_end_of_this_one() {
    let history = "
          0s    w1 starts a.1
          5s    w1 is late
          5s    w1 stops a.1
          6s    w2: hello new replacing w1 slots 1 want 1
            -> commit 3: lease 2 nobody returned-by w1 a.2 at 6s, lease 3 w2 claimed a.3 at 6s
          6s    w2 starts a.3
          7s    w2 ends a.1 stopped
        + 8s    w2 ends a.3 stopped
          8s    w2: report a.3 interrupted
            -> commit 4: lease 4 nobody returned-by w2 a.4 at 8s
          9s    w3: hello new slots 1 want 1
            -> commit 5: lease 5 w3 claimed a.5 at 9s
          9s    w3 starts a.5
    ";
    let what = "a runs on node 1 under fence 3 and on node 3 under fence 5";
    breaks(S2, what, &[OWNED, history]);
}

#[test]
fn s2_the_stopping_of_another_run_does_not_count() {
    let before = "
           0s    w1 starts a.1
           8s    w1 is late
        +  8s    w1 stops a.1
        +  9s    w1 ends a.1 stopped
    ";
    let after = "
        -  11s   w1 stops a.3
        -2 11s   w2 stops a.1
           11s   w2 starts a.3
    ";
    let what = "a runs on node 1 under fence 1 and on node 2 under fence 3";
    breaks(S2, what, &[OWNED, before, HANDED_BACK, after]);
}

#[test]
fn s2_a_start_of_what_another_owns() {
    let what = "a.1 starts on node 2, which does not own it";
    let history = "
           1s    w2: hello new slots 1 want 1
        -2 1s    cancel a
        +2 1s    cancel a
        -2   -> commit 3: write a cancelled fence 2 held-by w1 because request
        +2   -> commit 3: write a cancelled fence 2 held-by w1 because request
        -  1s    w2 starts a.1
        -2 1s    w2 starts a.1
        +  1s    w1 starts a.1
        +2 1s    w1 starts a.1
    ";
    breaks(S2, what, &[OWNED, history]);
}

#[test]
fn s2_a_start_under_an_older_fence() {
    let what = "a.1 starts on node 1, which does not own it";
    let history = "
        - 11s   w1 starts a.1
        + 11s   w2 starts a.3
    ";
    breaks(S2, what, &[OWNED, LOST, history]);
    let history = "
          1s    w1: report a.1 dropped
            -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s, lease 3 w1 claimed a.3 at 1s
        -2 1s    cancel a
        -2  -> commit 4: write a cancelled fence 4 held-by w1 because request
        +2 1s    cancel a
        +2  -> commit 4: write a cancelled fence 4 held-by w1 because request
        -  2s    w1 starts a.1
        -2 2s    w1 starts a.1
        +  2s    w1 starts a.3
        +2 2s    w1 starts a.3
    ";
    breaks(S2, what, &[OWNED, history]);
}

#[test]
fn s2_a_start_of_what_was_cancelled_and_no_worker_holds() {
    let what = "a.1 starts on node 1, which does not own it";
    let history = "
          1s    cancel a
            -> commit 3: note act cancel a by -, write a cancelled fence 2 held-by w1 because request
        - 1s    w1: report a.1 stopped
        -   -> commit 4: write a cancelled fence 2 because request
          1s    w1 starts a.1
    ";
    breaks(S2, what, &[OWNED, history]);
}

#[test]
fn s4_a_report_of_another_worker_is_accepted() {
    let what = "a report of worker 2 about a.1 is accepted, but it is not the owner";
    let history = "
           1s    w1 runs a.1 finished
        -  2s    w2: hello new slots 1 want 1 reports a.1 finished
        -2 2s    w2: hello new slots 1 want 1
        -2 2s    w2: hello new replacing w2 slots 1 want 1 reports a.1 finished
        +  2s    w2: hello new replacing w1 slots 1 want 1 reports a.1 finished
        +2 2s    w2: hello new slots 1 want 1
             -> commit 3: write a succeeded fence 1
        -    -> tell w2: accepted a.1
        -2   -> tell w2: accepted a.1
        +    -> tell w2: accepted a.1
        +2   -> tell w1: accepted a.1
    ";
    breaks(S4, what, &[OWNED, history]);
}

#[test]
fn s4_a_report_under_a_fence_that_never_was() {
    let history = "
          1s    w1 runs a.1 finished
            -> commit 3: write a succeeded fence 1
        -   -> tell w1: accepted a.2
        +   -> tell w1: accepted a.1
    ";
    breaks(
        S4,
        "a report of worker 1 about a.2 is accepted, but it is not the owner",
        &[OWNED, history],
    );
}

#[test]
fn s4_a_report_is_accepted_after_the_loss() {
    let what = "a report of worker 1 about a.1 is accepted although the job was reclaimed";
    let history = "
          12s   w1: report a.1 finished
        -   -> tell w1: accepted a.1
        +   -> tell w1: refused a.1 current 3
    ";
    breaks(S4, what, &[OWNED, LOST, history]);
}

#[test]
fn s4_a_report_is_accepted_before_it_has_come() {
    let history = "
           1s    cancel a
             -> commit 3: write a cancelled fence 2 held-by w1 because request
        -2 1s    w1: report a.2 stopped
        -3 1s    w1: goodbye
        -3   -> commit 4: write a cancelled fence 2 because request
        +  1s    w1: report a.1 stopped
        +    -> commit 4: write a cancelled fence 2 because request
             -> tell w1: accepted a.1
    ";
    let what = "a report of worker 1 about a.1 is accepted before it has arrived";
    breaks(S4, what, &[OWNED, history]);
}

#[test]
fn s4_a_report_is_accepted_before_it_is_stored() {
    let what = "a report of worker 1 about a.1 is accepted before it is stored";
    let history = "
           1s    w1 runs a.1 finished
        -    -> tell w1: accepted a.1
        -2   -> commit 3: write a running fence 1 held-by w1
        -2   -> tell w1: accepted a.1
             -> commit 4: write a succeeded fence 1
        +    -> tell w1: accepted a.1
    ";
    breaks(S4, what, &[OWNED, history]);
}

#[test]
fn s4_a_transfer_is_accepted_before_it_is_stored() {
    let what = "a report of worker 1 about a.1 is accepted before it is stored";
    let history = "
           1s    w2: hello new slots 1 want 1
           1s    w1: give 1 a.1
        -    -> tell w1: accepted a.1
        -    -> commit 3: lease 2 w2 stolen-from w1 a.2 at 1s
        +    -> commit 3: lease 2 w2 stolen-from w1 a.2 at 1s
        +2   -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s
        +    -> tell w1: accepted a.1
        +2   -> tell w1: accepted a.1
    ";
    breaks(S4, what, &[OWNED, history]);
}

#[test]
fn s4_a_job_is_assigned_before_that_is_stored() {
    let history = "
           0s    submit a
             -> commit 1: put #1 at 0s: a: queued
           0s    w1: hello new slots 1 want 1
        -    -> tell w1: assign a.1
             -> commit 2: lease 1 w1 claimed a.1 at 0s
        -2   -> tell w1: assign a.2
        +    -> tell w1: assign a.1
    ";
    breaks(S4, "is assigned to worker 1 before that is stored", &[history]);
}

#[test]
fn s4_a_job_is_assigned_to_another_worker() {
    let history = "
          1s    w2: hello new slots 1 want 1
        -   -> tell w2: assign a.1
        +   -> tell w1: assign a.1
    ";
    breaks(S4, "a.1 is assigned to worker 2 before that is stored", &[OWNED, history]);
}

#[test]
fn s4_a_job_is_assigned_to_a_lost_worker() {
    let history = "
          11s   w1: hello resume slots 1 want 1
        -   -> tell w1: assign a.1
        +   -> tell w2: assign a.3
    ";
    breaks(S4, "a.1 is assigned to worker 1 before that is stored", &[OWNED, LOST, history]);
}

#[test]
fn s4_a_lease_is_renewed_after_the_loss() {
    let history = "
          12s   w1: heartbeat
        -   -> tell w1: renewed 2
        +   -> tell w1: gone
        +   -> tell w2: renewed 2
    ";
    breaks(S4, "the lease of worker 1 is renewed after it was lost", &[OWNED, LOST, history]);
}

#[test]
fn s4_a_job_goes_to_a_lost_worker() {
    let what = "a.5 goes to worker 1, which was lost before";
    let history = "
           12s   w2: report a.3 dropped
             -> commit 5: lease 4 nobody returned-by w2 a.4 at 12s
        -2 13s   w1: hello new slots 1 want 1
        -3 13s   server crashes
        -3 14s   server starts
        -3 15s   w1: hello resume slots 1 want 1
        # A server that has started since may meet it as a stranger.
        +2 13s   server crashes
        +2 14s   server starts
        +2 15s   w1: hello new slots 1 want 1
        +2   -> tell w1: renewed 1
           15s   tick
        -    -> commit 6: lease 5 w1 claimed a.5 at 15s
        -2   -> commit 6: lease 5 w1 claimed a.5 at 15s
        -3   -> commit 6: lease 5 w1 claimed a.5 at 15s
        +    -> commit 6: lease 5 w2 claimed a.5 at 15s
        +2   -> commit 6: lease 5 w1 claimed a.5 at 15s
    ";
    breaks(S4, what, &[OWNED, LOST, history]);
}

#[test]
fn s4_a_start_is_granted_before_it_is_stored() {
    let history = "
           11s   w2: start a.3
        -    -> tell w2: start-granted a.3
             -> commit 5: write a running fence 3 charged 1 suspicions 1 held-by w2
        -2   -> tell w1: start-granted a.3
        -3 11s   w3: hello new slots 1 want 1
        -3   -> tell w3: start-granted a.3
        +    -> tell w2: start-granted a.3
        +2 12s   w2 runs a.3 finished
        +2   -> commit 6: write a succeeded fence 3 charged 1 suspicions 1
        +2   -> tell w2: start-granted a.3
        +3 12s   cancel a
        +3   -> commit 6: write a cancelled fence 4 charged 1 suspicions 1 held-by w2
        +3   -> tell w2: start-granted a.3
    ";
    breaks(S4, "the start of a.3 is granted but not stored", &[OWNED, LOST, history]);
}

#[test]
fn s4_a_start_is_granted_to_a_lost_worker() {
    let before = "
          1s    w1: start a.1
            -> commit 3: write a running fence 1 held-by w1
        +   -> tell w1: start-granted a.1
          10s   tick
            -> commit 4: note lost w1 with 1, note attempt a.1 by w1 lost-alone, write a queued fence 2 charged 1 suspicions 1, lease 2 nobody lost-by w1 a.2 at 10s
        -   -> tell w1: start-granted a.1
    ";
    breaks(S4, "the start of a.1 is granted but not stored", &[OWNED, before]);
}

#[test]
fn s4_a_report_of_the_owner_is_refused() {
    let history = "
           1s    w2: hello new slots 1 want 1
        -  1s    w1 runs a.1 finished
        -    -> tell w1: refused a.1 current 1
        -2 1s    w1: start a.1
        -2   -> commit 3: write a running fence 1 held-by w1
        -2   -> tell w1: refused a.1 current -
        +  1s    w1 runs a.1 finished
        +    -> commit 3: write a succeeded fence 1
        +    -> tell w1: accepted a.1
        # It is not the owner, or only of a newer fence.
        +2 1s    w2: start a.1
        +2   -> tell w2: refused a.1 current 1
        +3 1s    w1: report a.1 dropped
        +3   -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s, lease 3 w1 claimed a.3 at 1s
        +3   -> tell w1: refused a.1 current 3
    ";
    let what = "a report of worker 1 about a.1 is refused, although it is the owner";
    breaks(S4, what, &[OWNED, history]);
}

#[test]
fn s4_a_worker_in_good_standing_is_told_that_it_is_gone() {
    let history = "
           1s    w1: heartbeat
             -> tell w1: renewed 2
           2s    w2: hello new slots 1 want 1
        +  2s    w1: goodbye
        +    -> commit 3: lease 2 nobody returned-by w1 a.2 at 2s
        +2 2s    w3: hello new replacing w1 slots 1 want 1
        +2   -> commit 3: lease 2 nobody returned-by w1 a.2 at 2s
        +3 11s   tick
        +3   -> commit 3: note lost w1 with 1, lease 2 nobody lost-by w1 a.2 at 11s
        # This server has not met it.
        +4 5s    server crashes
        +4 6s    server starts
        # Somebody else has gone.
        -2 2s    w2: goodbye
        -3 2s    w3: hello new replacing w2 slots 1 want 1
           12s   w1: heartbeat
             -> tell w1: gone
    ";
    breaks(S4, "worker 1 is told that it is lost, but it is not", &[OWNED, history]);
}

#[test]
fn s4_another_worker_returns_a_job() {
    let history = "
           1s    w2: hello new slots 1 want 1
        -  1s    w2: report a.1 dropped
        -    -> commit 3: lease 2 nobody returned-by w2 a.2 at 1s
        -2 1s    w2: goodbye
        -2   -> commit 3: lease 2 nobody returned-by w2 a.2 at 1s
        +  1s    w1: report a.1 dropped
        +    -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s
    ";
    breaks(
        S4,
        "a.2 changes owner by Returned(WorkerId(2)), but its owner is worker 1",
        &[OWNED, history],
    );
}

#[test]
fn s4_a_job_is_returned_without_its_owners_report() {
    let history = "
           1s    w2: hello new slots 1 want 1
        -2 1s    w2: goodbye
        -3 1s    submit b
        -3   -> commit 3: put #2 at 1s: b: queued, lease 2 w2 claimed b.1 at 1s
        -3 1s    w2: report b.1 dropped
        -4 1s    w1: report a.2 dropped
        -5 1s    w1: heartbeat, drain, stopping a.1
        +  1s    w1: report a.1 dropped
        +2 1s    w1: give 1 a.1
        +3 1s    w1: goodbye
        +4 1s    w3: hello new replacing w1 slots 1 want 1
        +5 1s    w1: hello resume slots 1 want 1 reports a.1 dropped
             -> commit 4: lease 3 nobody returned-by w1 a.2 at 1s
    ";
    breaks(
        S4,
        "a.2 changes owner by Returned(WorkerId(1)), but its owner is worker 1",
        &[OWNED, history],
    );
}

#[test]
fn s4_a_job_is_written_away_without_its_owners_report() {
    let history = "
           1s    cancel a
           1s    w2: hello new slots 1 want 1
        -2 1s    w2: goodbye
        -3 1s    w1: report a.2 stopped
        -4 1s    w1: heartbeat, drain, stopping a.1
        +  1s    w1: report a.1 stopped
        +2 1s    w1: give 1 a.1
        +3 1s    w1: hello resume slots 1 want 1 reports a.1 stopped
        +4 1s    w1: goodbye
        +5 1s    w3: hello new replacing w1 slots 1 want 1
             -> commit 3: write a cancelled fence 2 because request
    ";
    let what = "a is written as cancelled, but worker 1 has not released it";
    breaks(S4, what, &[OWNED, history]);
    let history = "
           11s   cancel a
        -    -> commit 5: write a cancelled fence 4 charged 1 suspicions 1 held-by w1 because request
        -2   -> commit 5: write a running fence 3 charged 1 suspicions 1 held-by w1
        -3   -> commit 5: write a running fence 3 charged 1 suspicions 1
        -4   -> commit 5: write a queued fence 4 charged 1 suspicions 1 held-by w2
        +    -> commit 5: write a cancelled fence 4 charged 1 suspicions 1 held-by w2 because request
        +2   -> commit 5: write a running fence 3 charged 1 suspicions 1 held-by w2
    ";
    breaks(S4, "but worker 2 has not released it", &[OWNED, LOST, history]);
}

#[test]
fn s4_a_job_is_reclaimed_from_another_worker() {
    let what = ", but its owner is worker 2";
    let history = "
          20s   tick
        -   -> commit 5: lease 4 nobody lost-by w1 a.4 at 20s
        # It has not been lost.
        -2  -> commit 5: lease 4 nobody lost-by w2 a.4 at 20s
        -3  -> commit 5: note lost w1 with 1, lease 4 nobody lost-by w2 a.4 at 20s
        +   -> commit 5: note lost w2 with 1, lease 4 nobody lost-by w2 a.4 at 20s
    ";
    breaks(S4, what, &[OWNED, LOST, history]);
}

#[test]
fn s4_a_job_is_reclaimed_that_no_worker_owns() {
    let history = "
        - 9s    cancel a
          10s   tick
        -   -> commit 3: note lost w1 with 1, write a cancelled fence 2, lease 2 nobody lost-by w1 a.2 at 10s
        # That it has no attempts left may be stored before.
        +   -> commit 3: note lost w1 with 1, note attempt a.1 by w1 lost-alone, write a dead fence 2 charged 1, lease 2 nobody lost-by w1 a.2 at 10s
    ";
    breaks(S4, "but its owner is none", &[OWNED_ONCE, history]);
}

#[test]
fn s7_a_fence_is_used_twice() {
    let history = "
           1s    w2: hello new slots 1 want 1
           1s    w1: report a.1 dropped
             -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s
        -2 2s    server crashes
        -2 3s    server starts
        +2 2s    server crashes
        +2 3s    server starts
           4s    tick
        -    -> commit 4: lease 3 w2 claimed a.2 at 4s
        -2   -> commit 4: lease 3 w2 claimed a.1 at 4s
        +    -> commit 4: lease 3 w2 claimed a.3 at 4s
        +2   -> commit 4: lease 3 w2 claimed a.3 at 4s
    ";
    breaks(S7, "after fence 2", &[OWNED, history]);
}

#[test]
fn s7_a_steal_under_the_same_fence() {
    let history = "
          1s    w2: hello new slots 1 want 1
          1s    w1: give 1 a.1
        -   -> commit 3: lease 2 w2 stolen-from w1 a.1 at 1s
        +   -> commit 3: lease 2 w2 stolen-from w1 a.2 at 1s
    ";
    breaks(S7, "commit 3 assigns a.1 after fence 1", &[OWNED, history]);
}

#[test]
fn s7_back_in_the_queue_under_the_same_fence() {
    let history = "
          1s    w1: report a.1 dropped
        -   -> commit 3: lease 2 nobody returned-by w1 a.1 at 1s
        +   -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s
    ";
    breaks(S7, "commit 3 assigns a.1 after fence 1", &[OWNED, history]);
}

#[test]
fn s7_back_in_the_queue_under_an_older_fence_than_was_written() {
    let history = "
          10s   tick
        -   -> commit 3: note lost w1 with 1, write a queued fence 3 suspicions 1, lease 2 nobody lost-by w1 a.2 at 10s
        +   -> commit 3: note lost w1 with 1, write a queued fence 3 suspicions 1, lease 2 nobody lost-by w1 a.3 at 10s
    ";
    breaks(S7, "commit 3 assigns a.2 after fence 3", &[OWNED, history]);
}

#[test]
fn s7_two_owners_in_one_commit_under_one_fence() {
    let history = "
          1s    w2: hello new slots 1 want 1
          1s    w1: report a.1 dropped
        -   -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s, lease 3 w2 claimed a.2 at 1s
        +   -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s, lease 3 w2 claimed a.3 at 1s
        # Rows need not come in the order of fences.
        +2  -> commit 3: lease 2 w2 claimed a.3 at 1s, lease 3 nobody returned-by w1 a.2 at 1s
    ";
    breaks(S7, "commit 3 assigns a.2 after fence 2", &[OWNED, history]);
}

#[test]
fn s7_what_an_older_owner_says_is_written() {
    let history = "
           11s   w2 runs a.3 finished
           12s   cancel a
        -    -> commit 5: write a succeeded fence 1 charged 1 suspicions 1
        -2   -> commit 5: write a running fence 2 charged 1 suspicions 1 held-by w2
        -3   -> commit 5: write a scheduled fence 1 charged 1 suspicions 1 due 14s
        -4   -> commit 5: write a cancelled fence 2 charged 1 suspicions 1 held-by w2
        -5   -> commit 5: write a queued fence 1 charged 1 suspicions 1
        -6   -> commit 5: write a dead fence 2 charged 1 suspicions 1
        +    -> commit 5: write a succeeded fence 3 charged 1 suspicions 1
        +2   -> commit 5: write a running fence 3 charged 1 suspicions 1 held-by w2
        +3   -> commit 5: write a scheduled fence 3 charged 1 suspicions 1 due 14s
        +4   -> commit 5: write a cancelled fence 4 charged 1 suspicions 1 held-by w2
    ";
    breaks(S7, "a is written as", &[OWNED, LOST, history]);
}

#[test]
fn s7_a_report_of_the_owner_moves_the_fence() {
    let history = "
           1s    w1 runs a.1 finished
        -    -> commit 3: write a running fence 2 held-by w1
        -2   -> commit 3: write a succeeded fence 2
        -3   -> commit 3: write a scheduled fence 2 due 3s
        +    -> commit 3: write a running fence 1 held-by w1
        +2   -> commit 3: write a succeeded fence 1
        +3   -> commit 3: write a scheduled fence 1 due 3s
    ";
    breaks(S7, "under fence 2 after fence 1", &[OWNED, history]);
}

#[test]
fn s8_a_worker_is_declared_lost_too_soon() {
    let history = "
        - 9999999us tick
        + 10s   tick
            -> commit 3: note lost w1 with 1, write a queued fence 2 suspicions 1, lease 2 nobody lost-by w1 a.2 at 10s
    ";
    breaks(
        S8,
        "worker 1 is declared lost after 9.999999s, but its lease is 10s",
        &[OWNED, history],
    );
}

#[test]
fn s8_a_renewal_counts_from_when_it_was_told() {
    let history = "
          5s    w1: heartbeat
            -> tell w1: renewed 2
        - 14999999us tick
        + 15s   tick
            -> commit 3: note lost w1 with 1, write a queued fence 2 suspicions 1, lease 2 nobody lost-by w1 a.2 at 15s
    ";
    breaks(
        S8,
        "worker 1 is declared lost after 9.999999s, but its lease is 10s",
        &[OWNED, history],
    );
}

#[test]
fn s8_a_restart_renews_every_lease() {
    let history = "
          5s    server crashes
          9s    server starts
        - 18999999us tick
        + 19s   tick
            -> commit 3: note lost w1 with 1, write a queued fence 2 suspicions 1, lease 2 nobody lost-by w1 a.2 at 19s
    ";
    breaks(
        S8,
        "worker 1 is declared lost after 9.999999s, but its lease is 10s",
        &[OWNED, history],
    );
}

#[test]
fn s8_only_a_worker_inside_the_server_is_lost_with_it() {
    let history = "
          0s    submit a
            -> commit 1: put #1 at 0s: a: queued
          0s    w1: hello new slots 1 want 1
          0s    e2: hello new slots 1 want 1
        -   -> commit 2: lease 1 w1 claimed a.1 at 0s
        +   -> commit 2: lease 1 e2 claimed a.1 at 0s
          1s    server crashes
          2s    server starts
        -   -> commit 3: note lost w1 with 1, lease 2 nobody lost-by w1 a.2 at 2s
        +   -> commit 3: note lost e2 with 1, lease 2 nobody lost-by e2 a.2 at 2s
    ";
    breaks(S8, "worker 1 is declared lost after 0ns, but its lease is 10s", &[history]);
}

#[test]
fn s8_a_worker_inside_the_server_is_lost_while_that_lives() {
    let history = "
           0s    submit a
             -> commit 1: put #1 at 0s: a: queued
           0s    e2: hello new slots 1 want 1
             -> commit 2: lease 1 e2 claimed a.1 at 0s
             -> tell e2: renewed 1
           1s    server crashes
           2s    server starts
        -  2000001us tick
        -2 11s   tick
        +2 12s   tick
             -> commit 3: note lost e2 with 1, lease 2 nobody lost-by e2 a.2 at 2s
    ";
    breaks(S8, "worker 8000000000000002 is declared lost after", &[history]);
}

#[test]
fn s8_a_worker_is_declared_lost_while_it_runs_a_job_rightfully() {
    let what = "the jobs of node 1 are reclaimed while it rightfully runs a.1";
    // Others may run what they like.
    let history = "
           0s    w1 starts a.1
           0s    w3: hello new slots 1 want 1
             -> commit 3: put #2 at 0s: b: queued, lease 7 w3 claimed b.1 at 0s
           0s    w3 starts b.1
        -2 9s    w1 stops a.1
        -3 9s    w1 is late
        -4 9s    w1 pauses alone
        +  9s    w1 pauses
        +2 9s    w1 is late
        +2 9s    w1 stops a.1
        +3 9s    w1 ends a.1 stopped
    ";
    breaks(S8, what, &[OWNED, history, LOST, "11s w2 starts a.3"]);
}

#[test]
fn s10_a_running_job_is_given() {
    let history = "
        -  0s    w1 starts a.1
        +2 0s    w1 starts a.1
        +2 1s    w1 ends a.1 stopped
        -  1s    w1: give 1 a.1
        +  1s    w1: give 1 a.1
        +2 1s    w1: give 1 a.1
        # What it runs is the older one, which it is about to stop.
        +3 0s    w1 starts a.1
        +3 1s    w1 is late
        +3 1s    w1 stops a.1
        +3 1s    w2: hello new replacing w1 slots 1 want 1
        +3   -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s, lease 3 w2 claimed a.3 at 1s
        +3 1s    w2: give 1 a.3
    ";
    breaks(S10, "a.1 is given away while it runs", &[OWNED, history]);
}

#[test]
fn s10_a_job_starts_after_it_was_given() {
    let history = "
        - 1s    w1: give 1 a.1
        + 1s    w1: give 1 []
          1s    w1 starts a.1
    ";
    breaks(S10, "a.1 starts on node 1 after it was given away", &[OWNED, history]);
}

#[test]
fn s10_a_job_is_stolen_from_a_worker_that_does_not_own_it() {
    let history = "
           1s    w2: hello new slots 1 want 1
           1s    w3: hello new slots 1 want 1
           1s    w1: give 1 a.1
        -    -> commit 3: lease 2 w2 stolen-from w3 a.2 at 1s
        -2   -> commit 3: lease 2 w1 stolen-from w1 a.2 at 1s
        -3   -> commit 3: lease 2 w2 claimed a.2 at 1s
        +    -> commit 3: lease 2 w2 stolen-from w1 a.2 at 1s
        +2   -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s, lease 3 w2 claimed a.3 at 1s
    ";
    breaks(S10, ", but its owner is worker 1", &[OWNED, history]);
}

#[test]
fn s10_a_job_is_stolen_that_its_owner_has_not_given() {
    let history = "
           1s    w2: hello new slots 1 want 1
        -2 1s    w1: give 1 []
        -3 1s    w1: give 1 a.2
        -4 1s    submit b
        -4   -> commit 3: put #2 at 1s: b: queued, lease 2 w1 claimed b.1 at 1s
        -4 1s    w1: give 1 b.1
        -5 1s    w1: goodbye
        +  1s    w1: give 1 a.1
             -> commit 4: lease 3 w2 stolen-from w1 a.2 at 1s
    ";
    breaks(
        S10,
        "a.2 changes owner by Steal(WorkerId(1)), but its owner is worker 1",
        &[OWNED, history],
    );
}

#[test]
fn s10_a_transfer_moves_once() {
    let history = "
           1s    w2: hello new slots 1 want 1
           1s    w1: give 1 a.1
             -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s, lease 3 w1 claimed a.3 at 1s
        +  2s    w1: give 2 a.3
             -> commit 4: lease 4 w2 stolen-from w1 a.4 at 2s
    ";
    breaks(
        S10,
        "a.4 changes owner by Steal(WorkerId(1)), but its owner is worker 1",
        &[OWNED, history],
    );
}

#[test]
fn s10_a_queued_job_is_stolen() {
    let history = "
          1s    w2: hello new slots 1 want 1
          1s    w1: give 1 a.1
        -   -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s
            -> commit 4: lease 3 w2 stolen-from w1 a.3 at 1s
    ";
    breaks(S10, "but its owner is none", &[OWNED, history]);
}
