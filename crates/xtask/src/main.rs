//! `cargo xtask`: tasks of this repository, as plain Rust that runs wherever cargo does.
//!
//! This file reads the arguments. `test` is what CI runs (`needs` installs missing tools), `tidy`
//! has the rules that no compiler checks, `schema` tests a server against its OpenAPI
//! document, `soak` looks for bugs for a given time (`simulation` has the simulator's
//! arguments), `bench` starts a benchmark, and `figures` writes its results into the docs.

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

  test                    run everything that CI runs: format, lints, tests, docs, models,
                          simulation, schema, tidy; print the time of each step
  test --repeat N [--beside-load]
                          run only the steps `tests` and `end to end`, N times; with --beside-load
                          while one busy process per core competes with them
  schema                  test a running server against its OpenAPI document, with schemathesis
  tidy [RULE...]          check the rules that no compiler checks, or only the named ones,
                          e.g. `tidy widths names`
  soak --minutes N        look for bugs with fresh seeds for N minutes, or until one is found: the
                          simulator, faults in real processes, fuzzing; then load, for N minutes
                          or at most ten
  bench NAME [FLAG...]    run a benchmark in release mode, e.g. `bench scheduler --json`
  table [--check] FILE... write figures (saved output of `bench NAME --json`) into their page; with
                          --check only report whether the page is up to date
  help                    print this help

exit codes: 0 success, 1 a check or a command failed, 2 wrong usage";

const USAGE_EXIT_CODE: u8 = 2;

#[derive(Debug, PartialEq)]
enum Request {
    Help,
    Test,
    Repeat(test::Repeat),
    Busy,
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
        Request::Repeat(repeat) => test::repeat(&workspace_root()?, repeat),
        Request::Busy => Ok(test::be_busy()),
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
        "test" => parse_test(rest),
        test::BUSY => Ok(Request::Busy),
        "schema" => nothing_more("schema", rest).map(|()| Request::Schema),
        "tidy" => Ok(Request::Tidy { rules: rest.to_vec() }),
        "soak" => parse_soak(rest),
        "bench" => parse_bench(rest),
        "table" => parse_table(rest),
        unknown => Err(format!("unknown command `{unknown}`")),
    }
}

fn parse_test(rest: &[String]) -> Result<Request, String> {
    let mut rounds = None;
    let mut beside_load = false;
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--beside-load" => beside_load = true,
            "--repeat" => {
                let number = words.next().ok_or("`--repeat` needs a number after it")?;
                rounds = Some(whole_number("--repeat", number)?);
            }
            other => return Err(format!("`test` has no argument `{other}`")),
        }
    }
    match rounds {
        Some(rounds) => Ok(Request::Repeat(test::Repeat { rounds, beside_load })),
        None if beside_load => Err("`--beside-load` needs `--repeat N` as well".to_owned()),
        None => Ok(Request::Test),
    }
}

fn whole_number(flag: &str, number: &str) -> Result<NonZeroU32, String> {
    let parsed = number.parse();
    parsed.map_err(|_| format!("`{flag}` takes a whole number, 1 or more, but got `{number}`"))
}

fn nothing_more(command: &str, rest: &[String]) -> Result<(), String> {
    match rest.first() {
        None => Ok(()),
        Some(extra) => Err(format!("`{command}` takes no arguments, but got `{extra}`")),
    }
}

fn parse_soak(rest: &[String]) -> Result<Request, String> {
    match rest {
        [flag, number] if flag == "--minutes" => {
            Ok(Request::Soak { minutes: whole_number(flag, number)? })
        }
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
        _ => Err("`bench` needs the name of a benchmark first".to_owned()),
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

/// Cargo's target folder.
fn target_folder(root: &Path) -> Result<PathBuf> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).context("`cargo metadata` has no target folder")?;
    let folder = metadata["target_directory"].as_str();
    Ok(folder.context("`cargo metadata` has no target folder")?.into())
}

/// Found at run time, not compiled in: several checkouts may share one target folder, and a binary
/// that was built in one of them must not check another.
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
        let repeat = |rounds, beside_load| {
            let rounds = NonZeroU32::new(rounds).unwrap();
            Ok(Request::Repeat(test::Repeat { rounds, beside_load }))
        };
        assert_eq!(parsed("test --repeat 5"), repeat(5, false));
        assert_eq!(parsed("test --repeat 5 --beside-load"), repeat(5, true));
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
            ("test --fast", "`test` has no argument `--fast`"),
            ("test --repeat", "`--repeat` needs a number after it"),
            ("test --repeat 0", "`--repeat` takes a whole number, 1 or more, but got `0`"),
            ("test --beside-load", "`--beside-load` needs `--repeat N` as well"),
            ("schema now", "`schema` takes no arguments, but got `now`"),
            ("soak", "`soak` needs `--minutes N`"),
            ("soak 5", "`soak` needs `--minutes N`, but got `5`"),
            ("soak --hours 5", "`soak` needs `--minutes N`, but got `--hours`"),
            ("soak --minutes", "`--minutes` needs a number after it"),
            ("soak --minutes 0", "`--minutes` takes a whole number, 1 or more, but got `0`"),
            ("soak --minutes -5", "`--minutes` takes a whole number, 1 or more, but got `-5`"),
            ("soak --minutes 1.5", "`--minutes` takes a whole number, 1 or more, but got `1.5`"),
            ("soak --minutes ten", "`--minutes` takes a whole number, 1 or more, but got `ten`"),
            ("soak --minutes 5 now", "`soak` takes only `--minutes N`, but also got `now`"),
            ("bench", "`bench` needs the name of a benchmark first"),
            ("bench --json", "`bench` needs the name of a benchmark first"),
            ("table --check", "`table` needs at least one file of figures"),
            ("table --chekc a.json", "`table` has no flag `--chekc`"),
        ] {
            assert_eq!(parsed(line), Err(mistake.to_owned()), "cargo xtask {line}");
        }
    }
}
