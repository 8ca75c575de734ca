//! Reads and validates a flow file without a server. Errors show the line they are about.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use filch_api::flow::Flow;
use filch_api::flow_file::{File, Form, Wrong};

use crate::escape::escaped;
use crate::submit::open;
use crate::usage::Usage;

/// The flow file
#[derive(Args)]
pub(crate) struct Source {
    /// Format of the file, if its name has no known extension
    #[arg(long, value_name = "FORMAT")]
    format: Option<FlowFormat>,
    /// File in TOML, JSON or YAML (- for stdin)
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Format of a flow file
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum FlowFormat {
    Toml,
    Json,
    Yaml,
}

impl From<FlowFormat> for Form {
    fn from(format: FlowFormat) -> Self {
        match format {
            FlowFormat::Toml => Self::Toml,
            FlowFormat::Json => Self::Json,
            FlowFormat::Yaml => Self::Yaml,
        }
    }
}

impl Source {
    /// Reads and validates the flow.
    pub(super) fn flow(&self) -> Result<Flow> {
        let (mut reader, name) = open(&self.file)?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text).map_err(|error| {
            let what = format!("cannot read {name}: {error}");
            Usage::new(what, "name a text file in TOML, JSON or YAML")
        })?;
        let form = self.format.map(Form::from).or_else(|| Form::of(&self.file, &text)).ok_or_else(
            || {
                Usage::new(
                    format!("unknown file format: {name}"),
                    "add --format toml, json or yaml",
                )
            },
        )?;
        let here = std::env::current_dir().context("cannot determine the current directory")?;
        let file = File { path: &self.file, text: &text };
        Ok(file.read(form, &here).map_err(|wrong| explain(&name, &wrong))?)
    }
}

fn explain(name: &str, wrong: &Wrong) -> Usage {
    let location = match wrong.line {
        Some(line) => format!("{name}:{line}  {}", escaped(&wrong.written)),
        None => name.to_owned(),
    };
    Usage::new(format!("{}\n  {}", escaped(&wrong.what), location.trim_end()), &wrong.help)
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
    fn errors_show_the_line_they_are_about() {
        let rows = [
            (
                "nmae = \"x\"",
                "unknown key \"nmae\"; did you mean \"name\"?\n  f.toml:1  nmae = \"x\"",
            ),
            ("name = 1", "`name` must be text, got a number\n  f.toml:1"),
            ("name = \"x\"", "the flow has no jobs"),
            (
                "[job.a]\nkind = \"k\"\nafer = []",
                "job \"a\" has no field \"afer\"\n  f.toml:3  afer = []\n  help: did you mean \"after\"?",
            ),
            ("[job]\na = 1", "job \"a\" must be a table, got a number\n  f.toml:2  a = 1"),
            ("[job.a]\nrun = \"./x\"", "job \"a\": run must be a list of words"),
            ("[job.a]\nrun = [\"sleep\",\n5]", "write each word as text: \"5\" in quotation marks"),
            ("[job.a]\nrun = []", "job \"a\": the command has no program\n  f.toml:2  run = []"),
            (
                "[defaults]\nretry = 0\n[job.a]\nkind = \"k\"",
                "job \"a\": `max` must be at least 1\n  f.toml:2  retry = 0",
            ),
            ("[job.a]\nkind = \"k\"\ntimeout = \"5 apples\"", "f.toml:3  timeout"),
            ("[job.a]\nkind = \"k\"\nafter = [\"a\"]", "the flow has a cycle: a -> a\n  f.toml:3"),
            (
                "[job.fetch]\nkind = \"k\"\n[job.b]\nkind = \"k\"\nafter = [\n\"fetch\",\n\"fecth\"]",
                "job \"b\" waits for \"fecth\", which is not in this flow\n  f.toml:7  \"fecth\"]\n  help: did you mean \"fetch\"?",
            ),
            ("[job.\"a/b\"]\nkind = \"\"", "job \"a/b\": `kind` is empty\n  f.toml:2  kind = \"\""),
            ("name = \"x", "invalid TOML"),
        ];
        for (text, said) in rows {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{text}\n{error}");
        }
    }
}
