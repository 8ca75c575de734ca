//! How fast the SQLite store is on this machine's disk, every commit synced.
//!
//! `cargo run --release -p filch-store --example sqlite_speed [folder] [jobs]`

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use filch_scheduler::id::{CommitNo, Digest, Fence, Hold, JobId, LeaseNo, Seq, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, JobWrite, LeaseCause, LeaseRow, Loaded, Mutation};
use filch_scheduler::spec::JobSpec;
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use filch_store::{
    Commit, Filter, JobText, ListOrder, OwnerNote, PurgeCause, Sqlite, Store, StoredText,
};

/// When the first job is submitted; the others follow at 200 a millisecond.
const BEGIN: u64 = 1_700_000_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let folder = arguments.next().map_or_else(|| PathBuf::from("."), PathBuf::from);
    let jobs: u64 =
        arguments.next().map_or(Ok(1_000_000), |jobs| jobs.to_str().unwrap_or_default().parse())?;
    let folder = tempfile::tempdir_in(folder)?;
    println!("Microseconds a job, all of it in the one thread that commits:");
    println!(
        "batch      jobs |     put   claim     end |     sum |  jobs/s | commit ms p50   p99   max"
    );
    for (batch, jobs) in [(1, 5_000.min(jobs)), (100, 200_000.min(jobs)), (4_096, jobs)] {
        lives(&folder.path().join(format!("batch-{batch}.db")), batch, jobs)?;
    }
    questions(&folder.path().join("questions.db"), jobs)?;
    Ok(())
}

/// Whole lives: jobs are put, claimed and ended in batches, one batch behind the other.
fn lives(path: &Path, batch: u64, jobs: u64) -> Result<(), Box<dyn Error>> {
    let store = Sqlite::open(path, &OwnerNote::this_process())?;
    let mut commits = Commits::default();
    let [mut put, mut claim, mut end] = [Duration::ZERO; 3];
    let mut spans = Vec::new();
    let mut timed = |total: &mut Duration, commit: &Commit| {
        let began = Instant::now();
        let kept = store.commit(commit);
        spans.push(began.elapsed());
        *total += began.elapsed();
        kept
    };
    let steps = jobs.div_ceil(batch);
    let seqs = |step: u64| step * batch + 1..((step + 1) * batch).min(jobs) + 1;
    for step in 0..steps + 2 {
        if step < steps {
            timed(&mut put, &commits.put(seqs(step)))?;
        }
        if (1..=steps).contains(&step) {
            timed(&mut claim, &commits.claim(seqs(step - 1)))?;
        }
        if step >= 2 {
            timed(&mut end, &commits.end(seqs(step - 2)))?;
        }
    }
    spans.sort_unstable();
    let sum = put + claim + end;
    let [put, claim, end, all] = [put, claim, end, sum].map(|span| micros(span) / jobs as f64);
    let rate = jobs as f64 / sum.as_secs_f64();
    let commit =
        [50, 99, 100].map(|percent| micros(spans[(spans.len() - 1) * percent / 100]) / 1e3);
    let [p50, p99, max] = commit;
    print!("{batch:5} {jobs:9} | {put:7.2} {claim:7.2} {end:7.2} | {all:7.2} | {rate:7.0} | ");
    println!("{p50:13.2} {p99:5.2} {max:5.1}");
    if batch == 4_096 {
        retention(&store, &mut commits, jobs)?;
    }
    Ok(())
}

/// What it costs to start with many ended jobs, and to forget them.
fn retention(store: &Sqlite, commits: &mut Commits, jobs: u64) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    store.load(&mut |piece| drop(black_box(piece)))?;
    println!("load, {jobs} ended jobs and none live: {:.3} s", began.elapsed().as_secs_f64());
    let (mut look, mut purge) = (Duration::ZERO, Duration::ZERO);
    let count = 100_000.min(jobs);
    for _ in 0..count / 1_000 {
        let began = Instant::now();
        let expired = store.expired(None, Wall(BEGIN * 2), 1_000)?;
        look += began.elapsed();
        let seqs = expired.into_iter().map(|job| job.seq).collect();
        let began = Instant::now();
        let purges = vec![PurgeCause::Discarded];
        store.commit(&Commit { purges, ..commits.commit(vec![Mutation::Purge(seqs)]) })?;
        purge += began.elapsed();
    }
    let [look, purge] = [look, purge].map(|span| micros(span) / count as f64);
    println!("expired and purged, a thousand at once: {look:.2} + {purge:.2} us a job");
    Ok(())
}

fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

