//! `cargo xtask`: what is done to this repository, as plain Rust that runs wherever cargo does.
//!
//! This file reads the arguments and hands over: `test` is what CI runs (`needs` installs what it lacks), `tidy` the house rules that
//! no compiler checks, `schema` holds the server to its OpenAPI document, `soak` hunts for bugs as long as it is told to (`simulation` says in which
//! clusters), `bench` starts a bench, `figures` writes what it measured into the README.

mod bench;
mod figures;
mod needs;
mod schema;
mod simulation;
mod soak;
mod test;
mod tidy;

use std::env;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

const HELP: &str = "\
usage: cargo xtask COMMAND

  test                    everything CI runs: format, lints, tests, docs, simulation, schema, tidy
  schema                  hold a running server to its OpenAPI document, with schemathesis
  tidy [RULE...]          check the house rules that no compiler checks, or only these, e.g.
                          `tidy widths names`
  soak --minutes N        hunt for bugs with fresh seeds until N minutes are over or one is found;
                          then as many of load, at most ten
  bench NAME [FLAG...]    run a bench in release mode, e.g. `bench scheduler --json`
  table [--check] FILE... write figures (saved output of `bench NAME --json`) into their page;
                          with --check only say whether it is up to date
  help                    this text

exit codes: 0 all is well, 1 something was found or failed, 2 wrong usage";

const USAGE_EXIT_CODE: u8 = 2;

#[derive(Debug, PartialEq)]
enum Request {
    Help,
    Test,
    Schema,
    Tidy { rules: Vec<String> },
    Soak { minutes: NonZeroU32 },
    Bench { name: String, flags: Vec<String> },
    Table { files: Vec<PathBuf>, action: figures::Action },
}

