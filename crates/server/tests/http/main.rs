//! The server's doors, tried from outside: a server in this process, and a client that speaks HTTP.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod acts;
mod bounds;
mod client;
mod cluster;
mod dead;
mod document;
mod events;
mod examples;
mod flows;
mod guard;
mod jobs;
mod limits;
mod lines;
mod logs;
mod matrix;
mod metrics;
mod past;
mod protocol;
mod queue;
mod reads;
mod retention;
mod socket;
mod tokens;
mod unreadable;
mod work;
