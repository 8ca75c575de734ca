//! Queues of ready jobs, in order.
//!
//! This file keeps each queue's jobs in their order, and the queue in its place among the others.
//! `admission` decides which queue a worker is served from next; `claim` makes the worker the
//! owner.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::admission::{Class, OpenQueues, Places, Room};
use super::strategy::{Turns, charge, join, standing};
use super::worker::Waiter;
use crate::id::Seq;
use crate::name::Name;
use crate::record::{QueueSettings, Strategy};
use crate::state::JobState;

/// A named queue of ready jobs.
pub(crate) struct Queue {
    pub(crate) settings: QueueSettings,
    /// Jobs in memory that belong to it, in whatever state.
    pub(crate) jobs: u32,
    /// What its limit leaves room for.
    pub(crate) room: Room,
    /// How many workers name it.
    pub(crate) named_by: u32,
    /// Workers that name it and would take a job.
    pub(crate) waiters: BTreeSet<Waiter>,
    ready: BTreeSet<(i64, Seq)>,
    /// Ready jobs of which a worker may hold only one.
    ready_solo: BTreeSet<(i64, Seq)>,
    turns: Turns,
    places: Places,
    fresh: bool,
}

impl Queue {
    fn new(name: Name) -> Self {
        Self {
            settings: QueueSettings::new(name),
            jobs: 0,
            room: Room::default(),
            named_by: 0,
            waiters: BTreeSet::new(),
            ready: BTreeSet::new(),
            ready_solo: BTreeSet::new(),
            turns: Turns::default(),
            places: Places::default(),
            fresh: false,
        }
    }

    pub(crate) fn ready_count(&self) -> usize {
        self.ready.len() + self.ready_solo.len()
    }

    /// Ready jobs: first those of which a worker may hold any number, in order, then those of which
    /// it may hold only one, in order.
    pub(crate) fn ready_jobs(&self) -> impl Iterator<Item = Seq> {
        self.ready.iter().chain(&self.ready_solo).map(|&(_, seq)| seq)
    }

    /// The first ready job, with or without those of which a worker may hold only one.
    pub(crate) fn first(&self, with_solo: bool) -> Option<(i64, Seq)> {
        let alone = self.ready_solo.first().filter(|_| with_solo);
        self.ready.first().into_iter().chain(alone).min().copied()
    }

    pub(crate) const fn places(&self) -> Places {
        self.places
    }

    /// Its places by its jobs, its room and its turns so far.
    fn due_places(&self, strategy: Strategy) -> Places {
        let is_open = !self.settings.paused && self.room.is_free();
        [(&self.ready, false), (&self.ready_solo, true)].map(|(line, is_solo)| {
            let &first = line.first().filter(|_| is_open)?;
            let class = Class { is_limited: self.room.is_limited(), is_solo };
            Some((class, standing(strategy, first, self.turns)))
        })
    }

    fn is_open(&self) -> bool {
        self.places != Places::default()
    }

    fn is_unused(&self) -> bool {
        let is_untouched = || self.settings == QueueSettings::new(self.settings.queue.clone());
        self.jobs == 0 && self.named_by == 0 && is_untouched()
    }
}

/// All queues.
pub(crate) struct Queues {
    queues: Vec<Option<Queue>>,
    numbers: BTreeMap<Name, u32>,
    free: Vec<u32>,
    strategy: Strategy,
    /// Queues with available work.
    open: OpenQueues,
    services: u64,
    level: u64,
    /// Queues in which a job became ready and that have not been offered to workers since.
    fresh: Vec<u32>,
}

impl Queues {
    pub(crate) fn new(strategy: Strategy) -> Self {
        Self {
            queues: Vec::new(),
            numbers: BTreeMap::new(),
            free: Vec::new(),
            strategy,
            open: OpenQueues::default(),
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

    pub(crate) fn get(&self, number: u32) -> &Queue {
        self.queues[number as usize].as_ref().expect("a queue number in use")
    }

    /// For fields that do not affect its places: job counts and waiting workers.
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
        self.get_mut(number).room.take(state);
        self.stand(number);
    }

    /// One job of the queue fewer counts against its limit.
    pub(crate) fn disown(&mut self, number: u32, state: JobState) {
        let room = &mut self.get_mut(number).room;
        room.leave(state);
        if room.is_limited() {
            self.freshen(number);
        }
        self.stand(number);
    }

    pub(crate) fn set(&mut self, settings: QueueSettings) {
        let number = self.number_or_new(&settings.queue);
        let queue = self.get_mut(number);
        queue.room.set_limit(&settings);
        queue.settings = settings;
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

    pub(crate) const fn open(&self) -> &OpenQueues {
        &self.open
    }

    /// Charges the queue for a job that was taken from it in its turn.
    pub(crate) fn charge(&mut self, number: u32) {
        self.services += 1;
        if self.strategy == Strategy::Fair {
            // If this was the last job of all queues, the queue itself has the level: otherwise one
            // that is served a job at a time would be charged alone, and wait for all others later.
            let first = self.open.lead().map(|(_, charged)| charged);
            self.level = self.level.max(first.unwrap_or(self.get(number).turns.charged));
        }
        let (service, level) = (self.services, self.level);
        let queue = self.get_mut(number);
        queue.turns = charge(queue.turns, queue.settings.weight, service, level);
        self.stand(number);
    }

    pub(crate) fn is_open(&self, number: u32) -> bool {
        self.queues[number as usize].as_ref().is_some_and(Queue::is_open)
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
        queue.room.lower_excess();
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
            queue.room.accept();
        }
    }

    /// Updates the queue's place among the open ones.
    fn stand(&mut self, number: u32) {
        let strategy = self.strategy;
        let queue = self.queues[number as usize].as_mut().expect("a queue number in use");
        let mut now = queue.due_places(strategy);
        if !queue.is_open() && now != Places::default() {
            queue.turns = join(queue.turns, self.services, self.level);
            now = queue.due_places(strategy);
        }
        let before = core::mem::replace(&mut queue.places, now);
        self.open.shift(number, before, now);
    }
}

/// The invariants of the queues by themselves; `audit` compares them with the jobs.
impl Queues {
    pub(crate) fn audit(&self) -> Result<(), &'static str> {
        let mut open = OpenQueues::default();
        for (number, queue) in self.iter() {
            if queue.due_places(self.strategy) != queue.places {
                return Err("a queue's places are those of its first jobs");
            }
            open.add(number, queue.places);
            queue.room.audit()?;
            if queue.room.is_limited() != queue.settings.limit.is_some() {
                return Err("a queue's room is that of its settings");
            }
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
