//! S1 none is lost, S3 one success, S5 an end is an end, S6 one id is one job, S9 what is charged.

use super::{LOST, OWNED, OWNED_ONCE, breaks, play};
use crate::check::Rule::{S1, S3, S5, S6, S9};

#[test]
fn s1_a_submit_is_acknowledged_before_it_is_stored() {
    let history = "
          0s    submit [a; b]
            -> commit 1: put #1 at 0s: a: queued
        -   -> reply submitted [a #1 new; b #2 new]
            -> commit 2: put #2 at 0s: b: queued
        +   -> reply submitted [a #1 new; b #2 new]
    ";
    breaks(S1, "the submit of b is acknowledged but not stored", &[history]);
}

#[test]
fn s1_fewer_jobs_are_acknowledged_than_were_submitted() {
    let history = "
           0s    submit [a; b]
             -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b: queued
        -    -> reply submitted a #1 new
        -2   -> reply submitted []
        +    -> reply submitted [a #1 new; b #2 new]
    ";
    breaks(S1, "2 jobs were submitted, but", &[history]);
}

#[test]
fn s1_a_commit_names_a_job_that_is_not_there() {
    let history = "
           0s    submit a
             -> commit 1: put #1 at 0s: a: queued
           61s   w1: hello new slots 1 want 1
           61s   cancel a
        -    -> commit 2: write #7 cancelled fence 1
        -2   -> commit 2: lease 1 w1 claimed #7.1 at 0s
        -3   -> commit 2: purge #7
        +    -> commit 2: write a cancelled fence 1
        +2   -> commit 2: lease 1 w1 claimed a.1 at 0s
        +3   -> commit 2: write a cancelled fence 1
        +3 121s  expired [#1 a]
        +3   -> commit 3: purge a
    ";
    breaks(S1, "a commit names job #7, which is not stored", &[history]);
}

#[test]
fn s1_a_job_is_purged_that_has_not_ended() {
    let history = "
          1s    w1 runs a.1 finished
        -   -> commit 3: write a running fence 1 held-by w1 written 1s
        +   -> commit 3: write a succeeded fence 1 written 1s
          100s  expired [#1 a]
            -> commit 4: purge a
    ";
    breaks(S1, "a is purged, but is running for 99000 ms only", &[OWNED, history]);
}

#[test]
fn s1_a_job_is_purged_too_soon() {
    let history = "
          1s    w1 runs a.1 finished
            -> commit 3: write a succeeded fence 1 written 1s
        - 60999ms expired [#1 a]
        + 61s   expired [#1 a]
            -> commit 4: purge a
    ";
    breaks(S1, "a is purged, but is succeeded for 59999 ms only", &[OWNED, history]);
}

#[test]
fn s1_a_cancelled_job_is_purged_that_a_worker_holds() {
    let history = "
          1s    cancel a
            -> commit 3: write a cancelled fence 2 held-by w1 because request written 1s
            -> tell w1: cancel a.1
        + 2s    w1: report a.1 stopped
        +   -> commit 4: write a cancelled fence 2 because request written 1s
          100s  expired [#1 a]
            -> commit 5: purge a
    ";
    breaks(S1, "a is purged, but is cancelled for 99000 ms only", &[OWNED, history]);
}

#[test]
fn s1_nothing_is_purged_where_all_is_kept() {
    let log = [
        "0s    submit a",
        "-> commit 1: put #1 at 0s: a: queued",
        "0s    cancel a",
        "-> commit 2: write a cancelled fence 1",
        "9999s expired [#1 a]",
        "-> commit 3: purge a",
    ];
    assert_eq!(play(&log, None).map(|found| found.rule), Some(S1));
    assert_eq!(play(&log[..5], None), None);
}

#[test]
fn s3_a_success_is_stored_that_was_none() {
    let what = "a.1 is stored as succeeded, but no execution of it succeeded";
    let history = "
        -2 1s    w1 starts a.1
        -3 1s    w1 runs a.1 failed
        -4 1s    w1 runs a.1 stopped
        -5 1s    w1 runs a.1 snoozed
        -6 1s    submit b
        -6   -> commit 3: put #2 at 1s: b: queued, lease 2 w1 claimed b.1 at 1s
        -6 1s    w1 runs b.1 finished
        +  1s    w1 runs a.1 finished
        # Whatever became of it, this is what is said.
           1s    w1: report a.1 finished
             -> commit 4: write a succeeded fence 1
    ";
    breaks(S3, what, &[OWNED, history]);
}

#[test]
fn s3_a_success_is_stored_of_an_older_run() {
    let history = "
           9s    w1 starts a.1
           9s    w1 pauses
    ";
    let after = "
        -  11s   w1 resumes
        -  11s   w1 ends a.1 finished
        -  11s   w2: report a.3 finished
        +  11s   w2 runs a.3 finished
             -> commit 5: write a succeeded fence 3 charged 1 suspicions 1
    ";
    let what = "a.3 is stored as succeeded, but no execution of it succeeded";
    breaks(S3, what, &[OWNED, history, LOST, after]);
}

#[test]
fn s3_a_success_is_accepted_and_something_else_stored() {
    let what = "the success of a.1 is accepted, but it is";
    let history = r#"
        -  1s    w1 runs a.1 finished
        -    -> commit 3: write a scheduled fence 1 due 2s
        -2 1s    w1 runs a.1 finished
        -2   -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s
        +  1s    w1 runs a.1 finished
        +    -> commit 3: write a succeeded fence 1
        # It was told to stop, and came to a good end all the same.
        -3 1s    w1 starts a.1
        -3 1s    w1 stops a.1 timed-out
        -3 1s    w1 ends a.1 finished
        -3 1s    w1: report a.1 failed for-good "too slow"
        -3   -> commit 3: note attempt a.1 by w1 failed "x", write a dead fence 1 charged 1 because failed
        +2 1s    w1 starts a.1
        +2 1s    cancel a
        +2   -> commit 3: write a cancelled fence 2 held-by w1 because request
        +2   -> tell w1: cancel a.1
        +2 1s    w1 ends a.1 finished
        +2 1s    w1: report a.1 stopped
        +2   -> commit 4: write a cancelled fence 2 because request
        +3 1s    w1 starts a.1
        +3 1s    w1 stops a.1 timed-out
        +3 1s    w1 ends a.1 stopped
        +3 1s    w1: report a.1 failed for-good "too slow"
        +3   -> commit 3: note attempt a.1 by w1 failed "x", write a dead fence 1 charged 1 because failed
             -> tell w1: accepted a.1
    "#;
    breaks(S3, what, &[OWNED, history]);
}

/// The first worker hands `a` back, however its run of it ended, and a second one is given it.
const HANDED_BACK: &str = "
      1s    w1 starts a.1
    - 1s    w1 ends a.1 finished
    + 1s    w1 ends a.1 stopped
      1s    w1: report a.1 interrupted
        -> commit 3: lease 2 nobody returned-by w1 a.2 at 1s
      1s    w2: hello new slots 1 want 1
        -> commit 4: lease 3 w2 claimed a.3 at 1s
";

#[test]
fn s3_the_success_of_an_older_owner_is_accepted() {
    let history = "
        2s    w2 runs a.3 finished
          -> commit 5: write a succeeded fence 3
          -> tell w2: accepted a.3
        # To hear twice of the same success is nothing new.
          -> tell w2: accepted a.3
          -> tell w1: accepted a.1
    ";
    let what = "the success of a.1 is accepted, but it is succeeded";
    breaks(S3, what, &[OWNED, HANDED_BACK, history]);
}

#[test]
fn s3_two_successes_of_a_cancelled_job_are_accepted() {
    let history = "
        2s    cancel a
          -> commit 5: write a cancelled fence 4 held-by w2 because request
          -> tell w2: cancel a.3
        2s    w2 runs a.3 finished
          -> tell w2: accepted a.3
          -> tell w1: accepted a.1
    ";
    breaks(S3, "a second success of a is accepted", &[OWNED, HANDED_BACK, history]);
}

#[test]
fn s3_a_success_is_stored_after_the_end() {
    let history = r#"
           1s    w1 starts a.1
        -  1s    w1 stops a.1 timed-out
        -2 1s    cancel a
           1s    w1 ends a.1 finished
        -  1s    w1: report a.1 failed for-good "too slow"
           2s    w1: report a.1 finished
        -    -> commit 3: note attempt a.1 by w1 failed "x", write a dead fence 1 charged 1
        -2   -> commit 3: write a cancelled fence 1 held-by w1 because request
        -3   -> commit 3: write a succeeded fence 1
        +    -> commit 3: write a running fence 1 held-by w1
        -    -> commit 4: write a succeeded fence 1 charged 1
        -2   -> commit 4: write a succeeded fence 1
        -3   -> commit 4: write a succeeded fence 1
        +    -> commit 4: write a succeeded fence 1
    "#;
    breaks(S3, ", but is written as succeeded", &[OWNED, history]);
}

#[test]
fn s5_a_dead_job_lives_again_without_an_operator() {
    let history = r#"
           1s    w1 runs a.1 failed for-good
             -> commit 3: note attempt a.1 by w1 failed "x", write a dead fence 1 charged 1 because failed
           2s    retry a
        -    -> commit 4: write a queued fence 2
        -2   -> commit 4: note act retry b by -, write a queued fence 2
        -3   -> commit 4: note act retry a by -
        -3   -> commit 5: write a queued fence 2
        -4   -> commit 4: note act retry a by -, write a running fence 1 held-by w1
        +    -> commit 4: note act retry a by -, write a queued fence 2
        +2   -> commit 4: write a queued fence 2, note act retry a by -
    "#;
    breaks(S5, "a is dead, but is written as", &[OWNED, history]);
}

#[test]
fn s5_a_retry_is_noted_that_nobody_has_asked_for() {
    let history = r#"
           1s    w1 runs a.1 failed for-good
             -> commit 3: note attempt a.1 by w1 failed "x", write a dead fence 1 charged 1 because failed
        -2 2s    retry b
        -3 2s    cancel a
        +  2s    retry a
             -> commit 4: note act retry a by -, write a queued fence 2
    "#;
    breaks(S5, "a is dead, but is written as", &[OWNED, history]);
}

#[test]
fn s5_a_job_has_ended_before_it_has_begun() {
    let history = "
           0s    submit a
        -    -> commit 1: put #1 at 0s: a: succeeded
        -2   -> commit 1: put #1 at 0s: a: dead
        -3   -> commit 1: put #1 at 0s: a: cancelled
        +    -> commit 1: put #1 at 0s: a: queued
    ";
    breaks(S5, "at its submission", &[history]);
}

#[test]
fn s5_what_was_cancelled_lives_again() {
    let history = "
           1s    cancel a
             -> commit 3: note act cancel a by -, write a cancelled fence 2 held-by w1 because request
             -> tell w1: cancel a.1
           2s    w1: report a.1 stopped
        -    -> commit 4: write a queued fence 3
        -2   -> commit 4: note act retry a by -, write a queued fence 3
        -3   -> commit 4: write a dead fence 3
        +    -> commit 4: write a cancelled fence 2 because request
    ";
    breaks(S5, "a is cancelled, but is written as", &[OWNED, history]);
}

#[test]
fn s5_what_succeeded_lives_again() {
    let history = r#"
        -  1s    w1 runs a.1 finished
        -    -> commit 3: write a succeeded fence 1
        +  1s    w1 runs a.1 failed for-good
        +    -> commit 3: note attempt a.1 by w1 failed "x", write a dead fence 1 charged 1
           2s    retry a
             -> commit 4: note act retry a by -, write a queued fence 2
    "#;
    breaks(S5, "a is succeeded, but is written as queued", &[OWNED, history]);
}

#[test]
fn s5_a_cancelled_job_is_released_once() {
    let history = "
           1s    cancel a
             -> commit 3: write a cancelled fence 2 held-by w1
           2s    w1: report a.1 stopped
             -> commit 4: write a cancelled fence 2
        -    -> commit 5: write a cancelled fence 2
    ";
    breaks(S5, "a is cancelled, but is written as cancelled", &[OWNED, history]);
}

#[test]
fn s5_a_job_is_cancelled_and_nobody_has_asked_for_it() {
    let history = "
           0s    submit b
             -> commit 3: put #2 at 0s: b: queued
        -2 1s    cancel b
        -3 1s    retry a
        +  1s    cancel a
        -    -> commit 4: write a cancelled fence 2 held-by w1 because request
        -2   -> commit 4: write a cancelled fence 2 held-by w1
        -3   -> commit 4: note act cancel a by -, write a cancelled fence 2 held-by w1 because request
        +    -> commit 4: write a cancelled fence 2 held-by w1 because request
    ";
    breaks(S5, "a is cancelled, but no cancel was requested", &[OWNED, history]);
}

#[test]
fn s5_nobody_need_ask_for_the_cancel_of_a_job_without_hope() {
    let history = "
           1s    submit b after a
             -> commit 3: put #2 at 1s: b after a: blocked
           1s    cancel a
        -    -> commit 4: write a cancelled fence 2 held-by w1, write b cancelled fence 1 because request
        +    -> commit 4: write a cancelled fence 2 held-by w1, write b cancelled fence 1 because condition
    ";
    breaks(S5, "b is cancelled, but no cancel was requested", &[OWNED, history]);
}

#[test]
fn s5_what_has_ended_starts() {
    let history = r#"
        -  1s    w1 runs a.1 finished
        -    -> commit 3: write a succeeded fence 1
        -2 1s    w1 runs a.1 failed for-good
        -2   -> commit 3: note attempt a.1 by w1 failed "x", write a dead fence 1 charged 1
        +  1s    cancel a
        +    -> commit 3: write a cancelled fence 2 held-by w1 because request
           1s    w1 starts a.1
    "#;
    breaks(S5, "a.1 starts, but it is", &[OWNED, history]);
}

#[test]
fn s5_what_has_ended_is_given_out() {
    let history = r#"
           1s    w1 runs a.1 failed for-good
             -> commit 3: note attempt a.1 by w1 failed "x", write a dead fence 1 charged 1
        +  1s    retry a
        +    -> commit 4: note act retry a by -, write a queued fence 2
           2s    w2: hello new slots 1 want 1
             -> commit 5: lease 2 w2 claimed a.3 at 2s
    "#;
    breaks(S5, "a is dead, but changes owner by Claim", &[OWNED, history]);
}

#[test]
fn s5_what_has_died_with_its_worker_is_given_out() {
    let history = "
           10s   tick
             -> commit 3: note lost w1 with 1, note attempt a.1 by w1 lost-alone, write a dead fence 2 charged 1 suspicions 1, lease 2 nobody lost-by w1 a.2 at 10s
        +  11s   retry a
        +    -> commit 4: note act retry a by -, write a queued fence 3
           12s   w2: hello new slots 1 want 1
             -> commit 5: lease 3 w2 claimed a.4 at 12s
    ";
    breaks(S5, "a is dead, but changes owner by Claim", &[OWNED_ONCE, history]);
}

#[test]
fn s6_an_id_is_stored_twice() {
    let history = "
           0s    submit a
             -> commit 1: put #1 at 0s: a: queued
        +2 0s    cancel a
        +2   -> commit 2: write a cancelled fence 1
        +2 60s   expired [#1 a]
        +2   -> commit 3: purge a
           61s   submit a
        -    -> commit 4: put #2 at 61s: a: queued
        +    -> commit 4: put #2 at 61s: b: queued
        +2   -> commit 4: put #2 at 61s: a: queued
    ";
    breaks(S6, "a is stored twice", &[history]);
}

#[test]
fn s6_a_key_is_stored_twice() {
    let history = "
           0s    submit a key k
             -> commit 1: put #1 at 0s: a key k: queued
        +2 0s    cancel a
        +2   -> commit 2: write a cancelled fence 1
        +2 60s   expired [#1 a]
        +2   -> commit 3: purge a
           61s   submit b key k
        -    -> commit 4: put #2 at 61s: b key k: queued
        +    -> commit 4: put #2 at 61s: b key l: queued
        +2   -> commit 4: put #2 at 61s: b key k: queued
    ";
    breaks(S6, "b and a are stored with the same key", &[history]);
}

#[test]
fn s6_a_submit_is_answered_with_another_job() {
    let what = "the submit of b is answered with a, another job";
    let history = "
           0s    submit a body 1 key k
             -> commit 1: put #1 at 0s: a body 1 key k: queued
        -  1s    submit b body 1
        -2 1s    submit b body 1 key l
        -3 1s    submit b body 2 key k
        +  1s    submit b body 1 key k
             -> reply submitted a #1 known
    ";
    breaks(S6, what, &[history]);
}

#[test]
fn s6_the_same_id_with_another_body_is_taken_for_the_same_job() {
    let history = "
           0s    submit a body 1
             -> commit 1: put #1 at 0s: a body 1: queued
        -  1s    submit a body 2
        -2 1s    submit a body 1 key k
        +  1s    submit a body 1
             -> reply submitted a #1 known
        +2 1s    submit a body 2
        +2   -> reply refused id-conflict a
    ";
    breaks(S6, "the submit of a is answered with a, another job", &[history]);
}

#[test]
fn s6_the_same_job_is_refused_as_another() {
    let history = "
           0s    submit a body 1 key k
             -> commit 1: put #1 at 0s: a body 1 key k: queued
        -  1s    submit a body 1 key k
        -2 1s    submit [b body 2; a body 1 key k]
        -3 1s    submit [a body 1 key k; a body 1 key k]
        -4 1s    submit b body 2
        +  1s    submit a body 2 key k
        +2 1s    submit [b body 1; a body 2 key k]
        +3 1s    submit [a body 1 key k; a body 2 key k]
             -> reply refused id-conflict a
    ";
    breaks(S6, "the submit of a is refused, but it is the same job", &[history]);
    let history = "
           0s    submit a body 1 key k
             -> commit 1: put #1 at 0s: a body 1 key k: queued
        -  1s    submit b body 1 key k
        -2 1s    submit [b body 2; c body 2 key l; d body 1 key k]
        -3 1s    submit [b body 1 key k; c body 1 key k]
        -4 1s    submit b body 2 key l
        -5 1s    submit b body 2 key k queue other
        +  1s    submit b body 2 key k
        +2 1s    submit [b body 1; c body 1 key l; d body 2 key k]
        +3 1s    submit [b body 1 key k; c body 2 key k]
             -> reply refused key-conflict k of a
    ";
    let what = "a submit with the key of a is refused, but it is no conflict";
    breaks(S6, what, &[history]);
}

#[test]
fn s6_a_submit_is_answered_with_the_number_of_another_job() {
    let history = "
          0s    submit [a; b]
            -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b: queued
        -   -> reply submitted [a #1 new; b #1 new]
        -2  -> reply submitted [a #1 new; a #2 new]
        -3  -> reply submitted [a #1 new; a #1 known]
        +   -> reply submitted [a #1 new; b #2 new]
    ";
    breaks(S6, "the submit of b is answered with", &[history]);
}

#[test]
fn s9_an_attempt_is_charged_that_is_not_noted() {
    let what = "a is charged 1 attempts after 0, but 0 more failed";
    let history = r#"
           0s    submit b
             -> commit 3: put #2 at 0s: b: queued
           1s    w1 runs a.1 failed
        -    -> commit 4: write a scheduled fence 1 charged 1 due 2s
        -2   -> commit 4: note attempt a.1 by w1 snoozed, write a scheduled fence 1 charged 1 due 2s
        -3   -> commit 4: note attempt a.1 by w1 interrupted, write a scheduled fence 1 charged 1 due 2s
        -4   -> commit 4: note attempt a.1 by w1 lost-among-others, write a scheduled fence 1 charged 1 due 2s
        -5   -> commit 4: note attempt b.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s
        -6   -> commit 4: note attempt a.1 by w1 failed "x"
        -6   -> commit 5: write a scheduled fence 1 charged 1 due 2s
        +    -> commit 4: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s
    "#;
    breaks(S9, what, &[OWNED, history]);
}

#[test]
fn s9_a_failure_is_noted_that_was_none() {
    let history = r#"
        -2 1s    w1 starts a.1
        -3 1s    w1 runs a.1 finished
        -4 1s    w1 runs a.1 snoozed
        -5 1s    w1 starts a.1
        -5 1s    w1 stops a.1 drained
        -5 1s    w1 ends a.1 stopped
        +  1s    w1 runs a.1 failed
        # It was given up as too slow.
        +2 1s    w1 starts a.1
        +2 1s    w1 stops a.1 timed-out
        +2 1s    w1 ends a.1 stopped
        # Whatever became of it, this is what is said.
           1s    w1: report a.1 failed again "x"
             -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s
    "#;
    breaks(S9, "a.1 is charged as a failure, but it did not fail", &[OWNED, history]);
}

#[test]
fn s9_the_failure_of_an_older_run_is_charged() {
    let before = "
           9s    w1 starts a.1
           9s    w1 pauses
    ";
    let after = r#"
        -  11s   w1 resumes
        -  11s   w1 ends a.1 failed
        -  11s   w2: report a.3 failed again "x"
        +  11s   w2 runs a.3 failed
             -> commit 5: note attempt a.3 by w2 failed "x", write a scheduled fence 3 charged 2 due 13s
    "#;
    let what = "a.3 is charged as a failure, but it did not fail";
    breaks(S9, what, &[OWNED, before, LOST, after]);
}

#[test]
fn s9_one_failure_is_charged_twice() {
    let what = "a is charged 2 attempts after 0, but 1 more failed";
    let history = r#"
           1s    w1 runs a.1 failed
        -    -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 2 due 2s
        -2   -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s, write a queued fence 1 charged 2
        +    -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s
        +2   -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s, write a queued fence 1 charged 1
    "#;
    breaks(S9, what, &[OWNED, history]);
}

#[test]
fn s9_the_failure_of_one_run_is_charged_twice() {
    let history = r#"
           1s    w1 runs a.1 failed
        -2   -> commit 3: note attempt a.1 by w1 failed "x", note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 2 due 5s
        -    -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s
        +    -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s
        -    -> commit 4: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 2 due 5s
        +  3s    tick
        +    -> commit 4: lease 2 w1 claimed a.2 at 3s
        +  3s    w1 runs a.2 failed
        +    -> commit 5: note attempt a.2 by w1 failed "x", write a scheduled fence 2 charged 2 due 5s
    "#;
    breaks(S9, "the failure of a.1 is charged twice", &[OWNED, history]);
}

const NOT_TO_PAY: &str =
    "a is charged for a worker that was not lost, or whose loss is charged to another job";

#[test]
fn s9_a_job_is_charged_for_a_worker_that_was_not_lost() {
    let history = "
           10s   tick
        -  10s   w1: report a.1 interrupted
        -    -> commit 3: note attempt a.1 by w1 lost-alone, write a queued fence 2 charged 1
        # Somebody else was lost, or it was lost before.
        -2 10s   w1: report a.1 interrupted
        -2   -> commit 3: note lost w2 with 1, note attempt a.1 by w1 lost-alone, write a queued fence 2 charged 1
        -3   -> commit 3: note lost w1 with 1
        -3   -> commit 4: note attempt a.1 by w1 lost-alone, write a queued fence 2 charged 1, lease 2 nobody lost-by w1 a.2 at 10s
        +    -> commit 3: note lost w1 with 1, note attempt a.1 by w1 lost-alone, write a queued fence 2 charged 1, lease 2 nobody lost-by w1 a.2 at 10s
    ";
    breaks(S9, NOT_TO_PAY, &[OWNED, history]);
}

#[test]
fn s9_two_jobs_are_charged_for_one_worker() {
    let history = "
           0s    submit b
           0s    w2: hello new slots 1 want 1
        -    -> commit 3: put #2 at 0s: b: queued, lease 2 w1 claimed b.1 at 0s
        +    -> commit 3: put #2 at 0s: b: queued, lease 2 w1 claimed b.1 at 0s
        +2   -> commit 3: put #2 at 0s: b: queued, lease 2 w2 claimed b.1 at 0s
           10s   tick
        -    -> commit 4: note lost w1 with 2, note attempt a.1 by w1 lost-alone, note attempt b.1 by w1 lost-alone, write a queued fence 2 charged 1, write b queued fence 2 charged 1, lease 3 nobody lost-by w1 [a.2 b.2] at 10s
        +    -> commit 4: note lost w1 with 2, note attempt a.1 by w1 lost-among-others, note attempt b.1 by w1 lost-among-others, write a queued fence 2, write b queued fence 2, lease 3 nobody lost-by w1 [a.2 b.2] at 10s
        +2   -> commit 4: note lost w1 with 1, note lost w2 with 1, note attempt a.1 by w1 lost-alone, note attempt b.1 by w2 lost-alone, write a queued fence 2 charged 1, write b queued fence 2 charged 1, lease 3 nobody lost-by w1 a.2 at 10s, lease 4 nobody lost-by w2 b.2 at 10s
    ";
    breaks(S9, NOT_TO_PAY, &[OWNED, history]);
}

#[test]
fn s9_a_failure_is_not_charged() {
    let what = "a is charged 0 attempts after 0, but 1 more failed";
    let history = r#"
           1s    w1 runs a.1 failed
        -    -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 due 2s
        +    -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s
    "#;
    breaks(S9, what, &[OWNED, history]);
    let history = "
           10s   tick
        -    -> commit 3: note lost w1 with 1, note attempt a.1 by w1 lost-alone, write a queued fence 2 suspicions 1, lease 2 nobody lost-by w1 a.2 at 10s
        +    -> commit 3: note lost w1 with 1, note attempt a.1 by w1 lost-alone, write a queued fence 2 charged 1 suspicions 1, lease 2 nobody lost-by w1 a.2 at 10s
    ";
    breaks(S9, what, &[OWNED, history]);
}

#[test]
fn s9_a_charge_is_forgotten() {
    let history = "
           12s   w2 runs a.3 snoozed
        -    -> commit 5: note attempt a.3 by w2 snoozed, write a scheduled fence 3 due 13s
        +    -> commit 5: note attempt a.3 by w2 snoozed, write a scheduled fence 3 charged 1 due 13s
    ";
    breaks(S9, "a is charged 0 attempts after 1, but 0 more failed", &[OWNED, LOST, history]);
}

#[test]
fn s9_a_retry_gives_back_all_attempts() {
    let history = r#"
           12s   w2 runs a.3 failed for-good
             -> commit 5: note attempt a.3 by w2 failed "x", write a dead fence 3 charged 2 suspicions 1
           13s   retry a
        -    -> commit 6: note act retry a by -, write a queued fence 4 charged 1
        +    -> commit 6: note act retry a by -, write a queued fence 4
    "#;
    breaks(S9, "a is retried with 1 attempts charged", &[OWNED, LOST, history]);
}

#[test]
fn s9_a_job_is_dead_and_has_attempts_left() {
    let history = r#"
        -  12s   w2 runs a.3 stopped
        -    -> commit 5: write a dead fence 3 charged 1 suspicions 1 because failed
        -2 12s   w2 runs a.3 snoozed
        -2   -> commit 5: note attempt a.3 by w2 snoozed, write a dead fence 3 charged 1 suspicions 1
        -3 12s   w2 runs a.3 failed
        -3   -> commit 5: note attempt a.3 by w2 failed "x", write a dead fence 3 charged 2 suspicions 1
        # To try again cannot help.
        +  12s   w2 runs a.3 failed for-good
        +    -> commit 5: note attempt a.3 by w2 failed "x", write a dead fence 3 charged 2 suspicions 1
        +2 12s   w2 starts a.3
        +2 12s   w2 ends a.3 failed
        +2 12s   w2: hello resume slots 1 want 1 reports a.3 failed for-good "x"
        +2   -> commit 5: note attempt a.3 by w2 failed "x", write a dead fence 3 charged 2 suspicions 1
    "#;
    breaks(S9, "a is written as dead after ", &[OWNED, LOST, history]);
}

#[test]
fn s9_a_job_is_dead_and_has_not_failed() {
    let history = r#"
        -  10s   w1 runs a.1 stopped
        -    -> commit 3: write a dead fence 1 because failed
        # It has failed before.
        -2 10s   w1 runs a.1 failed
        -2   -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 11s
        -2   -> commit 4: write a dead fence 1 charged 1
        +  10s   w1 runs a.1 failed
        +    -> commit 3: note attempt a.1 by w1 failed "x", write a dead fence 1 charged 1
        # It has taken its worker with it.
        +2 10s   tick
        +2   -> commit 3: note lost w1 with 1, note attempt a.1 by w1 lost-alone, write a dead fence 2 charged 1, lease 2 nobody lost-by w1 a.2 at 10s
    "#;
    breaks(S9, "a is written as dead after ", &[OWNED_ONCE, history]);
}

#[test]
fn s9_more_attempts_than_there_are() {
    let history = r#"
        -  0s    submit a attempts 1
        -    -> commit 1: put #1 at 0s: a attempts 1: queued
        +  0s    submit a attempts 2
        +    -> commit 1: put #1 at 0s: a attempts 2: queued
           0s    w1: hello new slots 1 want 1
             -> commit 2: lease 1 w1 claimed a.1 at 0s
           0s    w1 runs a.1 failed
             -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 1s
           1s    tick
             -> commit 4: lease 2 w1 claimed a.2 at 1s
           1s    w1 runs a.2 failed
             -> commit 5: note attempt a.2 by w1 failed "x", write a dead fence 2 charged 2
    "#;
    breaks(S9, "a is charged 2 of 1 attempts", &[history]);
}

#[test]
fn s9_a_job_starts_twice_under_one_fence() {
    let history = "
           1s    w1 starts a.1
           2s    w1 ends a.1 stopped
        -  3s    w1 starts a.1
        +  3s    w1: report a.1 dropped
        +    -> commit 3: lease 2 nobody returned-by w1 a.2 at 3s, lease 3 w1 claimed a.3 at 3s
        +  3s    w1 starts a.3
    ";
    breaks(S9, "a.1 starts twice", &[OWNED, history]);
}

#[test]
fn s9_a_run_is_lost_with_its_worker_and_not_suspected() {
    let what = "a was running when its worker was lost, but is not suspected";
    let history = "
        -  0s    w1 starts a.1
        +2 0s    w1 starts a.1
           9s    w1 pauses
           10s   tick
        -    -> commit 3: note lost w1 with 1, lease 2 nobody lost-by w1 a.2 at 10s
        # It had not started.
        +    -> commit 3: note lost w1 with 1, lease 2 nobody lost-by w1 a.2 at 10s
        +2   -> commit 3: note lost w1 with 1, write a queued fence 2 suspicions 1, lease 2 nobody lost-by w1 a.2 at 10s
    ";
    breaks(S9, what, &[OWNED, history]);
}

#[test]
fn s9_an_older_suspicion_does_not_count_again() {
    let what = "a was running when its worker was lost, but is not suspected";
    let history = "
           11s   w2 starts a.3
           19s   w2 pauses
           20s   tick
        -    -> commit 5: note lost w2 with 1, write a queued fence 4 charged 1 suspicions 1, lease 4 nobody lost-by w2 a.4 at 20s
        +    -> commit 5: note lost w2 with 1, write a queued fence 4 charged 1 suspicions 2, lease 4 nobody lost-by w2 a.4 at 20s
    ";
    breaks(S9, what, &[OWNED, LOST, history]);
}
