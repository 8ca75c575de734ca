//! Workers as the server knows them: session, lease, jobs, and which of them wait for work or can
//! be asked to give some.
//!
//! This file keeps the register and its indexes. `session` and `report` interpret messages; `claim`
//! and `steal` decide which worker gets which job.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use crate::id::{MessageNo, QuestionNo, Seq, SessionNo, WorkerId};
use crate::planted::{Bug, planted};
use crate::time::{Duration, Monotonic};

/// How many ended incarnations are remembered, so that a long-delayed message cannot revive one of
/// them. Their fences are old in any case; this is a second safeguard.
const ENDED_MAX: usize = 65_536;

/// Which queues a worker serves, by number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Served {
    All,
    /// Sorted, without repeats.
    Named(Vec<u32>),
}

impl Served {
    pub(crate) fn includes(&self, queue: u32) -> bool {
        match self {
            Self::All => true,
            Self::Named(queues) => queues.binary_search(&queue).is_ok(),
        }
    }

    /// All queues that either of them serves.
    pub(crate) fn union(self, other: &Self) -> Self {
        match (self, other) {
            (Self::Named(mut queues), Self::Named(others)) => {
                queues.extend(others);
                queues.sort_unstable();
                queues.dedup();
                Self::Named(queues)
            }
            (Self::All, _) | (_, Self::All) => Self::All,
        }
    }

    /// Whether this serves every queue that `other` serves.
    pub(crate) fn includes_all_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Named(_), Self::All) => false,
            (Self::Named(_), Self::Named(others)) => others.iter().all(|&q| self.includes(q)),
        }
    }
}

/// A worker's place among those that would take a job: free slots before mere reserves, reserves
/// for any job before those for jobs without a limit, then the worker that got work longest ago.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Waiter {
    pub(crate) tier: Tier,
    pub(crate) turn: u64,
    pub(crate) worker: WorkerId,
}

/// What a worker would do with another job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Tier {
    /// It would start the job at once.
    FreeSlot,
    /// It would keep the job in reserve.
    Reserve,
    /// The same, but it takes no job of a queue with a limit.
    UnlimitedReserve,
}

/// One incarnation of a worker.
pub(crate) struct Worker {
    pub(crate) session: SessionNo,
    /// The number the next batch of this session must have.
    pub(crate) expected: MessageNo,
    pub(crate) connected: bool,
    pub(crate) slots: u32,
    pub(crate) want: u32,
    pub(crate) served: Served,
    pub(crate) draining: bool,
    /// The older incarnation of the same process, whose reports it may repeat.
    pub(crate) replaces: Option<WorkerId>,
    /// It was silent when there was work for it.
    pub(crate) is_silent: bool,
    /// It held no job at its last batch, and so sends fewer heartbeats until it gets one.
    pub(crate) had_nothing: bool,
    /// When its right to own jobs ends.
    pub(crate) lease_end: Monotonic,
    /// Its jobs, and since when: leased, running, or cancelled and not yet let go of.
    pub(crate) held: BTreeMap<Seq, Monotonic>,
    /// How many of them are leased.
    pub(crate) leased: u32,
    /// How many of them are of the kind a worker may hold only one of.
    pub(crate) solo: u32,
    /// How many of them are of queues with a limit.
    pub(crate) limited: u32,
    /// The question it has asked for others' jobs.
    pub(crate) asking: Option<QuestionNo>,
    /// The question it has been asked for its own.
    pub(crate) asked: Option<QuestionNo>,
    /// The queues for which it had nothing to give, as long as its deque has not grown since.
    pub(crate) nothing_for: Option<Served>,
    /// When it last got work.
    pub(crate) turn: u64,
    waiter: Option<Waiter>,
    /// Its place in the list of possible victims.
    victim_at: Option<usize>,
    touched: bool,
    /// It is among those that have lost their connection.
    is_absent: bool,
    /// When its lease is checked next.
    check_at: Monotonic,
}

impl Worker {
    pub(crate) const fn new(session: SessionNo, lease_end: Monotonic) -> Self {
        Self {
            session,
            expected: MessageNo(1),
            connected: false,
            slots: 0,
            want: 0,
            served: Served::All,
            draining: false,
            replaces: None,
            is_silent: false,
            had_nothing: false,
            lease_end,
            held: BTreeMap::new(),
            leased: 0,
            solo: 0,
            limited: 0,
            asking: None,
            asked: None,
            nothing_for: None,
            turn: 0,
            waiter: None,
            victim_at: None,
            touched: false,
            is_absent: false,
            check_at: lease_end,
        }
    }

