//! A flow as people write it in a file, read and validated without a server. Errors come with the
//! line they are on.
//!
//! `form` parses TOML, JSON and YAML into the same `tree`; this module turns that into a [`Flow`],
//! and `shape` knows the type of each field.

mod form;
mod shape;
mod tree;

use std::path::Path;

pub use self::form::Form;
use self::shape::Misfit;
use self::tree::{Node, Value};
use crate::flow::Flow;
use crate::problem::Problem;
use crate::submission::Submission;
use crate::suggest::{did_you_mean, nearest};

/// Why a text is not a valid flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong.
    pub what: String,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The text of that line, or its beginning.
    pub written: String,
    /// What to do about it.
    pub help: String,
}

/// The fields at the top level.
const TOP: [&str; 4] = ["name", "defaults", "job", "jobs"];

/// The fields of a job.
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

/// Fields with a fixed set of values.
const WORDS: [(&str, &[&str]); 2] = [
    ("when", &["all-succeeded", "any-succeeded", "all-done", "any-failed"]),
    ("otherwise", &["cancel", "hold", "run"]),
];

/// A flow file.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// The path of the file; commands run in its folder unless they set `dir`.
    pub path: &'a Path,
    /// Its contents.
    pub text: &'a str,
}

impl File<'_> {
    /// Reads and validates it; relative paths start at `here`.
    ///
    /// # Errors
    /// If a server would refuse it.
    pub fn read(&self, form: Form, here: &Path) -> Result<Flow, Wrong> {
        let top = form.read(self.text).map_err(|unread| {
            let form = match form {
                Form::Toml => "TOML",
                Form::Json => "JSON",
                Form::Yaml => "YAML",
            };
            let what = format!("invalid {form}: {}", unread.why);
            self.wrong(unread.line, &what, "`filch flow --help` shows an example")
        })?;
        let flow = self.build(&top, here)?;
        flow.clone().validate(None).map_err(|problem| self.explain(&top, &problem))?;
        Ok(flow)
    }

    fn build(&self, top: &Node, here: &Path) -> Result<Flow, Wrong> {
        let fields = self.table(top, "a flow")?;
        for (word, node) in fields {
            if !TOP.contains(&word.as_str()) {
                let what = format!("unknown key {word:?}{}", did_you_mean(word, &TOP));
                let help = "write `name`, `defaults`, and each job under `job`";
                return Err(self.wrong(Some(node.line), &what, help));
            }
        }
        let name = match top.get("name").map(|node| (node, &node.value)) {
            None => self.stem(),
            Some((_, Value::Text(name))) => name.clone(),
            Some((node, _)) => {
                let what = format!("`name` must be text, got {}", node.kind());
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
    ) -> Result<Submission, Wrong> {
        let whose = format!("job {name:?}");
        let mut fields = self.table(node, &whose)?.to_vec();
        for (field, value) in &mut fields {
            // A single parent may be written without a list.
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

    /// Reads one field by itself, so that an error is certain to be about this field.
    fn check(&self, whose: &str, field: &str, node: &Node) -> Result<(), Wrong> {
        if !FIELDS.contains(&field) {
            let what = format!("{whose} has no field {field:?}");
            let help = match nearest(field, FIELDS) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("the fields of a job are {}", FIELDS.join(", ")),
            };
            return Err(self.wrong(Some(node.line), &what, &help));
        }
        let words = WORDS.iter().find(|(name, _)| *name == field).map(|(_, words)| *words);
        if let (Some(words), Value::Text(word)) = (words, &node.value)
            && !words.contains(&word.as_str())
        {
            let near = did_you_mean(word, words);
            let what = format!("{whose}, {field}: unknown value {word:?}{near}");
            let (last, others) = words.split_last().expect("there are words");
            let help = format!("write {} or {last}", others.join(", "));
            return Err(self.wrong(Some(node.line), &what, &help));
        }
        let alone = Node::new(node.line, Value::Table(vec![(field.to_owned(), node.clone())]));
        match serde_json::from_str::<Submission>(alone.json().get()) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.unfit(whose, field, node, &error)),
        }
    }

    /// What is wrong with a rejected field: its type, or else its value.
    fn unfit(&self, whose: &str, field: &str, node: &Node, error: &serde_json::Error) -> Wrong {
        let Some(Misfit { line, what }) = shape::misfit(field, node) else {
            let error = error.to_string();
            let error = error.split(" at line ").next().unwrap_or_default();
            return self.wrong(Some(node.line), &format!("{whose}, {field}: {error}"), HELP);
        };
        let help = match (field, &node.value) {
            ("run", Value::Text(_)) => {
                "commands run without a shell: write a list of words, [\"./fetch.sh\", \"a.csv\"]"
            }
            ("run", Value::List(_)) | ("env", Value::Table(_)) => {
                "write each word as text: \"5\" in quotation marks, not 5"
            }
            _ => HELP,
        };
        self.wrong(Some(line), &format!("{whose}: {what}"), help)
    }

    fn table<'n>(&self, node: &'n Node, what: &str) -> Result<&'n [(String, Node)], Wrong> {
        match &node.value {
            Value::Table(fields) => Ok(fields),
            _ => {
                let what = format!("{what} must be a table, got {}", node.kind());
                Err(self.wrong(Some(node.line), &what, HELP))
            }
        }
    }

    /// An error of the whole flow, shown at its place in the file.
    fn explain(&self, top: &Node, problem: &Problem) -> Wrong {
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

    fn wrong(&self, line: Option<usize>, what: &str, help: &str) -> Wrong {
        let line = line.filter(|line| *line > 0);
        let written = line.and_then(|line| self.text.lines().nth(line - 1)).unwrap_or_default();
        let written: String = written.trim().chars().take(WRITTEN_MAX).collect();
        Wrong { what: what.to_owned(), line, written, help: help.to_owned() }
    }

    fn stem(&self) -> String {
        let stem = self.path.file_stem().and_then(|stem| stem.to_str());
        stem.filter(|stem| *stem != "-").unwrap_or("flow").to_owned()
    }
}

