//! Requests that need jobs which are not in memory: they wait until the store has looked those up.
//!
//! Memory holds every unfinished job, so only ended ones are ever fetched: a parent that ended long
//! ago, an id or a key that may have been used before, a dead job to be retried. While a request
//! waits, the ids it names are reserved: none of those jobs leaves memory or is purged. So when the
//! store answers, memory and answer together contain every job that the request asks about.
//!
//! Waiting requests are carried out in the order in which they came.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::job::Job;
use super::report::{Verdict, Word};
use super::{Answer, Dispatch, DispatchEffect, Refused, Request};
use crate::id::{CommitNo, FetchNo, JobId, LeaseNo, RequestNo, Seq, SessionNo, WorkerId};
use crate::name::Name;
use crate::record::{JobRow, Mutation};
use crate::spec::{JobSpec, QueueKey};
use crate::time::Wall;

/// Requests that wait for the store.
#[derive(Default)]
pub(crate) struct Waiting {
    line: VecDeque<Waiter>,
    last: FetchNo,
    /// How many waiting requests name each id.
    reserved: BTreeMap<JobId, u32>,
    /// How many waiting submits bring each id and each key. A request that names one of them waits
    /// behind that submit.
    arriving: BTreeMap<JobId, u32>,
    arriving_keys: BTreeMap<QueueKey, u32>,
    purging: VecDeque<Purge>,
}

/// Jobs that are being purged. For requests they no longer exist, but the store can still find them
/// until the purge is durable, and in every look-up that it may have made before that.
struct Purge {
    commit: CommitNo,
    jobs: BTreeSet<Seq>,
    /// The last look-up that may have been made before the purge was durable, once that is known.
    last: Option<FetchNo>,
}

struct Waiter {
    fetch: FetchNo,
    work: Work,
    found: Option<Found>,
}

/// Work that waits for the store.
enum Work {
    /// Who asks, and for what.
    Request(RequestNo, Option<Name>, Request),
    /// The reports of one batch about jobs that are not in memory.
    Reports { worker: WorkerId, session: SessionNo, words: Vec<Word> },
}

/// Ended jobs that the store found.
#[derive(Default)]
pub(super) struct Found {
    ids: BTreeMap<JobId, JobRow>,
    keys: BTreeMap<QueueKey, JobId>,
    seqs: BTreeMap<Seq, JobId>,
}

impl Found {
    fn new(rows: Vec<JobRow>, is_purged: impl Fn(Seq) -> bool) -> Self {
        let mut found = Self::default();
        for row in rows {
            // Unfinished jobs are in memory; a row that the store has for one of them is out of
            // date.
            let has_ended = row.now.state.is_ended() && row.now.holder.is_none();
            if has_ended && !is_purged(row.seq) {
                found.keys.extend(row.spec.queue_key().map(|key| (key, row.spec.id)));
                found.seqs.insert(row.seq, row.spec.id);
                found.ids.insert(row.spec.id, row);
            }
        }
        found
    }

    pub(super) fn by_id(&self, id: JobId) -> Option<&JobRow> {
        self.ids.get(&id)
    }

    pub(super) fn by_key(&self, key: &QueueKey) -> Option<&JobRow> {
        self.by_id(*self.keys.get(key)?)
    }

    pub(super) fn by_seq(&self, seq: Seq) -> Option<&JobRow> {
        self.by_id(*self.seqs.get(&seq)?)
    }
}

/// The jobs that a request asks about and that are not in memory.
#[derive(Default)]
struct Lack {
    ids: Vec<JobId>,
    keys: Vec<QueueKey>,
    /// It names an id or a key that another waiting request is about to bring.
    behind: bool,
}

impl Lack {
    fn is_nothing(&self) -> bool {
        self.ids.is_empty() && self.keys.is_empty() && !self.behind
    }
}

impl Waiting {
    /// Whether a waiting request names this job, by its id or by its key.
    fn reserves(&self, id: JobId, key: impl FnOnce() -> Option<QueueKey>) -> bool {
        !self.line.is_empty()
            && (self.reserved.contains_key(&id)
                || !self.arriving_keys.is_empty()
                    && key().is_some_and(|key| self.arriving_keys.contains_key(&key)))
    }

    /// How many requests wait, and how many batches of reports.
    fn counts(&self) -> (usize, usize) {
        let requests = self.line.iter().filter(|it| matches!(it.work, Work::Request(..))).count();
        (requests, self.line.len() - requests)
    }

    fn is_purged(&self, seq: Seq) -> bool {
        self.purging.iter().any(|purge| purge.jobs.contains(&seq))
    }

