//! The commands as their users meet them, each against a server of its own: what is printed where, and
//! the code at the end.

mod answer;
mod dead;
mod enqueue;
mod flow;
mod job;
mod logs;
mod queue;
mod server;
mod submit;
mod wait;
mod why;
mod words;
mod worker;
