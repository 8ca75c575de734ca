//! The search order, step by step, in a pool without threads: a test puts tasks where it likes, and
//! calls what a worker would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
#[cfg(feature = "net")]
use std::task::{Wake, Waker};
#[cfg(feature = "net")]
use std::time::Instant;

use super::*;
use crate::builder::PoolBuilder;
use crate::protocol::ring::{CAPACITY, STEAL_MAX};
use crate::random::Random;
use crate::shared_queue::Priority;
use crate::two_workers::{TwoWorkers, wait_until};

/// What was run, in order.
#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn task(&self, name: impl Into<String>) -> Task {
        let (this, name) = (self.clone(), name.into());
        Task::new(move || this.0.lock().unwrap().push(name))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

#[cfg(feature = "net")]
/// A future, as far as the reactor is concerned: its waker queues it on the calling worker.
struct Sleeper(Journal);

#[cfg(feature = "net")]
impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        current::with(|local| local.unwrap().ready(self.0.task("awoken")));
    }
}

fn core(builder: PoolBuilder) -> Arc<Core> {
    Core::new(builder.settings().unwrap())
}

fn pair() -> Arc<Core> {
    core(PoolBuilder::default().threads(2))
}

/// Runs what the worker finds until it finds nothing.
fn exhaust(local: &Local<'_>) {
    while let Some(work) = local.find() {
        local.execute(work);
    }
}

#[cfg(feature = "net")]
#[test]
fn places_are_searched_in_the_documented_order() {
    let journal = Journal::default();
    let brought = journal.clone();
    let hook = move || {
        let mut journal = brought.0.lock().unwrap();
        let is_first = !journal.contains(&"idle hook".to_owned());
        journal.push("idle hook".to_owned());
        drop(journal);
        let task = brought.task("brought by the hook");
        current::with(|local| is_first.then(|| local.unwrap().spawn(task))).is_some()
    };
    let core = core(PoolBuilder::default().threads(2).idle_hook(hook));
    core.monitor.disable();
    let (local, other) = (Local::new(&core, 0), Local::new(&core, 1));
    let awoken = Waker::from(Arc::new(Sleeper(journal.clone())));
    core.make_reactor().unwrap().add_timer(Instant::now(), awoken).unwrap();
    // In reverse, so that it cannot be the order in which they were added.
    core.shared_queue.push(journal.task("not urgent"), Priority::Low).unwrap();
    other.shared.next.replace(journal.task("next of another"));
    other.shared.tasks.push(journal.task("open at another"));
    core.shared_queue.push(journal.task("shared"), Priority::Normal).unwrap();
    local.shared.tasks.push(journal.task("own"));
    local.shared.next.replace(journal.task("next"));
    core.shared_queue.push(journal.task("urgent"), Priority::High).unwrap();
    current::enter(&local, || exhaust(&local));
    let expected = [
        "urgent",
        "next",
        "own",
        "shared",
        "awoken",
        "open at another",
        "next of another",
        "not urgent",
        "idle hook",
        "brought by the hook",
        "idle hook",
    ];
    assert_eq!(journal.take(), expected);
}

#[test]
fn forks_of_a_victim_are_stolen_before_its_tasks() {
    let journal = Journal::default();
    let core = pair();
    let victim = Local::new(&core, 1);
    victim.shared.tasks.push(journal.task("task"));
    let write = |name: &str| journal.0.lock().unwrap().push(name.to_owned());
    let steal = || {
        let thief = Local::new(&core, 0);
        current::enter(&thief, || exhaust(&thief));
    };
    // The fork is exposed at once, because work is requested from its owner from the start.
    current::enter(&victim, || crate::join(steal, || write("fork")));
    assert_eq!(journal.take(), ["fork", "task"]);
}

