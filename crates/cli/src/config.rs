//! `filch config`: shows settings and where they come from.

use std::process::ExitCode;

use anyhow::Result;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Subcommand};
use serde::Serialize;

use crate::document::{self, JsonOrLines};
use crate::settings::{Fallback, Origin, Settings, Value};
use crate::table;
use crate::table::Column::Text;

/// Show settings and where they come from
#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Show(Show),
}

const AFTER_HELP: &str = "\
Precedence: flag, environment variable (FILCH_SLOTS), filch.toml in the current directory,
$XDG_CONFIG_HOME/filch/config.toml, default. Any flag that has a setting can be added, to see its
effect.

Examples:
  filch config show --origin
  filch config show --json | jq -r '.settings[] | select(.key == \"url\").value'";

/// Show all settings with their values
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
struct Show {
    /// Show where each value comes from: flag, variable, or file and line
    #[arg(long)]
    origin: bool,
    #[command(flatten)]
    form: JsonOrLines,
}

#[derive(Serialize)]
struct Document {
    settings: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    key: &'static str,
    /// `None` if the program determines it at run time; `default` describes how.
    value: Option<String>,
    default: &'static str,
    variable: String,
    flag: String,
    origin: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
}

pub(crate) fn run(
    options: &ConfigArgs,
    matches: &ArgMatches,
    settings: &Settings,
) -> Result<ExitCode> {
    let Command::Show(show) = &options.command;
    let matches = matches.subcommand_matches("config").and_then(|it| it.subcommand_matches("show"));
    let values: Vec<Value> =
        settings.values().iter().map(|value| flagged(value, matches)).collect();
    match show.form {
        JsonOrLines { json: true, .. } => {
            document::print(Document { settings: values.iter().map(line).collect() })?;
        }
        JsonOrLines { jsonl: true, .. } => {
            values.iter().map(line).try_for_each(|line| document::line(&line))?;
        }
        _ => {
            let rows: Vec<Vec<String>> = values.iter().map(|value| row(value, show)).collect();
            let columns = [Text("key"), Text("value"), Text("origin")];
            table::list(&columns[..if show.origin { 3 } else { 2 }], &rows)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The value, or that of the flag if it is given.
fn flagged(value: &Value, matches: Option<&ArgMatches>) -> Value {
    let key = value.setting.key;
    let given = matches
        .filter(|matches| matches!(matches.try_contains_id(key), Ok(true)))
        .filter(|matches| matches.value_source(key) == Some(ValueSource::CommandLine))
        .and_then(|matches| matches.get_raw(key)?.next()?.to_str());
    match given {
        Some(text) => Value { text: Some(text.to_owned()), origin: Origin::Flag, ..value.clone() },
        None => value.clone(),
    }
}

fn row(value: &Value, show: &Show) -> Vec<String> {
    let text = match (&value.text, value.setting.default) {
        (Some(text), _) => text.clone(),
        (None, Fallback::Value(text) | Fallback::Described(text)) => format!("({text})"),
    };
    let mut row = vec![value.setting.key.to_owned(), text];
    row.extend(show.origin.then(|| value.origin()));
    row
}

fn line(value: &Value) -> Line {
    let (Fallback::Value(default) | Fallback::Described(default)) = value.setting.default;
    let (origin, file, line) = match &value.origin {
        Origin::Flag => ("flag", None, None),
        Origin::Variable => ("variable", None, None),
        Origin::File { path, line } => ("file", Some(path.display().to_string()), Some(*line)),
        Origin::Default => ("default", None, None),
    };
    let key = value.setting.key;
    let (variable, flag) = (value.setting.variable(), format!("--{}", value.setting.flag));
    Line { key, value: value.text.clone(), default, variable, flag, origin, file, line }
}
