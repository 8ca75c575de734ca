//! Metrics that are counted as things happen: what commits contain, and how long they take.
//!
//! The page stays short however many queues and kinds there are: those beyond a bound are counted
//! together. Metrics that are computed on request are in `http/metrics`.

mod histogram;
mod pace;

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use filch_metrics::{MetricKind, MetricsPage};
use filch_scheduler::dispatch::JobView;
use filch_scheduler::id::Seq;
use filch_scheduler::name::Name;
use filch_scheduler::record::{AttemptOutcome, JobWrite, LeaseCause, Mutation, Note, Reason};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;

use self::histogram::Histogram;
use self::pace::{LATELY_SECONDS, Pace, rate};

/// Pairs of a queue and a kind that are counted on their own.
const PAIRS_MAX: usize = 500;

/// The label of all names beyond the bounds.
pub(crate) const OTHERS: &str = "(others)";

/// The metrics of a server.
pub(crate) struct Metrics {
    jobs: Mutex<Jobs>,
    commits: Mutex<Histogram>,
    http_workers: AtomicUsize,
}

struct Jobs {
    /// Ends of jobs by queue and kind: succeeded, dead, cancelled. The first is for all others.
    ended: Vec<(Name, Name, [u64; 3])>,
    /// The same, of the last minute only.
    paces: Vec<Pace>,
    places: HashMap<(Name, Name), usize>,
    /// The pair that was counted last, which is likely to be the next.
    last: usize,
    /// Attempts that did not succeed: failed, snoozed, interrupted, lost, unstarted.
    attempts: [u64; 5],
    /// Jobs that workers own, and since when they run, if that is known.
    owned: HashMap<Seq, Option<Wall>, BuildHasherDefault<Spread>>,
    wait: Histogram,
    run: Histogram,
}

const OUTCOMES: [&str; 3] = ["succeeded", "dead", "cancelled"];

const ATTEMPTS: [&str; 5] = ["failed", "snoozed", "interrupted", "lost", "unstarted"];

const COMMIT_SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

const WAIT_SECONDS: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 1800.0, 7200.0,
];

/// Workers report the start of a job only if it lasts longer than the first of these.
const RUN_SECONDS: &[f64] =
    &[0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43200.0];

impl Default for Jobs {
    fn default() -> Self {
        Self {
            ended: vec![(Name::from(OTHERS), Name::from(OTHERS), [0; 3])],
            paces: Vec::new(),
            places: HashMap::new(),
            last: 0,
            attempts: [0; 5],
            owned: HashMap::default(),
            wait: Histogram::new(WAIT_SECONDS),
            run: Histogram::new(RUN_SECONDS),
        }
    }
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let commits = Mutex::new(Histogram::new(COMMIT_SECONDS));
        Self { jobs: Mutex::default(), commits, http_workers: AtomicUsize::new(0) }
    }

    /// Counts the time that a commit took to be durable.
    pub(crate) fn commit_took(&self, took: Duration) {
        self.commits.lock().expect("no panic while it is locked").observe(took.as_secs_f64());
    }

    /// Sets how many workers use plain HTTP.
    pub(crate) fn http_workers(&self, count: usize) {
        // Relaxed: no other data is published with it.
        self.http_workers.store(count, Ordering::Relaxed);
    }

    /// Counts what a commit contains. `look` finds a job in memory; every job of a commit is there
    /// until the commit is durable.
    pub(crate) fn committed(&self, mutations: &[Mutation], look: impl Fn(Seq) -> Option<JobView>) {
        let mut jobs = self.jobs.lock().expect("no panic while it is locked");
        for mutation in mutations {
            match mutation {
                Mutation::Lease(row) => {
                    for hold in &row.jobs {
                        match row.worker {
                            Some(_) => jobs.owned.insert(hold.job, None),
                            None => jobs.owned.remove(&hold.job),
                        };
                        if row.cause == LeaseCause::Claim
                            && let Some(view) = look(hold.job)
                        {
                            let since = view.submitted_at.0.max(view.due.0);
                            jobs.wait.observe(seconds(since, row.at.0));
                        }
                    }
                }
                Mutation::Write(write) => jobs.written(write, &look),
                Mutation::Note(Note::Attempt { outcome, .. }) => {
                    let index = match outcome {
                        AttemptOutcome::Failed(_) => 0,
                        AttemptOutcome::Snoozed => 1,
                        AttemptOutcome::Interrupted => 2,
                        AttemptOutcome::LostAlone | AttemptOutcome::LostAmongOthers => 3,
                        AttemptOutcome::Unstarted(_) => 4,
                    };
                    jobs.attempts[index] += 1;
                }
                _ => {}
            }
        }
    }

    /// How many jobs of a queue ended within the last minute.
    pub(crate) fn ended_last_minute(&self, queue: &Name) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let from = now.as_secs().saturating_sub(LATELY_SECONDS - 1);
        let jobs = self.jobs.lock().expect("no panic while it is locked");
        let pairs = jobs.ended.iter().zip(&jobs.paces);
        pairs.filter(|((of, ..), _)| of == queue).map(|(_, pace)| pace.since(from)).sum()
    }

    /// Throughput of a queue in jobs a second, over the last minute.
    pub(crate) fn per_second(&self, queue: &str) -> Option<f64> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let jobs = self.jobs.lock().expect("no panic while it is locked");
        let pairs = jobs.ended.iter().zip(&jobs.paces);
        let its_own = pairs.filter(|((of, ..), _)| of.as_str() == queue);
        rate(&its_own.map(|(_, pace)| pace).collect::<Vec<_>>(), now)
    }

    pub(crate) fn write(&self, page: &mut MetricsPage) {
        let jobs = self.jobs.lock().expect("no panic while it is locked");
        page.describe("filch_jobs_finished_total", MetricKind::Counter, "Jobs that have ended.");
        for (queue, kind, counts) in &jobs.ended {
            for (count, outcome) in counts.iter().zip(OUTCOMES).filter(|(count, _)| **count > 0) {
                let labels =
                    [("queue", queue.as_str()), ("kind", kind.as_str()), ("outcome", outcome)];
                page.sample("filch_jobs_finished_total", &labels, *count);
            }
        }
        page.describe(
            "filch_attempts_total",
            MetricKind::Counter,
            "Attempts that did not succeed.",
        );
        for (count, outcome) in jobs.attempts.iter().zip(ATTEMPTS) {
            page.sample("filch_attempts_total", &[("outcome", outcome)], *count);
        }
        let help = "Time from the submission of a job, or from its due time, to its assignment.";
        jobs.wait.write(page, "filch_job_wait_seconds", help);
        let help = "Run time of attempts. Attempts below 0.05 s count as 0 in the sum: workers do \
                    not report their exact time.";
        jobs.run.write(page, "filch_job_run_seconds", help);
        drop(jobs);
        let commits = self.commits.lock().expect("no panic while it is locked");
        commits.write(page, "filch_commit_seconds", "Time until a commit is durable.");
        // Relaxed: as in `http_workers`.
        let http_workers = self.http_workers.load(Ordering::Relaxed);
        let help = "Workers with an HTTP session.";
        page.single("filch_http_workers", MetricKind::Gauge, help, http_workers);
    }
}