    /// Everything up to this commit is durable.
    pub(crate) fn receipt(&mut self, receipted: CommitNo) {
        for purge in self.purging.iter_mut().filter(|purge| purge.commit <= receipted) {
            purge.last.get_or_insert(self.last);
        }
        self.end_purges();
    }

    /// Drops a durable purge once no unanswered look-up may have been made before it.
    fn end_purges(&mut self) {
        let first = self.line.front().map(|waiter| waiter.fetch);
        let is_over =
            |purge: &Purge| purge.last.is_some_and(|last| first.is_none_or(|first| first > last));
        while self.purging.pop_front_if(|purge| is_over(purge)).is_some() {}
    }

    fn mark(&mut self, work: &Work, step: i32) {
        let Work::Request(.., request) = work else {
            return;
        };
        for id in named(request) {
            add(&mut self.reserved, id, step);
        }
        for job in request.submitted() {
            add(&mut self.arriving, job.id, step);
            if let Some(key) = job.queue_key() {
                add(&mut self.arriving_keys, key, step);
            }
        }
    }
}

/// Every job id that a request names.
fn named(request: &Request) -> impl Iterator<Item = JobId> {
    let (jobs, one) = match request {
        Request::Submit(_) | Request::SubmitWithin { .. } => (request.submitted(), None),
        Request::Cancel(job) | Request::Retry(job) | Request::SetPriority { job, .. } => {
            (Default::default(), Some(*job))
        }
        Request::SetQueue { .. } | Request::SetStrategy(_) | Request::DrainWorker(_) => {
            (Default::default(), None)
        }
    };
    let with_parents = |job: &JobSpec| core::iter::once(job.id).chain(job.parents.clone());
    one.into_iter().chain(jobs.iter().flat_map(with_parents))
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u32>, key: K, step: i32) {
    let count = counts.entry(key);
    match count {
        alloc::collections::btree_map::Entry::Occupied(mut entry) => {
            *entry.get_mut() = entry.get().strict_add_signed(step);
            if *entry.get() == 0 {
                entry.remove();
            }
        }
        alloc::collections::btree_map::Entry::Vacant(entry) => {
            entry.insert(0_u32.strict_add_signed(step));
        }
    }
}

impl Dispatch {
    /// Carries a request out, now or when the store has answered.
    pub(super) fn request(&mut self, from: RequestNo, by: Option<Name>, request: Request) {
        if let Err(refused) = self.check_bounds(request.submitted()) {
            self.reply(from, Answer::Refused(refused));
            return;
        }
        let lack = self.lack(&request);
        if lack.is_nothing() {
            self.carry_out(from, by, request, &Found::default());
        } else if self.waiting.counts().0 >= self.config.limits.waiting {
            self.reply(from, Answer::Refused(Refused::Busy));
        } else {
            self.wait(Work::Request(from, by, request), lack.ids, lack.keys, Vec::new());
        }
    }

    /// Looks up reports about jobs that are not in memory, because they may repeat accepted ones.
    /// Returns whether there is room for the look-up.
    #[must_use]
    pub(super) fn look_up_reports(&mut self, worker: WorkerId, session: SessionNo) -> bool {
        let words = core::mem::take(&mut self.outcome.reports_on_gone);
        if words.is_empty() {
            return true;
        }
        let has_room = self.waiting.counts().1 < self.config.limits.waiting;
        if has_room {
            let seqs = words.iter().map(|word| word.hold.job).collect();
            let work = Work::Reports { worker, session, words };
            self.wait(work, Vec::new(), Vec::new(), seqs);
        }
        has_room
    }

    fn wait(&mut self, work: Work, ids: Vec<JobId>, keys: Vec<QueueKey>, seqs: Vec<Seq>) {
        self.waiting.last = self.waiting.last.next();
        let fetch = self.waiting.last;
        self.waiting.mark(&work, 1);
        let is_known = ids.is_empty() && keys.is_empty() && seqs.is_empty();
        let found = is_known.then(Found::default);
        self.waiting.line.push_back(Waiter { fetch, work, found });
        if !is_known {
            self.outcome.others.push(DispatchEffect::Fetch { fetch, ids, keys, seqs });
        }
    }

    pub(super) fn fetched(&mut self, fetch: FetchNo, rows: Vec<JobRow>) {
        let found = Found::new(rows, |seq| self.waiting.is_purged(seq));
        let mut line = self.waiting.line.iter_mut();
        // If no unanswered request waits for this fetch, it was answered before; once is enough.
        if let Some(waiter) = line.find(|waiter| waiter.fetch == fetch && waiter.found.is_none()) {
            // Jobs that were found by key are reserved, too, from now on.
            for &id in found.ids.keys() {
                add(&mut self.waiting.reserved, id, 1);
            }
            waiter.found = Some(found);
        }
        while let Some(waiter) = self.waiting.line.pop_front_if(|waiter| waiter.found.is_some()) {
            self.go_on(waiter.work, &waiter.found.unwrap_or_default());
        }
        self.waiting.end_purges();
    }

