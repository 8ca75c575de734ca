//! Tests of the scheduler from outside: traces to be read, and random worlds to be survived.

mod bounds;
mod cluster;
mod graphs;
mod isolation;
mod matrix;
mod roundtrip;
mod traces;
mod world;
