//! Metrics in the text format of Prometheus: the one writer of every page that filch serves.
//!
//! ```
//! use filch_metrics::{MetricKind, MetricsPage};
//!
//! let mut page = MetricsPage::default();
//! page.describe("jobs_total", MetricKind::Counter, "Jobs that have ended.");
//! page.sample("jobs_total", &[("queue", "img")], 3);
//! let lines: Vec<String> = page.into_text().lines().map(str::to_owned).collect();
//! assert_eq!(lines[0], "# HELP jobs_total Jobs that have ended.");
//! assert_eq!(lines[1], "# TYPE jobs_total counter");
//! assert_eq!(lines[2], "jobs_total{queue=\"img\"} 3");
//! ```

use std::fmt::{self, Display, Write as _};

/// A page of metrics.
#[derive(Clone, Debug, Default)]
pub struct MetricsPage(String);

/// What kind of metric the samples of a name are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number that goes up and down.
    Gauge,
    /// Counts of observations by size.
    Histogram,
}

impl Display for MetricKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

const INFALLIBLE: &str = "writing to a string does not fail";

impl MetricsPage {
    /// Begins a metric: its samples follow.
    pub fn describe(&mut self, name: &str, kind: MetricKind, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect(INFALLIBLE);
    }

    /// Adds a sample with these labels.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            write!(self.0, "{label}=\"").expect(INFALLIBLE);
            for character in text.chars() {
                match character {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        writeln!(self.0, "{close} {value}").expect(INFALLIBLE);
    }

    /// Adds a metric with a single sample and no labels.
    pub fn single(&mut self, name: &str, kind: MetricKind, help: &str, value: impl Display) {
        self.describe(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Adds the samples of a histogram with these labels. `counts` has one number for each bound,
    /// of the observations that are at most as large and larger than the bound before, and one for
    /// all larger observations.
    pub fn buckets(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds: &[f64],
        counts: &[u64],
        sum: f64,
    ) {
        let bucket = format!("{name}_bucket");
        let texts = bounds.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        let mut below = 0;
        for (bound, count) in texts.zip(counts) {
            below += count;
            self.sample(&bucket, &[labels, &[("le", &bound)]].concat(), below);
        }
        self.sample(&format!("{name}_sum"), labels, sum);
        self.sample(&format!("{name}_count"), labels, below);
    }

    /// Adds the text of another page.
    pub fn append(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// The page as text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let mut page = MetricsPage::default();
        page.sample("m", &[("a", "x\\y\"z\n"), ("b", "")], 1.5);
        assert_eq!(page.into_text(), "m{a=\"x\\\\y\\\"z\\n\",b=\"\"} 1.5\n");
    }

    #[test]
    fn buckets_are_cumulative() {
        let mut page = MetricsPage::default();
        page.buckets("m", &[("job", "gc")], &[0.5, 1.0], &[2, 0, 1], 4.25);
        let text = page.into_text();
        for line in [
            "m_bucket{job=\"gc\",le=\"0.5\"} 2",
            "m_bucket{job=\"gc\",le=\"1\"} 2",
            "m_bucket{job=\"gc\",le=\"+Inf\"} 3",
            "m_sum{job=\"gc\"} 4.25",
            "m_count{job=\"gc\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line} in {text}");
        }
    }
}
