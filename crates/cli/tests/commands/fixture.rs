//! A cluster to run commands against: a server, two workers, and jobs in several states. Also the
//! list of all commands.

use clap::Command;
use serde_json::Value;

use crate::mask::Mask;
use crate::server::{Running, Server, until};

/// The cluster before the first case.
pub(crate) struct Fixture {
    names: Vec<(&'static str, String)>,
    pub(crate) mask: Mask,
    /// A second worker, which serves an empty queue.
    _extra: Running,
}

const FLOW: &str = "name = \"report\"\n[job.fetch]\nkind = \"fetch\"\nat = \"2100-01-01T00:00:00Z\"\n\
                    [job.join]\nkind = \"join\"\nafter = [\"fetch\"]\n";

impl Fixture {
    pub(crate) fn new(server: &Server) -> Self {
        server.file("flow.toml", FLOW);
        let done = done(server);
        let dead = server.dead(&["--timeout", "90s"]);
        let at = ["--at", "2100-01-01T00:00:00Z"];
        let words = [&["enqueue", "--queue", "later"][..], &at, &["resize", "{\"n\": 1}"]].concat();
        let later = server.id(&words);
        server.filch(&["queue", "set", "later", "--weight", "2"]).fine();
        // In a paused queue, retried jobs do not start.
        let [broken, spoiled] = [(); 2].map(|()| server.dead(&["--queue", "paused"]));
        server.filch(&["queue", "pause", "paused"]).fine();
        let words = ["worker", "start", "--name", "extra", "--slots", "1", "--queues", "extra"];
        let extra = Running::start(&mut server.command(&words));
        let mut workers = Vec::new();
        until("both workers are there", || {
            let list = server.filch(&["worker", "list", "--jsonl"]).fine();
            workers = list.json_lines();
            workers.len() == 2
        });
        let known = |worker: &&Value| worker["name"] == "extra";
        let second = workers.iter().find(known).expect("it is called so");
        let first = workers.iter().find(|worker| !known(worker)).expect("it came with the server");
        let id = |worker: &Value| worker["id"].as_str().expect("it has one").to_owned();
        let names = vec![
            ("done", done),
            ("dead", dead),
            ("later", later),
            ("broken", broken),
            ("spoiled", spoiled),
            ("worker", id(first)),
            ("extra", id(second)),
        ];
        let mut mask = Mask::new();
        for (name, id) in &names {
            mask.name(id, name);
        }
        mask.name(&server.url, "url");
        let host = first["name"].as_str().expect("it is called something");
        mask.name(host, "host");
        mask.name(server.folder().to_str().expect("it is UTF-8"), "folder");
        Self { names, mask, _extra: extra }
    }

    /// Names an id, so that cases and snapshots can use the name.
    pub(crate) fn name(&mut self, name: &'static str, id: &str) {
        self.names.push((name, id.to_owned()));
        self.mask.name(id, name);
    }

    /// The words of a case, with names replaced by ids.
    pub(crate) fn words(&self, case: &str) -> Vec<String> {
        let fill = |word: &str| {
            let inner = word.strip_prefix('{').and_then(|word| word.strip_suffix('}'));
            let known = inner.and_then(|inner| self.names.iter().find(|(name, _)| *name == inner));
            known.map_or_else(|| word.to_owned(), |(_, id)| id.clone())
        };
        case.split(' ').map(fill).collect()
    }
}

/// A succeeded job that was seen running, so that its events do not depend on timing.
fn done(server: &Server) -> String {
    // One write: two could be read as one or two pieces of output.
    let script = "until [ -e gate ]; do sleep 0.02; done; printf 'hello\\n{\"total\": 1.50}\\n'";
    let id = server.id(&["submit", "--queue", "img", "--key", "k", "--", "sh", "-c", script]);
    until("it runs", || server.job(&id)["state"] == "running");
    server.file("gate", "");
    server.filch(&["wait", &id]).fine();
    id
}

/// All commands that can be run, with their full names.
pub(crate) fn runnable_commands(root: &Command) -> Vec<(String, &Command)> {
    let mut leaves = Vec::new();
    walk(root, "", &mut leaves);
    leaves
}

fn walk<'a>(command: &'a Command, path: &str, leaves: &mut Vec<(String, &'a Command)>) {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        let path = format!("{path} {}", inner.get_name()).trim_start().to_owned();
        if inner.has_subcommands() {
            walk(inner, &path, leaves);
        }
        if !inner.is_subcommand_required_set() {
            leaves.push((path, inner));
        }
    }
}

/// Whether a command has this flag, directly or from its group.
pub(crate) fn has_flag(root: &Command, path: &str, flag: &str) -> bool {
    let mut command = root;
    let mut above = vec![root];
    for word in path.split(' ') {
        command = command.find_subcommand(word).expect("it is a command");
        above.push(command);
    }
    above.iter().any(|command| command.get_arguments().any(|arg| arg.get_long() == Some(flag)))
}
