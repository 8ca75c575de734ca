//! Submitting jobs: all of a batch or none of it.
//!
//! First everything is checked and nothing is changed; a refused batch leaves no trace. Then the
//! jobs are created, linked to their parents, and judged.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use hashbrown::HashTable;

use super::fetch::Found;
use super::graph::Judged;
use super::job::{Extra, Job};
use super::jobs::hash_id;
use super::{Answer, Bound, Dispatch, Novelty, Refused, Submitted};
use crate::id::{Digest, Fence, JobId, LeaseNo, Seq};
use crate::name::Name;
use crate::planted::{Bug, planted};
use crate::record::{JobRow, JobWrite, Mutation};
use crate::spec::{JobSpec, Tally};
use crate::state::{JobState, Phase};
use crate::time::{Millis, Wall};

/// What happens to each submitted job, and the parents of the new ones.
struct Plan {
    /// One per submitted job, in order.
    places: Vec<Place>,
    /// The parents of all new jobs, one after another.
    parents: Vec<Parent>,
    new: usize,
}

/// What becomes of one submitted job.
#[derive(Clone, Copy)]
enum Place {
    /// It is created, with this many of the parents.
    New { parents: usize },
    /// It exists.
    Known { id: JobId, seq: Seq },
    /// It is the same as an earlier one of this batch.
    Same(usize),
}

/// A parent of a new job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parent {
    /// A job of the same batch, by its place there.
    Batch(usize),
    /// A job that exists, in memory or in the store.
    There(JobId),
}

impl Parent {
    /// The id under which the parent is stored, given those of the batch.
    fn id(self, batch: &[JobId]) -> JobId {
        match self {
            Self::Batch(at) => batch[at],
            Self::There(id) => id,
        }
    }
}

impl Dispatch {
    /// Submits jobs. For a client that sees only some queues, the jobs of others do not exist.
    pub(super) fn submit(
        &mut self,
        mut specs: Vec<JobSpec>,
        within: Option<&[Name]>,
        found: &Found,
    ) -> Answer {
        if planted(Bug::IdempotencyIgnored) {
            specs.iter_mut().for_each(|spec| spec.key = None);
        }
        let plan = match self.plan(&specs, within, found) {
            Ok(plan) => plan,
            Err(refused) => return Answer::Refused(refused),
        };
        self.outcome.mutations.reserve(plan.new);
        let mut submitted: Vec<Submitted> = Vec::with_capacity(specs.len());
        let ids: Vec<JobId> = specs.iter().map(|spec| spec.id).collect();
        let mut parents = plan.parents.iter();
        for (mut spec, place) in specs.into_iter().zip(&plan.places) {
            submitted.push(match *place {
                Place::New { .. } => {
                    let id = spec.id;
                    // A parent may have been named by an id that stands for another job; the store
                    // knows only that one.
                    for (named, parent) in spec.parents.iter_mut().zip(parents.by_ref()) {
                        *named = parent.id(&ids);
                    }
                    let seq = self.take_in(spec);
                    Submitted { id, seq, novelty: Novelty::New }
                }
                Place::Known { id, seq } => Submitted { id, seq, novelty: Novelty::Known },
                Place::Same(earlier) => Submitted { novelty: Novelty::Known, ..submitted[earlier] },
            });
        }
        let mut parents = plan.parents.iter();
        for (place, child) in plan.places.iter().zip(&submitted) {
            if let Place::New { parents: count } = *place {
                for parent in parents.by_ref().take(count) {
                    let parent = match *parent {
                        Parent::Batch(at) => submitted[at].seq,
                        Parent::There(id) => self.bring(id, found),
                    };
                    self.link(parent, child.seq);
                }
            }
        }
        for (place, job) in plan.places.iter().zip(&submitted) {
            if matches!(place, Place::New { .. }) && self.judge(job.seq) == Judged::Cancelled {
                self.tell_children(job.seq);
            }
        }
        Answer::Submitted(submitted)
    }

