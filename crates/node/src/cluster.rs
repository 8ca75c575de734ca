//! The cluster: its workers, their deques, and every way a job moves.
//!
//! The front of a deque is its owner end, where the owner pushes and pops. The back is the steal
//! end, where thieves take the job that has waited longest. A job is in one deque or in flight on
//! one worker until it is complete. A refused request has no effect.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use crate::limits;
use crate::random::Random;

/// The parameters of a cluster.
#[derive(Debug)]
pub(crate) struct Setup {
    /// Distinct, at least one.
    pub(crate) workers: Vec<String>,
    pub(crate) jobs: u32,
    pub(crate) placement: Placement,
    pub(crate) job_duration_ms: u64,
    pub(crate) seed: u64,
}

/// Which worker gets the k-th of n jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Worker k mod m.
    Modulo,
    /// Consecutive jobs go to the same worker, as evenly as possible.
    Blocks,
    /// The first worker gets all.
    Single,
}

pub(crate) struct Cluster {
    pub(super) workers: Vec<Worker>,
    by_name: HashMap<Arc<str>, usize>,
    pub(super) jobs: Jobs,
    pub(super) random: Random,
    pub(super) job_duration_ms: u64,
    /// The cluster has not been set up yet: the first request that names busy workers defines it.
    fresh: bool,
}

pub(super) struct Worker {
    pub(super) name: Arc<str>,
    pub(super) deque: VecDeque<Job>,
    pub(super) running: Option<Running>,
}

pub(super) struct Running {
    pub(super) job: Job,
    pub(super) remaining_ms: u64,
}

/// A job, identified by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// `job` and a number.
    Dealt(u32),
    Pushed(Arc<str>),
}

/// The ids of all jobs that are queued or in flight.
#[derive(Default)]
pub(super) struct Jobs {
    /// Whether dealt job number k exists, at index k - 1.
    dealt: Vec<bool>,
    pushed: HashSet<Arc<str>>,
    count: usize,
    pushed_bytes: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Theft {
    pub(crate) victim: Arc<str>,
    pub(crate) job: String,
    pub(crate) victim_queue_size: usize,
}

/// Why a request was not carried out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    UnknownWorker(String),
    NothingToSteal,
    QueueIsEmpty,
    JobExists(String),
    WorkerIsRunning(String),
    NotInFlight {
        worker: String,
        job: String,
    },
    /// The value of this field exceeds a limit.
    TooMuch(&'static str),
}

/// The workers of a node that has not been set up.
const FRESH_WORKERS: [&str; 3] = ["w1", "w2", "w3"];

/// How many jobs a fresh node deals to the workers that the first request names as busy.
const FRESH_JOBS: u32 = 6;

pub(crate) const DEFAULT_JOB_DURATION_MS: u64 = 100;

impl Cluster {
    /// Three idle workers.
    pub(crate) fn fresh(seed: u64) -> Self {
        let workers = FRESH_WORKERS.map(str::to_owned).into();
        let mut cluster = Self::new(Setup {
            workers,
            jobs: 0,
            placement: Placement::Modulo,
            job_duration_ms: DEFAULT_JOB_DURATION_MS,
            seed,
        });
        cluster.fresh = true;
        cluster
    }

    pub(crate) fn new(setup: Setup) -> Self {
        let mut cluster = Self {
            workers: Vec::new(),
            by_name: HashMap::new(),
            jobs: Jobs::default(),
            random: Random::new(setup.seed),
            job_duration_ms: setup.job_duration_ms,
            fresh: false,
        };
        cluster.set_workers(&setup.workers);
        cluster.deal(setup.jobs, setup.placement, setup.workers.len());
        cluster
    }

    fn set_workers(&mut self, names: &[impl AsRef<str>]) {
        self.workers = names
            .iter()
            .map(|name| Worker {
                name: name.as_ref().into(),
                deque: VecDeque::new(),
                running: None,
            })
            .collect();
        self.by_name = self.workers.iter().map(|worker| worker.name.clone()).zip(0..).collect();
    }

