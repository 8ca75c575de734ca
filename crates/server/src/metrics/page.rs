//! A page of metrics in the words of Prometheus, and how often which size was observed.

use std::fmt::Write as _;

/// A page of metrics.
#[derive(Default)]
pub(crate) struct Page(pub(crate) String);

impl Page {
    pub(crate) fn describe(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}").expect(INFALLIBLE);
    }

    pub(crate) fn sample(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        value: impl std::fmt::Display,
    ) {
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

    pub(crate) fn one(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        value: impl std::fmt::Display,
    ) {
        self.describe(name, kind, help);
        self.sample(name, &[], value);
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.describe(name, "histogram", help);
        let mut sum = 0;
        let bounds = histogram.bounds.iter().map(ToString::to_string);
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&histogram.counts) {
            sum += count;
            self.sample(&format!("{name}_bucket"), &[("le", &bound)], sum);
        }
        self.sample(&format!("{name}_sum"), &[], histogram.sum);
        self.sample(&format!("{name}_count"), &[], sum);
    }
}

const INFALLIBLE: &str = "a string takes everything";

/// How often which size was observed.
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
}