    /// Carries this work out, now that everything it asks about is known.
    fn go_on(&mut self, work: Work, found: &Found) {
        let kept_for_it = self.named_here(&work, found);
        self.waiting.mark(&work, -1);
        for &id in found.ids.keys() {
            add(&mut self.waiting.reserved, id, -1);
        }
        match work {
            Work::Request(from, by, request) => self.carry_out(from, by, request, found),
            Work::Reports { worker, session, words } => {
                for word in words {
                    let now = found.by_seq(word.hold.job).map(|row| row.now);
                    let is_repeated =
                        now.is_some_and(|now| word.repeats(now.state, now.fence, now.last));
                    let verdict = Verdict::accepted_if(is_repeated, now.map(|now| now.fence));
                    self.answer_report(worker, session, word.hold, verdict);
                }
            }
        }
        for seq in kept_for_it {
            self.evict_if_unneeded(seq);
        }
    }

    /// The jobs in memory that may have stayed there only because of this work.
    fn named_here(&self, work: &Work, found: &Found) -> Vec<Seq> {
        let Work::Request(.., request) = work else {
            return found.seqs.keys().copied().collect();
        };
        let ids = named(request).chain(found.ids.keys().copied());
        let by_id = ids.filter_map(|id| self.jobs.by_id(id));
        let by_key = request.submitted().iter().filter_map(|spec| self.by_key(spec));
        by_id.chain(by_key).collect()
    }

    /// Purges ended jobs, except those that memory or a waiting request still needs.
    pub(super) fn purge(&mut self, proposed: &[(Seq, JobId)]) {
        let unneeded = proposed.iter().filter(|&&(seq, id)| {
            seq <= self.last_seq
                && self.jobs.find(seq).is_none()
                && !self.waiting.reserves(id, || None)
        });
        let unneeded = unneeded.map(|&(seq, _)| seq).filter(|&seq| !self.waiting.is_purged(seq));
        let jobs: BTreeSet<Seq> = unneeded.collect();
        if !jobs.is_empty() {
            self.mutate(Mutation::Purge(jobs.iter().copied().collect()));
            self.waiting.purging.push_back(Purge { commit: self.upcoming(), jobs, last: None });
        }
    }

    /// Removes history, except rows that a starting server would have to read.
    pub(super) fn trim(&mut self, mut leases: Vec<LeaseNo>, notes_before: Wall) {
        let (open, last) = (self.ledger.open(), self.ledger.last());
        leases.retain(|number| *number <= last && !open.contains_key(number));
        self.mutate(Mutation::Trim { leases, notes_before });
    }

    /// Whether a waiting request names this job, by its id or by its key.
    pub(super) fn is_reserved(&self, job: &Job) -> bool {
        self.waiting.reserves(job.id, || {
            let key = job.key()?.clone();
            Some(QueueKey { queue: self.queues.get(job.queue).settings.queue.clone(), key })
        })
    }

    /// The job in memory that has the queue and the key of this one.
    pub(super) fn by_key(&self, spec: &JobSpec) -> Option<Seq> {
        self.jobs.by_key(self.queues.number(&spec.queue)?, spec.key.as_ref()?)
    }

    fn lack(&self, request: &Request) -> Lack {
        let mut lack = Lack::default();
        for id in named(request) {
            // The earlier submit may turn out to bring nothing new: then the store's answer counts.
            if !self.waiting.arriving.is_empty() && self.waiting.arriving.contains_key(&id) {
                lack.behind = true;
            }
            if self.jobs.by_id(id).is_none() && !self.is_fresh(id) {
                lack.ids.push(id);
            }
        }
        let jobs = request.submitted().iter();
        for (job, key) in jobs.filter_map(|job| Some((job, job.queue_key()?))) {
            if self.waiting.arriving_keys.contains_key(&key) {
                lack.behind = true;
            }
            if self.by_key(job).is_none() {
                lack.keys.push(key);
            }
        }
        lack
    }

    /// Whether this id is newer than those of all stored jobs that are not in memory, so that none
    /// of them can have it.
    fn is_fresh(&self, id: JobId) -> bool {
        id.made_at().is_some_and(|made_at| Some(made_at) > self.newest_gone)
    }
}