    fn plan(
        &self,
        specs: &[JobSpec],
        within: Option<&[Name]>,
        found: &Found,
    ) -> Result<Plan, Refused> {
        let batch = Batch::new(specs, self.config.seed);
        let edges = specs.iter().map(|spec| spec.parents.len()).sum();
        let mut plan = Plan {
            places: Vec::with_capacity(specs.len()),
            parents: Vec::with_capacity(edges),
            new: 0,
        };
        let mut keys = BTreeMap::new();
        for (at, spec) in specs.iter().enumerate() {
            let place = self.place(specs, at, &batch, &mut keys, found)?;
            if let Place::New { .. } = place {
                plan.new += 1;
                for &parent in &spec.parents {
                    let known = self.parent(parent, &batch, within, found);
                    let unknown = Refused::UnknownParent { child: spec.id, parent };
                    plan.parents.push(known.ok_or(unknown)?);
                }
            }
            plan.places.push(place);
        }
        let live_jobs = self.config.limits.live_jobs;
        bound(Bound::LiveJobs, self.jobs.count() + plan.new, live_jobs)?;
        plan.settle_batch_parents();
        plan.check_parents(specs)?;
        match plan.cycle() {
            Some(path) => Err(Refused::Cycle(path.into_iter().map(|at| specs[at].id).collect())),
            None => Ok(plan),
        }
    }

    pub(super) fn check_bounds(&self, specs: &[JobSpec]) -> Result<(), Refused> {
        let limits = &self.config.limits;
        bound(Bound::Jobs, specs.len(), limits.jobs)?;
        bound(Bound::Edges, specs.iter().map(|spec| spec.parents.len()).sum(), limits.edges)?;
        let mut new_queues = BTreeSet::new();
        for spec in specs {
            for name in [Some(&spec.queue), Some(&spec.kind), spec.key.as_ref()] {
                bound(Bound::NameBytes, name.map_or(0, |n| n.as_str().len()), limits.name_bytes)?;
            }
            if spec.retry.max == 0 {
                return Err(Refused::OutOfBounds { what: Bound::Attempts, asked: 0, bound: 1 });
            }
            if self.queues.number(&spec.queue).is_none() {
                new_queues.insert(&spec.queue);
            }
        }
        match new_queues.len() {
            0 => Ok(()),
            new => bound(Bound::Queues, self.queues.count() + new, limits.queues),
        }
    }

