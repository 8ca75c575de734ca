//! The display of the demo: animated on a terminal, a line every half second in a pipe.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use super::board::{Board, WorkerRow, WorkerStatus};

/// Width of a bar in cells.
pub(super) const BAR: u64 = 28;

/// How often a line is printed without a terminal.
const LINE_EVERY: Duration = Duration::from_millis(500);

/// Shows the board.
pub(super) enum Display {
    /// Redrawn in place.
    Terminal {
        lines: usize,
    },
    /// A line every half second.
    Lines {
        next: Duration,
    },
    Nothing,
}

impl Display {
    pub(super) fn new(quiet: bool) -> Self {
        if quiet {
            Self::Nothing
        } else if stderr().is_terminal() {
            Self::Terminal { lines: 0 }
        } else {
            Self::Lines { next: Duration::ZERO }
        }
    }

    /// Draws one frame.
    pub(super) fn draw(&mut self, frame: &Frame<'_>) {
        match self {
            Self::Terminal { lines } => {
                let text = drawing(frame);
                let mut drawn = String::new();
                if *lines > 0 {
                    let _ = write!(drawn, "\x1b[{lines}A");
                }
                *lines = text.lines().count();
                for line in text.lines() {
                    let _ = writeln!(drawn, "\x1b[2K{line}");
                }
                let _ = stderr().write_all(drawn.as_bytes());
            }
            Self::Lines { next } if frame.after >= *next => {
                *next = frame.after + LINE_EVERY;
                let _ = writeln!(stderr(), "{}", line(frame));
            }
            Self::Lines { .. } | Self::Nothing => {}
        }
    }

    /// Prints a message, except on a terminal, where the drawing shows it.
    pub(super) fn message(&self, text: &str) {
        if matches!(self, Self::Lines { .. }) {
            let _ = writeln!(stderr(), "{text}");
        }
    }
}

/// One frame of the display.
pub(super) struct Frame<'a> {
    pub(super) board: &'a Board,
    pub(super) after: Duration,
    pub(super) jobs: u64,
    /// The longest deque so far, which is a full bar.
    pub(super) full: u64,
}

/// The first line of a frame.
pub(super) fn heading(frame: &Frame<'_>) -> String {
    let Frame { board, after, jobs, .. } = frame;
    format!(
        "{:>4.1} s   {} of {jobs} jobs done   {} steals moved {} jobs",
        after.as_secs_f64(),
        board.done(),
        board.steals,
        board.moved
    )
}

/// The status of a worker as text.
pub(super) fn describe(row: &WorkerRow) -> String {
    match row.status {
        WorkerStatus::Alive => format!(
            "{:>3} waiting  {} running  {:>3} done  {:>3} stolen  {:>3} given",
            row.waiting, row.running, row.done, row.stolen, row.given
        ),
        WorkerStatus::Killed { held } => format!("killed (SIGKILL) with {held} jobs"),
        WorkerStatus::Lost { held } => {
            format!("lost: {held} jobs back in the queue; {} done before", row.done)
        }
    }
}

fn drawing(frame: &Frame<'_>) -> String {
    let mut text = heading(frame) + "\n";
    for row in &frame.board.rows {
        let cells = (row.waiting * BAR).div_ceil(frame.full.max(1)).min(BAR) as usize;
        let bar = "█".repeat(cells) + &"·".repeat(BAR as usize - cells);
        let _ = writeln!(text, "  {}  {bar}  {}", row.name, describe(row));
    }
    text
}

fn line(frame: &Frame<'_>) -> String {
    let rows = frame.board.rows.iter().map(|row| match row.status {
        WorkerStatus::Alive => format!("{} {}+{}", row.name, row.waiting, row.running),
        WorkerStatus::Killed { .. } | WorkerStatus::Lost { .. } => format!("{} gone", row.name),
    });
    format!("{}   waiting+running: {}", heading(frame), rows.collect::<Vec<_>>().join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional_to_deques() {
        let mut board = Board::new(&["w1".to_owned(), "w2".to_owned()]);
        board.rows[0].waiting = 10;
        board.rows[1].waiting = 1;
        let after = Duration::from_millis(1_250);
        let frame = Frame { board: &board, after, jobs: 40, full: 20 };
        let seen = drawing(&frame);
        let lines: Vec<&str> = seen.lines().collect();
        assert_eq!(lines[0], " 1.2 s   0 of 40 jobs done   0 steals moved 0 jobs");
        assert!(lines[1].starts_with(&format!("  w1  {}··", "█".repeat(14))), "{seen}");
        assert!(lines[2].starts_with("  w2  ██··"), "{seen}");
        board.kill(0);
        let frame = Frame { board: &board, after, jobs: 40, full: 20 };
        assert!(drawing(&frame).contains("killed (SIGKILL) with 10 jobs"));
        assert!(line(&frame).ends_with("waiting+running: w1 gone  w2 1+0"), "{}", line(&frame));
    }
}
