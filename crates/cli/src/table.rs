//! Tables: aligned columns on a terminal, tab-separated cells in a pipe.

use std::io::IsTerminal as _;
use std::os::fd::AsFd;

use anyhow::Result;

use crate::color::{self, Style};
use crate::escape::escaped;
use crate::output;

/// A column with its heading. Numbers are right-aligned, states have colors, and `Rest` is the last
/// column, cut to the width of the terminal.
pub(crate) enum Column {
    Text(&'static str),
    State(&'static str),
    Number(&'static str),
    Rest(&'static str),
}
use Column::{Number, Rest, State, Text};

impl Column {
    const fn heading(&self) -> &'static str {
        match self {
            Text(heading) | State(heading) | Number(heading) | Rest(heading) => heading,
        }
    }
}

/// Prints a list with a heading. Cells may hold untrusted text.
pub(crate) fn list(columns: &[Column], rows: &[Vec<String>]) -> Result<()> {
    let stdout = std::io::stdout();
    let width = stdout.is_terminal().then(|| width(&stdout));
    let is_painted = color::is_on_stdout();
    let text = lines(columns, rows, width, is_painted);
    if is_painted { output::painted(&text) } else { output::data(&text) }
}

/// The width of the terminal in characters; unlimited if it is unknown.
fn width(terminal: impl AsFd) -> usize {
    let size = rustix::termios::tcgetwinsize(terminal);
    size.ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0).unwrap_or(usize::MAX)
}

/// Aligned columns for a terminal of this width; tab-separated if there is no terminal.
fn lines(
    columns: &[Column],
    rows: &[Vec<String>],
    width: Option<usize>,
    is_painted: bool,
) -> String {
    let heading = columns.iter().map(|column| column.heading().to_owned()).collect();
    let mut shown: Vec<Vec<String>> = vec![heading];
    for row in rows {
        let cells = columns.iter().zip(row).map(|(column, cell)| match column {
            Number(_) if width.is_some() => grouped(&escaped(cell)),
            _ => escaped(cell).into_owned(),
        });
        shown.push(cells.collect());
    }
    let paint = |row: usize, column: usize, cell: &str, text: String| {
        let style = match columns.get(column) {
            _ if !is_painted => None,
            _ if row == 0 => Some(Style::Heading),
            Some(State(_)) => color::of_state(cell),
            _ => None,
        };
        style.map_or_else(|| text.clone(), |style| color::paint(style, &text))
    };
    let Some(width) = width else {
        let rows = shown.iter().enumerate().map(|(at, row)| {
            let cells = row.iter().enumerate();
            cells.map(|(column, cell)| paint(at, column, cell, cell.clone())).collect()
        });
        return tabs(&rows.collect::<Vec<_>>());
    };
    if let Some((Rest(_), others)) = columns.split_last() {
        cut(&mut shown, others.len(), width);
    }
    let is_right = |column: usize| matches!(columns.get(column), Some(Number(_)));
    aligned(&shown, is_right, paint)
}

/// Cuts the cells of the last column so that rows fit the width.
fn cut(rows: &mut [Vec<String>], last: usize, width: usize) {
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let others: usize = (0..last).map(|column| widest(column) + GAP.len()).sum();
    let heading = rows.first().and_then(|row| row.get(last)).map_or(0, |cell| cell.chars().count());
    let left = width.saturating_sub(others).max(heading);
    for cell in rows.iter_mut().filter_map(|row| row.get_mut(last)) {
        if cell.chars().count() > left {
            *cell = cell.chars().take(left.saturating_sub(1)).chain(['…']).collect();
        }
    }
}

/// The gap between two columns.
const GAP: &str = "  ";

/// Cells without style.
fn plain(_: usize, _: usize, _: &str, text: String) -> String {
    text
}

/// Prints the fields of one thing: a name and a value per row.
pub(crate) fn facts(rows: &[(&str, String)]) -> Result<()> {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|(name, value)| vec![(*name).to_owned(), escaped(value).into_owned()])
        .collect();
    let is_terminal = std::io::stdout().is_terminal();
    output::data(&if is_terminal { aligned(&rows, |_| false, plain) } else { tabs(&rows) })
}

/// Prints rows of equal length; a heading counts as a row.
pub(crate) fn print(rows: &[Vec<String>]) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    output::data(&if is_terminal { columns(rows) } else { tabs(rows) })
}

