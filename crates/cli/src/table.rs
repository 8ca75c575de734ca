//! Tables: in columns for people on a terminal, with tabs between the cells for programs.

use std::io::IsTerminal as _;

use anyhow::Result;

use crate::escape::escaped;
use crate::output;

/// A column of a list: what it is called, and whether it holds numbers.
pub(crate) enum Column {
    Text(&'static str),
    Number(&'static str),
}
use Column::{Number, Text};

impl Column {
    const fn heading(&self) -> &'static str {
        match self {
            Text(heading) | Number(heading) => heading,
        }
    }
}

/// Prints a list with a heading. Cells may hold whatever somebody has submitted.
pub(crate) fn list(columns: &[Column], rows: &[Vec<String>]) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    output::data(&lines(columns, rows, is_terminal))
}

fn lines(columns: &[Column], rows: &[Vec<String>], is_terminal: bool) -> String {
    let heading = columns.iter().map(|column| column.heading().to_owned()).collect();
    let mut shown: Vec<Vec<String>> = vec![heading];
    for row in rows {
        let cells = columns.iter().zip(row).map(|(column, cell)| match column {
            Number(_) if is_terminal => grouped(cell),
            _ => escaped(cell).into_owned(),
        });
        shown.push(cells.collect());
    }
    if !is_terminal {
        return tabs(&shown);
    }
    let is_right = |column: usize| matches!(columns.get(column), Some(Number(_)));
    aligned(&shown, is_right)
}

/// Prints what there is to say of one thing: a name and a value a row.
pub(crate) fn facts(rows: &[(&str, String)]) -> Result<()> {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|(name, value)| vec![(*name).to_owned(), escaped(value).into_owned()])
        .collect();
    let is_terminal = std::io::stdout().is_terminal();
    output::data(&if is_terminal { aligned(&rows, |_| false) } else { tabs(&rows) })
}

/// Prints rows of one length; a heading is a row.
pub(crate) fn print(rows: &[Vec<String>]) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    output::data(&if is_terminal { columns(rows) } else { tabs(rows) })
}

fn tabs(rows: &[Vec<String>]) -> String {
    rows.iter().map(|row| row.join("\t") + "\n").collect()
}

/// The first column to the left, the others to the right: names, then numbers.
fn columns(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| grouped(cell)).collect()).collect();
    aligned(&rows, |column| column > 0)
}

fn aligned(rows: &[Vec<String>], is_right: impl Fn(usize) -> bool) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in rows {
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            if column > 0 {
                text.push_str("  ");
            }
            text.push_str(&match is_right(column) {
                false => format!("{cell:width$}"),
                true => format!("{cell:>width$}"),
            });
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// A number with commas; anything else as it is.
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
    fn columns_for_people_and_tabs_for_programs() {
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
    fn a_list_groups_numbers_and_leaves_words_alone() {
        let columns = [Text("id"), Text("queue"), Number("jobs")];
        let rows = [["12345678", "a\tb", "1234"], ["9abcdef0", "img", "-"]];
        let rows = rows.map(|row| row.map(String::from).to_vec());
        let seen = "\
id        queue   jobs
12345678  a\\tb   1,234
9abcdef0  img        -
";
        assert_eq!(lines(&columns, &rows, true), seen);
        let seen = "id\tqueue\tjobs\n12345678\ta\\tb\t1234\n9abcdef0\timg\t-\n";
        assert_eq!(lines(&columns, &rows, false), seen);
    }
}
