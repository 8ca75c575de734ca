//! Tests of the scheduler from outside: traces to be read, and random worlds to be survived.

mod bounds;
mod cluster;
mod graphs;
mod isolation;
mod keeping;
mod matrix;
mod play;
mod roundtrip;
mod traces;
mod world;
