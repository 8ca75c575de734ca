//! The demo for people: drawn again and again on a terminal, a line now and then elsewhere.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::Duration;

use super::board::{Board, Fate, Lane};

/// Cells of a bar.
pub(super) const BAR: u64 = 28;

/// How often a line is printed where nothing can be drawn.
const LINE_EVERY: Duration = Duration::from_millis(500);

/// Shows a board as it changes.
pub(super) enum Show {
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

impl Show {
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
    pub(super) fn draw(&mut self, scene: &Scene<'_>) {
        match self {
            Self::Terminal { lines } => {
                let text = frame(scene);
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
            Self::Lines { next } if scene.after >= *next => {
                *next = scene.after + LINE_EVERY;
                let _ = writeln!(stderr(), "{}", line(scene));
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
pub(super) struct Scene<'a> {
    pub(super) board: &'a Board,
    pub(super) after: Duration,
    pub(super) jobs: u64,
    /// The most jobs that a deque has held so far: a whole bar.
    pub(super) full: u64,
}

/// The first line of a drawing.
pub(super) fn heading(scene: &Scene<'_>) -> String {
    let Scene { board, after, jobs, .. } = scene;
    format!(
        "{:>4.1} s   {} of {jobs} jobs done   {} thefts moved {}",
        after.as_secs_f64(),
        board.done(),
        board.thefts,
        board.moved
    )
}

/// How a worker is, in words.
pub(super) fn words(lane: &Lane) -> String {
    match lane.fate {
        Fate::Alive => format!(
            "{:>3} wait  {} run  {:>3} done  {:>3} stolen  {:>3} given",
            lane.waiting, lane.running, lane.done, lane.stolen, lane.given
        ),
        Fate::Killed { held } => format!("killed with -9, holding {held} jobs"),
        Fate::Lost { held } => {
            format!("lost: {held} jobs back in the queue; {} done before", lane.done)
        }
    }
}

fn frame(scene: &Scene<'_>) -> String {
    let mut text = heading(scene) + "\n";
    for lane in &scene.board.lanes {
        let cells = (lane.waiting * BAR).div_ceil(scene.full.max(1)).min(BAR) as usize;
        let bar = "█".repeat(cells) + &"·".repeat(BAR as usize - cells);
        let _ = writeln!(text, "  {}  {bar}  {}", lane.name, words(lane));
    }
    text
}

fn line(scene: &Scene<'_>) -> String {
    let lanes = scene.board.lanes.iter().map(|lane| match lane.fate {
        Fate::Alive => format!("{} {}+{}", lane.name, lane.waiting, lane.running),
        Fate::Killed { .. } | Fate::Lost { .. } => format!("{} gone", lane.name),
    });
    format!("{}   waiting+running: {}", heading(scene), lanes.collect::<Vec<_>>().join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_deques() {
        let mut board = Board::new(&["w1".to_owned(), "w2".to_owned()]);
        board.lanes[0].waiting = 10;
        board.lanes[1].waiting = 1;
        let after = Duration::from_millis(1_250);
        let scene = Scene { board: &board, after, jobs: 40, full: 20 };
        let seen = frame(&scene);
        let lines: Vec<&str> = seen.lines().collect();
        assert_eq!(lines[0], " 1.2 s   0 of 40 jobs done   0 thefts moved 0");
        assert!(lines[1].starts_with(&format!("  w1  {}··", "█".repeat(14))), "{seen}");
        assert!(lines[2].starts_with("  w2  ██··"), "{seen}");
        board.kill(0);
        let scene = Scene { board: &board, after, jobs: 40, full: 20 };
        assert!(frame(&scene).contains("killed with -9, holding 10 jobs"));
        assert!(line(&scene).ends_with("waiting+running: w1 gone  w2 1+0"), "{}", line(&scene));
    }
}
