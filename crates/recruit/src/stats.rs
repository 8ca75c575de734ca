//! Statistics: how often each job was drawn, how its slices ended, and how long they took.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use filch_metrics::{MetricKind, MetricsPage};

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Recruited,
    NoWork,
    Contended,
    Failed,
    Panicked,
}

impl Outcome {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Recruited => "recruited",
            Self::NoWork => "no_work",
            Self::Contended => "contended",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
        }
    }
}

/// Upper bounds of the histogram's buckets, in milliseconds; the last bucket has no bound.
const BUCKETS: [u64; 8] = [1, 2, 5, 10, 20, 50, 100, 1000];

#[derive(Debug, Default)]
pub(crate) struct Counts {
    selected: AtomicU64,
    recruited: AtomicU64,
    no_work: AtomicU64,
    contended: AtomicU64,
    failed: AtomicU64,
    panicked: AtomicU64,
    overrun: AtomicU64,
    over_budget: AtomicU64,
    not_awaited: AtomicU64,
    nanos: AtomicU64,
    buckets: [AtomicU64; BUCKETS.len() + 1],
}

impl Counts {
    pub(crate) fn selected(&self) {
        self.selected.fetch_add(1, Relaxed);
    }

    pub(crate) fn over_budget(&self) {
        self.over_budget.fetch_add(1, Relaxed);
    }

    /// Counts one more, and returns the count before it.
    pub(crate) fn not_awaited(&self) -> u64 {
        self.not_awaited.fetch_add(1, Relaxed)
    }

    pub(crate) fn finished(&self, outcome: Outcome, used: Duration, is_overrun: bool) {
        let count = match outcome {
            Outcome::Recruited => &self.recruited,
            Outcome::NoWork => &self.no_work,
            Outcome::Contended => &self.contended,
            Outcome::Failed => &self.failed,
            Outcome::Panicked => &self.panicked,
        };
        count.fetch_add(1, Relaxed);
        self.overrun.fetch_add(u64::from(is_overrun), Relaxed);
        let nanos = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Relaxed);
        let bucket = BUCKETS.iter().position(|bound| used <= Duration::from_millis(*bound));
        self.buckets[bucket.unwrap_or(BUCKETS.len())].fetch_add(1, Relaxed);
    }

    pub(crate) fn read(&self) -> JobCounts {
        JobCounts {
            selected: self.selected.load(Relaxed),
            recruited: self.recruited.load(Relaxed),
            no_work: self.no_work.load(Relaxed),
            contended: self.contended.load(Relaxed),
            failed: self.failed.load(Relaxed),
            panicked: self.panicked.load(Relaxed),
            overrun: self.overrun.load(Relaxed),
            over_budget: self.over_budget.load(Relaxed),
            not_awaited: self.not_awaited.load(Relaxed),
            time: Duration::from_nanos(self.nanos.load(Relaxed)),
            buckets: self.buckets.each_ref().map(|count| count.load(Relaxed)),
        }
    }
}

/// The statistics of a recruiter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecruiterStats {
    /// Number of enlist calls.
    pub enlisted: u64,
    /// Number of calls that enlisted with the process-wide recruiter before it was built.
    pub enlisted_before_setup: u64,
    /// Its jobs, in the order in which they were added.
    pub jobs: Vec<JobStats>,
}

/// The statistics of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobStats {
    /// The name of the job.
    pub id: String,
    /// Its current rate.
    pub parts_per_million: u32,
    /// Its counts.
    pub counts: JobCounts,
}

/// The counts of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobCounts {
    /// Draws that selected this job.
    pub selected: u64,
    /// Slices that did some work.
    pub recruited: u64,
    /// Slices that found nothing to do.
    pub no_work: u64,
    /// Slices that gave up because another recruit was doing the same work.
    pub contended: u64,
    /// Slices that failed.
    pub failed: u64,
    /// Slices that panicked.
    pub panicked: u64,
    /// Slices that exceeded the maximum duration, whatever their outcome.
    pub overrun: u64,
    /// Draws without a slice, because the time budget was used up.
    pub over_budget: u64,
    /// Draws without a slice, because the job is async and the caller cannot await.
    pub not_awaited: u64,
    /// The total duration of all slices.
    pub time: Duration,
    buckets: [u64; BUCKETS.len() + 1],
}

impl JobCounts {
    /// The number of slices that ran.
    pub fn slices(&self) -> u64 {
        self.recruited + self.no_work + self.contended + self.failed + self.panicked
    }
}

impl RecruiterStats {
    /// The statistics in the Prometheus text format.
    pub fn metrics(&self) -> String {
        let mut page = MetricsPage::default();
        page.single(
            "recruiter_enlisted_total",
            MetricKind::Counter,
            "Number of enlist calls.",
            self.enlisted,
        );
        page.single(
            "recruiter_enlisted_before_setup_total",
            MetricKind::Counter,
            "Number of enlist calls before the process-wide recruiter was built.",
            self.enlisted_before_setup,
        );
        self.write_draws(&mut page);
        self.write_slices(&mut page);
        page.into_text()
    }

    /// Writes a counter with one sample per job.
    fn write_counter(
        &self,
        page: &mut MetricsPage,
        name: &str,
        help: &str,
        count: fn(&JobCounts) -> u64,
    ) {
        page.describe(name, MetricKind::Counter, help);
        for job in &self.jobs {
            page.sample(name, &[("job", &job.id)], count(&job.counts));
        }
    }

    fn write_draws(&self, page: &mut MetricsPage) {
        self.write_counter(
            page,
            "recruiter_selected_total",
            "Number of draws that selected a job, by job.",
            |counts| counts.selected,
        );
        self.write_counter(
            page,
            "recruiter_over_budget_total",
            "Number of draws without a slice because the time budget was used up, by job.",
            |counts| counts.over_budget,
        );
        self.write_counter(
            page,
            "recruiter_not_awaited_total",
            "Number of draws of an async job by a caller that cannot await, by job.",
            |counts| counts.not_awaited,
        );
        let rate = "recruiter_rate";
        page.describe(
            rate,
            MetricKind::Gauge,
            "Current rate: the fraction of enlist calls that select a job, by job.",
        );
        for job in &self.jobs {
            page.sample(rate, &[("job", &job.id)], f64::from(job.parts_per_million) / 1e6);
        }
    }

    fn write_slices(&self, page: &mut MetricsPage) {
        let slices = "recruiter_slices_total";
        page.describe(
            slices,
            MetricKind::Counter,
            "Number of slices that ran, by job and outcome.",
        );
        for job in &self.jobs {
            let counts = &job.counts;
            for (outcome, count) in [
                (Outcome::Recruited, counts.recruited),
                (Outcome::NoWork, counts.no_work),
                (Outcome::Contended, counts.contended),
                (Outcome::Failed, counts.failed),
                (Outcome::Panicked, counts.panicked),
            ] {
                page.sample(slices, &[("job", &job.id), ("outcome", outcome.label())], count);
            }
        }
        self.write_counter(
            page,
            "recruiter_overrun_total",
            "Number of slices that exceeded the maximum duration, by job.",
            |counts| counts.overrun,
        );
        let seconds = "recruiter_slice_seconds";
        page.describe(seconds, MetricKind::Histogram, "Duration of slices in seconds, by job.");
        let bounds = BUCKETS.map(|millis| Duration::from_millis(millis).as_secs_f64());
        for JobStats { id, counts, .. } in &self.jobs {
            let sum = counts.time.as_secs_f64();
            page.buckets(seconds, &[("job", id)], &bounds, &counts.buckets, sum);
        }
    }
}
