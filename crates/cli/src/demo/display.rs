//! The demo for people: drawn again and again on a terminal, a line now and then elsewhere.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use super::board::{Board, WorkerRow, WorkerStatus};

/// Cells of a bar.
pub(super) const BAR: u64 = 28;

/// How often a line is printed where nothing can be drawn.
const LINE_EVERY: Duration = Duration::from_millis(500);

/// Shows a board as it changes.
pub(super) enum Display {
    /// Over and over in the same place.
    Terminal {
        lines: usize,
    },
    /// A line now and then.
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

    /// How it stands after so much time.
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

    /// Something has happened that a drawing shows by itself.
    pub(super) fn say(&self, words: &str) {
        if matches!(self, Self::Lines { .. }) {
            let _ = writeln!(stderr(), "{words}");
        }
    }
}

/// What is shown at one moment.
pub(super) struct Frame<'a> {
    pub(super) board: &'a Board,
    pub(super) after: Duration,
    pub(super) jobs: u64,
    /// The most jobs that a deque has held so far: a whole bar.
    pub(super) full: u64,
}

/// The first line of a drawing.
pub(super) fn heading(frame: &Frame<'_>) -> String {
    let Frame { board, after, jobs, .. } = frame;
    format!(
        "{:>4.1} s   {} of {jobs} jobs done   {} thefts moved {}",
        after.as_secs_f64(),
        board.done(),
        board.thefts,
        board.moved
    )
}

/// How a worker is, in words.
pub(super) fn words(row: &WorkerRow) -> String {
    match row.status {
        WorkerStatus::Alive => format!(
            "{:>3} wait  {} run  {:>3} done  {:>3} stolen  {:>3} given",
            row.waiting, row.running, row.done, row.stolen, row.given
        ),
        WorkerStatus::Killed { held } => format!("killed with -9, holding {held} jobs"),
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
        let _ = writeln!(text, "  {}  {bar}  {}", row.name, words(row));
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
    fn bars_are_as_long_as_deques() {
        let mut board = Board::new(&["w1".to_owned(), "w2".to_owned()]);
        board.rows[0].waiting = 10;
        board.rows[1].waiting = 1;
        let after = Duration::from_millis(1_250);
        let frame = Frame { board: &board, after, jobs: 40, full: 20 };
        let seen = drawing(&frame);
        let lines: Vec<&str> = seen.lines().collect();
        assert_eq!(lines[0], " 1.2 s   0 of 40 jobs done   0 thefts moved 0");
        assert!(lines[1].starts_with(&format!("  w1  {}··", "█".repeat(14))), "{seen}");
        assert!(lines[2].starts_with("  w2  ██··"), "{seen}");
        board.kill(0);
        let frame = Frame { board: &board, after, jobs: 40, full: 20 };
        assert!(drawing(&frame).contains("killed with -9, holding 10 jobs"));
        assert!(line(&frame).ends_with("waiting+running: w1 gone  w2 1+0"), "{}", line(&frame));
    }
}
