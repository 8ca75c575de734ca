//! The commands as their users meet them, each against a server of its own: what is printed where, and
//! the code at the end.

mod arguments;
mod certificates;
mod codes;
mod completion;
mod dead;
mod demo;
mod dry_run;
mod enqueue;
mod events;
mod exposure;
mod fixture;
mod flow;
mod hostile;
mod imbalance;
mod job;
mod logs;
mod manual;
mod mask;
mod mistakes;
mod queue;
mod responses;
mod run;
mod selectors;
mod server;
mod settings;
mod snapshots;
mod submit;
mod terminal;
mod tls;
mod token;
mod verify;
mod versions;
mod wait;
mod why;
mod worker;
