//! Tests of the scheduler from outside: readable traces, and random worlds with faults.

mod bounds;
mod cluster;
mod former;
mod graphs;
mod isolation;
mod matrix;
mod roundtrip;
mod traces;
mod world;