    /// What becomes of one submitted job: the same id or key with the same body is the same job.
    fn place<'a>(
        &self,
        specs: &'a [JobSpec],
        at: usize,
        batch: &Batch<'_>,
        keys: &mut BTreeMap<(&'a str, &'a str), usize>,
        found: &Found,
    ) -> Result<Place, Refused> {
        let spec = &specs[at];
        if let Some((known, seq)) = self.body_of(spec.id, found) {
            let same = known == spec.body;
            let place = Place::Known { id: spec.id, seq };
            return same.then_some(place).ok_or(Refused::IdConflict(spec.id));
        }
        if let Some(earlier) = batch.find(spec.id).filter(|&earlier| earlier < at) {
            let same = specs[earlier].body == spec.body;
            return same.then_some(Place::Same(earlier)).ok_or(Refused::IdConflict(spec.id));
        }
        if let Some(key) = &spec.key {
            let conflict = |holder| Refused::KeyConflict { key: key.clone(), holder };
            let here = self.by_key(spec).map(|seq| self.jobs.get(seq).id);
            let in_store = || Some(found.by_key(&spec.queue_key()?)?.spec.id);
            if let Some(holder) = here.or_else(in_store) {
                let (known, seq) = self.body_of(holder, found).expect("found just now");
                let place = Place::Known { id: holder, seq };
                return (known == spec.body).then_some(place).ok_or(conflict(holder));
            }
            let queue_key = (spec.queue.as_str(), key.as_str());
            if let Some(&earlier) = keys.get(&queue_key) {
                let same = specs[earlier].body == spec.body;
                return same.then_some(Place::Same(earlier)).ok_or(conflict(specs[earlier].id));
            }
            keys.insert(queue_key, at);
        }
        Ok(Place::New { parents: spec.parents.len() })
    }

    fn body_of(&self, id: JobId, found: &Found) -> Option<(Digest, Seq)> {
        if let Some(seq) = self.jobs.by_id(id) {
            return Some((self.jobs.get(seq).body, seq));
        }
        found.by_id(id).map(|row| (row.spec.body, row.seq))
    }

    fn parent(
        &self,
        id: JobId,
        batch: &Batch<'_>,
        within: Option<&[Name]>,
        found: &Found,
    ) -> Option<Parent> {
        let is_seen = |queue: &Name| {
            within.is_none_or(|queues| queues.contains(queue))
                || planted(Bug::ParentOfAnotherTenant)
        };
        if let Some(seq) = self.jobs.by_id(id) {
            let queue = &self.queues.get(self.jobs.get(seq).queue).settings.queue;
            return is_seen(queue).then_some(Parent::There(id));
        }
        let in_batch = batch.find(id).map(Parent::Batch);
        let in_store = || found.by_id(id).filter(|row| is_seen(&row.spec.queue));
        in_batch.or_else(|| in_store().map(|_| Parent::There(id)))
    }

    /// Creates a job and stores it. It is not linked or judged yet.
    fn take_in(&mut self, spec: JobSpec) -> Seq {
        self.last_seq = self.last_seq.next();
        let seq = self.last_seq;
        let due = spec.not_before.unwrap_or_default();
        let state = match () {
            () if !spec.parents.is_empty() => JobState::Blocked,
            () if due > self.now.wall => JobState::Scheduled,
            () => JobState::Queued,
        };
        let job = self.job(&spec, self.now.wall, due, Phase::BLOCKED);
        let now = JobWrite { state, ..job.to_write(seq, None, self.now.wall) };
        self.jobs.insert(seq, job);
        self.mutate(Mutation::Put(JobRow { seq, spec, submitted_at: self.now.wall, now }));
        seq
    }

    /// A job in memory, counted among the users of its queue and kind.
    pub(super) fn job(
        &mut self,
        spec: &JobSpec,
        submitted_at: Wall,
        due: Wall,
        phase: Phase,
    ) -> Job {
        let queue = self.queues.number_or_new(&spec.queue);
        self.queues.get_mut(queue).jobs += 1;
        let has_extra = spec.key.is_some() || !spec.parents.is_empty();
        let extra = has_extra.then(|| Extra {
            key: spec.key.clone(),
            condition: spec.condition,
            otherwise: spec.otherwise,
            tally: Tally::default(),
            parents: Vec::with_capacity(spec.parents.len()),
            children: Vec::new(),
            children_live: 0,
        });
        Job {
            id: spec.id,
            body: spec.body,
            extra: extra.map(Into::into),
            submitted_at,
            due,
            fence: Fence(0),
            row: LeaseNo(0),
            phase,
            retry: spec.retry,
            timeout: spec.timeout.unwrap_or(Millis(0)),
            queue,
            kind: self.kinds.take(&spec.kind),
            priority: spec.priority,
            attempts: 0,
            unreceipted: 0,
            suspicions: 0,
            thefts: 0,
        }
    }

    /// A job that gets a child; it is loaded into memory as a stub if it ended long ago.
    fn bring(&mut self, id: JobId, found: &Found) -> Seq {
        if let Some(seq) = self.jobs.by_id(id) {
            return seq;
        }
        let row = found.by_id(id).expect("planned with this job");
        self.take_back(row);
        row.seq
    }

    /// Loads an ended job from the store into memory, as it is.
    pub(super) fn take_back(&mut self, row: &JobRow) {
        let loaded = Phase::loaded(row.now.state, None, row.now.last);
        // If the stored report does not fit the state, its repeats are refused.
        let phase = loaded.or_else(|| Phase::loaded(row.now.state, None, None));
        let phase = phase.expect("only ended jobs are found");
        let mut job = self.job(&row.spec, row.submitted_at, row.now.due, phase);
        if let Some(extra) = &mut job.extra {
            extra.parents = Vec::new();
        }
        job.fence = row.now.fence;
        job.attempts = row.now.attempts;
        job.suspicions = row.now.suspicions;
        job.priority = row.now.priority;
        self.jobs.insert(row.seq, job);
    }
}

fn bound(what: Bound, asked: usize, bound: usize) -> Result<(), Refused> {
    let (asked, bound) = (asked as u64, bound as u64);
    if asked <= bound { Ok(()) } else { Err(Refused::OutOfBounds { what, asked, bound }) }
}

/// The places of a batch's jobs by id. The first of several with one id counts.
struct Batch<'a> {
    specs: &'a [JobSpec],
    seed: u64,
    places: HashTable<usize>,
}