    /// Deals new jobs to the first `over` workers, each pushed at the owner end.
    fn deal(&mut self, jobs: u32, placement: Placement, over: usize) {
        self.jobs.deal(jobs);
        let share = jobs as usize / over + 1;
        for worker in &mut self.workers[..over] {
            worker.deque.reserve(if placement == Placement::Single { 0 } else { share });
        }
        let mut push = |worker: usize, number: u32| {
            self.workers[worker].deque.push_front(Job::Dealt(number));
        };
        match placement {
            Placement::Modulo => (1..=jobs).for_each(|number| push(number as usize % over, number)),
            Placement::Single => (1..=jobs).for_each(|number| push(0, number)),
            Placement::Blocks => {
                let end_of = |worker: usize| (worker as u64 * u64::from(jobs) / over as u64) as u32;
                for worker in 0..over {
                    (end_of(worker) + 1..=end_of(worker + 1))
                        .for_each(|number| push(worker, number));
                }
            }
        }
    }

    /// Moves one job from the steal end of a random busy worker to the owner end of the thief.
    /// Workers without queued jobs are skipped.
    pub(crate) fn steal(&mut self, thief: &str, busy: &[String]) -> Result<Theft, Refused> {
        let (thief, candidates) = if self.fresh {
            self.begin_with(thief, busy)?
        } else {
            let thief = self.find(thief)?;
            let mut seen = HashSet::from([thief]);
            let mut candidates = Vec::with_capacity(busy.len());
            for name in busy {
                let worker = self.find(name)?;
                if seen.insert(worker) {
                    candidates.push(worker);
                }
            }
            (thief, candidates)
        };
        let eligible: Vec<usize> = candidates
            .into_iter()
            .filter(|&worker| !self.workers[worker].deque.is_empty())
            .collect();
        if eligible.is_empty() {
            return Err(Refused::NothingToSteal);
        }
        let victim = &mut self.workers[eligible[self.random.choose(eligible.len())]];
        let job = victim.deque.pop_back().expect("an eligible victim has a job");
        let theft = Theft {
            victim: victim.name.clone(),
            job: job.to_string(),
            victim_queue_size: victim.deque.len(),
        };
        self.workers[thief].deque.push_front(job);
        Ok(theft)
    }

    /// Sets up a fresh cluster with the thief and the busy workers that the caller named.
    fn begin_with(&mut self, thief: &str, busy: &[String]) -> Result<(usize, Vec<usize>), Refused> {
        let mut seen = HashSet::from([thief]);
        let mut names: Vec<&str> =
            busy.iter().map(String::as_str).filter(|name| seen.insert(name)).collect();
        if names.is_empty() {
            return Err(Refused::NothingToSteal);
        }
        if seen.len() > limits::WORKERS {
            return Err(Refused::TooMuch("busy_workers"));
        }
        let over = names.len();
        names.push(thief);
        self.set_workers(&names);
        self.deal(FRESH_JOBS, Placement::Modulo, over);
        self.fresh = false;
        Ok((over, (0..over).collect()))
    }

    /// Adds a job at the owner end. Returns the new length of the deque.
    pub(crate) fn push(&mut self, worker: &str, job: &str) -> Result<usize, Refused> {
        let worker = self.find(worker)?;
        let job = self.jobs.add(job)?;
        self.fresh = false;
        let deque = &mut self.workers[worker].deque;
        deque.push_front(job);
        Ok(deque.len())
    }

    /// The owner takes its newest job and runs it. Returns the id and how many jobs are left.
    pub(crate) fn pop(&mut self, worker: &str) -> Result<(String, usize), Refused> {
        let worker = self.find(worker)?;
        let worker = &mut self.workers[worker];
        if let Some(running) = &worker.running {
            return Err(Refused::WorkerIsRunning(running.job.to_string()));
        }
        let job = worker.deque.pop_front().ok_or(Refused::QueueIsEmpty)?;
        let id = job.to_string();
        worker.running = Some(Running { job, remaining_ms: self.job_duration_ms });
        Ok((id, worker.deque.len()))
    }