    fn held_count(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    const fn takes_work(&self) -> bool {
        self.connected && !self.draining && !self.is_silent
    }

    /// Whether it has been silent for three heartbeats; or for four and a half if it holds no job
    /// and sends only every third, since its clock may be slow.
    pub(crate) fn has_fallen_silent(&self, now: Monotonic, lease: Duration) -> bool {
        let left = if self.had_nothing { lease * 11 / 20 } else { lease * 7 / 10 };
        self.lease_end.since(now) <= left
    }

    /// How many more jobs it would take.
    pub(crate) fn room(&self) -> u32 {
        if self.takes_work() { self.want.saturating_sub(self.held_count()) } else { 0 }
    }

    /// How many more jobs it would start at once.
    pub(crate) fn free_slots(&self) -> u32 {
        self.slots.saturating_sub(self.held_count()).min(self.room())
    }

    /// How many of its jobs cannot have been started, because its slots are too few.
    pub(crate) fn spare(&self) -> u32 {
        self.leased.min(self.held_count().saturating_sub(self.slots))
    }

    fn tier(&self) -> Option<Tier> {
        match (self.free_slots(), self.room()) {
            (0, 0) => None,
            (0, _) if self.has_place_for_limited() => Some(Tier::Reserve),
            (0, _) => Some(Tier::UnlimitedReserve),
            (_, _) => Some(Tier::FreeSlot),
        }
    }

    /// Whether it would take others' jobs now.
    pub(crate) fn is_thief(&self) -> bool {
        self.free_slots() > 0 && self.asking.is_none()
    }

    fn is_victim(&self) -> bool {
        self.takes_work()
            && self.asked.is_none()
            && self.nothing_for != Some(Served::All)
            && self.spare() > 0
    }
}

/// All live incarnations.
#[derive(Default)]
pub(crate) struct Workers {
    workers: BTreeMap<WorkerId, Worker>,
    /// When to check which lease. One entry per worker, which stays where it is when the lease is
    /// renewed.
    checks: BTreeSet<(Monotonic, WorkerId)>,
    /// Workers that serve all queues and would take a job. Workers that name queues wait in those.
    pub(crate) waiters: BTreeSet<Waiter>,
    /// Workers with a free slot, here or in some queue.
    idle: usize,
    victims: Vec<WorkerId>,
    /// Workers that changed and have not been considered for work since.
    touched: VecDeque<WorkerId>,
    turns: u64,
    /// Workers that have lost their connection, the first to lose it first. They may have another
    /// by now, or be over.
    absent: VecDeque<WorkerId>,
    ended: BTreeSet<WorkerId>,
    ended_order: VecDeque<WorkerId>,
}

impl Workers {
    pub(crate) fn find(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.get(&id)
    }

    pub(crate) fn find_mut(&mut self, id: WorkerId) -> Option<&mut Worker> {
        self.workers.get_mut(&id)
    }

    /// A worker that a job or an index of ours refers to.
    pub(crate) fn get(&self, id: WorkerId) -> &Worker {
        self.find(id).expect("a worker that an index names is registered")
    }

    /// A worker that a job or an index of ours refers to.
    pub(crate) fn get_mut(&mut self, id: WorkerId) -> &mut Worker {
        self.find_mut(id).expect("a worker that an index names is registered")
    }

    pub(crate) fn insert(&mut self, id: WorkerId, worker: Worker) {
        self.checks.insert((worker.lease_end, id));
        let before = self.workers.insert(id, worker);
        assert!(before.is_none(), "an incarnation is registered once");
    }

    /// Removes a worker from the register for ever.
    pub(crate) fn end(&mut self, id: WorkerId) -> Worker {
        let worker = self.workers.remove(&id).expect("a worker that ends was registered");
        assert!(worker.waiter.is_none() && worker.victim_at.is_none(), "unseated before its end");
        self.checks.remove(&(worker.check_at, id));
        if !planted(Bug::LostIncarnationRevived) && self.ended.insert(id) {
            self.ended_order.push_back(id);
        }
        if self.ended_order.len() > ENDED_MAX
            && let Some(oldest) = self.ended_order.pop_front()
        {
            self.ended.remove(&oldest);
        }
        worker
    }

    pub(crate) fn has_ended(&self, id: WorkerId) -> bool {
        self.ended.contains(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkerId, &Worker)> {
        self.workers.iter().map(|(&id, worker)| (id, worker))
    }

    /// A worker whose lease has expired.
    pub(crate) fn next_lost(&mut self, now: Monotonic) -> Option<WorkerId> {
        while let Some(&(at, id)) = self.checks.first() {
            if at > now {
                return None;
            }
            let worker = self.get_mut(id);
            if worker.lease_end <= now {
                return Some(id);
            }
            worker.check_at = worker.lease_end;
            let check_at = worker.check_at;
            self.checks.remove(&(at, id));
            self.checks.insert((check_at, id));
        }
        None
    }

    pub(crate) fn next_check(&self) -> Option<Monotonic> {
        self.checks.first().map(|&(at, _)| at)
    }

    /// The worker has lost its connection.
    pub(crate) fn disconnect(&mut self, id: WorkerId) {
        let worker = self.get_mut(id);
        worker.connected = false;
        if !core::mem::replace(&mut worker.is_absent, true) {
            self.absent.push_back(id);
        }
    }

    /// If more than `most` workers have lost their connection: the first of them.
    pub(crate) fn pop_absent(&mut self, most: usize) -> Option<WorkerId> {
        while self.absent.len() > most {
            let id = self.absent.pop_front()?;
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.is_absent = false;
                return Some(id);
            }
        }
        None
    }

