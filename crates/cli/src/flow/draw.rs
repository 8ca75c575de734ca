//! A flow as text: a tree, or a graph for Graphviz.

use filch_api::flow::Flow;
use filch_api::submission::When;

use super::graph::{Graph, what, word};
use crate::confirm::count_jobs;
use crate::escape::escaped;

/// A larger or deeper flow is printed as a list instead of a tree.
const JOBS_MAX: usize = 1_000;
const DEPTH_MAX: usize = 40;

/// The flow in text.
pub(super) fn text(flow: &Flow) -> String {
    let graph = Graph::of(flow);
    let mut text = format!("{}: {}\n", escaped(&flow.name), count_jobs(flow.jobs.len() as u64));
    let deepest = graph.depth.iter().max().copied().unwrap_or(0);
    if flow.jobs.len() > JOBS_MAX || deepest > DEPTH_MAX {
        steps(&graph, &mut text);
        return text;
    }
    let mut drawn = vec![false; flow.jobs.len()];
    for root in (0..flow.jobs.len()).filter(|&at| graph.parents[at].is_empty()) {
        text.push('\n');
        branch(&graph, root, None, "", &mut drawn, &mut text);
    }
    text
}

/// A job and the jobs that depend on it. `last` is whether it is the last child, `None` for a root.
fn branch(
    graph: &Graph<'_>,
    at: usize,
    last: Option<bool>,
    indent: &str,
    drawn: &mut [bool],
    text: &mut String,
) {
    let (corner, below) = match last {
        None => ("", ""),
        Some(false) => ("├─ ", "│  "),
        Some(true) => ("└─ ", "   "),
    };
    let name = escaped(graph.name(at));
    if drawn[at] {
        text.push_str(&format!("{indent}{corner}{name} (above)\n"));
        return;
    }
    drawn[at] = true;
    let what = what(&graph.flow.jobs[at].1);
    text.push_str(&format!("{indent}{corner}{name}: {what}{}\n", condition(graph, at)));
    let indent = format!("{indent}{below}");
    let children = &graph.children[at];
    for (index, &child) in children.iter().enumerate() {
        branch(graph, child, Some(index + 1 == children.len()), &indent, drawn, text);
    }
}

/// What a tree does not show: several parents, and the condition on them.
fn condition(graph: &Graph<'_>, at: usize) -> String {
    let parents = &graph.parents[at];
    let when = word(graph.flow.jobs[at].1.when);
    if parents.len() < 2 && when == word(When::AllSucceeded) {
        return String::new();
    }
    let names: Vec<_> = parents.iter().map(|&parent| escaped(graph.name(parent))).collect();
    format!("  ({when}: {})", names.join(", "))
}

/// One job per line, with its parents.
fn steps(graph: &Graph<'_>, text: &mut String) {
    let mut order: Vec<usize> = (0..graph.flow.jobs.len()).collect();
    order.sort_by_key(|&at| graph.depth[at]);
    for at in order {
        let parents: Vec<_> =
            graph.parents[at].iter().map(|&parent| escaped(graph.name(parent))).collect();
        let after = match parents.is_empty() {
            true => String::new(),
            false => format!("  after {}", parents.join(", ")),
        };
        let (step, name) = (graph.depth[at] + 1, escaped(graph.name(at)));
        text.push_str(&format!("{step:>6}  {name}: {}{after}\n", what(&graph.flow.jobs[at].1)));
    }
}

/// The flow for Graphviz.
pub(super) fn dot(flow: &Flow) -> String {
    let mut text = format!("digraph {} {{\n  rankdir=LR; node [shape=box];\n", quoted(&flow.name));
    for (name, job) in &flow.jobs {
        let label = quoted(&format!("{name}\n{}", what(job)));
        text.push_str(&format!("  {} [label={label}];\n", quoted(name)));
    }
    for (name, job) in &flow.jobs {
        let how = match job.when {
            When::AllSucceeded => String::new(),
            when => format!(" [style=dashed, label={}]", quoted(word(when))),
        };
        for parent in &job.after {
            text.push_str(&format!("  {} -> {}{how};\n", quoted(parent), quoted(name)));
        }
    }
    text + "}\n"
}

fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{}\"", escaped(&text))
}

#[cfg(test)]
mod tests {
    use filch_api::submission::Submission;

    use super::*;

    fn flow(jobs: &[(&str, &[&str], When)]) -> Flow {
        let jobs = jobs.iter().map(|(name, after, when)| {
            let after = after.iter().map(|&parent| parent.to_owned()).collect();
            let kind = Some(format!("k\"{name}"));
            ((*name).to_owned(), Submission { kind, after, when: *when, ..Submission::default() })
        });
        Flow { name: "report".into(), jobs: jobs.collect() }
    }

    #[test]
    fn a_tree_shows_each_job_once() {
        let all = When::AllSucceeded;
        let flow = flow(&[
            ("fetch", &[], all),
            ("b", &["fetch"], all),
            ("c", &["fetch"], all),
            ("join", &["b", "c"], When::AllDone),
            ("alone", &[], all),
        ]);
        let drawn = "\
report: 5 jobs

fetch: k\"fetch
├─ b: k\"b
│  └─ join: k\"join  (all-done: b, c)
└─ c: k\"c
   └─ join (above)

alone: k\"alone
";
        assert_eq!(text(&flow), drawn);
        let drawn = dot(&flow);
        assert!(drawn.contains(r#""join" [label="join\nk\"join"];"#), "{drawn}");
        assert!(drawn.contains(r#""c" -> "join" [style=dashed, label="all-done"];"#), "{drawn}");
        assert!(drawn.contains("\"fetch\" -> \"b\";"), "{drawn}");
    }

    #[test]
    fn a_flow_that_is_too_deep_for_a_tree_is_a_list() {
        let names: Vec<String> = (0..100_000).map(|number| number.to_string()).collect();
        let mut jobs = vec![("a", vec![], When::AllSucceeded)];
        let mut before = "a";
        for name in &names {
            jobs.push((name, vec![before], When::AllSucceeded));
            before = name;
        }
        let jobs: Vec<(&str, &[&str], When)> =
            jobs.iter().map(|(name, after, when)| (*name, &after[..], *when)).collect();
        let drawn = text(&flow(&jobs));
        assert!(drawn.contains("\n     3  1: k\"1  after 0\n"));
        assert_eq!(drawn.lines().count(), 100_002);
    }
}
