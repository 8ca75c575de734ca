//! The counters of a pool in Prometheus' text format.

use filch_metrics::{MetricKind, MetricsPage};

use crate::pool::Pool;
use crate::stats::{PoolStats, WorkerState, WorkerStats};

/// A counter of each worker.
struct Count {
    name: &'static str,
    help: &'static str,
    of: fn(&WorkerStats) -> u64,
}

const COUNTS: [Count; 11] = [
    Count {
        name: "executed",
        help: "Tasks and stolen forks that a worker ran.",
        of: |worker| worker.executed,
    },
    Count { name: "steals", help: "Successful steals by a worker.", of: |worker| worker.steals },
    Count {
        name: "stolen",
        help: "Tasks and forks that a worker stole from others.",
        of: |worker| worker.stolen,
    },
    Count {
        name: "stolen_from",
        help: "Tasks and forks that others stole from a worker.",
        of: |worker| worker.stolen_from,
    },
    Count {
        name: "failed_steals",
        help: "Searches by a worker that found nothing.",
        of: |worker| worker.failed_steals,
    },
    Count {
        name: "parks",
        help: "Number of times a worker went to sleep.",
        of: |worker| worker.parks,
    },
    Count { name: "wakes", help: "Wakes of other workers by a worker.", of: |worker| worker.wakes },
    Count {
        name: "wasted_wakes",
        help: "Wakes for work that the worker ended up doing itself.",
        of: |worker| worker.wasted_wakes,
    },
    Count {
        name: "promotions",
        help: "Tasks and forks that a worker exposed to thieves.",
        of: |worker| worker.promotions,
    },
    Count {
        name: "overflowed",
        help: "Tasks that a worker moved to the shared queue because its own was full.",
        of: |worker| worker.overflowed,
    },
    Count {
        name: "ticks",
        help: "Turns: how often a worker looked for its next work.",
        of: |worker| worker.ticks,
    },
];

fn page(pool: &str, stats: &PoolStats) -> MetricsPage {
    let mut page = MetricsPage::default();
    let workers = || {
        let numbered = stats.workers.iter().enumerate();
        numbered.map(|(index, worker)| (index.to_string(), worker))
    };
    for Count { name, help, of } in &COUNTS {
        let name = format!("filch_pool_{name}_total");
        page.describe(&name, MetricKind::Counter, help);
        for (index, worker) in workers() {
            page.sample(&name, &[("pool", pool), ("worker", &index)], of(worker));
        }
    }
    let name = "filch_pool_queue_length";
    page.describe(name, MetricKind::Gauge, "Tasks and forks in the queues of a worker.");
    for (index, worker) in workers() {
        for (queue, value) in
            [("exposed_forks", worker.exposed_forks), ("exposed_tasks", worker.exposed_tasks)]
        {
            page.sample(name, &[("pool", pool), ("worker", &index), ("queue", queue)], value);
        }
    }
    let name = "filch_pool_shared_queue_length";
    page.describe(name, MetricKind::Gauge, "Tasks in the shared queue.");
    page.sample(name, &[("pool", pool)], stats.shared);
    let name = "filch_pool_workers";
    page.describe(name, MetricKind::Gauge, "Workers by state.");
    for state in WorkerState::ALL {
        let labels = [("pool", pool), ("state", &state.to_string())];
        page.sample(name, &labels, stats.in_state(state));
    }
    page
}

impl Pool {
    /// The counters of [`Pool::stats`] in Prometheus' text format.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).name("mine").build()?;
    /// pool.install(|| ());
    /// let page = pool.metrics();
    /// assert!(page.contains("# TYPE filch_pool_executed_total counter\n"));
    /// assert!(page.contains("filch_pool_executed_total{pool=\"mine\",worker=\"0\"} 1\n"));
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn metrics(&self) -> String {
        page(&self.core().name, &self.stats()).into_text()
    }
}
