//! Errors in the command line. clap prints them, except when an argument is not UTF-8 or contains
//! terminal control characters.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::escape::escaped;
use crate::output::message;

/// Prints the error and returns the exit code.
pub(crate) fn print(error: &clap::Error, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    let words: Vec<OsString> = words.into_iter().collect();
    let is_about_a_word = matches!(
        error.kind(),
        ErrorKind::InvalidUtf8 | ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument
    );
    if is_about_a_word
        && let Some((position, word)) =
            words.iter().enumerate().find(|(_, it)| it.to_str().is_none())
    {
        message(format_args!(
            "error: argument {position} is not UTF-8: {word:?}\n  help: jobs are stored as JSON, which \
             is UTF-8; put binary data into a file and pass its path"
        ));
        return code;
    }
    let is_plain = |word: &OsString| word.to_str().is_some_and(|word| escaped(word) == word);
    if words.iter().all(is_plain) {
        let _ = error.print();
    } else {
        // Without clap's colors, which look the same as color codes in an argument.
        message(format_args!("{}", error.render().to_string().trim_end()));
    }
    if let Some(program) = program_without_dashes(error) {
        message(format_args!("  help: write `--` before the command: -- {program} ..."));
    }
    code
}

/// The first word of a command that was written without `--` before it.
fn program_without_dashes(error: &clap::Error) -> Option<&str> {
    let usage = error.get(ContextKind::Usage)?.to_string();
    match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(word) if error.kind() == ErrorKind::UnknownArgument => {
            (usage.contains("-- <CMD>") && !word.starts_with('-')).then_some(word)
        }
        _ => None,
    }
}

/// The value names of options whose values start with a number.
const NUMERIC_VALUE_NAMES: [&str; 3] = ["N", "N|none", "DURATION"];

/// Makes options accept negative numbers, so that the error names the permitted range. Otherwise
/// clap would take `-1` for an option and advise to put it after `--`.
pub(crate) fn allow_negative_numbers(command: Command) -> Command {
    let command = command.mut_args(|option| {
        let names = option.get_value_names().unwrap_or_default();
        let is_number = names.iter().any(|name| NUMERIC_VALUE_NAMES.contains(&name.as_str()));
        if is_number { option.allow_negative_numbers(true) } else { option }
    });
    command.mut_subcommands(allow_negative_numbers)
}
