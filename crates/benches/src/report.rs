//! What a bench prints: a table for people, or one JSON document that `cargo xtask table` reads.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::figure::Figure;
use crate::machine;

/// Everything one run of a bench measured.
#[derive(Clone, Debug)]
pub struct Report {
    /// The name that `cargo xtask bench` knows.
    pub bench: &'static str,
    /// What to type to measure it again.
    pub command: String,
    /// In the order in which they are shown.
    pub figures: Vec<Figure>,
}

impl Report {
    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let head = ["what", "median", "lowest .. highest", "aim"].map(str::to_owned);
        let rows = self.figures.iter().map(Figure::cells);
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
            .expect("text takes more text");
        table
    }

    /// For programs.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "v": 1,
            "bench": self.bench,
            "command": self.command,
            "machine": { "cores": machine::cores(), "cpu": machine::processor() },
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Aim;
    use crate::samples::Samples;

    fn report() -> Report {
        let one = Figure::new("a job", Samples::new(vec![800.0, 900.0, 1_000.0]), "ns");
        let two = Figure::new("memory", Samples::new(vec![184.0]), "bytes");
        Report {
            bench: "scheduler",
            command: "cargo xtask bench scheduler".to_owned(),
            figures: vec![one.aiming(Aim::AtMost(1_500.0)), two],
        }
    }

    #[test]
    fn the_columns_stand_below_one_another() {
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
    fn the_document_is_of_the_version_that_is_read() {
        let document = report().json();
        assert_eq!(document["v"], 1);
        assert_eq!(document["bench"], "scheduler");
        assert!(document["machine"]["cores"].is_u64());
        assert!(document["machine"]["cpu"].is_string());
        assert_eq!(document["figures"][0]["value"], 900.0);
        assert_eq!(document["figures"][1]["unit"], "bytes");
    }
}
