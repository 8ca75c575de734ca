//! L10: queues take turns.

use super::breaks;
use crate::check::Rule::L10;

/// Three jobs wait in `x` and three in `y`; a worker has one slot.
const TWO_QUEUES: &str = "
    0s    submit [a queue x; b queue x; c queue x; d queue y; e queue y; f queue y]
      -> commit 2: put #1 at 0s: a queue x: queued, put #2 at 0s: b queue x: queued, put #3 at 0s: c queue x: queued, put #4 at 0s: d queue y: queued, put #5 at 0s: e queue y: queued, put #6 at 0s: f queue y: queued
    0s    w1: hello new slots 1 want 1
      -> commit 3: lease 1 w1 claimed a.1 at 0s
      -> tell w1: renewed 1, reconcile lease 10s keep [], assign a.1
    0s    w1 runs a.1 finished
";

#[test]
fn l10_a_queue_is_served_twice_while_another_waits() {
    let strategy = "
           0s    set-strategy round-robin
             -> commit 1: strategy round-robin
    ";
    let history = "
        -    -> commit 4: write a succeeded fence 1, lease 2 w1 claimed b.1 at 0s
        +    -> commit 4: write a succeeded fence 1, lease 2 w1 claimed d.1 at 0s
        # Another strategy.
        +2 0s    set-strategy fifo
        +2   -> commit 4: strategy fifo, write a succeeded fence 1, lease 2 w1 claimed b.1 at 0s
        # The other one is paused.
        +3 0s    set-queue y pause
        +3   -> commit 4: queue y paused, write a succeeded fence 1, lease 2 w1 claimed b.1 at 0s
    ";
    breaks(L10, "queue x is served 2 times while y waits", &[strategy, TWO_QUEUES, history]);
}
