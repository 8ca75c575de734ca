//! What all benches share: measuring again and again, and saying what came of it.
//!
//! Each bench is a program of its own under `bin/`, and knows what it measures and how. A bench never
//! fails because something was slow: it says so, and people or `cargo xtask table` draw conclusions.

pub mod command;
pub mod contest;
pub mod figure;
pub mod machine;
pub mod random;
pub mod report;
pub mod samples;