#[test]
fn the_shared_queue_comes_first_on_every_61st_turn() {
    let journal = Journal::default();
    let core = pair();
    let local = Local::new(&core, 0);
    for turn in 1..=4 * FAIRNESS {
        core.shared_queue.push(journal.task("shared"), Priority::Normal).unwrap();
        local.shared.next.replace(journal.task("next"));
        local.streak.set(0);
        local.execute(local.find().unwrap());
        let expected = if turn.is_multiple_of(FAIRNESS) { "shared" } else { "next" };
        assert_eq!(journal.take(), [expected], "turn {turn}");
        drop(local.shared.next.take());
        while core.shared_queue.pop_any(false).is_some() {}
    }
}

#[test]
fn low_priority_does_not_starve() {
    let journal = Journal::default();
    let core = pair();
    let local = Local::new(&core, 0);
    core.shared_queue.push(journal.task("not urgent"), Priority::Low).unwrap();
    let turns = (1..).find(|_| {
        core.shared_queue.push(journal.task("normal"), Priority::Normal).unwrap();
        local.execute(local.find().unwrap());
        journal.take() == ["not urgent"]
    });
    assert_eq!(turns, Some(2 * FAIRNESS));
}

#[test]
fn the_next_slot_yields_after_three_in_a_row() {
    let journal = Journal::default();
    let core = pair();
    let local = Local::new(&core, 0);
    (0..3).for_each(|_| local.push_task(journal.task("own")));
    for _ in 0..12 {
        if local.shared.next.is_empty() {
            local.shared.next.replace(journal.task("next"));
        }
        local.execute(local.find().unwrap());
    }
    let own_at: Vec<_> = journal
        .take()
        .iter()
        .enumerate()
        .filter(|(_, name)| *name == "own")
        .map(|(at, _)| at)
        .collect();
    assert_eq!(own_at, [3, 7, 11]);
}

/// How many tasks a theft takes if that many are exposed.
fn batch(steal: StealPolicy, there: usize) -> u64 {
    let journal = Journal::default();
    let core = core(PoolBuilder::default().threads(2).steal(steal));
    let (local, other) = (Local::new(&core, 0), Local::new(&core, 1));
    (0..there).for_each(|number| other.shared.tasks.push(journal.task(number.to_string())));
    let first = local.steal_tasks(1);
    let stolen = local.shared.counters.stolen.get();
    assert_eq!(local.shared.counters.steals.get(), u64::from(stolen > 0));
    assert_eq!(other.shared.counters.stolen_from.get(), stolen);
    assert_eq!(other.shared.tasks.len(), there - usize::try_from(stolen).unwrap());
    // The oldest are stolen, and the oldest of them runs first.
    first.into_iter().for_each(Task::run);
    while let Some(task) = local.pop_task() {
        task.run();
    }
    assert_eq!(journal.take(), (0..stolen).map(|number| number.to_string()).collect::<Vec<_>>());
    stolen
}

#[test]
fn a_theft_takes_half_rounded_up_and_at_most_32() {
    let halves = [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (63, 32), (64, 32), (65, 32)];
    for (there, taken) in halves {
        assert_eq!(batch(StealPolicy::Half, there), taken, "of {there}");
    }
    assert_eq!(batch(StealPolicy::Half, CAPACITY), STEAL_MAX as u64);
    for there in [0, 1, 2, 100] {
        assert_eq!(batch(StealPolicy::One, there), u64::from(there > 0), "of {there}");
    }
}

#[test]
fn too_many_tasks_overflow_by_half_to_the_shared_queue() {
    let journal = Journal::default();
    let core = pair();
    let local = Local::new(&core, 0);
    let mut number = 0..;
    let mut fill = |count: usize| {
        number
            .by_ref()
            .take(count)
            .for_each(|number| local.push_task(journal.task(number.to_string())));
    };
    fill(CAPACITY);
    assert_eq!((local.shared.tasks.len(), core.shared_queue.len()), (CAPACITY, 0));
    fill(1);
    assert_eq!(
        (local.shared.tasks.len(), core.shared_queue.len()),
        (CAPACITY / 2 + 1, CAPACITY / 2)
    );
    assert_eq!(local.shared.counters.overflowed.get(), CAPACITY as u64 / 2);
    // The oldest, and in order.
    (0..2).for_each(|_| core.shared_queue.pop_any(false).unwrap().run());
    local.pop_task().unwrap().run();
    assert_eq!(journal.take(), ["0".to_owned(), "1".to_owned(), (CAPACITY / 2).to_string()]);
    local.discard();
}

