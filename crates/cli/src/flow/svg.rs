//! A flow as a picture: a box for each job, in columns by what must come before, and a line to each from
//! what it waits for. Dashed lines have another condition than success.

use std::fmt::Write as _;

use filch_api::flow::Flow;
use filch_api::submission::When;

use super::graph::{Graph, what, word};
use crate::escape::escaped;

/// Of more jobs than this, a picture shows nothing.
const JOBS_MAX: usize = 1_000;

/// Longer words are cut; the whole is shown to who points at the box.
const CHARS_MAX: usize = 32;

const CHAR_WIDTH: usize = 8;
const BOX_HEIGHT: usize = 44;
const ROW_HEIGHT: usize = 64;
const COLUMN_GAP: usize = 70;
const MARGIN: usize = 20;

const STYLE: &str = "\
  <style>
    text { font: 13px ui-monospace, monospace; fill: #1f2328; }
    .what { fill: #59636e; }
    rect { fill: #f6f8fa; stroke: #59636e; }
    path { fill: none; stroke: #59636e; }
    marker path { fill: #59636e; }
    .other { stroke-dasharray: 5 4; }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc; }
      .what { fill: #9198a1; }
      rect { fill: #151b23; stroke: #9198a1; }
      path { stroke: #9198a1; }
      marker path { fill: #9198a1; }
    }
  </style>
  <defs><marker id=\"end\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" \
markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0 8 4 0 8z\"/></marker></defs>
";

/// Where a job's box is.
#[derive(Clone, Copy, Default)]
struct BoxPosition {
    x: usize,
    y: usize,
    width: usize,
}

/// The flow as SVG; `None` if it has too many jobs for a picture.
pub(super) fn svg(flow: &Flow) -> Option<String> {
    if flow.jobs.len() > JOBS_MAX {
        return None;
    }
    let graph = Graph::of(flow);
    let (boxes, width, height) = layout(&graph);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n  <title>{}</title>\n{STYLE}",
        xml(&flow.name)
    );
    for (at, (_, job)) in flow.jobs.iter().enumerate() {
        for &parent in &graph.parents[at] {
            line(&mut text, boxes[parent], boxes[at], job.when);
        }
    }
    for (at, (name, job)) in flow.jobs.iter().enumerate() {
        boxed(&mut text, boxes[at], name, &what(job));
    }
    Some(text + "</svg>\n")
}

/// Columns from left to right; in each, jobs stand about as high as what they wait for.
fn layout(graph: &Graph<'_>) -> (Vec<BoxPosition>, usize, usize) {
    let count = graph.flow.jobs.len();
    let mut columns = vec![Vec::new(); graph.depth.iter().max().map_or(0, |deepest| deepest + 1)];
    (0..count).for_each(|at| columns[graph.depth[at]].push(at));
    let mut rows = vec![0; count];
    let mut boxes = vec![BoxPosition::default(); count];
    let (mut x, mut height) = (MARGIN, 0);
    for column in &mut columns {
        column.sort_by_key(|&at| {
            let above: usize = graph.parents[at].iter().map(|&parent| rows[parent]).sum();
            // In hundredths of a row, so that two parents can be told from one.
            above * 100 / graph.parents[at].len().max(1)
        });
        let chars = column.iter().map(|&at| {
            let what = what(&graph.flow.jobs[at].1);
            cut(graph.name(at)).chars().count().max(cut(&what).chars().count())
        });
        let width = (chars.max().unwrap_or(0) + 2) * CHAR_WIDTH;
        for (row, &at) in column.iter().enumerate() {
            rows[at] = row;
            boxes[at] = BoxPosition { x, y: MARGIN + row * ROW_HEIGHT, width };
            height = height.max(boxes[at].y + BOX_HEIGHT);
        }
        x += width + COLUMN_GAP;
    }
    let width = x.saturating_sub(COLUMN_GAP).max(MARGIN);
    (boxes, width + MARGIN, height.max(MARGIN) + MARGIN)
}

fn line(text: &mut String, from: BoxPosition, to: BoxPosition, when: When) {
    let (x1, y1) = (from.x + from.width, from.y + BOX_HEIGHT / 2);
    let (x2, y2) = (to.x, to.y + BOX_HEIGHT / 2);
    let bend = COLUMN_GAP / 2;
    let class = if when == When::AllSucceeded { "" } else { " class=\"other\"" };
    let _ = writeln!(
        text,
        "  <path{class} marker-end=\"url(#end)\" d=\"M{x1} {y1} C{} {y1} {} {y2} {x2} {y2}\">\
         <title>{}</title></path>",
        x1 + bend,
        x2 - bend,
        word(when)
    );
}

fn boxed(text: &mut String, position: BoxPosition, name: &str, what: &str) {
    let BoxPosition { x, y, width } = position;
    let left = x + CHAR_WIDTH;
    let _ = writeln!(
        text,
        "  <g><title>{}: {}</title><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" \
         height=\"{BOX_HEIGHT}\" rx=\"5\"/><text x=\"{left}\" y=\"{}\">{}</text>\
         <text class=\"what\" x=\"{left}\" y=\"{}\">{}</text></g>",
        xml(name),
        xml(what),
        y + 18,
        xml(&cut(name)),
        y + 36,
        xml(&cut(what))
    );
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        Some(_) => text.chars().take(CHARS_MAX - 1).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

/// As text between tags. What XML cannot have at all is shown as elsewhere, or by a stand-in.
fn xml(text: &str) -> String {
    let mut safe = String::new();
    for character in escaped(text).chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            character => safe.push(character),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use filch_api::submission::Submission;

    use super::*;

    fn flow(name: &str, jobs: &[(&str, &[&str], When)]) -> Flow {
        let jobs = jobs.iter().map(|(name, after, when)| {
            let after = after.iter().map(|&parent| parent.to_owned()).collect();
            let kind = Some("k".to_owned());
            ((*name).to_owned(), Submission { kind, after, when: *when, ..Submission::default() })
        });
        Flow { name: name.to_owned(), jobs: jobs.collect() }
    }

    #[test]
    fn boxes_stand_in_columns_and_lines_lead_to_those_that_wait() {
        let all = When::AllSucceeded;
        let drawn = svg(&flow(
            "report",
            &[
                ("fetch", &[], all),
                ("left", &["fetch"], all),
                ("right", &["fetch"], all),
                ("join", &["left", "right"], When::AllDone),
            ],
        ))
        .expect("it is small");
        // Seven characters wide, then a gap.
        for rect in
            ["x=\"20\" y=\"20\"", "x=\"146\" y=\"20\"", "x=\"146\" y=\"84\"", "x=\"272\" y=\"20\""]
        {
            assert_eq!(drawn.matches(&format!("<rect {rect}")).count(), 1, "{rect} in {drawn}");
        }
        assert_eq!(drawn.matches("<path class=\"other\"").count(), 2, "{drawn}");
        assert_eq!(drawn.matches("<title>all-succeeded</title>").count(), 2, "{drawn}");
        assert!(drawn.contains("d=\"M76 42 C111 42 111 106 146 106\""), "{drawn}");
    }

    #[test]
    fn no_name_gets_out_of_its_place() {
        let name = "</text><script>alert(1)</script>&\"\u{1b}[2J\u{202e}\u{ffff}";
        let drawn = svg(&flow(name, &[(name, &[], When::AllSucceeded)])).expect("it is small");
        assert!(!drawn.contains("<script") && !drawn.contains('\u{1b}'), "{drawn}");
        assert!(drawn.contains("&lt;/text&gt;&lt;script&gt;"), "{drawn}");
        assert!(drawn.contains("&amp;&quot;\\u001b[2J\\u202e\u{fffd}"), "{drawn}");
        let long = "é".repeat(500);
        let drawn = svg(&flow("n", &[(&long, &[], When::AllSucceeded)])).expect("it is small");
        assert!(drawn.contains(&format!(">{}…</text>", "é".repeat(CHARS_MAX - 1))), "{drawn}");
    }

    #[test]
    fn there_is_a_picture_of_nothing_and_none_of_everything() {
        assert!(svg(&flow("n", &[])).is_some_and(|drawn| drawn.ends_with("</svg>\n")));
        let names: Vec<String> = (0..=JOBS_MAX).map(|number| number.to_string()).collect();
        let jobs: Vec<(&str, &[&str], When)> =
            names.iter().map(|name| (name.as_str(), &[][..], When::AllSucceeded)).collect();
        assert!(svg(&flow("n", &jobs)).is_none());
        assert!(svg(&flow("n", &jobs[1..])).is_some());
    }
}
