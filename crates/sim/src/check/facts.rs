//! The state that follows from all events: the stored jobs, their owners over time, and the live
//! workers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use filch_scheduler::id::{Fence, Hold, JobId, Seq, SessionNo, WorkerId};
use filch_scheduler::message::{FromWorker, Serves, ToWorker};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, JobWrite, LastReport, LeaseCause, QueueSettings, Strategy};
use filch_scheduler::spec::{JobSpec, QueueKey};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Monotonic, Wall};

use super::order::{Rank, rank};
use super::{Broken, Change, Rule};
use crate::log::Observed;

/// The known state.
pub(super) struct Facts {
    jobs: Jobs,
    ids: HashMap<JobId, Seq>,
    keys: HashMap<QueueKey, Seq>,
    /// The jobs that wait or have waited for a job.
    children: HashMap<JobId, Vec<Seq>>,
    pub(super) queues: BTreeMap<Name, Queue>,
    pub(super) strategy: Option<Strategy>,
    /// Whether the store has the strategy.
    pub(super) is_strategy_kept: bool,
    /// The time in which the server could not receive heartbeats, summed up until each moment.
    missed: Vec<(Monotonic, Duration)>,
    /// How many jobs each worker owns, or has yet to release.
    owned: BTreeMap<WorkerId, u32>,
    pub(super) places: BTreeMap<usize, Place>,
    /// When incarnations ended, if they did.
    ended_at: BTreeMap<WorkerId, Monotonic>,
    /// The open session of each worker, as the server knows it.
    pub(super) sessions: BTreeMap<WorkerId, SessionNo>,
    /// Which incarnation has replaced which.
    instead: BTreeMap<WorkerId, WorkerId>,
    pub(super) lease: Duration,
    /// The stored lease length, which a restarted server uses until it could tell every worker a
    /// new one.
    pub(super) lease_kept: Duration,
    /// Until when there are faults: by node, and for all.
    trouble: BTreeMap<usize, Monotonic>,
    pub(super) trouble_for_all: Monotonic,
    pub(super) server_since: Option<Monotonic>,
    pub(super) healed_at: Option<Monotonic>,
}

/// All jobs. Their numbers begin with 1 and leave no gaps.
#[derive(Default)]
struct Jobs {
    rows: Vec<Option<Job>>,
}

impl Jobs {
    fn get(&self, seq: Seq) -> Option<&Job> {
        self.rows.get(seq.0 as usize)?.as_ref()
    }

    fn get_mut(&mut self, seq: Seq) -> Option<&mut Job> {
        self.rows.get_mut(seq.0 as usize)?.as_mut()
    }

    fn insert(&mut self, job: Job) {
        let place = job.seq.0 as usize;
        if self.rows.len() <= place {
            self.rows.resize_with(place + 1, || None);
        }
        self.rows[place] = Some(job);
    }

    fn values(&self) -> impl Iterator<Item = &Job> {
        self.rows.iter().flatten()
    }
}

/// A job, as it is stored.
pub(super) struct Job {
    pub(super) seq: Seq,
    pub(super) spec: JobSpec,
    pub(super) submitted_at: Wall,
    pub(super) state: JobState,
    pub(super) fence: Fence,
    pub(super) priority: i16,
    pub(super) attempts: u16,
    pub(super) suspicions: u8,
    /// Its owner.
    pub(super) owner: Option<WorkerId>,
    /// The worker that has yet to release it, if it is cancelled.
    pub(super) held_by: Option<WorkerId>,
    /// The report that ended its last attempt, if it has had no owner since.
    pub(super) last: Option<LastReport>,
    /// When it was last written, by the server's wall clock and in true time.
    pub(super) written_at: Wall,
    pub(super) written_since: Monotonic,
    /// When it ended, if it has.
    pub(super) ended_at: Option<Monotonic>,
    pub(super) tenures: Vec<Tenure>,
    /// The jobs that it waits for, by number: an id may be used again after a purge.
    pub(super) parents: Vec<Seq>,
    /// Its position among the waiting jobs of its queue, if it is among them.
    filed: Option<Rank>,
}

/// The time for which one worker owned a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenure {
    pub(super) fence: Fence,
    pub(super) worker: WorkerId,
    pub(super) end: Option<End>,
    /// Whether it was started.
    pub(super) is_started: bool,
    /// How often the job had been suspected when this began.
    pub(super) suspicions: u8,
}

