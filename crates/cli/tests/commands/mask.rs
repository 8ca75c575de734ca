//! Replaces values that differ between runs: ids, times, paths, and measured numbers.

use serde_json::Value;

/// Fields with measured or random numbers.
const MEASURED: &[&str] =
    &["pid", "ended_last_minute", "uptime", "uptime_ms", "started_us", "bytes", "syncs", "commits"];

/// Fields of side jobs: how often the server is idle differs each time.
const SIDE_JOB_COUNTERS: &[&str] = &[
    "rate",
    "share",
    "enlisted",
    "selected",
    "recruited",
    "no_work",
    "overrun",
    "over_budget",
    "seconds",
];

#[derive(Clone, Default)]
pub(crate) struct Mask {
    /// Known values and their placeholders.
    known: Vec<(String, String)>,
    /// Whether to mask all numbers, and the verdicts that depend on them.
    is_of_numbers: bool,
}

impl Mask {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// For commands that only count and measure.
    pub(crate) fn of_numbers() -> Self {
        Self { is_of_numbers: true, ..Self::default() }
    }

    /// Replaces this text, and the short form of an id, by a placeholder.
    pub(crate) fn name(&mut self, text: &str, name: &str) {
        self.known.push((text.to_owned(), format!("<{name}>")));
        if is_id(text) {
            let short = text[text.len() - 8..].to_owned();
            self.known.push((short, format!("<end of {name}>")));
        }
    }

    pub(crate) fn apply(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            // The number of lines depends on the duration.
            Value::Array(lines) if self.is_of_numbers && lines.iter().all(is_trace) => {
                lines.truncate(1);
                lines.fill("<line of a scheduler trace>".into());
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.apply(item)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    let is_measured =
                        MEASURED.iter().chain(SIDE_JOB_COUNTERS).any(|measured| measured == name);
                    if name == "v" {
                        continue;
                    }
                    // Met targets, the CPU and the killed worker depend on the machine.
                    let is_verdict =
                        self.is_of_numbers && ["met", "cpu", "killed"].contains(&name.as_str());
                    if name == "version" || is_verdict || field.is_number() && is_measured {
                        *field = "<measured>".into();
                    } else {
                        self.apply(field);
                    }
                }
            }
            Value::Number(_) if self.is_of_numbers => *value = "<number>".into(),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&mut self, text: &str) -> String {
        if is_id(text) && self.known.iter().all(|(known, _)| known != text) {
            let count = self.known.iter().filter(|(_, name)| name.starts_with("<id ")).count();
            self.name(text, &format!("id {}", count + 1));
        }
        if is_time(text) {
            return "<time>".to_owned();
        }
        if text.starts_with("filch_") {
            return "<secret>".to_owned();
        }
        let mut shown = text.to_owned();
        for (known, name) in &self.known {
            shown = shown.replace(known.as_str(), name);
        }
        shown
    }
}

/// A line of a scheduler trace.
fn is_trace(line: &Value) -> bool {
    line.as_str().is_some_and(|line| line.starts_with("SCHED "))
}

/// The UUID of a job, the 16 digits of a worker, or the 8 of a token.
fn is_id(text: &str) -> bool {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_digits && [8, 16, 36].contains(&text.len())
}

/// A time of this century; the tests use later ones as constants.
fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.starts_with("20") && text.ends_with('Z') && text.as_bytes()[10] == b'T'
}