impl Jobs {
    fn written(&mut self, write: &JobWrite, look: &impl Fn(Seq) -> Option<JobView>) {
        let outcome = match write.state {
            JobState::Running => {
                self.owned.insert(write.job, Some(write.at));
                return;
            }
            JobState::Succeeded => Some(0),
            JobState::Dead => Some(1),
            // Counted when no worker holds it any more: then it is written for the last time.
            JobState::Cancelled if write.holder.is_none() => Some(2),
            JobState::Cancelled => return,
            JobState::Blocked | JobState::Scheduled | JobState::Queued | JobState::Leased => None,
        };
        let is_lost = write.reason == Some(Reason::WorkerLost);
        match self.owned.remove(&write.job) {
            Some(Some(since)) if !is_lost => self.run.observe(seconds(since.0, write.at.0)),
            // It ended before the worker reported its start. A cancelled one may not have started.
            Some(None) if !is_lost && write.state != JobState::Cancelled => self.run.observe(0.0),
            _ => {}
        }
        if let Some(outcome) = outcome
            && let Some(view) = look(write.job)
        {
            let place = self.place(view);
            self.ended[place].2[outcome] += 1;
            self.paces.resize_with(self.ended.len(), Pace::default);
            self.paces[place].add(write.at, write.state != JobState::Cancelled);
        }
    }

    fn place(&mut self, view: JobView) -> usize {
        let (queue, kind, _) = &self.ended[self.last];
        if *queue == view.queue && *kind == view.kind {
            return self.last;
        }
        let pair = (view.queue, view.kind);
        self.last = match self.places.get(&pair) {
            Some(&place) => place,
            None if self.places.len() >= PAIRS_MAX => 0,
            None => {
                self.ended.push((pair.0.clone(), pair.1.clone(), [0; 3]));
                self.places.insert(pair, self.ended.len() - 1);
                self.ended.len() - 1
            }
        };
        self.last
    }
}

fn seconds(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1_000.0
}

