//! Simulation: how the simulator is asked to hunt, and where its seeds begin.
//!
//! `test` hunts once for every change, `soak` for as long as it is told to; both ask for the same
//! clusters, so that what one of them finds the other would have found with the same seed.

use std::path::Path;
use std::process::Command;

/// The arguments of `filch` that hunt through so many seeds, the first of them named.
pub(crate) fn hunt(first_seed: u64, count: u64) -> String {
    let last_seed = first_seed + count - 1;
    let seeds = format!("{first_seed}..{last_seed}");
    format!("simulate --seeds {seeds} --duration 10m --workers 10 --faults swarm")
}

/// Taken from the commit that is checked out: every change hunts where nobody has hunted before, and
/// the same change finds the same. Nothing where git cannot answer.
pub(crate) fn seed_of_commit(root: &Path) -> Option<u64> {
    let output = Command::new("git")
        // We only read a number, so it does not matter whose checkout this is.
        .args(["-c", "safe.directory=*", "rev-parse", "HEAD"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    seed_of_hash(str::from_utf8(&output.stdout).ok()?)
}

/// Ten digits of the hash tell all commits apart, and make a number that can still be read out.
fn seed_of_hash(hash: &str) -> Option<u64> {
    u64::from_str_radix(hash.get(..10)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_the_range_are_hunted() {
        let words = "--duration 10m --workers 10 --faults swarm";
        assert_eq!(hunt(1, 2_000), format!("simulate --seeds 1..2000 {words}"));
        assert_eq!(hunt(7, 1), format!("simulate --seeds 7..7 {words}"));
    }

    #[test]
    fn a_commit_is_a_seed() {
        let hash = "00000000ff0123456789abcdef0123456789abcd\n";
        assert_eq!(seed_of_hash(hash), Some(255));
        assert_eq!(seed_of_hash(&"f".repeat(40)), Some((1 << 40) - 1));
        // A repository without a commit, and no hash at all.
        assert_eq!(seed_of_hash("HEAD\n"), None);
        assert_eq!(seed_of_hash("not a hash, but long enough"), None);
    }

    #[test]
    fn where_there_is_no_folder_there_is_no_commit() {
        assert_eq!(seed_of_commit(Path::new("no/such/folder")), None);
    }
}
