//! `docs/recruiter.md`: the numbers in its table of rates are correct.

use std::fs;
use std::path::PathBuf;

/// The cells of each row below this header.
fn rows(page: &str, head: &str) -> Vec<Vec<String>> {
    let lines = page.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().replace(',', "")).collect()
    };
    lines.take_while(|line| line.starts_with('|')).map(cells).collect()
}

fn number(cell: &str) -> f64 {
    let plain = cell.trim_end_matches(" ms");
    plain.parse().unwrap_or_else(|_| panic!("{cell} is a number"))
}

#[test]
fn the_table_of_rates_is_correct() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/recruiter.md");
    let page = fs::read_to_string(path).expect("the page exists");
    let rows = rows(&page, "| enlists per second |");
    assert!(rows.len() >= 5, "{rows:?}");
    for row in rows {
        let [enlists, rate, slices, of_5_ms, of_20_ms] = &row[..] else { panic!("{row:?}") };
        let wanted = number(enlists) * number(rate);
        for (cell, factor) in [(slices, 1.0), (of_5_ms, 5.0), (of_20_ms, 20.0)] {
            assert!((number(cell) - wanted * factor).abs() < 1e-6, "{row:?}");
        }
    }
}
