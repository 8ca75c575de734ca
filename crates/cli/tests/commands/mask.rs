//! What differs from run to run, made the same: ids, moments, places, and figures that are measured.

use serde_json::Value;

/// Fields whose numbers are measured or chosen by chance, beside the program's own version.
const MEASURED: &[&str] =
    &["pid", "ended_last_minute", "uptime", "uptime_ms", "started_us", "bytes", "syncs", "commits"];

/// Fields of side-work: how often somebody had a moment is never the same twice.
const MOMENTS: &[&str] = &[
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
    /// What is known, and what it is called.
    known: Vec<(String, String)>,
    /// Whether every number is measured, and what is concluded from them.
    is_of_numbers: bool,
}

impl Mask {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// For what counts and measures, and says nothing else.
    pub(crate) fn of_numbers() -> Self {
        Self { is_of_numbers: true, ..Self::default() }
    }

    /// From now on this is called so, and the end of it, by which people know it, too.
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
            // As many lines as there was time for.
            Value::Array(lines) if self.is_of_numbers && lines.iter().all(is_trace) => {
                lines.truncate(1);
                lines.fill("<line of a schedule trace>".into());
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.apply(item)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    let is_measured =
                        MEASURED.iter().chain(MOMENTS).any(|measured| measured == name);
                    if name == "v" {
                        continue;
                    }
                    // Whether it came true, which machine that was, and who had the most to do.
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
        if is_moment(text) {
            return "<moment>".to_owned();
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

/// A line of what the threads of a pool did.
fn is_trace(line: &Value) -> bool {
    line.as_str().is_some_and(|line| line.starts_with("SCHED "))
}

/// A job's UUID, the sixteen digits of a worker, the eight of a token.
fn is_id(text: &str) -> bool {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_digits && [8, 16, 36].contains(&text.len())
}

/// Of this century: what is far away was chosen by the test.
fn is_moment(text: &str) -> bool {
    text.len() >= 20 && text.starts_with("20") && text.ends_with('Z') && text.as_bytes()[10] == b'T'
}