/// How a tenure ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// By a report of the owner.
    Word,
    /// The owner returned it, or left.
    Returned,
    /// It was stolen.
    Stolen,
    /// The job was cancelled.
    Cancelled,
    /// The owner was lost.
    Lost,
}

/// A queue, as it is stored.
pub(super) struct Queue {
    pub(super) is_paused: bool,
    pub(super) limit: Option<u32>,
    pub(super) weight: u32,
    pub(super) owned: u32,
    /// Jobs that are stored as queued and are not suspected.
    waiting: BTreeSet<Rank>,
}

impl Default for Queue {
    fn default() -> Self {
        Self { is_paused: false, limit: None, weight: 1, owned: 0, waiting: BTreeSet::new() }
    }
}

/// A node.
pub(super) struct Place {
    pub(super) slots: u32,
    /// The most jobs that it wanted to own when it last said so.
    pub(super) want: u32,
    pub(super) serves: Serves,
    /// Its present incarnation.
    pub(super) worker: Option<WorkerId>,
    pub(super) is_alive: bool,
    pub(super) is_paused: bool,
    pub(super) is_draining: bool,
    pub(super) running: BTreeSet<Hold>,
    /// The assignments that it has received and not started.
    pub(super) waiting: BTreeMap<Hold, Name>,
    /// All assignments that it has ever received. A repeated message assigns nothing new.
    given: BTreeSet<Hold>,
}

impl Job {
    pub(super) const fn is_ended(&self) -> bool {
        self.state.is_ended()
    }

    pub(super) fn tenure(&self, fence: Fence) -> Option<&Tenure> {
        self.tenures.iter().rev().find(|tenure| tenure.fence == fence)
    }

    /// The readable id of the job.
    pub(super) fn name(&self) -> JobId {
        self.spec.id
    }
}

impl Place {
    pub(super) fn serves_all(&self) -> bool {
        self.serves == Serves::All
    }

    pub(super) fn serves(&self, queue: &Name) -> bool {
        match &self.serves {
            Serves::All => true,
            Serves::Named(queues) => queues.contains(queue),
        }
    }
}

/// The lease length of a store without the setting.
const USUAL_LEASE: Duration = Duration::from_secs(10);

impl Default for Facts {
    fn default() -> Self {
        Self {
            jobs: Jobs::default(),
            ids: HashMap::new(),
            keys: HashMap::new(),
            children: HashMap::new(),
            queues: BTreeMap::new(),
            strategy: None,
            is_strategy_kept: false,
            missed: Vec::new(),
            owned: BTreeMap::new(),
            places: BTreeMap::new(),
            ended_at: BTreeMap::new(),
            sessions: BTreeMap::new(),
            instead: BTreeMap::new(),
            lease: USUAL_LEASE,
            lease_kept: USUAL_LEASE,
            trouble: BTreeMap::new(),
            trouble_for_all: Monotonic(0),
            server_since: None,
            healed_at: None,
        }
    }
}

impl Facts {
    pub(super) fn job(&self, seq: Seq) -> Option<&Job> {
        self.jobs.get(seq)
    }

    pub(super) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    /// The first job in this queue, of those that are stored as queued and are not suspected.
    pub(super) fn first_waiting(&self, queue: &Name) -> Option<&Job> {
        let &(_, seq) = self.queues.get(queue)?.waiting.first()?;
        self.jobs.get(seq)
    }

    /// Updates the waiting jobs of a queue.
    fn file(&mut self, seq: Seq) {
        let Some(job) = self.jobs.get_mut(seq) else {
            return;
        };
        let waits = job.state == JobState::Queued && job.suspicions == 0;
        let now = self.strategy.filter(|_| waits).map(|strategy| rank(strategy, job));
        let before = std::mem::replace(&mut job.filed, now);
        if before == now {
            return;
        }
        if !self.queues.contains_key(&job.spec.queue) {
            self.queues.insert(job.spec.queue.clone(), Queue::default());
        }
        let queue = self.queues.get_mut(&job.spec.queue).expect("inserted if it was not there");
        before.map(|before| queue.waiting.remove(&before));
        queue.waiting.extend(now);
    }

    pub(super) fn set_strategy(&mut self, strategy: Strategy) {
        if self.strategy.replace(strategy) != Some(strategy) {
            let all: Vec<Seq> = self.jobs.values().map(|job| job.seq).collect();
            all.into_iter().for_each(|seq| self.file(seq));
        }
    }

