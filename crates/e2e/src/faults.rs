//! How many faults are enough, and how many there were: a bounded number whenever everything is tested, many
//! more in a soak, which adds up what the tests say that they have brought about.

use std::fmt::Display;
use std::time::Duration;

/// How many times more than usual. Only a soak says so.
pub const VARIABLE: &str = "FILCH_FAULTS";

/// So many times more, and every one is wanted.
const ALL: usize = 6;

/// For how many minutes there is load, if not for one.
pub const LOAD: &str = "FILCH_LOAD_MINUTES";

/// So many faults, times what [`VARIABLE`] says.
///
/// # Panics
/// If it says no number.
#[must_use]
pub fn scaled(usual: usize) -> usize {
    usual * number(VARIABLE).unwrap_or(1)
}

/// Whether each fault of a kind that can be counted is to be brought about: in soaks of an hour or more.
///
/// # Panics
/// If [`VARIABLE`] says no number.
#[must_use]
pub fn are_all_wanted() -> bool {
    number(VARIABLE).is_some_and(|times| times >= ALL)
}

/// For how long there is load.
#[must_use]
pub fn load() -> Duration {
    Duration::from_secs(60 * number(LOAD).unwrap_or(1) as u64)
}

/// Says how many faults of a kind there were. A soak reads this line.
pub fn brought_about(count: usize, what: &str) {
    eprintln!("brought about {count} {what}");
}

/// Says what was measured. A soak shows the last of each name.
pub fn measured(name: &str, what: impl Display) {
    eprintln!("measured {name}: {what}");
}

fn number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}