fn main() -> ExitCode {
    let request = match parse(env::args_os().skip(1)) {
        Ok(request) => request,
        Err(mistake) => {
            eprintln!("error: {mistake}\n\n{HELP}");
            return ExitCode::from(USAGE_EXIT_CODE);
        }
    };
    perform(request).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn perform(request: Request) -> Result<ExitCode> {
    match request {
        Request::Help => {
            println!("{HELP}");
            Ok(ExitCode::SUCCESS)
        }
        Request::Test => test::run(&workspace_root()?),
        Request::Schema => schema::run(&workspace_root()?),
        Request::Tidy { rules } => tidy::run(&workspace_root()?, &rules),
        Request::Soak { minutes } => soak::run(&workspace_root()?, minutes),
        Request::Bench { name, flags } => bench::run(&name, &flags),
        Request::Table { files, action } => figures::run(&workspace_root()?, &files, action),
    }
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Request, String> {
    let mut words = Vec::new();
    for argument in arguments {
        let word = argument.into_string();
        words.push(word.map_err(|raw| format!("argument {} is not UTF-8", raw.display()))?);
    }
    let Some((command, rest)) = words.split_first() else {
        return Err("no command given".to_owned());
    };
    match command.as_str() {
        "help" | "--help" | "-h" => Ok(Request::Help),
        "test" => nothing_more("test", rest).map(|()| Request::Test),
        "schema" => nothing_more("schema", rest).map(|()| Request::Schema),
        "tidy" => Ok(Request::Tidy { rules: rest.to_vec() }),
        "soak" => parse_soak(rest),
        "bench" => parse_bench(rest),
        "table" => parse_table(rest),
        unknown => Err(format!("unknown command `{unknown}`")),
    }
}

fn nothing_more(command: &str, rest: &[String]) -> Result<(), String> {
    match rest.first() {
        None => Ok(()),
        Some(extra) => Err(format!("`{command}` takes no arguments, but got `{extra}`")),
    }
}

fn parse_soak(rest: &[String]) -> Result<Request, String> {
    match rest {
        [flag, number] if flag == "--minutes" => match number.parse() {
            Ok(minutes) => Ok(Request::Soak { minutes }),
            Err(_) => {
                Err(format!("`--minutes` takes a whole number, 1 or more, but got `{number}`"))
            }
        },
        [flag, _, extra, ..] if flag == "--minutes" => {
            Err(format!("`soak` takes only `--minutes N`, but also got `{extra}`"))
        }
        [] => Err("`soak` needs `--minutes N`".to_owned()),
        [flag] if flag == "--minutes" => Err("`--minutes` needs a number after it".to_owned()),
        [other, ..] => Err(format!("`soak` needs `--minutes N`, but got `{other}`")),
    }
}

fn parse_bench(rest: &[String]) -> Result<Request, String> {
    match rest.split_first() {
        Some((name, flags)) if !name.starts_with('-') => {
            Ok(Request::Bench { name: name.clone(), flags: flags.to_vec() })
        }
        _ => Err("`bench` needs the name of a bench first".to_owned()),
    }
}

fn parse_table(rest: &[String]) -> Result<Request, String> {
    let mut files = Vec::new();
    let mut action = figures::Action::Rewrite;
    for word in rest {
        match word.as_str() {
            "--check" => action = figures::Action::Check,
            flag if flag.starts_with('-') => return Err(format!("`table` has no flag `{flag}`")),
            file => files.push(PathBuf::from(file)),
        }
    }
    if files.is_empty() {
        return Err("`table` needs at least one file of figures".to_owned());
    }
    Ok(Request::Table { files, action })
}

/// The cargo that started us, so that all steps use one toolchain.
fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Where cargo puts what it builds.
fn target_folder(root: &Path) -> Result<PathBuf> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .context("cargo does not say where it puts what it builds")?;
    let folder = metadata["target_directory"].as_str();
    Ok(folder.context("cargo does not say where it puts what it builds")?.into())
}

/// Asked at run time, not compiled in: several checkouts may share one target folder, and a binary
/// that was built in one of them must not judge another.
fn workspace_root() -> Result<PathBuf> {
    let manifest_folder = env::var_os("CARGO_MANIFEST_DIR")
        .context("CARGO_MANIFEST_DIR is not set: start this program as `cargo xtask`")?;
    let root = Path::new(&manifest_folder).ancestors().nth(2);
    Ok(root.context("crates/xtask is two folders below the workspace")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn commands_are_recognised() {
        assert_eq!(parsed("test"), Ok(Request::Test));
        assert_eq!(parsed("schema"), Ok(Request::Schema));
        assert_eq!(parsed("tidy"), Ok(Request::Tidy { rules: vec![] }));
        let rules = vec!["names".to_owned()];
        assert_eq!(parsed("tidy names"), Ok(Request::Tidy { rules }));
        assert_eq!(parsed("--help"), Ok(Request::Help));
        let minutes = NonZeroU32::new(90).unwrap();
        assert_eq!(parsed("soak --minutes 90"), Ok(Request::Soak { minutes }));
        let flags = vec!["--json".to_owned(), "--quick".to_owned()];
        let bench = Request::Bench { name: "scheduler".to_owned(), flags };
        assert_eq!(parsed("bench scheduler --json --quick"), Ok(bench));
        let files = vec![PathBuf::from("a.json"), PathBuf::from("b.json")];
        let action = figures::Action::Check;
        assert_eq!(parsed("table a.json --check b.json"), Ok(Request::Table { files, action }));
    }

    #[test]
    fn wrong_usage_names_the_mistake() {
        for (line, mistake) in [
            ("", "no command given"),
            ("tset", "unknown command `tset`"),
            ("test --fast", "`test` takes no arguments, but got `--fast`"),
            ("soak", "`soak` needs `--minutes N`"),
            ("soak 5", "`soak` needs `--minutes N`, but got `5`"),
            ("soak --hours 5", "`soak` needs `--minutes N`, but got `--hours`"),
            ("soak --minutes", "`--minutes` needs a number after it"),
            ("soak --minutes 0", "`--minutes` takes a whole number, 1 or more, but got `0`"),
            ("soak --minutes -5", "`--minutes` takes a whole number, 1 or more, but got `-5`"),
            ("soak --minutes 1.5", "`--minutes` takes a whole number, 1 or more, but got `1.5`"),
            ("soak --minutes ten", "`--minutes` takes a whole number, 1 or more, but got `ten`"),
            ("soak --minutes 5 now", "`soak` takes only `--minutes N`, but also got `now`"),
            ("bench", "`bench` needs the name of a bench first"),
            ("bench --json", "`bench` needs the name of a bench first"),
            ("table --check", "`table` needs at least one file of figures"),
            ("table --chekc a.json", "`table` has no flag `--chekc`"),
        ] {
            assert_eq!(parsed(line), Err(mistake.to_owned()), "cargo xtask {line}");
        }
    }
}
