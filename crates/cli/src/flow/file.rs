//! A flow as people write it in a file: found, read, and judged without a server. What is wrong is shown
//! where it stands.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use filch_api::flow::Flow;
use filch_api::problem::Problem;
use filch_api::submission::Submission;

use super::form::Form;
use super::tree::{Node, Value};
use crate::escape::escaped;
use crate::submit::open;
use crate::suggest::{did_you_mean, nearest};
use crate::usage::Usage;

/// Where the flow is
#[derive(Args)]
pub(super) struct Source {
    /// How it is written, where the name of the file does not say it
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// A file in TOML, JSON or YAML; - is stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// The words that may stand at the top.
const TOP: [&str; 4] = ["name", "defaults", "job", "jobs"];

/// What can be said of a job.
const FIELDS: [&str; 16] = [
    "id",
    "kind",
    "run",
    "args",
    "env",
    "dir",
    "queue",
    "priority",
    "after",
    "when",
    "otherwise",
    "at",
    "retry",
    "timeout",
    "key",
    "traceparent",
];

impl Source {
    /// Reads and judges it.
    pub(super) fn flow(&self) -> Result<Flow> {
        let (mut reader, name) = open(&self.file)?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut reader, &mut text)
            .with_context(|| format!("cannot read {name}"))?;
        let form = self.form.or_else(|| Form::of(&self.file, &text)).ok_or_else(|| {
            Usage::new(
                format!("how {name} is written is not clear from its name"),
                "write --form toml, json or yaml",
            )
        })?;
        let here = std::env::current_dir().context("cannot tell the present folder")?;
        let file = File { name: &name, path: &self.file, text: &text };
        Ok(file.read(form, &here)?)
    }
}

/// A text that is read as a flow.
struct File<'a> {
    name: &'a str,
    path: &'a Path,
    text: &'a str,
}

impl File<'_> {
    fn read(&self, form: Form, here: &Path) -> Result<Flow, Usage> {
        let top = form.read(self.text).map_err(|unread| {
            let form = match form {
                Form::Toml => "TOML",
                Form::Json => "JSON",
                Form::Yaml => "YAML",
            };
            let what = format!("this cannot be read as {form}: {}", unread.why);
            self.wrong(unread.line, &what, "`filch flow --help` shows a flow that can be read")
        })?;
        let flow = self.build(&top, here)?;
        flow.clone().judge(None).map_err(|problem| self.explain(&top, &problem))?;
        Ok(flow)
    }

    fn build(&self, top: &Node, here: &Path) -> Result<Flow, Usage> {
        let fields = self.table(top, "a flow")?;
        for (word, node) in fields {
            if !TOP.contains(&word.as_str()) {
                let what = format!("a flow has no {word:?}{}", did_you_mean(word, &TOP));
                let help = "write `name`, `defaults`, and each job under `job`";
                return Err(self.wrong(Some(node.line), &what, help));
            }
        }
        let name = match top.get("name").map(|node| (node, &node.value)) {
            None => self.stem(),
            Some((_, Value::Text(name))) => name.clone(),
            Some((node, _)) => {
                let what = format!("the name of the flow is {}", node.kind());
                return Err(self.wrong(Some(node.line), &what, "write text, in quotation marks"));
            }
        };
        let defaults = match top.get("defaults") {
            Some(node) => self.table(node, "`defaults`")?,
            None => &[],
        };
        for (field, node) in defaults {
            self.check("`defaults`", field, node)?;
        }
        let jobs = jobs(top).ok_or_else(|| {
            let help = "write [job.NAME] in TOML, \"job\": {\"NAME\": ...} in JSON";
            self.wrong(Some(top.line), "the flow has no jobs", help)
        })?;
        let dir = self.path.parent().map_or_else(|| here.to_owned(), |parent| here.join(parent));
        let jobs = self.table(jobs, "`job`")?.iter().map(|(name, node)| {
            let job = self.job(name, node, defaults, &dir)?;
            Ok((name.clone(), job))
        });
        Ok(Flow { name, jobs: jobs.collect::<Result<_, _>>()? })
    }

    fn job(
        &self,
        name: &str,
        node: &Node,
        defaults: &[(String, Node)],
        dir: &Path,
    ) -> Result<Submission, Usage> {
        let whose = format!("job {name:?}");
        let mut fields = self.table(node, &whose)?.to_vec();
        for (field, value) in &mut fields {
            // One parent may be written without a list around it.
            if let ("after", Value::Text(_)) = (field.as_str(), &value.value) {
                *value = Node::new(value.line, Value::List(vec![value.clone()]));
            }
            self.check(&whose, field, value)?;
        }
        let is_command = fields.iter().any(|(field, _)| field == "run");
        for (field, value) in defaults {
            let is_missing = fields.iter().all(|(other, _)| other != field);
            let fits = is_command || !["env", "dir"].contains(&field.as_str());
            if is_missing && fits {
                fields.push((field.clone(), value.clone()));
            }
        }
        let json = Node::new(node.line, Value::Table(fields)).json();
        let mut job: Submission = serde_json::from_str(json.get())
            .map_err(|error| self.wrong(Some(node.line), &format!("{whose}: {error}"), HELP))?;
        if is_command {
            let dir = job.dir.as_ref().map_or_else(|| dir.to_owned(), |other| dir.join(other));
            let dir = dir.into_os_string().into_string().map_err(|dir| {
                let what = format!("the folder {} has a name that is not UTF-8", dir.display());
                self.wrong(Some(node.line), &what, "choose another one with `dir`")
            })?;
            job.dir = Some(dir);
        }
        Ok(job)
    }

    /// Reads one field by itself, so that what is wrong with it is known to be its fault.
    fn check(&self, whose: &str, field: &str, node: &Node) -> Result<(), Usage> {
        if !FIELDS.contains(&field) {
            let what = format!("{whose} has no field {field:?}");
            let help = match nearest(field, FIELDS) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("what can be said of a job is {}", FIELDS.join(", ")),
            };
            return Err(self.wrong(Some(node.line), &what, &help));
        }
        let alone = Node::new(node.line, Value::Table(vec![(field.to_owned(), node.clone())]));
        match serde_json::from_str::<Submission>(alone.json().get()) {
            Ok(_) => Ok(()),
            Err(error) => {
                let error = error.to_string();
                let error = error.split(" at line ").next().unwrap_or_default();
                let help = match (field, &node.value) {
                    ("run", Value::Text(_)) => {
                        "no shell looks at it: write each word by itself, [\"./fetch.sh\", \"a.csv\"]"
                    }
                    ("run" | "env", _) if error.ends_with("expected a string") => {
                        "write each word as text: \"5\" in quotation marks, not 5"
                    }
                    _ => HELP,
                };
                Err(self.wrong(Some(node.line), &format!("{whose}, {field}: {error}"), help))
            }
        }
    }

    fn table<'n>(&self, node: &'n Node, what: &str) -> Result<&'n [(String, Node)], Usage> {
        match &node.value {
            Value::Table(fields) => Ok(fields),
            _ => {
                let what = format!("{what} is {}, and not a table", node.kind());
                Err(self.wrong(Some(node.line), &what, HELP))
            }
        }
    }

    /// A problem of the whole, shown where it stands in the file.
    fn explain(&self, top: &Node, problem: &Problem) -> Usage {
        let mut path = problem.at.as_deref().unwrap_or_default().split('/').skip(1);
        let is_in_job = path.next() == Some("jobs");
        let name = path.next().map(|name| name.replace("~1", "/").replace("~0", "~"));
        let rest: Vec<&str> = path.collect();
        let job = name.as_deref().and_then(|name| jobs(top)?.get(name));
        let line = match (job, rest.first()) {
            (Some(job), Some(field)) if job.get(field).is_none() => {
                let default = top.get("defaults").filter(|defaults| defaults.get(field).is_some());
                default.unwrap_or(job).line_of(&rest)
            }
            (Some(job), _) => job.line_of(&rest),
            (None, _) => top.line,
        };
        let whose = match (&name, problem.title.starts_with("job ")) {
            (Some(name), false) if is_in_job && problem.code != "cycle" => {
                format!("job {name:?}: ")
            }
            _ => String::new(),
        };
        let help = problem.help.as_deref().unwrap_or(HELP);
        self.wrong(Some(line), &format!("{whose}{}", problem.title), help)
    }

    fn wrong(&self, line: Option<usize>, what: &str, help: &str) -> Usage {
        let line = line.filter(|line| *line > 0);
        let written = line.and_then(|line| self.text.lines().nth(line - 1)).unwrap_or_default();
        let written: String = written.trim().chars().take(WRITTEN_MAX).collect();
        let place = match line {
            Some(line) => format!("{}:{line}  {}", self.name, escaped(&written)),
            None => self.name.to_owned(),
        };
        Usage::new(format!("{}\n  {}", escaped(what), place.trim_end()), help)
    }

    fn stem(&self) -> String {
        let stem = self.path.file_stem().and_then(|stem| stem.to_str());
        stem.filter(|stem| *stem != "-").unwrap_or("flow").to_owned()
    }
}

