//! Random events through `dispatch` and several `agent`s, with an audit after each; and the same world
//! with the server ending at every commit.

use filch_scheduler::id::CommitNo;
use proptest::prelude::*;

use crate::world::{Step, World};

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(any::<Step>(), 1..most)
}

fn live_through(seed: u64, steps: &[Step], crash_at: Option<CommitNo>) -> World {
    let mut world = World::new(seed);
    world.crash_at = crash_at;
    for &step in steps {
        world.step(step);
    }
    world.heal();
    world.check_outcomes();
    world
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Whatever happens, nothing is ever wrong; and when it stops, every job ends.
    #[test]
    fn anything_may_happen(seed in 0_u64..1 << 32, steps in steps(160)) {
        let world = live_through(seed, &steps, None);
        prop_assert!(world.starts > 0 || world.keeping.jobs.is_empty() || world.crashes > 0 || !steps.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// The server ends right after each of its commits in turn, is built again from what was kept, and
    /// goes on.
    #[test]
    fn the_server_may_end_at_every_commit(seed in 0_u64..1 << 32, steps in steps(70)) {
        let commits = live_through(seed, &steps, None).keeping.commit.0;
        for at in 1..=commits {
            live_through(seed, &steps, Some(CommitNo(at)));
        }
    }
}
