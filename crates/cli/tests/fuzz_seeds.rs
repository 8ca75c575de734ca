//! Replays the inputs in `fuzz/seeds` on stable Rust, with the checks that the fuzz targets run.
//!
//! The fuzzer itself runs in `cargo xtask soak`.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

#[path = "../../../fuzz/bodies/flow.rs"]
mod flow;
#[path = "../../../fuzz/bodies/node.rs"]
mod node;
#[path = "../../../fuzz/bodies/session.rs"]
mod session;
#[path = "../../../fuzz/bodies/submit.rs"]
mod submit;
#[path = "../../../fuzz/bodies/trace.rs"]
mod trace;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("every target has seeds") {
        let path = entry.expect("the folder can be listed").path();
        let input = fs::read(&path).expect("a seed can be read");
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&input))) {
            eprintln!("the seed is {}", path.display());
            std::panic::resume_unwind(panic);
        }
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
}

#[test]
fn flow_seeds_pass() {
    replay("flow", flow::run);
}

#[test]
fn node_seeds_pass() {
    replay("node", node::run);
}

#[test]
fn session_seeds_pass() {
    replay("session", session::run);
}

#[test]
fn submit_seeds_pass() {
    replay("submit", submit::run);
}

#[test]
fn trace_seeds_pass() {
    replay("trace", trace::run);
}
