//! Which program is tested.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where the program is, if it is not where cargo puts it.
pub const VARIABLE: &str = "FILCH_BINARY";

/// The program: what [`VARIABLE`] says, else the newest that cargo has built beside this test.
#[must_use]
pub fn filch() -> PathBuf {
    if let Some(said) = std::env::var_os(VARIABLE) {
        let path = PathBuf::from(said);
        let found = path.canonicalize();
        return found.unwrap_or_else(|error| panic!("{VARIABLE}={}: {error}", path.display()));
    }
    let target = target();
    let built = ["release", "debug"].map(|profile| target.join(profile).join("filch"));
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified());
    let age = |path: &PathBuf| changed(path).unwrap_or(SystemTime::UNIX_EPOCH);
    // The newest, so that nobody tests by accident what they built last week.
    built.into_iter().filter(|path| path.exists()).max_by_key(age).unwrap_or_else(|| {
        panic!(
            "there is no program to test in {}: `cargo build --package filch-cli` first, or set \
             {VARIABLE} to where it is",
            target.display()
        )
    })
}

/// The folder into which cargo builds.
pub(crate) fn target() -> PathBuf {
    let test = std::env::current_exe().expect("a process knows its own program");
    // target/debug/deps/test
    test.ancestors().nth(3).expect("a test lies in the target folder").to_owned()
}
