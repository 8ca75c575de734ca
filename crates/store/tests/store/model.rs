//! Random commits, valid and invalid, against the simplest model of a store.

use filch_scheduler::id::{CommitNo, Fence, Hold, JobId, LeaseNo, Seq, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::{
    JobRow, JobWrite, LastReport, LeaseCause, LeaseRow, Loaded, Mutation, Note, OperatorAct,
    QueueSettings, ReportKind,
};
use filch_scheduler::spec::{JobSpec, QueueKey};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Wall};
use filch_store::{Expired, Memory};
use proptest::prelude::*;

use crate::pair::{Pair, Place, commit, load};

/// Lists that every query scans; a commit is tried on a copy.
#[derive(Clone, Default)]
struct Model {
    last_seq: u64,
    jobs: Vec<JobRow>,
    leases: Vec<LeaseRow>,
    last_lease: u64,
    open: Vec<LeaseNo>,
    queues: Vec<QueueSettings>,
    lease_length: Option<Duration>,
    notes: Vec<Note>,
}

impl Model {
    fn commit(&mut self, mutations: &[Mutation]) -> bool {
        let mut copy = self.clone();
        let fits = mutations.iter().all(|mutation| copy.mutate(mutation).is_some());
        if fits {
            *self = copy;
        }
        fits
    }

    fn mutate(&mut self, mutation: &Mutation) -> Option<()> {
        match mutation {
            Mutation::Put(row) => {
                let key = row.spec.queue_key();
                let same_key = |other: &JobRow| key.is_some() && other.spec.queue_key() == key;
                let clashes = |other: &JobRow| other.spec.id == row.spec.id || same_key(other);
                must(row.seq.0 > self.last_seq && !self.jobs.iter().any(clashes))?;
                must(can_be_kept(&row.now))?;
                self.last_seq = row.seq.0;
                self.jobs.push(row.clone());
            }
            Mutation::Write(write) => {
                let now = &mut self.jobs.iter_mut().find(|row| row.seq == write.job)?.now;
                must(can_be_kept(write) && write.fence >= now.fence)?;
                must(now.state != JobState::Succeeded)?;
                must(now.state != JobState::Dead || write.fence > now.fence)?;
                let lets_go = now.holder.is_some() && write.state == JobState::Cancelled;
                must(now.state != JobState::Cancelled || lets_go)?;
                *now = *write;
            }
            Mutation::Priority { job, priority } => {
                self.jobs.iter_mut().find(|row| row.seq == *job)?.now.priority = *priority;
            }
            Mutation::Lease(row) => {
                must(row.number.0 > self.last_lease)?;
                let there = |hold: &Hold| self.jobs.iter().any(|job| job.seq == hold.job);
                must(row.jobs.iter().all(there))?;
                self.last_lease = row.number.0;
                self.leases.push(row.clone());
                self.open.push(row.number);
            }
            Mutation::Close(number) => {
                let place = self.open.iter().position(|open| open == number)?;
                self.open.remove(place);
            }
            Mutation::Queue(settings) => {
                self.queues.retain(|other| other.queue != settings.queue);
                self.queues.push(settings.clone());
                self.queues.sort_by_key(|settings| settings.queue.clone());
            }
            Mutation::LeaseLength(length) => self.lease_length = Some(*length),
            Mutation::Purge(jobs) => {
                for job in jobs {
                    let place = self.jobs.iter().position(|row| row.seq == *job)?;
                    must(!is_live(&self.jobs[place].now))?;
                    self.jobs.remove(place);
                }
            }
            Mutation::Trim { leases, .. } => {
                must(!leases.iter().any(|number| self.open.contains(number)))?;
                self.leases.retain(|row| !leases.contains(&row.number));
            }
            Mutation::Note(note) => self.notes.push(note.clone()),
            Mutation::Strategy(_) | Mutation::Output(_) => unreachable!("not among the steps"),
        }
        Some(())
    }

    fn load(&self, commit: CommitNo) -> Vec<Loaded> {
        let mut loaded = vec![Loaded::Numbers {
            commit,
            seq: Seq(self.last_seq),
            lease: LeaseNo(self.last_lease),
            newest_id: self.jobs.iter().filter_map(|row| row.spec.id.made_at()).max(),
        }];
        loaded.extend(self.lease_length.map(Loaded::LeaseLength));
        loaded.extend(self.queues.iter().cloned().map(Loaded::Queue));
        let is_waited_for = |row: &JobRow| {
            let mut blocked = self.jobs.iter().filter(|child| child.now.state == JobState::Blocked);
            blocked.any(|child| child.spec.parents.contains(&row.spec.id))
        };
        let needed = self.jobs.iter().filter(|row| is_live(&row.now) || is_waited_for(row));
        let (ended, unfinished): (Vec<_>, Vec<_>) =
            needed.cloned().partition(|row| row.now.state.is_ended());
        loaded.extend(ended.into_iter().chain(unfinished).map(Loaded::Job));
        let is_open = |row: &&LeaseRow| self.open.contains(&row.number);
        loaded.extend(self.leases.iter().filter(is_open).cloned().map(Loaded::Lease));
        loaded
    }

