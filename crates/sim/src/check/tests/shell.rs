//! S17: acts of operators. S11: waits that are too long.

use super::{OWNED, breaks};
use crate::check::Rule::{S11, S17};

#[test]
fn s17_a_change_is_acknowledged_before_it_is_stored() {
    let history = "
           1s    r1 set-queue default pause
        +    -> commit 3: queue default paused
             -> reply r1 done
    ";
    breaks(S17, "is acknowledged, but not stored", &[OWNED, history]);
    let history = "
           1s    r1 set-priority a 3
        +    -> commit 3: priority a 3
             -> reply r1 done
    ";
    breaks(S17, "is acknowledged, but not stored", &[OWNED, history]);
}

#[test]
fn s11_a_second_attempt_is_due_too_late() {
    let history = r#"
           1s    w1 runs a.1 failed
        -    -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2001ms
        +    -> commit 3: note attempt a.1 by w1 failed "x", write a scheduled fence 1 charged 1 due 2s
    "#;
    breaks(S11, "later than its policy allows", &[OWNED, history]);
}