/// A hasher for job numbers, which are consecutive: a multiplication spreads them well enough.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use filch_scheduler::dispatch::{
        Dispatch, DispatchConfig, DispatchEffect, DispatchEvent, Request,
    };
    use filch_scheduler::id::{JobId, MessageNo, RequestNo, SessionNo, WorkerId};
    use filch_scheduler::message::{Ending, FromWorker, Hello, HelloKind, Report, Serves};
    use filch_scheduler::spec::JobSpec;
    use filch_scheduler::time::{Monotonic, Now};

    use super::*;

    /// Plays events and passes every commit to the metrics, as the server's loop does.
    struct Player {
        dispatch: Dispatch,
        metrics: Metrics,
        now: Now,
    }

    impl Player {
        fn new() -> Self {
            let now = Now { monotonic: Monotonic(0), wall: Wall(1_000_000) };
            let dispatch = Dispatch::new(DispatchConfig::default(), now);
            Self { dispatch, metrics: Metrics::new(), now }
        }

        fn play(&mut self, event: DispatchEvent) {
            let mut effects = Vec::new();
            self.dispatch.handle(self.now, event, &mut effects);
            for effect in effects {
                if let DispatchEffect::Commit { number, mutations } = effect {
                    let look = |seq: Seq| self.dispatch.job_views(Seq(seq.0 - 1)).next();
                    self.metrics.committed(&mutations, look);
                    self.dispatch.handle(
                        self.now,
                        DispatchEvent::Committed(number),
                        &mut Vec::new(),
                    );
                }
            }
        }

        fn say(&mut self, number: u64, message: FromWorker) {
            let (session, number) = (SessionNo(1), MessageNo(number));
            let (worker, messages) = (WorkerId::apart(1), vec![message]);
            self.play(DispatchEvent::Worker { worker, session, number, messages });
        }

        fn page(&self) -> String {
            let mut page = MetricsPage::default();
            self.metrics.write(&mut page);
            page.into_text()
        }
    }

    fn pass(player: &mut Player, millis: u64) {
        player.now.monotonic.0 += millis * 1_000;
        player.now.wall.0 += millis;
    }

    #[test]
    fn ends_waits_and_runs_are_counted_from_what_commits_contain() {
        let mut player = Player::new();
        let mut specs = Vec::new();
        for name in ["a", "b"] {
            let mut spec = JobSpec::new(JobId::named(name, Wall(0)).unwrap());
            spec.kind = Name::from("odd \"kind\"");
            specs.push(spec);
        }
        let request = Request::Submit(specs);
        player.play(DispatchEvent::Request { from: RequestNo(1), by: None, request });
        pass(&mut player, 2_000);
        player.say(
            1,
            FromWorker::Hello(Hello {
                kind: HelloKind::New,
                slots: 2,
                want: 2,
                serves: Serves::All,
                reports: Vec::new(),
                started: Vec::new(),
                holds: Vec::new(),
            }),
        );
        let holds: Vec<_> = player
            .dispatch
            .job_views(Seq(0))
            .map(|view| filch_scheduler::id::Hold { job: view.seq, fence: view.fence })
            .collect();
        player.say(2, FromWorker::Started(holds[0]));
        pass(&mut player, 400);
        let finished = |hold| FromWorker::Report(Report::plain(hold, Ending::Finished));
        player.say(3, finished(holds[0]));
        player.say(4, finished(holds[1]));
        let page = player.page();
        for line in [
            "filch_jobs_finished_total{queue=\"default\",kind=\"odd \\\"kind\\\"\",outcome=\"succeeded\"} 2",
            "filch_job_wait_seconds_bucket{le=\"1\"} 0",
            "filch_job_wait_seconds_bucket{le=\"2.5\"} 2",
            "filch_job_wait_seconds_sum 4",
            "filch_job_run_seconds_bucket{le=\"0.05\"} 1",
            "filch_job_run_seconds_bucket{le=\"0.5\"} 2",
            "filch_job_run_seconds_sum 0.4",
            "filch_job_run_seconds_count 2",
        ] {
            assert!(page.lines().any(|found| found == line), "no {line}\n{page}");
        }
    }

    #[test]
    fn names_beyond_the_bound_are_counted_together() {
        let mut jobs = Jobs::default();
        let view = |kind: String| JobView {
            id: JobId(1),
            seq: Seq(1),
            state: JobState::Succeeded,
            queue: Name::from("q"),
            kind: Name::from(kind.as_str()),
            priority: 0,
            fence: filch_scheduler::id::Fence(1),
            attempts: 0,
            suspicions: 0,
            submitted_at: Wall(0),
            due: Wall(0),
            holder: None,
            progress: None,
        };
        for kind in 0..PAIRS_MAX + 10 {
            let place = jobs.place(view(kind.to_string()));
            assert_eq!(place == 0, kind >= PAIRS_MAX, "{kind}");
        }
        assert_eq!(jobs.ended.len(), PAIRS_MAX + 1);
        assert_eq!(jobs.place(view("7".into())), 8);
    }

    #[test]
    fn commits_are_counted_by_how_long_they_took() {
        let metrics = Metrics::new();
        metrics.commit_took(Duration::from_millis(3));
        let mut page = MetricsPage::default();
        metrics.write(&mut page);
        let page = page.into_text();
        assert!(page.contains("filch_commit_seconds_bucket{le=\"0.0025\"} 0\n"), "{page}");
        assert!(page.contains("filch_commit_seconds_bucket{le=\"0.005\"} 1\n"), "{page}");
    }
}
