//! Queues of ready jobs, and which of them a worker is served from next.
//!
//! Queues with available work are in one index, ordered by standing, so that the next queue is
//! found without searching the others. This file chooses queues and their first jobs; `claim`
//! decides which worker becomes the owner.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::strategy::{Standing, Turns, charge, join, standing};
use super::worker::{Served, Waiter};
use crate::id::Seq;
use crate::name::Name;
use crate::record::{QueueSettings, Strategy};
use crate::state::JobState;

/// A named queue of ready jobs.
pub(crate) struct Queue {
    pub(crate) settings: QueueSettings,
    /// Jobs in memory that belong to it, in whatever state.
    pub(crate) jobs: u32,
    /// Jobs that count against its limit: owned, or cancelled and not yet let go of.
    pub(crate) owned: u32,
    /// How many of those are leased, and not known to have started.
    pub(crate) leased: u32,
    /// How many of them there may be: the limit, or as many as there were when the limit was
    /// lowered.
    ceiling: u32,
    /// How many workers name it.
    pub(crate) named_by: u32,
    /// Workers that name it and would take a job.
    pub(crate) waiters: BTreeSet<Waiter>,
    ready: BTreeSet<(i64, Seq)>,
    /// Ready jobs of which a worker may hold only one.
    ready_solo: BTreeSet<(i64, Seq)>,
    turns: Turns,
    standing: Option<Standing>,
    fresh: bool,
}

impl Queue {
    fn new(name: Name) -> Self {
        Self {
            settings: QueueSettings::new(name),
            jobs: 0,
            owned: 0,
            leased: 0,
            ceiling: u32::MAX,
            named_by: 0,
            waiters: BTreeSet::new(),
            ready: BTreeSet::new(),
            ready_solo: BTreeSet::new(),
            turns: Turns::default(),
            standing: None,
            fresh: false,
        }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.settings.limit.is_some()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.settings.limit.is_none_or(|limit| self.owned < limit)
    }

    fn lower_ceiling(&mut self) {
        let limit = self.settings.limit.unwrap_or(u32::MAX);
        self.ceiling = limit.max(self.owned.min(self.ceiling));
    }

    pub(crate) fn ready_count(&self) -> usize {
        self.ready.len() + self.ready_solo.len()
    }

    /// Ready jobs: first those of which a worker may hold any number, in order, then those of which
    /// it may hold only one, in order.
    pub(crate) fn ready_jobs(&self) -> impl Iterator<Item = Seq> {
        self.ready.iter().chain(&self.ready_solo).map(|&(_, seq)| seq)
    }

    fn first(&self, solo: Solo) -> Option<(i64, Seq)> {
        let plain = self.ready.first().copied();
        let alone = match solo {
            Solo::Allowed => self.ready_solo.first().copied(),
            Solo::Refused => None,
        };
        match (plain, alone) {
            (Some(plain), Some(alone)) => Some(plain.min(alone)),
            (first, None) | (None, first) => first,
        }
    }

    fn is_unused(&self) -> bool {
        let is_untouched = || self.settings == QueueSettings::new(self.settings.queue.clone());
        self.jobs == 0 && self.named_by == 0 && is_untouched()
    }
}

/// Whether a worker may get a job of which it may hold only one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Solo {
    /// It holds none yet.
    Allowed,
    /// It holds one already.
    Refused,
}

/// Which jobs a worker may get now.
#[derive(Clone, Copy)]
pub(crate) struct Fit {
    /// It may get jobs of queues with a limit.
    pub(crate) limited: bool,
    pub(crate) solo: Solo,
}

/// All queues.
pub(crate) struct Queues {
    queues: Vec<Option<Queue>>,
    numbers: BTreeMap<Name, u32>,
    free: Vec<u32>,
    strategy: Strategy,
    /// Queues with available work, by standing.
    open: BTreeSet<(Standing, u32)>,
    /// How many queues have a limit.
    limited: u32,
    services: u64,
    level: u64,
    /// Queues in which a job became ready and that have not been offered to workers since.
    fresh: Vec<u32>,
}

impl Queues {
    pub(crate) const fn new(strategy: Strategy) -> Self {
        Self {
            queues: Vec::new(),
            numbers: BTreeMap::new(),
            free: Vec::new(),
            strategy,
            open: BTreeSet::new(),
            limited: 0,
            services: 0,
            level: 0,
            fresh: Vec::new(),
        }
    }

