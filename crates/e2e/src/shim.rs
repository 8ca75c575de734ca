//! Libraries that are preloaded into a program to simulate its disk or clock: the files under
//! `shim/`, built when needed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Records everything that a program does to its files.
pub const POWER: &str = include_str!("../shim/power.c");

/// A wall clock that jumps.
pub const CLOCK: &str = include_str!("../shim/clock.c");

/// The variable with the libraries to preload.
pub const PRELOAD: &str = "LD_PRELOAD";

/// Builds one of them into a folder.
///
/// # Panics
/// If there is no C compiler, or it complains.
#[must_use]
pub fn build(source: &str, folder: &Path) -> PathBuf {
    let library = folder.join("shim.so");
    let mut compiler = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread", "-xc", "-"])
        .arg("-o")
        .arg(&library)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a C compiler is installed as `cc`");
    let mut stdin = compiler.stdin.take().expect("it is piped");
    stdin.write_all(source.as_bytes()).expect("the compiler reads its source");
    drop(stdin);
    let status = compiler.wait().expect("a child can be waited for");
    assert!(status.success(), "the library to preload cannot be built: {status}");
    library
}
