//! A flow as SVG: a box for each job, in columns by depth, and a line from each parent. Dashed
//! lines have a condition other than success.

use filch_api::flow::Flow;
use filch_api::submission::When;
use filch_sim::svg::SvgWriter;

use super::graph::{Graph, what, word};
use crate::escape::escaped;

/// A picture of more jobs would be unreadable.
const JOBS_MAX: usize = 1_000;

/// Longer text is cut; the tooltip of the box shows all of it.
const CHARS_MAX: usize = 32;

const CHAR_WIDTH: usize = 8;
const BOX_HEIGHT: usize = 44;
const ROW_HEIGHT: usize = 64;
const COLUMN_GAP: usize = 70;
const MARGIN: usize = 20;

const STYLE: &str = "
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
";

/// The position of a job's box.
#[derive(Clone, Copy, Default)]
struct BoxPosition {
    x: usize,
    y: usize,
    width: usize,
}

/// The flow as SVG; `None` if it has too many jobs for a picture.
pub(super) fn draw(flow: &Flow) -> Option<String> {
    if flow.jobs.len() > JOBS_MAX {
        return None;
    }
    let graph = Graph::of(flow);
    let (boxes, width, height) = layout(&graph);
    let mut drawing = SvgWriter::new(width, height, &escaped(&flow.name), STYLE);
    drawing.element("defs").begin();
    let marker = drawing.element("marker").attr("id", "end").attr("viewBox", "0 0 8 8");
    let marker = marker.attr("refX", 8).attr("refY", 4).attr("markerWidth", 8);
    marker.attr("markerHeight", 8).attr("orient", "auto").begin();
    drawing.element("path").attr("d", "M0 0 8 4 0 8z").empty();
    drawing.end();
    drawing.end();
    for (at, (_, job)) in flow.jobs.iter().enumerate() {
        for &parent in &graph.parents[at] {
            line(&mut drawing, boxes[parent], boxes[at], job.when);
        }
    }
    for (at, (name, job)) in flow.jobs.iter().enumerate() {
        boxed(&mut drawing, boxes[at], name, &what(job));
    }
    Some(drawing.finish())
}

/// Columns from left to right. In each, jobs are about as high as their parents.
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
            // In hundredths of a row, because the average of two parents may be half a row.
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

fn line(drawing: &mut SvgWriter, from: BoxPosition, to: BoxPosition, when: When) {
    let (x1, y1) = (from.x + from.width, from.y + BOX_HEIGHT / 2);
    let (x2, y2) = (to.x, to.y + BOX_HEIGHT / 2);
    let bend = COLUMN_GAP / 2;
    let class = if when == When::AllSucceeded { "" } else { "other" };
    let (out, into) = (x1 + bend, x2 - bend);
    let path = drawing.element("path").class(class).attr("marker-end", "url(#end)");
    let curve = format_args!("M{x1} {y1} C{out} {y1} {into} {y2} {x2} {y2}");
    path.attr("d", curve).title(word(when));
}

fn boxed(drawing: &mut SvgWriter, position: BoxPosition, name: &str, what: &str) {
    let BoxPosition { x, y, width } = position;
    let left = x + CHAR_WIDTH;
    drawing.element("g").begin();
    drawing.element("title").text(format_args!("{}: {}", escaped(name), escaped(what)));
    let rect = drawing.element("rect").attr("x", x).attr("y", y).attr("width", width);
    rect.attr("height", BOX_HEIGHT).attr("rx", 5).empty();
    drawing.element("text").attr("x", left).attr("y", y + 18).text(escaped(&cut(name)));
    let text = drawing.element("text").class("what").attr("x", left).attr("y", y + 36);
    text.text(escaped(&cut(what)));
    drawing.end();
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(CHARS_MAX) {
        Some(_) => text.chars().take(CHARS_MAX - 1).chain(['…']).collect(),
        None => text.to_owned(),
    }
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
    fn jobs_are_boxes_in_columns_with_lines_from_their_parents() {
        let all = When::AllSucceeded;
        let drawn = draw(&flow(
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
    fn names_are_escaped_and_cut() {
        let name = "</text><script>alert(1)</script>&\"\u{1b}[2J\u{202e}\u{ffff}";
        let drawn = draw(&flow(name, &[(name, &[], When::AllSucceeded)])).expect("it is small");
        assert!(!drawn.contains("<script") && !drawn.contains('\u{1b}'), "{drawn}");
        assert!(drawn.contains("&lt;/text&gt;&lt;script&gt;"), "{drawn}");
        assert!(drawn.contains("&amp;&quot;\\u001b[2J\\u202e\u{fffd}"), "{drawn}");
        let long = "é".repeat(500);
        let drawn = draw(&flow("n", &[(&long, &[], When::AllSucceeded)])).expect("it is small");
        assert!(drawn.contains(&format!(">{}…</text>", "é".repeat(CHARS_MAX - 1))), "{drawn}");
    }

    #[test]
    fn an_empty_flow_is_drawn_and_a_huge_one_is_not() {
        assert!(draw(&flow("n", &[])).is_some_and(|drawn| drawn.ends_with("</svg>\n")));
        let names: Vec<String> = (0..=JOBS_MAX).map(|number| number.to_string()).collect();
        let jobs: Vec<(&str, &[&str], When)> =
            names.iter().map(|name| (name.as_str(), &[][..], When::AllSucceeded)).collect();
        assert!(draw(&flow("n", &jobs)).is_none());
        assert!(draw(&flow("n", &jobs[1..])).is_some());
    }
}
