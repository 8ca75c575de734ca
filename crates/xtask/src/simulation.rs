//! The simulator's arguments, and its first seed.
//!
//! `test` simulates once for every commit, `soak` for a given time; both simulate the
//! same clusters, so a failure that one of them finds shows in the other with the same seed.

use std::path::Path;
use std::process::Command;

/// The arguments of `filch` that simulate `count` seeds, starting with `first_seed`.
pub(crate) fn search(first_seed: u64, count: u64) -> String {
    let last_seed = first_seed + count - 1;
    let seeds = format!("{first_seed}..{last_seed}");
    format!("simulate --seeds {seeds} --duration 10m --workers 10 --faults swarm")
}

/// A seed from the commit that is checked out: every commit simulates seeds that were not tried
/// before, and the same commit simulates the same seeds. `None` if git finds no commit.
pub(crate) fn seed_of_commit(root: &Path) -> Option<u64> {
    let output = Command::new("git")
        // We only read a number, so it does not matter who owns the checkout.
        .args(["-c", "safe.directory=*", "rev-parse", "HEAD"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    seed_of_hash(str::from_utf8(&output.stdout).ok()?)
}

/// Ten digits of the hash distinguish all commits, and make a number that is short enough to read.
fn seed_of_hash(hash: &str) -> Option<u64> {
    u64::from_str_radix(hash.get(..10)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_the_range_are_simulated() {
        let words = "--duration 10m --workers 10 --faults swarm";
        assert_eq!(search(1, 2_000), format!("simulate --seeds 1..2000 {words}"));
        assert_eq!(search(7, 1), format!("simulate --seeds 7..7 {words}"));
    }

    #[test]
    fn a_commit_gives_a_seed() {
        let hash = "00000000ff0123456789abcdef0123456789abcd\n";
        assert_eq!(seed_of_hash(hash), Some(255));
        assert_eq!(seed_of_hash(&"f".repeat(40)), Some((1 << 40) - 1));
        // A repository without a commit, and text that is not a hash.
        assert_eq!(seed_of_hash("HEAD\n"), None);
        assert_eq!(seed_of_hash("not a hash, but long enough"), None);
    }

    #[test]
    fn a_missing_folder_has_no_commit() {
        assert_eq!(seed_of_commit(Path::new("no/such/folder")), None);
    }
}
