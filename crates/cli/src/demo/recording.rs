//! The demo as an animated SVG: every frame as shapes and text, shown one after another by CSS.
//! Without CSS, or with reduced motion, only the last frame is visible.

use std::fmt::Write as _;
use std::time::Duration;

use filch_sim::svg::SvgWriter;

use super::board::{Board, WorkerStatus};
use super::display::{Frame, describe, heading};
use crate::escape::escaped;

const WIDTH: u32 = 860;
const LANE: u32 = 34;
const TOP: u32 = 64;
const BAR_LEFT: u32 = 64;
const BAR_WIDTH: u64 = 330;

/// How long the last frame is shown before the animation repeats.
const LAST: Duration = Duration::from_secs(6);

/// The recorded frames, in order.
#[derive(Default)]
pub(super) struct Recording {
    frames: Vec<(Duration, Board)>,
}

impl Recording {
    pub(super) fn add(&mut self, after: Duration, board: &Board) {
        self.frames.push((after, board.clone()));
    }

    /// The SVG; `closing` is printed below the last frame.
    pub(super) fn svg(&self, jobs: u64, closing: &[String]) -> String {
        let full = self.frames.iter().map(|(_, board)| board.longest()).max().unwrap_or(1).max(1);
        let rows = self.frames.first().map_or(0, |(_, board)| board.rows.len()) as u32;
        let height = TOP + rows * LANE + 24 + 20 * closing.len() as u32;
        let end = self.frames.last().map_or(Duration::ZERO, |(after, _)| *after) + LAST;
        let title = format!("filch demo: {rows} workers share {jobs} jobs, one is killed");
        let mut svg = SvgWriter::new(WIDTH, height, &title, &self.style(end));
        let paper = svg.element("rect").class("paper").attr("width", WIDTH);
        paper.attr("height", height).attr("rx", 8).empty();
        svg.element("text").class("prompt").attr("x", 18).attr("y", 28).text("$ filch demo");
        for (index, (after, board)) in self.frames.iter().enumerate() {
            let frame = Frame { board, after: *after, jobs, full };
            let is_last = index + 1 == self.frames.len();
            let class = if is_last { "last" } else { "frame" };
            let group = svg.element("g").class(&format!("{class} f{index}"));
            group.attr("xml:space", "preserve").begin();
            draw(&mut svg, &frame);
            if is_last {
                let top = TOP + rows * LANE + 14;
                for (line, y) in closing.iter().zip((top..).step_by(20)) {
                    let text = svg.element("text").class("closing").attr("x", 18).attr("y", y);
                    text.text(escaped(line));
                }
            }
            svg.end();
        }
        svg.finish()
    }

    /// Each frame is visible during its part of the animation, which repeats.
    fn style(&self, end: Duration) -> String {
        let total = end.as_secs_f64();
        let mut style = STYLE.to_owned();
        style.push_str("  @media (prefers-reduced-motion: no-preference) {\n");
        let _ = writeln!(
            style,
            "    .frame, .last {{ visibility: hidden; animation: {total:.2}s step-end infinite }}"
        );
        for (index, (after, _)) in self.frames.iter().enumerate() {
            let percent = |moment: Duration| 100.0 * moment.as_secs_f64() / total;
            // The first frame is visible from the start, even if it was recorded later.
            let from = if index == 0 { 0.0 } else { percent(*after) };
            let until = self.frames.get(index + 1).map_or(100.0, |(next, _)| percent(*next));
            let _ = writeln!(
                style,
                "    .f{index} {{ animation-name: k{index} }} @keyframes k{index} {{ 0% {{ visibility: {} }} \
                 {from:.2}% {{ visibility: visible }} {until:.2}% {{ visibility: hidden }} }}",
                if index == 0 { "visible" } else { "hidden" }
            );
        }
        style.push_str("  }\n");
        style
    }
}

const STYLE: &str = "
  text { font: 13px ui-monospace, 'Cascadia Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace; fill: #3b4252; white-space: pre }
  .paper { fill: #ffffff; stroke: #d5d9e2 } .track { fill: #eef0f5 } .waiting { fill: #4f7cd6 } .stolen { fill: #ee8a2d }
  .prompt, .closing { fill: #161a26; font-weight: 600 } .gone { fill: #b0256f }
  .frame { visibility: hidden }
  @media (prefers-color-scheme: dark) {
    text { fill: #b7bfd1 } .paper { fill: #12151d; stroke: #2a3040 } .track { fill: #1d2230 }
    .waiting { fill: #5c8ae6 } .stolen { fill: #f0953f } .prompt, .closing { fill: #eef1f8 } .gone { fill: #ee77b5 }
  }
";

fn draw(svg: &mut SvgWriter, frame: &Frame<'_>) {
    svg.element("text").attr("x", 140).attr("y", 28).text(escaped(&heading(frame)));
    for (row, index) in frame.board.rows.iter().zip(0_u32..) {
        let y = TOP + index * LANE;
        let text = y + 6;
        let class = if row.status == WorkerStatus::Alive { "" } else { "gone" };
        svg.element("text").class(class).attr("x", 18).attr("y", text).text(escaped(&row.name));
        let width = (row.waiting * BAR_WIDTH).div_ceil(frame.full).min(BAR_WIDTH);
        let top = y - 8;
        if row.status == WorkerStatus::Alive {
            let colour = if row.stolen > 0 { "stolen" } else { "waiting" };
            for (class, width) in [("track", BAR_WIDTH), (colour, width)] {
                let bar = svg.element("rect").class(class).attr("x", BAR_LEFT).attr("y", top);
                bar.attr("width", width).attr("height", 18).attr("rx", 3).empty();
            }
        }
        let left = if row.status == WorkerStatus::Alive {
            u64::from(BAR_LEFT) + BAR_WIDTH + 16
        } else {
            64
        };
        let text = svg.element("text").class(class).attr("x", left).attr("y", text);
        text.text(escaped(&describe(row)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_is_one_svg_without_scripts() {
        let mut board = Board::new(&["w1".to_owned(), "w<2".to_owned()]);
        let mut recording = Recording::default();
        for (millis, waiting) in [(100, 9), (600, 4), (1_000, 0)] {
            board.rows[0].waiting = waiting;
            recording.add(Duration::from_millis(millis), &board);
        }
        let svg = recording.svg(10, &["10 jobs & nothing lost".to_owned()]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<g class=").count(), 3);
        assert_eq!(svg.matches("class=\"last f2\"").count(), 1);
        assert!(svg.contains("10 jobs &amp; nothing lost") && svg.contains("w&lt;2"));
        assert!(!svg.contains("<script") && !svg.contains("href"));
        assert!(svg.contains("width=\"330\""), "the longest deque is a full bar");
        assert!(
            svg.contains(
                ".f2 { animation-name: k2 } @keyframes k2 { 0% { visibility: hidden } 14.29%"
            ),
            "{svg}"
        );
    }
}