#[test]
fn every_other_worker_is_searched_once_and_each_equally_often_first() {
    for threads in 2..=9 {
        let core = core(PoolBuilder::default().threads(threads));
        for index in 0..threads {
            let random = Random::new(index as u64);
            let mut firsts = BTreeMap::new();
            for _ in 0..10_000 {
                let victims: Vec<_> = core.others(index, &random).collect();
                let different: BTreeSet<_> = victims.iter().copied().collect();
                assert_eq!(different.len(), threads - 1);
                assert!(victims.len() == threads - 1 && !different.contains(&index));
                *firsts.entry(victims[0]).or_insert(0) += 1;
            }
            let fair = 10_000 / (threads - 1);
            for (victim, count) in firsts {
                let is_fair = (fair * 85 / 100..=fair * 115 / 100).contains(&count);
                assert!(is_fair, "{index} looked {count} of 10,000 times at {victim} of {threads}");
            }
        }
    }
}

#[test]
fn a_loaded_worker_pushes_no_work_to_others() {
    let journal = Journal::default();
    let core = pair();
    let (local, other) = (Local::new(&core, 0), Local::new(&core, 1));
    (0..100).for_each(|_| local.spawn(journal.task("task")));
    assert!(
        other.shared.next.is_empty()
            && other.shared.tasks.is_empty()
            && other.shared.forks.is_empty()
    );
    assert!(core.shared_queue.is_empty());
    local.discard();
}

/// Between stealing a fork and publishing it, a thief can be held up for long.
#[test]
fn a_worker_that_sleeps_before_its_stolen_fork_is_published_is_woken() {
    let pair = TwoWorkers::new();
    let is_taken = AtomicBool::new(false);
    let owner = |_: &Local<'_>| {
        crate::join(|| wait_until(|| is_taken.load(SeqCst)), || pair.run_two_leaves());
    };
    let thief = |local: &Local<'_>| {
        let mut looks = std::iter::repeat_with(|| Stolen::take(local, 0, |_| true));
        let fork = looks.find_map(|fork| fork).expect("there will be one");
        is_taken.store(true, SeqCst);
        pair.until_waiting(0);
        local.run_fork(fork);
    };
    pair.run(&owner, &thief);
}

/// A thread that adds tasks while a worker searches wakes no other, and relies on that one, which
/// finds them only when it is about to sleep.
#[test]
fn a_worker_that_does_not_sleep_after_all_wakes_the_next() {
    let journal = Journal::default();
    let core = pair();
    let (local, other) = (Local::new(&core, 0), Local::new(&core, 1));
    core.sleep.announce_sleep(other.index, false);
    assert!(local.search().is_none() && local.searching.get());
    (0..2).for_each(|_| core.submit(journal.task("task"), Priority::Normal).unwrap());
    assert_eq!(core.sleep.sleepers(), 1, "the searching worker will find it");
    local.rest();
    assert!(local.find().is_some());
    assert_eq!(core.sleep.sleepers(), 0, "the other was called for what is left");
    local.discard();
    core.shared_queue.close();
}

/// A reserve may be requested at the last moment, also by an external thread or by the monitor.
#[test]
fn no_thread_is_started_that_would_not_be_joined() {
    let core = pair();
    core.close();
    core.join();
    let worker = core.take_slot().expect("there are free slots");
    assert!(!core.start_thread(worker).expect("it was not tried"));
}