    /// Marks all workers as changed.
    pub(crate) fn touch_all(&mut self) {
        for id in self.workers.keys().copied().collect::<Vec<_>>() {
            self.touch(id);
        }
    }

    /// Marks this worker as changed: at the end of the event, it may get work or give some.
    pub(crate) fn touch(&mut self, id: WorkerId) {
        if let Some(worker) = self.workers.get_mut(&id)
            && !core::mem::replace(&mut worker.touched, true)
        {
            self.touched.push_back(id);
        }
    }

    pub(crate) fn pop_touched(&mut self) -> Option<WorkerId> {
        loop {
            let id = self.touched.pop_front()?;
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.touched = false;
                return Some(id);
            }
        }
    }

    /// The worker got work: it goes behind the others that wait.
    pub(crate) fn took_turn(&mut self, id: WorkerId) {
        self.turns += 1;
        let turn = self.turns;
        let worker = self.get_mut(id);
        worker.turn = turn;
        worker.nothing_for = None;
    }

    pub(crate) const fn idle(&self) -> usize {
        self.idle
    }

    pub(crate) fn can_be_asked(&self, id: WorkerId) -> bool {
        self.get(id).victim_at.is_some()
    }

    pub(crate) fn victims(&self) -> &[WorkerId] {
        &self.victims
    }

    /// Updates the worker's place among waiting workers and possible victims. Returns its old and
    /// new place among waiting workers, for the queues it names.
    pub(crate) fn seat(&mut self, id: WorkerId) -> (Option<Waiter>, Option<Waiter>) {
        let worker = self.get_mut(id);
        let tier = worker.tier();
        let now = tier.map(|tier| Waiter { tier, turn: worker.turn, worker: id });
        let is_victim = worker.is_victim();
        self.place(id, now, is_victim)
    }

    /// Removes the worker from all these places.
    pub(crate) fn unseat(&mut self, id: WorkerId) -> (Option<Waiter>, Option<Waiter>) {
        self.place(id, None, false)
    }

    fn place(
        &mut self,
        id: WorkerId,
        now: Option<Waiter>,
        is_victim: bool,
    ) -> (Option<Waiter>, Option<Waiter>) {
        let worker = self.get_mut(id);
        let before = core::mem::replace(&mut worker.waiter, now);
        let (serves_all, victim_at) = (worker.served == Served::All, worker.victim_at);
        let is_idle = |waiter: &Waiter| waiter.tier == Tier::FreeSlot;
        self.idle += usize::from(now.as_ref().is_some_and(is_idle));
        self.idle -= usize::from(before.as_ref().is_some_and(is_idle));
        if serves_all && before != now {
            before.map(|before| self.waiters.remove(&before));
            self.waiters.extend(now);
        }
        match (victim_at, is_victim) {
            (None, true) => {
                self.victims.push(id);
                self.get_mut(id).victim_at = Some(self.victims.len() - 1);
            }
            (Some(at), false) => {
                self.victims.swap_remove(at);
                self.get_mut(id).victim_at = None;
                if let Some(&moved) = self.victims.get(at) {
                    self.get_mut(moved).victim_at = Some(at);
                }
            }
            _ => {}
        }
        (before, now)
    }
}

/// The invariants of the register by itself; `audit` compares it with the jobs.
impl Workers {
    pub(crate) fn audit(&self) -> Result<(), &'static str> {
        let mut idle = 0;
        let mut waiters = BTreeSet::new();
        for (id, worker) in self.iter() {
            let tier = worker.tier();
            let waiter = tier.map(|tier| Waiter { tier, turn: worker.turn, worker: id });
            if worker.waiter != waiter {
                return Err("a worker waits for work exactly if it has room");
            }
            idle += usize::from(tier == Some(Tier::FreeSlot));
            if worker.served == Served::All {
                waiters.extend(waiter);
            }
            let at = worker.victim_at;
            if at.is_some() != worker.is_victim()
                || at.is_some_and(|at| self.victims.get(at) != Some(&id))
            {
                return Err("a worker can be asked exactly if it has jobs to spare");
            }
            if worker.touched {
                return Err("no worker is left unlooked at");
            }
            if self.ended.contains(&id) {
                return Err("an ended incarnation does not live again");
            }
        }
        let absent = self.workers.values().filter(|worker| worker.is_absent).count();
        if absent > self.absent.len() {
            return Err("workers that have lost their connection are listed");
        }
        if idle != self.idle || waiters != self.waiters {
            return Err("the index of waiting workers agrees with the workers");
        }
        if self.checks.len() != self.workers.len() || self.victims.len() > self.workers.len() {
            return Err("each worker has one lease to look at");
        }
        let looked_at = |&(at, id): &(Monotonic, WorkerId)| {
            let worker = self.get(id);
            at == worker.check_at && at <= worker.lease_end
        };
        if !self.checks.iter().all(looked_at) {
            return Err("a lease is looked at no later than its end");
        }
        Ok(())
    }
}
