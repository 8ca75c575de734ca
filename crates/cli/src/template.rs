//! Job arrays: the indexes of an array, and the placeholders in the command of each job.

use std::fmt::Write as _;
use std::path::Path;

use filch_api::submission::Submission;

/// The values of the placeholders of one job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placeholders<'a> {
    /// The array index, or the line number.
    pub(crate) index: u64,
    /// The line, with `--each-line`.
    pub(crate) line: Option<&'a str>,
}

impl Placeholders<'_> {
    /// The job with `{index}`, `{line}` and `{stem}` replaced, and the values in its environment.
    pub(crate) fn fill(&self, template: &Submission) -> Submission {
        let mut job = template.clone();
        for word in job.run.iter_mut().flatten() {
            *word = self.fill_word(word);
        }
        job.env.insert("FILCH_INDEX".into(), self.index.to_string());
        if let Some(line) = self.line {
            job.env.insert("FILCH_LINE".into(), line.to_owned());
        }
        job
    }

    /// One pass from left to right: placeholders in a replacement are not replaced again.
    fn fill_word(&self, word: &str) -> String {
        let mut filled = String::with_capacity(word.len());
        let mut rest = word;
        while let Some(at) = rest.find('{') {
            filled.push_str(&rest[..at]);
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix("{index}") {
                let _ = write!(filled, "{}", self.index);
                rest = after;
            } else if let (Some(line), Some(after)) = (self.line, rest.strip_prefix("{line}")) {
                filled.push_str(line);
                rest = after;
            } else if let (Some(line), Some(after)) = (self.line, rest.strip_prefix("{stem}")) {
                filled.push_str(stem(line));
                rest = after;
            } else {
                filled.push('{');
                rest = &rest[1..];
            }
        }
        filled + rest
    }
}

/// The file name in a path, without directories and the last extension.
fn stem(line: &str) -> &str {
    Path::new(line).file_stem().and_then(|stem| stem.to_str()).unwrap_or(line)
}

/// The indexes of an array: `1-1000`, `0-99:10`, `1,4,7-9`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArrayIndexes {
    ranges: Vec<(u64, u64, u64)>,
    count: u64,
}

/// The maximum size of an array.
const ARRAY_MAX: u64 = 10_000_000;

impl ArrayIndexes {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let wrong = || "write numbers like 1-1000, 0-99:10 or 1,4,7-9".to_owned();
        let mut ranges = Vec::new();
        let mut count = 0_u64;
        for part in text.split(',') {
            let (range, step) = part.split_once(':').unwrap_or((part, "1"));
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
            let (first, last, step) = (number(first)?, number(last)?, number(step)?);
            if step == 0 {
                return Err("the step must be at least 1".into());
            }
            if first > last {
                return Err(format!("the range is empty; write {last}-{first}"));
            }
            count = count.saturating_add(((last - first) / step).saturating_add(1));
            ranges.push((first, last, step));
        }
        if count > ARRAY_MAX {
            return Err(format!("an array can have at most {ARRAY_MAX} jobs"));
        }
        Ok(Self { ranges, count })
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + Send + use<> {
        let ranges = self.ranges.clone().into_iter();
        ranges.flat_map(|(first, last, step)| {
            (0..=(last - first) / step).map(move |n| first + n * step)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_once() {
        let own = Placeholders { index: 7, line: Some("in/{index}.tar.gz") };
        for (word, filled) in [
            ("plain", "plain"),
            ("{index}", "7"),
            ("out-{index}-{stem}.txt", "out-7-{index}.tar.txt"),
            ("{line}", "in/{index}.tar.gz"),
            ("{other} {{index}} {", "{other} {7} {"),
        ] {
            assert_eq!(own.fill_word(word), filled);
        }
        assert_eq!(
            Placeholders { index: 1, line: None }.fill_word("{line} {stem}"),
            "{line} {stem}"
        );
        assert_eq!(stem("a b"), "a b");
        assert_eq!(stem(".."), "..");

        let run = Some(vec!["echo".to_owned(), "{index}".to_owned()]);
        let job = own.fill(&Submission { run, ..Submission::default() });
        assert_eq!(job.run.unwrap(), ["echo", "7"]);
        assert_eq!(job.env["FILCH_INDEX"], "7");
        assert_eq!(job.env["FILCH_LINE"], "in/{index}.tar.gz");
    }

    #[test]
    fn array_indexes_are_ranges_and_lists() {
        let all = |text: &str| {
            ArrayIndexes::read(text).map(|indexes| {
                let list: Vec<u64> = indexes.iter().collect();
                assert_eq!(list.len() as u64, indexes.count());
                list
            })
        };
        assert_eq!(all("1-3").unwrap(), [1, 2, 3]);
        assert_eq!(all("0-9:4").unwrap(), [0, 4, 8]);
        assert_eq!(all("1,4,7-8").unwrap(), [1, 4, 7, 8]);
        assert_eq!(all("18446744073709551615").unwrap(), [u64::MAX]);
        assert_eq!(all("3-1").unwrap_err(), "the range is empty; write 1-3");
        assert_eq!(all("1-4:0").unwrap_err(), "the step must be at least 1");
        for wrong in ["", "a", "1-", "1..4", "-3", "1,,2"] {
            assert!(all(wrong).unwrap_err().contains("write numbers like"), "{wrong}");
        }
        assert!(all("0-18446744073709551615").unwrap_err().contains("at most"));
    }
}
