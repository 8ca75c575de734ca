//! A flow in a file: found, read, and judged without a server. What is wrong is shown where it stands.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use filch_api::flow::Flow;
use filch_api::flow_file::{File, Form, Wrong};

use crate::escape::escaped;
use crate::submit::open;
use crate::usage::Usage;

/// Where the flow is
#[derive(Args)]
pub(crate) struct Source {
    /// How it is written, where the name of the file does not say it
    #[arg(long, value_name = "FORM")]
    form: Option<Word>,
    /// A file in TOML, JSON or YAML; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// How a flow is written
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Word {
    Toml,
    Json,
    Yaml,
}

impl From<Word> for Form {
    fn from(word: Word) -> Self {
        match word {
            Word::Toml => Self::Toml,
            Word::Json => Self::Json,
            Word::Yaml => Self::Yaml,
        }
    }
}

impl Source {
    /// Reads and judges it.
    pub(super) fn flow(&self) -> Result<Flow> {
        let (mut reader, name) = open(&self.file)?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).map_err(|error| {
            let what = format!("cannot read {name}: {error}");
            Usage::new(what, "name a file that holds text in TOML, JSON or YAML")
        })?;
        let form =
            self.form.map(Form::from).or_else(|| Form::of(&self.file, &text)).ok_or_else(|| {
                Usage::new(
                    format!("how {name} is written is not clear from its name"),
                    "write --form toml, json or yaml",
                )
            })?;
        let here = std::env::current_dir().context("cannot tell the present folder")?;
        let file = File { path: &self.file, text: &text };
        Ok(file.read(form, &here).map_err(|wrong| explain(&name, &wrong))?)
    }
}

fn explain(name: &str, wrong: &Wrong) -> Usage {
    let place = match wrong.line {
        Some(line) => format!("{name}:{line}  {}", escaped(&wrong.written)),
        None => name.to_owned(),
    };
    Usage::new(format!("{}\n  {}", escaped(&wrong.what), place.trim_end()), &wrong.help)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(text: &str) -> Result<Flow, String> {
        let file = File { path: Path::new("dir/f.toml"), text };
        let read = file.read(Form::Toml, Path::new("/here"));
        read.map_err(|wrong| explain("f.toml", &wrong).to_string())
    }

    #[test]
    fn what_is_wrong_is_shown_where_it_stands() {
        let rows = [
            (
                "nmae = \"x\"",
                "a flow has no \"nmae\"; did you mean \"name\"?\n  f.toml:1  nmae = \"x\"",
            ),
            ("name = 1", "the name of the flow is a number\n  f.toml:1"),
            ("name = \"x\"", "the flow has no jobs"),
            (
                "[job.a]\nkind = \"k\"\nafer = []",
                "job \"a\" has no field \"afer\"\n  f.toml:3  afer = []\n  help: did you mean \"after\"?",
            ),
            ("[job]\na = 1", "job \"a\" is a number, and not a table\n  f.toml:2  a = 1"),
            ("[job.a]\nrun = \"./x\"", "job \"a\": run is text, and should be a list of words"),
            ("[job.a]\nrun = [\"sleep\",\n5]", "write each word as text: \"5\" in quotation marks"),
            ("[job.a]\nrun = []", "job \"a\": the command has no program\n  f.toml:2  run = []"),
            (
                "[defaults]\nretry = 0\n[job.a]\nkind = \"k\"",
                "job \"a\": a job has at least one attempt\n  f.toml:2  retry = 0",
            ),
            ("[job.a]\nkind = \"k\"\ntimeout = \"5 apples\"", "f.toml:3  timeout"),
            ("[job.a]\nkind = \"k\"\nafter = [\"a\"]", "the flow has a cycle: a -> a\n  f.toml:3"),
            (
                "[job.fetch]\nkind = \"k\"\n[job.b]\nkind = \"k\"\nafter = [\n\"fetch\",\n\"fecth\"]",
                "job \"b\" waits for \"fecth\", which is not in this flow\n  f.toml:7  \"fecth\"]\n  help: did you mean \"fetch\"?",
            ),
            (
                "[job.\"a/b\"]\nkind = \"\"",
                "job \"a/b\": the kind has no name\n  f.toml:2  kind = \"\"",
            ),
            ("name = \"x", "this cannot be read as TOML"),
        ];
        for (text, said) in rows {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{text}\n{error}");
        }
    }
}
