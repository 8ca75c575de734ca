//! `cargo xtask table`: writes the results of a benchmark into the page that shows them.
//!
//! A benchmark prints one JSON document; this file turns it into the table between the marks with
//! the benchmark's name, so that figures are never copied by hand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The pages that may have marks.
const PAGES: [&str; 3] = ["docs/benchmarks.md", "docs/pool.md", "docs/recruiter.md"];

/// What to do with a page whose table differs from the figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    Rewrite,
    Check,
}

pub(crate) fn run(root: &Path, files: &[PathBuf], action: Action) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        let json = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        let report = Report::read(&json).with_context(|| format!("{}", file.display()))?;
        let (page, before, after) = replace_in_page(root, &report)?;
        if after == before {
            eprintln!("{page} is up to date");
            continue;
        }
        match action {
            Action::Rewrite => {
                fs::write(root.join(page), after).with_context(|| page.to_owned())?;
                eprintln!("{page} was rewritten");
            }
            Action::Check => {
                eprintln!("error: {page} differs from the figures");
                eprintln!("  help: rewrite it with `cargo xtask table FILE...`");
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// The page that has the marks for this table: its name, and its text before and after.
fn replace_in_page(root: &Path, report: &Report) -> Result<(&'static str, String, String)> {
    for page in PAGES {
        let path = root.join(page);
        if !path.exists() {
            continue;
        }
        let before = fs::read_to_string(&path).with_context(|| page.to_owned())?;
        if let Some(after) = replace_table(&before, report) {
            return Ok((page, before, after));
        }
    }
    let (begin, end) = marks(report);
    bail!(
        "no page has the marks of this table\n  \
         help: add `{begin}` and `{end}` to one of {}",
        PAGES.join(", ")
    )
}

/// The JSON document of one benchmark. Only the fields that the table shows are read.
struct Report {
    bench: String,
    command: String,
    cores: u64,
    processor: String,
    figures: Vec<Figure>,
}

struct Figure {
    what: String,
    value: f64,
    unit: String,
    aim: Option<Aim>,
}

struct Aim {
    text: String,
    met: bool,
}

impl Report {
    fn read(json: &str) -> Result<Self> {
        let document: Value = serde_json::from_str(json)?;
        let version = document["v"].as_u64().context("`v` is not a number")?;
        if version != 1 {
            bail!("unknown version {version} of the figures (expected 1)");
        }
        let machine = &document["machine"];
        let figures = document["figures"].as_array().context("`figures` is not a list")?;
        Ok(Self {
            bench: text(&document, "bench")?,
            command: text(&document, "command")?,
            cores: machine["cores"].as_u64().context("`machine.cores` is not a number")?,
            processor: text(machine, "cpu")?,
            figures: figures
                .iter()
                .enumerate()
                .map(|(index, figure)| {
                    Figure::read(figure).with_context(|| format!("`figures[{index}]`"))
                })
                .collect::<Result<_>>()?,
        })
    }

    fn table(&self) -> String {
        let mut table = String::from("| what | value | aim |\n|---|---:|---|\n");
        for figure in &self.figures {
            let value = format!("{} {}", rounded(figure.value), figure.unit);
            let aim = match &figure.aim {
                None => String::new(),
                Some(Aim { text, met: true }) => text.clone(),
                Some(Aim { text, met: false }) => format!("{text} (not met)"),
            };
            let cells = [figure.what.as_str(), value.trim_end(), aim.as_str()];
            table += &format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "));
        }
        let Self { command, cores, processor, .. } = self;
        table + &format!("\nMeasured with `{command}` on {cores} cores ({processor}).\n")
    }
}

impl Figure {
    fn read(figure: &Value) -> Result<Self> {
        let aim = match &figure["aim"] {
            Value::Null => None,
            _ => Some(Aim {
                text: text(figure, "aim")?,
                met: figure["met"].as_bool().context("`met` is not true or false")?,
            }),
        };
        Ok(Self {
            what: text(figure, "what")?,
            value: figure["value"].as_f64().context("`value` is not a number")?,
            unit: text(figure, "unit")?,
            aim,
        })
    }
}

fn text(object: &Value, key: &str) -> Result<String> {
    Ok(object[key].as_str().with_context(|| format!("`{key}` is not a text"))?.to_owned())
}

/// Three significant digits, which is as precise as a measurement is. Whole numbers and anything
/// above a hundred are written out, because readers compare and multiply them.
fn rounded(value: f64) -> String {
    let size = value.abs();
    if value.fract() == 0.0 || size >= 99.95 {
        return grouped(&format!("{value:.0}"));
    }
    let decimals = match size {
        9.995.. => 1,
        0.9995.. => 2,
        // The first digit that is not a zero, and two more.
        _ => 2 + (-size.log10()).ceil() as usize,
    };
    format!("{value:.decimals$}")
}

fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        let remaining = digits.len() - index;
        if remaining.is_multiple_of(3) && text.ends_with(|last: char| last.is_ascii_digit()) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `None` if the page does not have the marks.
fn replace_table(page: &str, report: &Report) -> Option<String> {
    let (begin, end) = marks(report);
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    // The empty lines keep the marks apart from the table for every Markdown reader.
    Some(format!("{before}{begin}\n\n{}\n{end}{after}", report.table()))
}

fn marks(report: &Report) -> (String, String) {
    let bench = &report.bench;
    (format!("<!-- figures:begin {bench} -->"), format!("<!-- figures:end {bench} -->"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"{"v":1,"bench":"scheduler","command":"cargo xtask bench scheduler --json",
        "machine":{"cores":2,"cpu":"Some CPU"},
        "figures":[
            {"what":"submit, 1M live","value":812.4,"unit":"ns","aim":"<= 1500","met":true},
            {"what":"a|b","value":0.5,"unit":"","aim":">= 1","met":false},
            {"what":"jobs","value":1000000,"unit":"jobs"}]}"#;

    const README: &str = "# filch\n\n<!-- figures:begin scheduler -->\nold\n\
                          <!-- figures:end scheduler -->\n\nThe rest.\n";

    const REWRITTEN: &str = "\
# filch

<!-- figures:begin scheduler -->

| what | value | aim |
|---|---:|---|
| submit, 1M live | 812 ns | <= 1500 |
| a\\|b | 0.500 | >= 1 (not met) |
| jobs | 1,000,000 jobs |  |

Measured with `cargo xtask bench scheduler --json` on 2 cores (Some CPU).

<!-- figures:end scheduler -->

The rest.
";

    #[test]
    fn the_table_between_the_marks_is_replaced_and_nothing_else() {
        let report = Report::read(JSON).unwrap();
        let once = replace_table(README, &report).unwrap();
        assert_eq!(once, REWRITTEN);
        assert_eq!(replace_table(&once, &report).unwrap(), once, "a second time changes nothing");
    }

    #[test]
    fn pages_without_the_marks_are_left_alone() {
        let report = Report::read(JSON).unwrap();
        let swapped = "<!-- figures:end scheduler --> <!-- figures:begin scheduler -->";
        let other = "<!-- figures:begin pool --> <!-- figures:end pool -->";
        for page in ["", swapped, other] {
            assert_eq!(replace_table(page, &report), None);
        }
        let folder = tempfile::tempdir().unwrap();
        let error = replace_in_page(folder.path(), &report).unwrap_err().to_string();
        assert!(error.contains("`<!-- figures:begin scheduler -->`"), "{error}");
    }

    #[test]
    fn unreadable_figures_name_the_bad_field() {
        for (from, to, complaint) in [
            ("\"v\":1", "\"v\":2", "version 2"),
            ("\"bench\":", "\"bank\":", "`bench` is not a text"),
            ("\"cores\":2", "\"cores\":-2", "`machine.cores` is not a number"),
            ("0.5", "null", "`figures[1]`: `value` is not a number"),
            ("\"met\":false", "\"met\":0", "`figures[1]`: `met` is not true or false"),
            ("}]}", "", "EOF while parsing"),
        ] {
            let error = Report::read(&JSON.replace(from, to)).err();
            let error = format!("{:#}", error.expect("the document is broken"));
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn values_are_rounded_to_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (2.0, "2"),
            (184.0, "184"),
            (0.012_34, "0.0123"),
            (0.1, "0.100"),
            (0.999_9, "1.00"),
            (1.234, "1.23"),
            (9.999, "10.0"),
            (12.34, "12.3"),
            (99.97, "100"),
            (812.4, "812"),
            (1_234.5, "1,234"),
            (1_234_567.8, "1,234,568"),
            (-1_234.0, "-1,234"),
            (-123_456.0, "-123,456"),
        ] {
            assert_eq!(rounded(value), text);
        }
    }

    #[test]
    fn checking_writes_nothing_and_the_page_with_the_marks_is_found() {
        for page in PAGES {
            let folder = tempfile::tempdir().unwrap();
            let root = folder.path();
            fs::create_dir(root.join("docs")).unwrap();
            fs::write(root.join("README.md"), "# filch\n").unwrap();
            fs::write(root.join(page), README).unwrap();
            let files = [root.join("scheduler.json")];
            fs::write(&files[0], JSON).unwrap();
            assert_eq!(run(root, &files, Action::Check).unwrap(), ExitCode::FAILURE);
            assert_eq!(fs::read_to_string(root.join(page)).unwrap(), README);
            assert_eq!(run(root, &files, Action::Rewrite).unwrap(), ExitCode::SUCCESS);
            assert_eq!(fs::read_to_string(root.join(page)).unwrap(), REWRITTEN);
            assert_eq!(run(root, &files, Action::Check).unwrap(), ExitCode::SUCCESS);
        }
    }
}