    fn expired(&self, after: (Wall, Seq), before: Wall, limit: usize) -> Vec<Expired> {
        let mut expired: Vec<&JobRow> = self.jobs.iter().collect();
        expired.retain(|row| !is_live(&row.now) && row.now.at < before);
        expired.retain(|row| (row.now.at, row.seq) > after);
        expired.sort_by_key(|row| (row.now.at, row.seq));
        let expired = expired.into_iter().take(limit);
        expired.map(|row| Expired { at: row.now.at, seq: row.seq, id: row.spec.id }).collect()
    }
}

fn must(fits: bool) -> Option<()> {
    fits.then_some(())
}

fn is_live(now: &JobWrite) -> bool {
    !now.state.is_ended() || now.holder.is_some()
}

fn can_be_kept(now: &JobWrite) -> bool {
    match now.state {
        JobState::Leased => false,
        JobState::Running => now.holder.is_some(),
        JobState::Cancelled => true,
        _ => now.holder.is_none(),
    }
}

/// One mutation. What it names is picked from what is there at that moment, so that most of them
/// fit.
#[derive(Clone, Debug)]
enum Step {
    Put { ahead: u64, id: u8, key: Option<u8>, parents: Vec<u8>, state: JobState },
    Write { job: Pick, state: JobState, fence: u64, held: bool, at: u64 },
    Priority { job: Pick },
    Lease { ahead: u64, job: Pick },
    Close { row: Pick },
    Queue { queue: u8, weight: u32 },
    LeaseLength(u64),
    Purge(Vec<Pick>),
    Trim { row: Pick },
    Note,
}

/// One of those that are there; now and then none of them.
type Pick = prop::sample::Index;

fn pick<T: Copy>(pick: Pick, from: impl Iterator<Item = T>, none: T) -> T {
    let from: Vec<T> = from.chain([none]).collect();
    *pick.get(&from)
}

fn steps() -> impl Strategy<Value = Step> {
    let state = || prop::sample::select(JobState::ALL.to_vec());
    let begin =
        prop::sample::select(vec![JobState::Queued, JobState::Blocked, JobState::Cancelled]);
    let ahead = || prop_oneof![18 => Just(1_u64), 1 => Just(0), 1 => Just(3)];
    let key = || prop::option::weighted(0.2, 0..4_u8);
    let job = any::<Pick>;
    let parents = prop::collection::vec(0..48_u8, 0..3);
    let purge = prop::collection::vec(job(), 1..3);
    prop_oneof![
        6 => (ahead(), 0..48_u8, key(), parents, begin).prop_map(
            |(ahead, id, key, parents, state)| Step::Put { ahead, id, key, parents, state }),
        9 => (job(), state(), 0..4_u64, any::<bool>(), 0..9_u64).prop_map(
            |(job, state, fence, held, at)| Step::Write { job, state, fence, held, at }),
        1 => job().prop_map(|job| Step::Priority { job }),
        2 => (ahead(), job()).prop_map(|(ahead, job)| Step::Lease { ahead, job }),
        2 => job().prop_map(|row| Step::Close { row }),
        1 => (0..3_u8, 1..9_u32).prop_map(|(queue, weight)| Step::Queue { queue, weight }),
        1 => (1..9_u64).prop_map(Step::LeaseLength),
        1 => purge.prop_map(Step::Purge),
        1 => job().prop_map(|row| Step::Trim { row }),
        1 => Just(Step::Note),
    ]
}

/// A readable id, or one that is no UUID at all.
fn id(number: u8) -> JobId {
    let name = format!("job-{number}");
    let readable = JobId::named(&name, Wall(number.into()));
    let other = JobId(u128::MAX - u128::from(number));
    readable.filter(|_| number % 4 != 3).unwrap_or(other)
}

/// Jobs of two queues may have the same key.
fn queue(number: u8) -> Name {
    Name::from(["one", "two"][usize::from(number) % 2])
}

fn key(number: u8) -> Name {
    Name::from(format!("k{number}").as_str())
}

