//! How much a thief takes.

/// How many tasks a thief takes from a victim, oldest first. Forks are always stolen one at a time:
/// the oldest is the largest part of the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StealPolicy {
    /// One.
    One,
    /// Half, rounded up, at most 32: fewer steals than one by one, and the victim need not steal
    /// back.
    #[default]
    Half,
}
