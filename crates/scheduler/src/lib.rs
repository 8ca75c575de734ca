//! Decides what happens next to every job.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod agent;
pub mod dispatch;
pub mod gate;
pub mod id;
pub mod message;
pub mod name;
mod random;
pub mod record;
pub mod spec;
pub mod state;
pub mod time;
pub mod trace;