    /// The job with this number, which must be stored.
    pub(super) fn known(&self, seq: Seq) -> Result<&Job, Broken> {
        let unknown = || (Rule::S1, format!("a commit names job #{}, which is not stored", seq.0));
        self.jobs.get(seq).ok_or_else(unknown)
    }

    /// The job that has this id now.
    pub(super) fn by_id(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(*self.ids.get(&id)?)
    }

    /// The job that has this key in this queue now.
    pub(super) fn by_key(&self, key: &QueueKey) -> Option<&Job> {
        self.jobs.get(*self.keys.get(key)?)
    }

    pub(super) fn children_of(&self, parent: JobId) -> impl Iterator<Item = &Job> {
        let children = self.children.get(&parent).into_iter().flatten();
        children.filter_map(|&child| self.jobs.get(child))
    }

    /// Since when this node has had no faults.
    pub(super) fn trouble_of(&self, place: usize) -> Monotonic {
        self.trouble.get(&place).copied().unwrap_or_default().max(self.trouble_for_all)
    }

    /// For how long the server could not receive heartbeats between these moments.
    pub(super) fn missed(&self, since: Monotonic, until: Monotonic) -> Duration {
        let sum = |at: Monotonic| {
            let count = self.missed.partition_point(|&(it, _)| it <= at);
            count.checked_sub(1).map_or(Duration::ZERO, |last| self.missed[last].1)
        };
        sum(until).saturating_sub(sum(since))
    }

    pub(super) fn owned_by(&self, worker: WorkerId) -> u32 {
        self.owned.get(&worker).copied().unwrap_or(0)
    }

    pub(super) fn place_of(&self, worker: WorkerId) -> Option<&Place> {
        self.places.values().find(|place| place.worker == Some(worker))
    }

    /// Whether `worker` is `other` or has replaced it.
    pub(super) fn speaks_for(&self, worker: WorkerId, other: WorkerId) -> bool {
        let mut now = Some(worker);
        while let Some(worker) = now {
            if worker == other {
                return true;
            }
            now = self.instead.get(&worker).copied();
        }
        false
    }

    pub(super) fn put(&mut self, row: &JobRow, at: Monotonic) {
        for &parent in &row.spec.parents {
            self.children.entry(parent).or_default().push(row.seq);
        }
        self.ids.insert(row.spec.id, row.seq);
        if let Some(key) = row.spec.queue_key() {
            self.keys.insert(key, row.seq);
        }
        let job = Job {
            seq: row.seq,
            spec: row.spec.clone(),
            submitted_at: row.submitted_at,
            state: row.now.state,
            fence: row.now.fence,
            priority: row.now.priority,
            attempts: row.now.attempts,
            suspicions: row.now.suspicions,
            owner: None,
            held_by: None,
            last: row.now.last,
            written_at: row.now.at,
            written_since: at,
            ended_at: row.now.state.is_ended().then_some(at),
            tenures: Vec::new(),
            parents: Vec::new(),
            filed: None,
        };
        self.jobs.insert(job);
        self.file(row.seq);
    }

    /// Once all jobs of a commit are put: resolves parents to numbers.
    pub(super) fn resolve_parents(&mut self, row: &JobRow) {
        let parents = row.spec.parents.iter();
        let parents = parents.filter_map(|parent| self.ids.get(parent).copied()).collect();
        if let Some(job) = self.jobs.get_mut(row.seq) {
            job.parents = parents;
        }
    }

    /// When this incarnation ended, if it did.
    pub(super) fn ended_at(&self, worker: WorkerId) -> Option<Monotonic> {
        self.ended_at.get(&worker).copied()
    }

    /// A job is written at this true time. Returns when it had ended before, if it had.
    pub(super) fn write(&mut self, write: &JobWrite, at: Monotonic) -> Option<Monotonic> {
        let job = self.jobs.get_mut(write.job)?;
        let ended_before = job.ended_at;
        job.written_since = at;
        job.ended_at = write.state.is_ended().then(|| ended_before.unwrap_or(at));
        let (owner, held_by) = match write.state {
            JobState::Leased | JobState::Running => (write.holder, None),
            JobState::Cancelled => (None, write.holder),
            _ => (None, None),
        };
        if let Some(tenure) = job.tenures.last_mut()
            && tenure.end.is_none()
        {
            tenure.end = match write.state {
                JobState::Leased | JobState::Running => None,
                JobState::Cancelled => Some(End::Cancelled),
                _ if write.fence == tenure.fence => Some(End::Word),
                // The row of the ledger has the cause.
                _ => None,
            };
        }
        let before = job.owner.or(job.held_by);
        (job.state, job.fence, job.priority) = (write.state, write.fence, write.priority);
        (job.attempts, job.suspicions) = (write.attempts, write.suspicions);
        (job.owner, job.held_by, job.written_at) = (owner, held_by, write.at);
        job.last = write.last;
        let queue = job.spec.queue.clone();
        self.count(&queue, before, owner.or(held_by));
        self.file(write.job);
        ended_before
    }