fn mutation(step: &Step, model: &Model) -> Mutation {
    let worker = WorkerId::apart(1);
    let job = |job: Pick| pick(job, model.jobs.iter().map(|row| row.seq), Seq(99));
    let write = |job, state, fence, held: bool, at| JobWrite {
        job,
        state,
        fence: Fence(fence),
        attempts: 0,
        suspicions: 0,
        priority: 0,
        due: Wall(0),
        holder: held.then_some(worker),
        last: (!held && at % 2 == 0).then_some(LastReport { worker, kind: ReportKind::Finished }),
        reason: None,
        at: Wall(at),
    };
    match *step {
        Step::Put { ahead, id: number, key: named, ref parents, state } => {
            let seq = Seq(model.last_seq + ahead);
            let mut spec = JobSpec::new(id(number));
            spec.key = named.map(key);
            spec.queue = queue(number);
            spec.parents = parents.iter().copied().map(id).collect();
            let now = write(seq, state, 0, false, 0);
            Mutation::Put(JobRow { seq, spec, submitted_at: Wall(0), now })
        }
        Step::Write { job: picked, state, fence, held, at } => {
            let job = job(picked);
            let kept = model.jobs.iter().find(|row| row.seq == job);
            // Three of four times the fence stays or grows.
            let fence = (kept.map_or(0, |row| row.now.fence.0) + fence).saturating_sub(1);
            let held = held && state == JobState::Cancelled || state == JobState::Running;
            Mutation::Write(write(job, state, fence, held, at))
        }
        Step::Priority { job: picked } => Mutation::Priority { job: job(picked), priority: 7 },
        Step::Lease { ahead, job: picked } => {
            let jobs = vec![Hold { job: job(picked), fence: Fence(1) }];
            let (number, cause) = (LeaseNo(model.last_lease + ahead), LeaseCause::Claim);
            Mutation::Lease(LeaseRow { number, worker: Some(worker), cause, jobs, at: Wall(0) })
        }
        Step::Close { row } => {
            Mutation::Close(pick(row, model.open.iter().copied(), LeaseNo(model.last_lease + 1)))
        }
        Step::Queue { queue, weight } => {
            Mutation::Queue(QueueSettings { weight, ..QueueSettings::new(key(queue)) })
        }
        Step::LeaseLength(seconds) => Mutation::LeaseLength(Duration::from_secs(seconds)),
        Step::Purge(ref jobs) => Mutation::Purge(jobs.iter().copied().map(job).collect()),
        Step::Trim { row } => {
            let numbers = model.leases.iter().map(|row| row.number);
            let leases = vec![pick(row, numbers, LeaseNo(model.last_lease + 1))];
            Mutation::Trim { leases, notes_before: Wall(0) }
        }
        Step::Note => Mutation::Note(Note::Act { by: None, act: OperatorAct::DrainWorker(worker) }),
    }
}

/// Commits of what fits to what was before them, or nearly: each is tried once it is made.
fn play(commits: &[Vec<Step>], mut try_commit: impl FnMut(&[Mutation], &Model, bool)) {
    let mut model = Model::default();
    for steps in commits {
        // Numbers count from the steps before, also within a commit.
        let mut ahead = model.clone();
        let mut mutations = Vec::new();
        for step in steps {
            mutations.push(mutation(step, &ahead));
            let _ = ahead.mutate(&mutations[mutations.len() - 1]);
        }
        let fits = model.commit(&mutations);
        try_commit(&mutations, &model, fits);
    }
}

fn commits() -> impl Strategy<Value = Vec<Vec<Step>>> {
    prop::collection::vec(prop::collection::vec(steps(), 0..4), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn memory_matches_the_model(commits in commits()) {
        let (mut memory, mut last, mut after) = (Memory::default(), CommitNo(0), Model::default());
        play(&commits, |mutations, model, fits| {
            let before = memory.clone();
            let kept = memory.commit(last.next(), mutations);
            assert_eq!(kept.is_ok(), fits, "{kept:?}");
            if fits {
                last = last.next();
            } else {
                assert_eq!(memory, before);
            }
            assert_eq!(memory.last_commit(), last);
            assert!(memory.jobs().eq(&model.jobs));
            assert!(memory.leases().eq(&model.leases));
            assert!(memory.open_leases().map(|row| row.number).eq(model.open.clone()));
            assert_eq!(memory.notes(), &model.notes);
            assert_eq!(memory.load().collect::<Vec<_>>(), model.load(last));
            for limit in [3, 99] {
                for after in [(Wall(0), Seq(0)), (Wall(2), Seq(limit as u64)), (Wall(6), Seq(1))] {
                    let expected = model.expired(after, Wall(6), limit);
                    assert_eq!(memory.expired(Some(after), Wall(6), limit), expected);
                }
            }
            after = model.clone();
        });
        for number in 0..48 {
            let by_id = after.jobs.iter().filter(|row| row.spec.id == id(number));
            prop_assert_eq!(memory.find(&[id(number)], &[], &[]), by_id.cloned().collect::<Vec<_>>());
            let wanted = QueueKey { queue: queue(number), key: key(number) };
            let by_key = after.jobs.iter().filter(|row| row.spec.queue_key().as_ref() == Some(&wanted));
            let found = memory.find(&[], std::slice::from_ref(&wanted), &[]);
            prop_assert_eq!(found, by_key.cloned().collect::<Vec<_>>());
        }
    }
}

/// Random commits leave the same in both stores.
pub(crate) fn random_commits<P: Place>() {
    let config = ProptestConfig { cases: 50, ..ProptestConfig::with_source_file(file!()) };
    proptest!(config, |(commits in commits())| {
        let (mut pair, mut last) = (Pair::<P>::new(), CommitNo(0));
        play(&commits, |mutations, _, fits| {
            let kept = pair.commit(&commit(last.next(), mutations.to_vec()));
            assert_eq!(kept.is_ok(), fits, "{kept:?}");
            last = if fits { last.next() } else { last };
            let [one, other] = pair.both().map(load);
            assert_eq!(one, other);
        });
        // Histories are not compared: what is leased here may have ended before.
        pair.compare_rows();
        pair.reopen();
        pair.compare_rows();
    });
}