/// A start with all jobs unfinished, and what is asked most.
fn questions(path: &Path, jobs: u64) -> Result<(), Box<dyn Error>> {
    let mut commits = Commits::default();
    let store = Sqlite::open(path, &OwnerNote::this_process())?;
    for first in (1..=jobs).step_by(4_096) {
        store.commit(&commits.put(first..(first + 4_096).min(jobs + 1)))?;
    }
    drop(store);
    let began = Instant::now();
    let store = Sqlite::open(path, &OwnerNote::this_process())?;
    println!("open {jobs} jobs: {:.3} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let mut loaded = 0_u64;
    store.load(&mut |piece| {
        loaded += u64::from(matches!(piece, Loaded::Job(_)));
        black_box(piece);
    })?;
    assert_eq!(loaded, jobs);
    println!("load {jobs} live jobs: {:.3} s", began.elapsed().as_secs_f64());

    let seqs: Vec<Seq> = (1..=4_096.min(jobs)).map(Seq).collect();
    let ids: Vec<JobId> = seqs.iter().map(|seq| id(seq.0 * 199 % jobs + 1)).collect();
    asked("payload, neighbours", seqs.len(), || store.texts(JobText::Payload, &seqs).map(drop))?;
    asked("find by id, anywhere", ids.len(), || store.find(&ids, &[], &[]).map(drop))?;
    let page = || store.list(&Filter::default(), ListOrder::Before(Seq(jobs)), 100).map(drop);
    asked("list, one of a page of 100", 100, page)?;
    let dead = Filter { states: vec![JobState::Dead], ..Filter::default() };
    asked("list of dead ones, none there", 1, || {
        store.list(&dead, ListOrder::Before(Seq(jobs)), 100).map(drop)
    })?;
    asked("expired, none there", 1, || store.expired(None, Wall(u64::MAX >> 1), 1_000).map(drop))?;
    asked("room", 1, || {
        black_box(store.status());
        Ok::<_, Box<dyn Error>>(())
    })?;
    asked("history", 1, || store.history(ids[0]).map(drop))?;
    Ok(())
}

fn asked<E>(what: &str, count: usize, mut ask: impl FnMut() -> Result<(), E>) -> Result<(), E> {
    ask()?;
    let began = Instant::now();
    ask()?;
    println!("{what}: {:.2} us", micros(began.elapsed()) / count as f64);
    Ok(())
}

/// Makes commits that fit to one another.
struct Commits {
    last: CommitNo,
    lease: LeaseNo,
    name: Name,
    payload: StoredText,
}

impl Default for Commits {
    fn default() -> Self {
        let payload = format!("{{\"text\":\"{}\"}}", "x".repeat(89));
        assert_eq!(payload.len(), 100);
        let (last, lease) = (CommitNo(0), LeaseNo(0));
        Self { last, lease, name: "default".into(), payload: payload.into() }
    }
}

impl Commits {
    fn put(&mut self, seqs: std::ops::Range<u64>) -> Commit {
        let row = |seq| {
            let mut spec = JobSpec::new(id(seq));
            spec.body = Digest(id(seq + 7).0);
            (spec.queue, spec.kind) = (self.name.clone(), self.name.clone());
            let now = JobWrite { at: at(seq), ..write(seq, JobState::Queued, 0) };
            Mutation::Put(JobRow { seq: Seq(seq), spec, submitted_at: at(seq), now })
        };
        let payloads = seqs.clone().map(|seq| (Seq(seq), self.payload.clone())).collect();
        let mutations = seqs.map(row).collect();
        Commit { payloads, ..self.commit(mutations) }
    }

    fn claim(&mut self, seqs: std::ops::Range<u64>) -> Commit {
        self.lease = self.lease.next();
        let row = LeaseRow {
            number: self.lease,
            worker: Some(WorkerId::apart(7)),
            cause: LeaseCause::Claim,
            at: at(seqs.start),
            jobs: seqs.map(|seq| Hold { job: Seq(seq), fence: Fence(1) }).collect(),
        };
        self.commit(vec![Mutation::Lease(row)])
    }

    /// The row before the newest is closed.
    fn end(&mut self, seqs: std::ops::Range<u64>) -> Commit {
        let ends = seqs.map(|seq| {
            let late = JobWrite {
                attempts: 1,
                at: at(seq + 10_000),
                ..write(seq, JobState::Succeeded, 1)
            };
            Mutation::Write(late)
        });
        self.commit(ends.collect())
    }

    fn commit(&mut self, mutations: Vec<Mutation>) -> Commit {
        self.last = self.last.next();
        Commit { last: self.last, mutations, ..Commit::default() }
    }
}

const fn write(seq: u64, state: JobState, fence: u64) -> JobWrite {
    JobWrite {
        job: Seq(seq),
        state,
        fence: Fence(fence),
        attempts: 0,
        suspicions: 0,
        priority: 0,
        due: Wall(0),
        holder: None,
        last: None,
        reason: None,
        at: Wall(0),
    }
}

const fn at(seq: u64) -> Wall {
    Wall(BEGIN + seq / 200)
}

/// A UUIDv7 like those that clients make.
fn id(seq: u64) -> JobId {
    let random = u128::from(seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2);
    JobId(u128::from(at(seq).0) << 80 | 7 << 76 | 0b10 << 62 | random)
}
