//! Colors: on a terminal unless NO_COLOR is set, always, or never.

use std::ffi::OsString;
use std::io::{IsTerminal, stderr, stdout};
use std::sync::OnceLock;

use clap::{ColorChoice, ValueEnum};

/// When to use colors
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorMode {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

/// The style of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    Heading,
    Good,
    Bad,
    Busy,
    Quiet,
}

static MODE: OnceLock<ColorMode> = OnceLock::new();

/// Sets the mode, once for the whole program.
pub(crate) fn init(when: ColorMode) {
    let _ = MODE.set(when);
}

/// The color choice for clap, which prints help and errors before the options are parsed.
pub(crate) fn for_help(words: impl Iterator<Item = OsString>, found: &str) -> ColorChoice {
    let words: Vec<OsString> = words.take_while(|word| word != "--").collect();
    let apart = words.windows(2).find(|pair| pair[0] == "--color").map(|pair| pair[1].to_str());
    let joined = || words.iter().find_map(|word| word.to_str()?.strip_prefix("--color="));
    match apart.flatten().or_else(joined).unwrap_or(found) {
        "always" => ColorChoice::Always,
        "never" => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}

pub(crate) fn is_on_stdout() -> bool {
    is_on(&stdout())
}

/// The prefix of an error message.
pub(crate) fn error() -> String {
    if is_on(&stderr()) { paint(Style::Bad, "error:") } else { "error:".to_owned() }
}

/// The text with the escape codes of its style.
pub(crate) fn paint(style: Style, text: &str) -> String {
    let code = match style {
        Style::Heading => "1",
        Style::Good => "32",
        Style::Bad => "1;31",
        Style::Busy => "36",
        Style::Quiet => "2",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// The style of a job, queue or worker state.
pub(crate) fn of_state(state: &str) -> Option<Style> {
    match state {
        "succeeded" => Some(Style::Good),
        "dead" | "disconnected" => Some(Style::Bad),
        "running" | "leased" => Some(Style::Busy),
        "cancelled" | "paused" | "draining" => Some(Style::Quiet),
        _ => None,
    }
}

fn is_on(stream: &impl IsTerminal) -> bool {
    let is_refused = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match MODE.get() {
        Some(ColorMode::Always) => true,
        Some(ColorMode::Never) => false,
        Some(ColorMode::Auto) | None => stream.is_terminal() && !is_refused(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_is_found_at_any_position() {
        for (words, found, seen) in [
            ("filch --help", "auto", ColorChoice::Auto),
            ("filch --help", "never", ColorChoice::Never),
            ("filch --color never job --help", "always", ColorChoice::Never),
            ("filch job list --color=always", "never", ColorChoice::Always),
            ("filch run -- ls --color=always", "auto", ColorChoice::Auto),
            ("filch job list --color", "auto", ColorChoice::Auto),
        ] {
            assert_eq!(for_help(words.split(' ').map(OsString::from), found), seen, "{words}");
        }
    }
}