    pub(crate) const fn strategy(&self) -> Strategy {
        self.strategy
    }

    pub(crate) fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Whether any queue has a limit.
    pub(crate) const fn has_limits(&self) -> bool {
        self.limited > 0
    }

    pub(crate) fn get(&self, number: u32) -> &Queue {
        self.queues[number as usize].as_ref().expect("a queue number in use")
    }

    /// For fields that do not affect the standing: job counts and waiting workers.
    pub(crate) fn get_mut(&mut self, number: u32) -> &mut Queue {
        self.queues[number as usize].as_mut().expect("a queue number in use")
    }

    pub(crate) fn number(&self, name: &Name) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn number_or_new(&mut self, name: &Name) -> u32 {
        if let Some(number) = self.number(name) {
            return number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.queues.push(None);
            u32::try_from(self.queues.len() - 1).expect("fewer queues than 32 bits")
        });
        self.queues[number as usize] = Some(Queue::new(name.clone()));
        self.numbers.insert(name.clone(), number);
        number
    }

    /// Removes a queue that has no jobs and no settings, and that no worker names.
    pub(crate) fn forget_if_unused(&mut self, number: u32) {
        if self.get(number).is_unused() {
            let name = self.get(number).settings.queue.clone();
            self.numbers.remove(&name);
            self.fresh.retain(|&other| other != number);
            self.queues[number as usize] = None;
            self.free.push(number);
        }
    }

    pub(crate) fn insert(&mut self, number: u32, rank: i64, seq: Seq, is_solo: bool) {
        let queue = self.get_mut(number);
        let line = if is_solo { &mut queue.ready_solo } else { &mut queue.ready };
        assert!(line.insert((rank, seq)), "a job is ready in its queue once");
        self.freshen(number);
        self.stand(number);
    }

    pub(crate) fn remove(&mut self, number: u32, rank: i64, seq: Seq, is_solo: bool) {
        let queue = self.get_mut(number);
        let line = if is_solo { &mut queue.ready_solo } else { &mut queue.ready };
        assert!(line.remove(&(rank, seq)), "a queued job is in its queue");
        self.stand(number);
    }

    /// One more job of the queue counts against its limit.
    pub(crate) fn own(&mut self, number: u32, state: JobState) {
        let queue = self.get_mut(number);
        queue.owned += 1;
        queue.leased += u32::from(state == JobState::Leased);
        self.stand(number);
    }

    /// One job of the queue fewer counts against its limit.
    pub(crate) fn disown(&mut self, number: u32, state: JobState) {
        let queue = self.get_mut(number);
        queue.owned -= 1;
        queue.leased -= u32::from(state == JobState::Leased);
        if queue.is_limited() {
            self.freshen(number);
        }
        self.stand(number);
    }

    pub(crate) fn set(&mut self, settings: QueueSettings) {
        let number = self.number_or_new(&settings.queue);
        self.limited -= u32::from(self.get(number).is_limited());
        self.limited += u32::from(settings.limit.is_some());
        let queue = self.get_mut(number);
        queue.settings = settings;
        queue.ceiling = u32::MAX;
        queue.lower_ceiling();
        self.freshen(number);
        self.stand(number);
        self.forget_if_unused(number);
    }

    /// Changes the strategy. `rank` gives each job's rank under it.
    pub(crate) fn set_strategy(&mut self, strategy: Strategy, rank: impl Fn(Seq) -> i64) {
        self.strategy = strategy;
        for number in self.numbers.values() {
            let queue = self.queues[*number as usize].as_mut().expect("a queue number in use");
            for line in [&mut queue.ready, &mut queue.ready_solo] {
                *line = line.iter().map(|&(_, seq)| (rank(seq), seq)).collect();
            }
        }
        for number in self.numbers.values().copied().collect::<Vec<_>>() {
            self.stand(number);
        }
    }

    /// The queue that a worker is served from next, and the job it gets.
    pub(crate) fn next(&self, served: &Served, fit: Fit) -> Option<(u32, Seq)> {
        let fits = |number: u32| {
            let queue = self.get(number);
            let job = queue.first(fit.solo).filter(|_| fit.limited || !queue.is_limited())?;
            Some((number, job.1))
        };
        match served {
            Served::All => self.open.iter().find_map(|&(_, number)| fits(number)),
            Served::Named(numbers) => {
                let open = |&number: &u32| Some((self.get(number).standing?, fits(number)?));
                numbers.iter().filter_map(open).min().map(|(_, next)| next)
            }
        }
    }

    /// Charges the queue for a job that was taken from it in its turn.
    pub(crate) fn charge(&mut self, number: u32) {
        self.services += 1;
        if self.strategy == Strategy::Fair
            && let Some(&((_, charged), _)) = self.open.first()
        {
            self.level = self.level.max(charged);
        }
        let (service, level) = (self.services, self.level);
        let queue = self.get_mut(number);
        queue.turns = charge(queue.turns, queue.settings.weight, service, level);
        self.stand(number);
    }

    pub(crate) fn is_open(&self, number: u32) -> bool {
        self.queues[number as usize].as_ref().is_some_and(|queue| queue.standing.is_some())
    }

    /// Marks a queue in which a job may have become ready.
    fn freshen(&mut self, number: u32) {
        if !core::mem::replace(&mut self.get_mut(number).fresh, true) {
            self.fresh.push(number);
        }
    }

    /// Takes a queue in which a job may have become ready since it was last offered to workers.
    pub(crate) fn pop_fresh(&mut self) -> Option<u32> {
        let number = self.fresh.pop()?;
        let queue = self.get_mut(number);
        queue.fresh = false;
        // Only now: a steal disowns a job for a moment, and owns it again.
        queue.lower_ceiling();
        Some(number)
    }

    /// How many ready jobs of the queue come before this one, counted up to `most`.
    pub(crate) fn ahead(&self, number: u32, rank: i64, seq: Seq, most: usize) -> usize {
        let queue = self.get(number);
        let before = ..(rank, seq);
        queue.ready.range(before).chain(queue.ready_solo.range(before)).take(most).count()
    }

    /// Every queue with its number, by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Queue)> {
        self.numbers.values().map(|&number| (number, self.get(number)))
    }

    /// Jobs that were owned when the server ended stay owned, whatever the limits are by now.
    pub(crate) fn accept_loaded(&mut self) {
        for queue in self.queues.iter_mut().flatten() {
            queue.ceiling = u32::MAX;
            queue.lower_ceiling();
        }
    }

    /// Updates the queue's place among the open ones.
    fn stand(&mut self, number: u32) {
        let strategy = self.strategy;
        let queue = self.queues[number as usize].as_mut().expect("a queue number in use");
        let first = queue.first(Solo::Allowed).filter(|_| !queue.settings.paused);
        let now = first.filter(|_| queue.has_room()).map(|first| {
            if queue.standing.is_none() {
                queue.turns = join(queue.turns, self.services, self.level);
            }
            standing(strategy, first, queue.turns)
        });
        let before = core::mem::replace(&mut queue.standing, now);
        if before != now {
            if let Some(before) = before {
                self.open.remove(&(before, number));
            }
            if let Some(now) = now {
                self.open.insert((now, number));
            }
        }
    }
}