    /// Since when an ended job has not been needed: no worker holds it, and no job waits for it.
    /// `None` if it is.
    pub(super) fn needed_until(&self, job: &Job) -> Option<Monotonic> {
        if !job.is_ended() || job.held_by.is_some() {
            return None;
        }
        let mut since = job.written_since;
        for child in self.children_of(job.spec.id) {
            since = since.max(child.ended_at?);
        }
        Some(since)
    }

    pub(super) fn change(&mut self, change: &Change) {
        let Change { hold, worker, cause } = *change;
        let Some(job) = self.jobs.get_mut(hold.job) else {
            return;
        };
        if let Some(tenure) = job.tenures.last_mut()
            && tenure.end.is_none()
        {
            tenure.end = Some(match cause {
                LeaseCause::Claim | LeaseCause::Steal(_) => End::Stolen,
                LeaseCause::Lost(_) => End::Lost,
                LeaseCause::Returned(_) => End::Returned,
            });
        }
        if let Some(worker) = worker {
            let suspicions = job.suspicions;
            let fence = hold.fence;
            job.tenures.push(Tenure { fence, worker, end: None, is_started: false, suspicions });
        }
        // The same event may have written the later state of the job.
        let is_news = hold.fence > job.fence;
        if is_news || worker.is_some() {
            let before = job.owner.or(job.held_by);
            job.fence = hold.fence;
            (job.owner, job.held_by) = (worker, None);
            job.state = if worker.is_some() { JobState::Leased } else { JobState::Queued };
            let queue = job.spec.queue.clone();
            self.count(&queue, before, worker);
            self.file(hold.job);
        }
    }

    fn count(&mut self, queue: &Name, before: Option<WorkerId>, after: Option<WorkerId>) {
        if before == after {
            return;
        }
        let owned = &mut self.queues.entry(queue.clone()).or_default().owned;
        *owned = *owned + u32::from(after.is_some()) - u32::from(before.is_some());
        if let Some(before) = before
            && let Some(count) = self.owned.get_mut(&before)
        {
            *count -= 1;
        }
        if let Some(after) = after {
            *self.owned.entry(after).or_default() += 1;
        }
    }

    pub(super) fn purge(&mut self, seq: Seq) {
        if let Some(job) = self.jobs.get(seq) {
            if self.ids.get(&job.spec.id) == Some(&seq) {
                self.ids.remove(&job.spec.id);
            }
            if let Some(key) = job.spec.queue_key()
                && self.keys.get(&key) == Some(&seq)
            {
                self.keys.remove(&key);
            }
        }
    }

    pub(super) fn prioritise(&mut self, seq: Seq, priority: i16) {
        if let Some(job) = self.jobs.get_mut(seq) {
            job.priority = priority;
            self.file(seq);
        }
    }

    pub(super) fn set_queue(&mut self, settings: &QueueSettings) {
        let queue = self.queues.entry(settings.queue.clone()).or_default();
        (queue.is_paused, queue.limit) = (settings.paused, settings.limit);
        queue.weight = settings.weight;
    }