    /// Completes the job in flight, no matter how much of its time remains.
    pub(crate) fn complete(&mut self, worker: &str, job: &str) -> Result<(), Refused> {
        let index = self.find(worker)?;
        let running = &mut self.workers[index].running;
        match running.take_if(|running| running.job == self.jobs.name(job)) {
            Some(done) => {
                self.jobs.remove(&done.job);
                Ok(())
            }
            None => Err(Refused::NotInFlight { worker: worker.to_owned(), job: job.to_owned() }),
        }
    }

    /// Each worker's name, how many jobs it has queued, and whether it is idle.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&str, usize, bool)> {
        self.workers.iter().map(|worker| (&*worker.name, worker.deque.len(), worker.is_idle()))
    }

    /// Whether no job is queued or in flight.
    pub(crate) fn all_idle(&self) -> bool {
        self.workers.iter().all(Worker::is_idle)
    }

    fn find(&self, name: &str) -> Result<usize, Refused> {
        self.by_name.get(name).copied().ok_or_else(|| Refused::UnknownWorker(name.to_owned()))
    }
}

impl Worker {
    fn is_idle(&self) -> bool {
        self.deque.is_empty() && self.running.is_none()
    }
}

impl Jobs {
    fn deal(&mut self, jobs: u32) {
        self.dealt = vec![true; jobs as usize];
        self.count = jobs as usize;
    }

    /// The job with this id, whether it exists or not.
    fn name(&self, id: &str) -> Job {
        let dealt = id
            .strip_prefix("job")
            .filter(|digits| !digits.starts_with(['0', '+']))
            .and_then(|digits| digits.parse::<u32>().ok())
            .filter(|&number| number as usize <= self.dealt.len());
        dealt.map_or_else(|| Job::Pushed(id.into()), Job::Dealt)
    }

    fn add(&mut self, id: &str) -> Result<Job, Refused> {
        let job = self.name(id);
        let exists = match &job {
            Job::Dealt(number) => self.dealt[*number as usize - 1],
            Job::Pushed(id) => self.pushed.contains(id),
        };
        if exists {
            return Err(Refused::JobExists(id.to_owned()));
        }
        let bytes = self.pushed_bytes + id.len();
        if self.count == limits::JOBS || bytes > limits::JOB_ID_BYTES {
            return Err(Refused::TooMuch("job_id"));
        }
        match &job {
            Job::Dealt(number) => self.dealt[*number as usize - 1] = true,
            Job::Pushed(id) => {
                self.pushed.insert(id.clone());
                self.pushed_bytes = bytes;
            }
        }
        self.count += 1;
        Ok(job)
    }

    pub(super) fn remove(&mut self, job: &Job) {
        let was_there = match job {
            Job::Dealt(number) => std::mem::replace(&mut self.dealt[*number as usize - 1], false),
            Job::Pushed(id) => {
                self.pushed_bytes -= id.len();
                self.pushed.remove(id)
            }
        };
        assert!(was_there, "{job} completes once");
        self.count -= 1;
    }
}

impl fmt::Display for Job {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dealt(number) => write!(formatter, "job{number}"),
            Self::Pushed(id) => formatter.write_str(id),
        }
    }
}

impl Refused {
    /// The Maelstrom error code.
    pub(crate) const fn code(&self) -> u32 {
        match self {
            Self::NothingToSteal | Self::QueueIsEmpty => 11,
            Self::TooMuch(_) => 12,
            Self::UnknownWorker(_) => 20,
            Self::JobExists(_) => 21,
            Self::WorkerIsRunning(_) | Self::NotInFlight { .. } => 22,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownWorker(worker) => write!(formatter, "unknown worker: {worker}"),
            Self::NothingToSteal => formatter.write_str("nothing to steal"),
            Self::QueueIsEmpty => formatter.write_str("queue is empty"),
            Self::JobExists(job) => write!(formatter, "job already exists: {job}"),
            Self::WorkerIsRunning(job) => write!(formatter, "worker is running: {job}"),
            Self::NotInFlight { worker, job } => {
                write!(formatter, "job not in flight on {worker}: {job}")
            }
            Self::TooMuch(field) => write!(formatter, "invalid field: {field}"),
        }
    }
}
