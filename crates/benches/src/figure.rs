//! One figure: what was measured, the result, and the aim.

use serde_json::{Value, json};

use crate::samples::Samples;

/// A measured figure.
#[derive(Clone, Debug)]
pub struct Figure {
    what: String,
    samples: Samples,
    unit: &'static str,
    aim: Option<Aim>,
}

/// The target of a figure. Missing it is reported, and is not an error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Aim {
    /// Less is better.
    AtMost(f64),
    /// More is better.
    AtLeast(f64),
}

impl Figure {
    /// A figure without an aim.
    #[must_use]
    pub fn new(what: impl Into<String>, samples: Samples, unit: &'static str) -> Self {
        Self { what: what.into(), samples, unit, aim: None }
    }

    /// The same figure with an aim.
    #[must_use]
    pub fn aiming(self, aim: Aim) -> Self {
        Self { aim: Some(aim), ..self }
    }

    /// The cells of the printed table: what, value, spread and aim.
    pub(crate) fn cells(&self) -> [String; 4] {
        let value = format!("{} {}", rounded(self.samples.median()), self.unit);
        let (low, high) = self.samples.range();
        let spread = if low == high {
            String::new()
        } else {
            format!("{} .. {}", rounded(low), rounded(high))
        };
        let aim = match self.aim {
            None => String::new(),
            Some(aim) if self.meets(aim) => aim.text(),
            Some(aim) => format!("{} (not met)", aim.text()),
        };
        [self.what.clone(), value.trim_end().into(), spread, aim]
    }

    /// One line that states whether the aim was reached, if there is an aim.
    pub(crate) fn verdict(&self) -> Option<String> {
        let aim = self.aim?;
        let verdict = if self.meets(aim) { "reached" } else { "missed " };
        let [what, value, ..] = self.cells();
        Some(format!("{verdict}  {what}: {value}, aim {}", aim.text()))
    }

    /// The JSON that `cargo xtask table` reads; the spread is extra information.
    pub(crate) fn json(&self) -> Value {
        let (low, high) = self.samples.range();
        let mut figure = json!({
            "what": self.what,
            "value": self.samples.median(),
            "unit": self.unit,
            "low": low,
            "high": high,
        });
        if let Some(aim) = self.aim {
            figure["aim"] = aim.text().into();
            figure["met"] = self.meets(aim).into();
        }
        figure
    }

    fn meets(&self, aim: Aim) -> bool {
        match aim {
            Aim::AtMost(most) => self.samples.median() <= most,
            Aim::AtLeast(least) => self.samples.median() >= least,
        }
    }
}

impl Aim {
    fn text(self) -> String {
        match self {
            Self::AtMost(most) => format!("<= {}", grouped(most)),
            Self::AtLeast(least) => format!(">= {}", grouped(least)),
        }
    }
}

/// Rounds to about three digits, which is as precise as a measurement.
fn rounded(value: f64) -> String {
    match value.abs() {
        100.0.. => grouped(value.round()),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A number with a comma between thousands.
fn grouped(value: f64) -> String {
    let text = value.to_string();
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let mut groups = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            groups.push(',');
        }
        groups.push(digit);
    }
    groups + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(values: &[f64]) -> Figure {
        Figure::new("a job", Samples::new(values.to_vec()), "ns")
    }

    #[test]
    fn the_table_shows_the_spread_and_whether_the_aim_is_met() {
        let met = figure(&[1_234.5, 900.0, 2_000.0]).aiming(Aim::AtMost(1_500.0));
        assert_eq!(met.cells(), ["a job", "1,235 ns", "900 .. 2,000", "<= 1,500"]);
        let missed = figure(&[1.25]).aiming(Aim::AtLeast(1.5));
        assert_eq!(missed.cells(), ["a job", "1.25 ns", "", ">= 1.5 (not met)"]);
        assert_eq!(missed.verdict().unwrap(), "missed   a job: 1.25 ns, aim >= 1.5");
        assert_eq!(figure(&[12.34]).cells(), ["a job", "12.3 ns", "", ""]);
        assert_eq!(figure(&[12.34]).verdict(), None);
    }

    #[test]
    fn the_json_has_aim_and_met_only_if_there_is_an_aim() {
        let with = figure(&[2_500_000.0]).aiming(Aim::AtLeast(2_000_000.0));
        let with = with.json();
        assert_eq!(with["aim"], ">= 2,000,000");
        assert_eq!(with["met"], true);
        let without = figure(&[1.0]).json();
        assert_eq!((without.get("aim"), without.get("met")), (None, None));
    }
}
