//! How many faults a test injects: a sample in an ordinary run, many more in a soak, which adds up
//! the counts that the tests print.

use std::fmt::Display;
use std::time::Duration;

/// The factor by which counts are multiplied. A soak sets it.
pub const VARIABLE: &str = "FILCH_FAULTS";

/// From this factor on, faults that can be enumerated are all injected.
const ALL: usize = 6;

/// The minutes of load, if not one.
pub const LOAD: &str = "FILCH_LOAD_MINUTES";

/// This many faults, multiplied by [`VARIABLE`].
///
/// # Panics
/// If the variable is not a number.
#[must_use]
pub fn scaled(usual: usize) -> usize {
    usual * number(VARIABLE).unwrap_or(1)
}

/// Whether all faults that can be enumerated are injected: in soaks of an hour or more.
///
/// # Panics
/// If [`VARIABLE`] is not a number.
#[must_use]
pub fn are_all_wanted() -> bool {
    number(VARIABLE).is_some_and(|times| times >= ALL)
}

/// How long the load lasts.
#[must_use]
pub fn load() -> Duration {
    Duration::from_secs(60 * number(LOAD).unwrap_or(1) as u64)
}

/// Prints how many faults of a kind were injected. A soak reads this line.
pub fn injected(count: usize, what: &str) {
    eprintln!("injected {count} {what}");
}

/// Prints a measurement. A soak shows the last one of each name.
pub fn measured(name: &str, what: impl Display) {
    eprintln!("measured {name}: {what}");
}

fn number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")))
}
