//! A histogram.

use filch_metrics::{MetricKind, MetricsPage};

/// Counts observations by size.
pub(super) struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(super) fn observe(&mut self, size: f64) {
        let place = self.bounds.partition_point(|&bound| bound < size);
        if let Some(count) = self.counts.get_mut(place) {
            *count += 1;
            self.sum += size;
        }
    }

    pub(super) fn write(&self, page: &mut MetricsPage, name: &str, help: &str) {
        page.describe(name, MetricKind::Histogram, help);
        page.buckets(name, &[], self.bounds, &self.counts, self.sum);
    }
}
