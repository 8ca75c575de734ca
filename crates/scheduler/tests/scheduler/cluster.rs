//! Random events through `dispatch` and several `agent`s, with an audit after each; and the same
//! world with a server crash at every commit.
//!
//! `FILCH_CASES=20000` searches longer than a normal test run does.

use filch_scheduler::dispatch::Counters;
use filch_scheduler::id::CommitNo;
use proptest::prelude::*;

use crate::world::{Step, World};

fn cases(usual: u32) -> ProptestConfig {
    let asked = std::env::var("FILCH_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(usual), ..ProptestConfig::default() }
}

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
    #![proptest_config(cases(2_000))]

    /// Whatever happens, no invariant is violated; and once faults stop, every job ends.
    #[test]
    fn anything_may_happen(seed in 0_u64..1 << 32, steps in steps(160)) {
        live_through(seed, &steps, None);
    }
}

proptest! {
    #![proptest_config(cases(40))]

    /// The server crashes right after each of its commits in turn, is rebuilt from the store, and
    /// continues.
    #[test]
    fn the_server_may_end_at_every_commit(seed in 0_u64..1 << 32, steps in steps(70)) {
        let commits = live_through(seed, &steps, None).store.last_commit().0;
        for at in 1..=commits {
            let world = live_through(seed, &steps, Some(CommitNo(at)));
            prop_assert!(world.crashes > 0);
        }
    }
}

/// A regression that the test above found: if the hello of a worker that believes it holds nothing
/// is lost, the worker must notice that soon, because the server believes that it has jobs.
#[test]
fn a_lost_hello_is_noticed_soon() {
    let steps = [
        (30, 0),
        (153, 41_613),
        (110, 0),
        (148, 45_117),
        (0, 33_532),
        (153, 29_505),
        (149, 44_313),
        (0, 2_488),
    ];
    live_through(0, &steps, None);
}

/// A world without faults proves nothing: all of these events must happen in it.
#[test]
fn all_kinds_of_faults_occur_in_the_test_world() {
    let mut sum = Counters::default();
    let (mut crashes, mut starts) = (0, 0);
    let mut bits = 1_u64;
    for seed in 0..400 {
        let mut world = World::new(seed);
        for _ in 0..150 {
            bits = bits
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            world.step(((bits >> 56) as u8, (bits >> 32) as u16));
        }
        for counters in world.counters() {
            sum.claimed += counters.claimed;
            sum.steals += counters.steals;
            sum.stolen += counters.stolen;
            sum.steals_empty += counters.steals_empty;
            sum.stale += counters.stale;
            sum.repeated += counters.repeated;
            sum.hung_up += counters.hung_up;
            sum.lost += counters.lost;
            sum.gone += counters.gone;
        }
        crashes += world.crashes;
        starts += world.starts;
    }
    let happened = [
        ("claims", sum.claimed),
        ("thefts", sum.steals),
        ("stolen jobs", sum.stolen),
        ("thefts in vain", sum.steals_empty),
        ("stale reports", sum.stale),
        ("repeats", sum.repeated),
        ("gaps", sum.hung_up),
        ("lost workers", sum.lost),
        ("workers gone", sum.gone),
        ("crashes", u64::from(crashes)),
        ("starts", u64::from(starts)),
    ];
    for (what, count) in happened {
        assert!(count >= 10, "too few {what}: {happened:?}");
    }
}