impl<'a> Batch<'a> {
    fn new(specs: &'a [JobSpec], seed: u64) -> Self {
        let mut batch = Self { specs, seed, places: HashTable::new() };
        // A single job without parents cannot refer to any other job of its batch.
        if specs.len() > 1 || specs.iter().any(|spec| !spec.parents.is_empty()) {
            let hash = |&at: &usize| hash_id(seed, specs[at].id);
            batch.places.reserve(specs.len(), hash);
            for (at, spec) in specs.iter().enumerate() {
                if batch.find(spec.id).is_none() {
                    batch.places.insert_unique(hash(&at), at, hash);
                }
            }
        }
        batch
    }

    fn find(&self, id: JobId) -> Option<usize> {
        let hash = hash_id(self.seed, id);
        self.places.find(hash, |&at| self.specs[at].id == id).copied()
    }
}

impl Plan {
    /// A parent in the batch may itself turn out to exist already, or to be the same as another.
    fn settle_batch_parents(&mut self) {
        for parent in &mut self.parents {
            while let Parent::Batch(at) = *parent {
                match self.places[at] {
                    Place::New { .. } => break,
                    Place::Same(earlier) => *parent = Parent::Batch(earlier),
                    Place::Known { id, .. } => *parent = Parent::There(id),
                }
            }
        }
    }

    /// A job may name each parent only once, by whatever id, and not itself.
    fn check_parents(&self, specs: &[JobSpec]) -> Result<(), Refused> {
        let ids: Vec<JobId> = specs.iter().map(|spec| spec.id).collect();
        for (at, range) in self.parent_ranges().into_iter().enumerate() {
            let parents = self.parents[range].iter();
            let mut parents: Vec<JobId> = parents.map(|parent| parent.id(&ids)).collect();
            if parents.contains(&ids[at]) {
                return Err(Refused::OwnParent(ids[at]));
            }
            parents.sort_unstable();
            if let Some(&[parent, _]) = parents.array_windows().find(|[one, other]| one == other) {
                return Err(Refused::ParentTwice { child: ids[at], parent });
            }
        }
        Ok(())
    }

    /// The places of a cycle's jobs, each a parent of the next and the last the first, if there is
    /// one. Jobs that exist already cannot wait for new ones, so only the batch is searched.
    fn cycle(&self) -> Option<Vec<usize>> {
        let ranges = self.parent_ranges();
        let batch_parents = |at: usize| {
            self.parents[ranges[at].clone()].iter().filter_map(|parent| match *parent {
                Parent::Batch(at) => Some(at),
                Parent::There(_) => None,
            })
        };
        // Most batches refer only to earlier jobs, and then there is no cycle.
        let places = 0..self.places.len();
        if places.clone().all(|at| batch_parents(at).all(|parent| parent < at)) {
            return None;
        }
        // Removes jobs without parents until none is left to remove.
        let mut children = alloc::vec![Vec::new(); self.places.len()];
        let mut waits_for: Vec<usize> =
            places.clone().map(|at| batch_parents(at).count()).collect();
        for at in places.clone() {
            for parent in batch_parents(at) {
                children[parent].push(at);
            }
        }
        let mut free: Vec<usize> = places.clone().filter(|&at| waits_for[at] == 0).collect();
        while let Some(at) = free.pop() {
            for &child in &children[at] {
                waits_for[child] -= 1;
                if waits_for[child] == 0 {
                    free.push(child);
                }
            }
        }
        // Every remaining job has a remaining parent: following parents must lead into a cycle.
        let mut at = places.clone().find(|&at| waits_for[at] > 0)?;
        let mut seen_at = alloc::vec![usize::MAX; self.places.len()];
        let mut path = Vec::new();
        while seen_at[at] == usize::MAX {
            seen_at[at] = path.len();
            path.push(at);
            let left = batch_parents(at).find(|&parent| waits_for[parent] > 0);
            at = left.expect("a job that is left has a parent that is left");
        }
        path.push(at);
        let mut cycle = path.split_off(seen_at[at]);
        cycle.reverse();
        Some(cycle)
    }

    fn parent_ranges(&self) -> Vec<core::ops::Range<usize>> {
        let mut end = 0;
        let range = |place: &Place| {
            let start = end;
            if let Place::New { parents } = *place {
                end += parents;
            }
            start..end
        };
        self.places.iter().map(range).collect()
    }
}