/// The invariants of the queues by themselves; `audit` compares them with the jobs.
impl Queues {
    pub(crate) fn audit(&self) -> Result<(), &'static str> {
        let mut open = BTreeSet::new();
        for (number, queue) in self.iter() {
            let takes = !queue.settings.paused && queue.has_room();
            let first = queue.first(Solo::Allowed).filter(|_| takes);
            let now = first.map(|first| standing(self.strategy, first, queue.turns));
            if now != queue.standing {
                return Err("a queue's standing is that of its first job");
            }
            open.extend(now.map(|now| (now, number)));
            if queue.owned > queue.ceiling {
                return Err("no more jobs are owned than the queue's limit allows");
            }
        }
        let limited = self.iter().filter(|(_, queue)| queue.is_limited()).count();
        if limited != self.limited as usize {
            return Err("queues with a limit are counted");
        }
        if open != self.open {
            return Err("the open queues are those with work that may be taken");
        }
        Ok(())
    }

    /// Whether this job is among the queue's ready ones.
    pub(crate) fn contains(&self, number: u32, rank: i64, seq: Seq, is_solo: bool) -> bool {
        let queue = self.get(number);
        let line = if is_solo { &queue.ready_solo } else { &queue.ready };
        line.contains(&(rank, seq))
    }
}