/// How many characters of a line are shown.
const WRITTEN_MAX: usize = 100;

const HELP: &str = "`filch flow --help` shows how a flow is written";

fn jobs(top: &Node) -> Option<&Node> {
    top.get("job").or_else(|| top.get("jobs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Flow, Wrong> {
        File { path: Path::new("dir/f.toml"), text }.read(Form::Toml, Path::new("/here"))
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
    fn what_has_the_wrong_form_is_said_in_plain_words_with_its_place() {
        for (job, line, what, got) in [
            ("kind = 5", 2, "kind must be text", "5"),
            ("queue = [\"img\"]", 2, "queue must be text", "a list"),
            ("key = true", 2, "key must be text", "true"),
            ("when = 1", 2, "when must be text", "1"),
            ("priority = \"high\"", 2, "priority must be a whole number from -32768", "text"),
            ("priority = 70000", 2, "priority must be a whole number from -32768", "70000"),
            ("priority = 1.5", 2, "priority must be a whole number", "1.5"),
            ("run = \"./x\"", 2, "run must be a list of words", "text"),
            ("run = [\"sleep\",\n5]", 3, "run, word 2 must be text", "5"),
            ("after = 1", 2, "after must be a list of names of jobs", "1"),
            ("after = [\n\"b\",\n[]]", 4, "after, name 2 must be text", "a list"),
            ("env = \"A=1\"", 2, "env must be a table of texts", "text"),
            ("env.A = \"1\"\nenv.B = 2", 3, "env, B must be text", "2"),
            ("timeout = 90", 2, "timeout must be a duration in quotation marks", "90"),
            ("at = 5", 2, "at must be a time in quotation marks", "5"),
            ("retry = \"3\"", 2, "retry must be a number of attempts, or a table", "text"),
            ("retry = -1", 2, "retry must be a number of attempts", "-1"),
            ("retry.max = \"3\"", 2, "retry, max must be a number of attempts", "text"),
            ("retry.max = 3\nretry.base = 2", 3, "retry, base must be a duration", "2"),
            ("retry.base = \"soon\"", 2, "retry, base must be a duration", "\"soon\""),
            ("retry.backoff = \"up\"", 2, "retry, backoff must be one of", "\"up\""),
            ("retry.mxa = 3", 2, "unknown key \"mxa\" in retry", "mxa"),
        ] {
            let wrong = read(&format!("[job.a]\n{job}")).unwrap_err();
            let expected = format!("job \"a\": {what}");
            assert!(wrong.what.starts_with(&expected), "{job}: {}", wrong.what);
            assert!(wrong.what.contains(got), "{job}: {}", wrong.what);
            assert_eq!(wrong.line, Some(line), "{job}");
            let serde = ["invalid type", "invalid value", "expected", "i16", "did not match"];
            assert!(!serde.iter().any(|word| wrong.what.contains(word)), "{}", wrong.what);
        }
        // Values of the right type are validated where they are read.
        let wrong = read("[job.a]\nkind = \"k\"\ntimeout = \"5 apples\"").unwrap_err();
        assert!(wrong.what.starts_with("job \"a\", timeout: "), "{}", wrong.what);
        // The same applies to defaults.
        let wrong = read("[defaults]\npriority = \"high\"").unwrap_err();
        assert!(wrong.what.starts_with("`defaults`: priority must be a whole"), "{}", wrong.what);
    }

    #[test]
    fn the_fields_of_a_job_are_those_of_a_submission() {
        let error = serde_json::from_str::<Submission>("{\"?\": 1}").unwrap_err().to_string();
        for field in FIELDS {
            assert!(error.contains(&format!("`{field}`")), "{field} is not one");
        }
        assert_eq!(error.matches('`').count() / 2 - 1, FIELDS.len(), "{error}");
    }

    #[test]
    fn the_words_of_a_field_are_those_of_a_submission() {
        for (field, words) in WORDS {
            let read =
                |word| serde_json::from_str::<Submission>(&format!("{{\"{field}\": {word:?}}}"));
            let error = read("?").unwrap_err().to_string();
            assert_eq!(error.matches('`').count() / 2 - 1, words.len(), "{error}");
            for word in words {
                read(word).unwrap();
            }
        }
    }
}
