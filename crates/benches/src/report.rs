//! The output of a bench: a printed table, or one JSON document that `cargo xtask table` reads.

use std::fmt::{Display, Write as _};

use serde_json::{Value, json};

use crate::figure::Figure;
use crate::machine;

/// The results of one run of a bench.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// The name that `cargo xtask bench` knows.
    pub bench: &'static str,
    /// The command that measures it again.
    pub command: String,
    /// The measurements.
    pub findings: Findings,
}

/// The measurements of a bench, or of a part of one.
#[derive(Clone, Default, Debug)]
pub struct Findings {
    figures: Vec<Figure>,
    skipped: Vec<String>,
}

impl Findings {
    /// Adds a figure; figures are shown in this order.
    pub fn push(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Notes that something was not measured, and why.
    pub fn skip(&mut self, what: impl Into<String>, why: impl Display) {
        self.skipped.push(format!("skipped  {}: {why}", what.into()));
    }

    /// Adds all of these.
    pub fn extend(&mut self, more: impl Into<Self>) {
        let more = more.into();
        self.figures.extend(more.figures);
        self.skipped.extend(more.skipped);
    }
}

impl<F: Into<Vec<Figure>>> From<F> for Findings {
    fn from(figures: F) -> Self {
        Self { figures: figures.into(), skipped: Vec::new() }
    }
}

impl BenchReport {
    /// The printed table.
    #[must_use]
    pub fn table(&self) -> String {
        let head = ["what", "median", "lowest .. highest", "aim"].map(str::to_owned);
        let rows = self.findings.figures.iter().map(Figure::cells);
        let rows: Vec<[String; 4]> = core::iter::once(head).chain(rows).collect();
        let width = |column: usize| {
            let widths = rows.iter().map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths = [0, 1, 2].map(width);
        let mut table = String::new();
        for [what, value, spread, aim] in &rows {
            let [first, second, third] = widths;
            let line = format!("{what:first$}  {value:>second$}  {spread:>third$}  {aim}");
            table.push_str(line.trim_end());
            table.push('\n');
        }
        let (cores, processor) = (machine::cores(), machine::processor());
        let command = &self.command;
        writeln!(table, "\n`{command}` on {cores} cores ({processor})")
            .expect("writing to a string cannot fail");
        table
    }

    /// One line for each aim that was reached or missed, and for each skipped measurement.
    #[must_use]
    pub fn verdicts(&self) -> String {
        let Findings { figures, skipped } = &self.findings;
        let lines = figures.iter().filter_map(Figure::verdict).chain(skipped.iter().cloned());
        lines.map(|line| line + "\n").collect()
    }

    /// The JSON document.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "v": 1,
            "bench": self.bench,
            "command": self.command,
            "machine": { "cores": machine::cores(), "cpu": machine::processor() },
            "figures": self.findings.figures.iter().map(Figure::json).collect::<Vec<_>>(),
            "skipped": self.findings.skipped,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Aim;
    use crate::samples::Samples;

    fn report() -> BenchReport {
        let one = Figure::new("a job", Samples::new(vec![800.0, 900.0, 1_000.0]), "ns");
        let two = Figure::new("memory", Samples::new(vec![184.0]), "bytes");
        BenchReport {
            bench: "scheduler",
            command: "cargo xtask bench scheduler".to_owned(),
            findings: vec![one.aiming(Aim::AtMost(1_500.0)), two].into(),
        }
    }

    #[test]
    fn the_columns_of_the_table_are_aligned() {
        let table = report().table();
        let lines: Vec<&str> = table.lines().take(3).collect();
        let expected = [
            "what       median  lowest .. highest  aim",
            "a job      900 ns       800 .. 1,000  <= 1,500",
            "memory  184 bytes",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn there_is_a_line_for_every_aim_and_every_skipped_measurement() {
        let mut report = report();
        report.findings.skip("a crowd", "2 cores");
        let expected = "reached  a job: 900 ns, aim <= 1,500\nskipped  a crowd: 2 cores\n";
        assert_eq!(report.verdicts(), expected);
    }

    #[test]
    fn the_json_document_has_version_1() {
        let document = report().json();
        assert_eq!(document["v"], 1);
        assert_eq!(document["bench"], "scheduler");
        assert!(document["machine"]["cores"].is_u64());
        assert!(document["machine"]["cpu"].is_string());
        assert_eq!(document["figures"][0]["value"], 900.0);
        assert_eq!(document["figures"][1]["unit"], "bytes");
    }
}