    /// Events other than commits.
    pub(super) fn observe(&mut self, at: Monotonic, seen: &Observed<'_>) {
        match *seen {
            Observed::ServerStarted { lease, strategy } => {
                (self.lease, self.server_since) = (lease, Some(at));
                if !self.is_strategy_kept {
                    self.set_strategy(strategy);
                }
                self.trouble_for_all = self.trouble_for_all.max(at);
            }
            Observed::Missed(span) => {
                let sum = self.missed.last().map_or(span, |&(_, before)| before + span);
                self.missed.push((at, sum));
            }
            Observed::ServerCrashed => {
                self.server_since = None;
                self.sessions.clear();
            }
            Observed::Arrived { worker, session, messages, .. } => {
                if let Some(FromWorker::Hello(hello)) = messages.first() {
                    let known = self.sessions.entry(worker).or_insert(session);
                    *known = session.max(*known);
                    if let Some(older) = hello.kind.older()
                        && older != worker
                    {
                        self.instead.insert(worker, older);
                    }
                }
            }
            Observed::Closed { worker, session }
                if self.sessions.get(&worker) == Some(&session) =>
            {
                self.sessions.remove(&worker);
            }
            Observed::Began { place, slots, serves, .. } => {
                let new = Place {
                    slots,
                    want: slots,
                    serves: serves.clone(),
                    worker: None,
                    is_alive: true,
                    is_paused: false,
                    is_draining: false,
                    running: BTreeSet::new(),
                    waiting: BTreeMap::new(),
                    given: BTreeSet::new(),
                };
                self.places.insert(place, new);
            }
            Observed::Started { place, assignment, .. } => {
                if let Some(place) = self.places.get_mut(&place) {
                    place.waiting.remove(&assignment.hold);
                    place.running.insert(assignment.hold);
                }
                let Hold { job, fence } = assignment.hold;
                let tenures = self.jobs.get_mut(job).map(|job| &mut job.tenures);
                let mut tenures = tenures.into_iter().flatten();
                if let Some(tenure) = tenures.find(|tenure| tenure.fence == fence) {
                    tenure.is_started = true;
                }
            }
            Observed::Sent { place, worker, messages } => self.sent(at, place, worker, messages),
            Observed::Heard { place, messages, .. } => self.heard(place, messages),
            Observed::Healed => self.healed_at = Some(at),
            Observed::Trouble { place: Some(place), until } => {
                let known = self.trouble.entry(place).or_default();
                *known = until.max(*known);
            }
            Observed::Trouble { place: None, until } => {
                self.trouble_for_all = until.max(self.trouble_for_all);
            }
            Observed::Ended { place, .. }
            | Observed::Draining { place, .. }
            | Observed::Paused { place, .. }
            | Observed::Resumed { place }
            | Observed::Crashed { place }
            | Observed::Left { place } => self.see_place(at, place, seen),
            _ => {}
        }
    }

    fn see_place(&mut self, at: Monotonic, place: usize, seen: &Observed<'_>) {
        let Some(place) = self.places.get_mut(&place) else {
            return;
        };
        match seen {
            Observed::Ended { hold, .. } => {
                place.running.remove(hold);
            }
            Observed::Draining { .. } => place.is_draining = true,
            Observed::Paused { .. } => place.is_paused = true,
            Observed::Resumed { .. } => place.is_paused = false,
            Observed::Crashed { .. } | Observed::Left { .. } => {
                place.is_alive = false;
                place.waiting.clear();
                let worker = place.worker;
                self.ends(at, worker);
            }
            _ => {}
        }
    }

    /// An incarnation has ended, unless another process has its id by now, which may be so over
    /// plain HTTP.
    fn ends(&mut self, at: Monotonic, worker: Option<WorkerId>) {
        let is_used = |place: &Place| place.is_alive && place.worker == worker;
        if let Some(worker) = worker
            && !self.places.values().any(is_used)
        {
            self.ended_at.entry(worker).or_insert(at);
        }
    }

    fn sent(&mut self, at: Monotonic, which: usize, worker: WorkerId, messages: &[FromWorker]) {
        let Some(place) = self.places.get_mut(&which) else {
            return;
        };
        if place.worker != Some(worker) {
            let before = place.worker.replace(worker);
            place.waiting.clear();
            self.ended_at.remove(&worker);
            self.ends(at, before);
        }
        let Some(place) = self.places.get_mut(&which) else {
            return;
        };
        for message in messages {
            match message {
                FromWorker::Given { jobs, .. } => {
                    place.waiting.retain(|hold, _| !jobs.contains(hold));
                }
                FromWorker::Report(report) => {
                    place.waiting.remove(&report.hold);
                }
                FromWorker::Want(want) => place.want = *want,
                FromWorker::Hello(hello) => {
                    place.want = hello.want;
                    place.waiting.retain(|hold, _| hello.holds.contains(hold));
                }
                FromWorker::Drain => place.is_draining = true,
                _ => {}
            }
        }
    }

    fn heard(&mut self, place: usize, messages: &[ToWorker]) {
        let Some(place) = self.places.get_mut(&place) else {
            return;
        };
        for message in messages {
            if let ToWorker::Assign(assignments) = message {
                for assignment in assignments {
                    if place.given.insert(assignment.hold) {
                        place.waiting.insert(assignment.hold, assignment.queue.clone());
                    }
                }
            }
        }
    }
}
