//! What all benches share: repeated measurement and reports.
//!
//! Each bench is a separate program under `bin/`, which defines what it measures and how. A bench
//! never fails because something was slow: it reports the figure and whether its aim was reached.

pub mod command;
pub mod contest;
pub mod figure;
pub mod machine;
pub mod report;
pub mod samples;
