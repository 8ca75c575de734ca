//! Rivals measured in turn, in one process: other load on the machine slows down all of them, so
//! their ratio is meaningful even where absolute times are not.

use crate::figure::{Aim, Figure};
use crate::samples::Samples;

/// The rivals, and how each is measured.
pub struct Contest<'a> {
    rivals: Vec<Rival<'a>>,
}

struct Rival<'a> {
    name: &'static str,
    measure: Box<dyn FnMut() -> f64 + 'a>,
}

/// The measurements of every rival in every round.
#[derive(Clone, Debug)]
pub struct ContestResult {
    names: Vec<&'static str>,
    rounds: Vec<Vec<f64>>,
}

impl<'a> Contest<'a> {
    /// A contest without rivals.
    #[must_use]
    #[expect(
        clippy::new_without_default,
        reason = "a contest without rivals is not a useful default"
    )]
    pub const fn new() -> Self {
        Self { rivals: Vec::new() }
    }

    /// Adds a rival.
    #[must_use]
    pub fn rival(mut self, name: &'static str, measure: impl FnMut() -> f64 + 'a) -> Self {
        self.rivals.push(Rival { name, measure: Box::new(measure) });
        self
    }

    /// Measures each rival once per round, starting with a different one each time. One more round
    /// before these warms up and does not count.
    #[must_use]
    pub fn run(mut self, rounds: usize) -> ContestResult {
        let count = self.rivals.len();
        let mut values = Vec::new();
        for round in 0..=rounds {
            let mut row = vec![0.0; count];
            for index in (0..count).map(|offset| (round + offset) % count) {
                row[index] = (self.rivals[index].measure)();
            }
            if round > 0 {
                values.push(row);
            }
        }
        let names = self.rivals.iter().map(|rival| rival.name).collect();
        ContestResult { names, rounds: values }
    }
}

impl ContestResult {
    /// The measurements of this rival.
    ///
    /// # Panics
    /// If there is no rival of that name, or no round.
    #[must_use]
    pub fn of(&self, name: &str) -> Samples {
        let index = self.index(name);
        Samples::new(self.rounds.iter().map(|row| row[index]).collect())
    }

    /// The lowest measurement of each of these. Interference makes a measurement longer, never
    /// shorter, so the lowest is the best estimate, and the aims are set for it.
    ///
    /// # Panics
    /// If one of them is not a rival, or there was no round.
    #[must_use]
    pub fn lowest<const COUNT: usize>(&self, names: [&str; COUNT]) -> [f64; COUNT] {
        names.map(|name| self.of(name).range().0)
    }

    /// One figure per rival.
    #[must_use]
    pub fn figures(&self, title: &str, unit: &'static str) -> Vec<Figure> {
        let figure = |name| Figure::new(format!("{title}: {name}"), self.of(name), unit);
        self.names.iter().copied().map(figure).collect()
    }

    /// The ratio of the first to the second: of their lowest measurements, and as the median of all
    /// rounds, in which both suffered the same interference.
    ///
    /// # Panics
    /// If one of them is not a rival, or there was no round.
    #[must_use]
    pub fn compare(&self, title: &str, of: &str, to: &str, aim: Option<Aim>) -> [Figure; 2] {
        let [lowest_of, lowest_to] = self.lowest([of, to]);
        let (index_of, index_to) = (self.index(of), self.index(to));
        let rounds = self.rounds.iter().map(|row| row[index_of] / row[index_to]).collect();
        let figure = |how: &str, samples| {
            Figure::new(format!("{title}: {of} against {to}, {how}"), samples, "times")
        };
        let lowest = figure("lowest", Samples::new(vec![lowest_of / lowest_to]));
        let lowest = aim.map_or(lowest.clone(), |aim| lowest.aiming(aim));
        [lowest, figure("median", Samples::new(rounds))]
    }

    fn index(&self, name: &str) -> usize {
        let index = self.names.iter().position(|rival| *rival == name);
        index.unwrap_or_else(|| panic!("{name} is not a rival"))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn rivals_take_turns_and_are_compared_round_by_round() {
        let order = RefCell::new(String::new());
        let mut count = 0.0;
        let outcome = Contest::new()
            .rival("one", || {
                order.borrow_mut().push('1');
                count += 1.0;
                count * 10.0
            })
            .rival("two", || {
                order.borrow_mut().push('2');
                10.0
            })
            .run(3);
        assert_eq!(*order.borrow(), "12211221");
        assert_eq!(outcome.of("one").range(), (20.0, 40.0), "the first round does not count");
        assert_eq!(outcome.lowest(["two", "one"]), [10.0, 20.0]);
        let ratios = outcome.compare("x", "one", "two", None).map(|figure| figure.json());
        assert_eq!(ratios.map(|ratio| ratio["value"].as_f64()), [Some(2.0), Some(3.0)]);
        let names = outcome.figures("x", "ms").into_iter().map(|figure| figure.json());
        let names: Vec<_> = names.map(|figure| figure["what"].to_string()).collect();
        assert_eq!(names, ["\"x: one\"", "\"x: two\""]);
    }
}