fn tabs(rows: &[Vec<String>]) -> String {
    rows.iter().map(|row| row.join("\t") + "\n").collect()
}

/// The first column (names) is left-aligned, the others (numbers) are right-aligned.
fn columns(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| grouped(cell)).collect()).collect();
    aligned(&rows, |column| column > 0, plain)
}

/// Columns as wide as their widest cell. `paint` gets the row, the column, the cell and the padded
/// cell; the codes it adds take no width.
fn aligned(
    rows: &[Vec<String>],
    is_right: impl Fn(usize) -> bool,
    paint: impl Fn(usize, usize, &str, String) -> String,
) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        for (column, cell) in row.iter().enumerate() {
            let is_last = column + 1 == row.len();
            let width = widths[column];
            if column > 0 {
                text.push_str(GAP);
            }
            let padded = match is_right(column) {
                false if is_last => cell.clone(),
                false => format!("{cell:width$}"),
                true => format!("{cell:>width$}"),
            };
            text.push_str(&paint(at, column, cell, padded));
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// A number with thousands separators; other text unchanged.
pub(crate) fn grouped(cell: &str) -> String {
    let (whole, fraction) =
        cell.split_once('.').map_or((cell, ""), |(whole, _)| (whole, &cell[whole.len()..]));
    if whole.len() < 4 || !whole.bytes().all(|byte| byte.is_ascii_digit()) {
        return cell.into();
    }
    let mut text = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_get_columns_and_pipes_get_tabs() {
        let rows = [["worker", "jobs", "busy_ms"], ["w1", "1234567", "1234.5"], ["w10", "7", "x"]];
        let rows = rows.map(|row| row.map(String::from).to_vec());
        let seen = "\
worker       jobs  busy_ms
w1      1,234,567  1,234.5
w10             7        x
";
        assert_eq!(columns(&rows), seen);
        assert_eq!(tabs(&rows), "worker\tjobs\tbusy_ms\nw1\t1234567\t1234.5\nw10\t7\tx\n");
        assert_eq!(columns(&[]), "");
    }

    #[test]
    fn a_list_groups_the_digits_of_numbers_only() {
        let columns = [Text("id"), Text("queue"), Number("jobs")];
        let rows = [["12345678", "a\tb", "1234"], ["9abcdef0", "img", "-"]];
        let rows = rows.map(|row| row.map(String::from).to_vec());
        let seen = "\
id        queue   jobs
12345678  a\\tb   1,234
9abcdef0  img        -
";
        assert_eq!(lines(&columns, &rows, Some(usize::MAX), false), seen);
        let seen = "id\tqueue\tjobs\n12345678\ta\\tb\t1234\n9abcdef0\timg\t-\n";
        assert_eq!(lines(&columns, &rows, None, false), seen);
    }

    #[test]
    fn the_last_column_is_cut_to_the_width_of_the_terminal() {
        let columns = [Text("id"), Rest("command")];
        let rows =
            [["1", "make test all"], ["2", "true"]].map(|row| row.map(String::from).to_vec());
        let seen = "id  command\n1   make te…\n2   true\n";
        assert_eq!(lines(&columns, &rows, Some(12), false), seen);
        let narrow = "id  command\n1   make t…\n2   true\n";
        assert_eq!(lines(&columns, &rows, Some(3), false), narrow, "but not less than its heading");
        assert!(lines(&columns, &rows, Some(17), false).contains("make test all\n"));
        assert!(lines(&columns, &rows, None, false).contains("make test all\n"));
    }

    #[test]
    fn colors_take_no_width() {
        let columns = [State("state"), Number("jobs")];
        let rows = [["dead", "7"], ["queued", "12"]].map(|row| row.map(String::from).to_vec());
        let seen = "\
\u{1b}[1mstate \u{1b}[0m  \u{1b}[1mjobs\u{1b}[0m
\u{1b}[1;31mdead  \u{1b}[0m     7
queued    12
";
        assert_eq!(lines(&columns, &rows, Some(usize::MAX), true), seen);
        let seen = "\u{1b}[1mstate\u{1b}[0m\t\u{1b}[1mjobs\u{1b}[0m\n\u{1b}[1;31mdead\u{1b}[0m\t7\nqueued\t12\n";
        assert_eq!(lines(&columns, &rows, None, true), seen);
    }
}
