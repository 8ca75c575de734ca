//! Words on the command line that make no sense: clap says what is wrong with them, unless they are no
//! text, or text that a terminal would obey.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::escape::escaped;
use crate::output::message;

/// Says what is wrong, and how the program ends.
pub(crate) fn print(error: &clap::Error, words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let code = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    let words: Vec<OsString> = words.into_iter().collect();
    let is_about_a_word = matches!(
        error.kind(),
        ErrorKind::InvalidUtf8 | ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument
    );
    if is_about_a_word
        && let Some((place, word)) = words.iter().enumerate().find(|(_, it)| it.to_str().is_none())
    {
        message(format_args!(
            "error: argument {place} is not UTF-8: {word:?}\n  help: jobs are JSON, which has no \
             other bytes than text: put them into a file, and submit its name"
        ));
        return code;
    }
    let is_plain = |word: &OsString| word.to_str().is_some_and(|word| escaped(word) == word);
    if words.iter().all(is_plain) {
        let _ = error.print();
    } else {
        // Without clap's own colours, which could not be told from somebody else's.
        message(format_args!("{}", error.render().to_string().trim_end()));
    }
    if let Some(program) = program_without_dashes(error) {
        message(format_args!("  help: a command comes behind `--`, as in: -- {program} ..."));
    }
    code
}

/// The first word of a command that was written where only options are.
fn program_without_dashes(error: &clap::Error) -> Option<&str> {
    let usage = error.get(ContextKind::Usage)?.to_string();
    match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(word) if error.kind() == ErrorKind::UnknownArgument => {
            (usage.contains("-- <CMD>") && !word.starts_with('-')).then_some(word)
        }
        _ => None,
    }
}

/// What a value is called that is written as a number, or begins with one.
const NUMERIC_VALUE_NAMES: [&str; 3] = ["N", "N|none", "SPAN"];

/// The same commands, where a number below zero belongs to the option before it, whose bounds are named
/// then. Else it would be taken for an option, and the advice would be to put it behind `--`.
pub(crate) fn allow_negative_numbers(command: Command) -> Command {
    let command = command.mut_args(|option| {
        let names = option.get_value_names().unwrap_or_default();
        let is_number = names.iter().any(|name| NUMERIC_VALUE_NAMES.contains(&name.as_str()));
        if is_number { option.allow_negative_numbers(true) } else { option }
    });
    command.mut_subcommands(allow_negative_numbers)
}
