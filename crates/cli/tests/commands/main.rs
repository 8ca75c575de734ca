//! The commands as their users meet them, each against a server of its own: what is printed where, and
//! the code at the end.

mod answer;
mod arguments;
mod certificates;
mod codes;
mod dead;
mod demo;
mod enqueue;
mod events;
mod exposure;
mod flow;
mod hostile;
mod imbalance;
mod job;
mod logs;
mod mask;
mod mistakes;
mod page;
mod queue;
mod rehearsal;
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
mod words;
mod worker;
mod world;
