//! Tables: in columns for people on a terminal, with tabs between the cells for programs.

use std::io::IsTerminal as _;

use anyhow::Result;

use crate::output;

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
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            text.push_str(&match column {
                0 => format!("{cell:width$}"),
                _ => format!("  {cell:>width$}"),
            });
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// A number with commas; anything else as it is.
fn grouped(cell: &str) -> String {
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
}