/// So much of a line is shown.
const WRITTEN_MAX: usize = 100;

const HELP: &str = "`filch flow --help` shows how a flow is written";

fn jobs(top: &Node) -> Option<&Node> {
    top.get("job").or_else(|| top.get("jobs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Flow, String> {
        let file = File { name: "f.toml", path: Path::new("dir/f.toml"), text };
        file.read(Form::Toml, Path::new("/here")).map_err(|usage| usage.to_string())
    }

    #[test]
    fn a_job_says_what_the_defaults_do_not() {
        let flow = read(
            r#"
            [defaults]
            queue = "img"
            env = { A = "1" }
            retry = { max = 7, base = "2s" }
            [job.b]
            run = ["x"]
            after = "a"
            retry = 2
            dir = "sub"
            [job.a]
            kind = "k"
            args = { n = 1 }
            "#,
        )
        .unwrap();
        assert_eq!(flow.name, "f");
        let [(first, b), (second, a)] = &flow.jobs[..] else { panic!("two jobs") };
        assert_eq!((first.as_str(), second.as_str()), ("b", "a"), "as they were written");
        assert_eq!(b.after, ["a"]);
        assert_eq!(b.retry.as_ref().unwrap().max, 2);
        assert_eq!(b.env["A"], "1");
        assert_eq!(b.dir.as_deref(), Some("/here/dir/sub"));
        assert_eq!(a.retry.as_ref().unwrap().max, 7);
        assert_eq!(a.queue.as_deref(), Some("img"));
        assert_eq!((a.dir.as_deref(), a.env.len()), (None, 0), "which only commands have");
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
            ("[job.a]\nrun = \"./x\"", "job \"a\", run: invalid type: string"),
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

    #[test]
    fn the_fields_of_a_job_are_those_of_a_submission() {
        let error = serde_json::from_str::<Submission>("{\"?\": 1}").unwrap_err().to_string();
        for field in FIELDS {
            assert!(error.contains(&format!("`{field}`")), "{field} is not one");
        }
        assert_eq!(error.matches('`').count() / 2 - 1, FIELDS.len(), "{error}");
    }
}
