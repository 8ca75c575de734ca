//! Which `filch` is tested.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The path of the program, if it is not where cargo puts it.
pub const VARIABLE: &str = "FILCH_BINARY";

/// The program under test: the one that [`VARIABLE`] names, else the newest that cargo has built
/// into the target folder of this test, in any profile.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn filch() -> PathBuf {
    if let Some(named) = std::env::var_os(VARIABLE) {
        let path = PathBuf::from(named);
        return path.canonicalize().unwrap_or_else(|error| {
            panic!(
                "{VARIABLE}={}: {error}\n  help: build it with `cargo build --package filch-cli`, or \
                 unset {VARIABLE} to test what cargo has built last",
                path.display()
            )
        });
    }
    let target = target();
    let built = ["release", "debug"].map(|profile| target.join(profile).join("filch"));
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified());
    let age = |path: &PathBuf| changed(path).unwrap_or(SystemTime::UNIX_EPOCH);
    // The newest, so that a build of last week is not tested by accident.
    built.into_iter().filter(|path| path.exists()).max_by_key(age).unwrap_or_else(|| {
        panic!(
            "found no program to test in {}\n  help: build it with `cargo build --package filch-cli`, or \
             set {VARIABLE} to its path",
            target.display()
        )
    })
}

/// The folder into which cargo builds.
pub(crate) fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its own program");
    // target/debug/deps/test
    test.ancestors().nth(3).expect("a test is in the target folder").to_owned()
}
