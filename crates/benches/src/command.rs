//! The command line of a bench: its flags, its workloads, and where the results are written.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use crate::report::{BenchReport, Findings};

const USAGE_EXIT_CODE: u8 = 2;

/// A function that measures one workload at the given size.
pub type BenchWorkload<S> = fn(&S) -> Findings;

/// A bench of several workloads.
#[derive(Clone, Copy, Debug)]
pub struct Bench<S: 'static> {
    /// The name that `cargo xtask bench` knows.
    pub name: &'static str,
    /// The workloads, in the order in which they are shown.
    pub workloads: &'static [(&'static str, BenchWorkload<S>)],
    /// The size for which the aims are set.
    pub full: S,
    /// A small size, to check that the bench runs; its figures mean little.
    pub quick: S,
}

#[derive(Debug, Default, PartialEq)]
struct Request {
    json: Option<Target>,
    only: Vec<String>,
    is_quick: bool,
    is_help: bool,
}

#[derive(Debug, PartialEq)]
enum Target {
    Standard,
    File(PathBuf),
}

impl<S> Bench<S> {
    /// Runs the bench as the arguments of this program request.
    #[must_use]
    pub fn run(&self) -> ExitCode {
        let arguments: Vec<String> = env::args_os()
            .skip(1)
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        let request = match self.parse(&arguments) {
            Ok(request) => request,
            Err(message) => {
                eprintln!("error: {message}\n\n{}", self.help());
                return ExitCode::from(USAGE_EXIT_CODE);
            }
        };
        if request.is_help {
            println!("{}\n\nworkloads: {}", self.help(), self.names().join(", "));
            return ExitCode::SUCCESS;
        }
        let command = [format!("cargo xtask bench {}", self.name)].into_iter().chain(arguments);
        let command = command.collect::<Vec<_>>().join(" ");
        let report = BenchReport { bench: self.name, command, findings: self.measure(&request) };
        let text = format!("{:#}\n", report.json());
        match request.json {
            Some(Target::Standard) => print!("{text}"),
            Some(Target::File(path)) => {
                print!("{}\n{}", report.table(), report.verdicts());
                if let Err(error) = fs::write(&path, text) {
                    eprintln!("error: cannot write {}: {error}", path.display());
                    return ExitCode::FAILURE;
                }
            }
            None => print!("{}\n{}", report.table(), report.verdicts()),
        }
        ExitCode::SUCCESS
    }

    fn help(&self) -> String {
        let name = self.name;
        format!(
            "\
usage: cargo xtask bench {name} [--json [FILE]] [--only NAME]... [--quick]

  --json [FILE]  write a JSON document for `cargo xtask table`: to FILE, and print the table;
                 without FILE, print only the document
  --only NAME    run only this workload; can be repeated
  --quick        small sizes and few rounds, to check that it runs"
        )
    }

    fn names(&self) -> Vec<&'static str> {
        self.workloads.iter().map(|(name, _)| *name).collect()
    }

    fn parse(&self, arguments: &[String]) -> Result<Request, String> {
        let mut request = Request::default();
        let mut rest = arguments.iter().peekable();
        while let Some(argument) = rest.next() {
            match argument.as_str() {
                "--json" => {
                    let file = rest.next_if(|next| !next.starts_with("--"));
                    request.json =
                        Some(file.map_or(Target::Standard, |file| Target::File(file.into())));
                }
                "--only" => {
                    let name = rest.next().ok_or("`--only` needs the name of a workload")?;
                    if !self.names().contains(&name.as_str()) {
                        return Err(format!("unknown workload `{name}`; `--help` lists them"));
                    }
                    request.only.push(name.clone());
                }
                "--quick" => request.is_quick = true,
                "--help" => request.is_help = true,
                _ => return Err(format!("unknown argument `{argument}`")),
            }
        }
        Ok(request)
    }

    fn measure(&self, request: &Request) -> Findings {
        let sizes = if request.is_quick { &self.quick } else { &self.full };
        let mut findings = Findings::default();
        for (name, workload) in self.workloads {
            if request.only.is_empty() || request.only.iter().any(|only| only == name) {
                eprintln!("{name} ...");
                findings.extend(workload(sizes));
            }
        }
        findings
    }

    /// Runs every workload at that size and checks that its figures are numbers. It is meant for
    /// tests, which check only that every workload ends with a consistent result.
    ///
    /// # Panics
    /// If a figure is not a number.
    pub fn try_all(&self, sizes: &S) {
        for (name, workload) in self.workloads {
            let report =
                BenchReport { bench: self.name, command: "-".into(), findings: workload(sizes) };
            let document = report.json();
            let figures = document["figures"].as_array().expect("a list");
            assert!(!figures.is_empty(), "{name} measures something");
            for figure in figures {
                assert!(figure["value"].is_f64(), "{name}: {figure}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::Figure;
    use crate::samples::Samples;

    const BENCH: Bench<f64> = Bench {
        name: "some",
        workloads: &[("one", figure), ("other", figure)],
        full: 2.0,
        quick: 1.0,
    };

    fn figure(size: &f64) -> Findings {
        vec![Figure::new("size", Samples::new(vec![*size]), "")].into()
    }

    fn parsed(line: &str) -> Result<Request, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        BENCH.parse(&arguments)
    }

    #[test]
    fn the_json_file_is_optional() {
        let request = parsed("--json some.json --quick").unwrap();
        assert_eq!(request.json, Some(Target::File("some.json".into())));
        assert!(request.is_quick);
        let request = parsed("--json --only one").unwrap();
        assert_eq!((request.json, request.only), (Some(Target::Standard), vec!["one".to_owned()]));
    }

    #[test]
    fn unknown_arguments_are_rejected() {
        for (line, message) in [
            ("--fast", "unknown argument `--fast`"),
            ("--only", "`--only` needs the name of a workload"),
            ("--only lib", "unknown workload `lib`; `--help` lists them"),
        ] {
            assert_eq!(parsed(line), Err(message.to_owned()));
        }
    }

    #[test]
    fn only_the_requested_workloads_run_at_the_requested_size() {
        for (line, values) in [("", &[2.0, 2.0][..]), ("--quick --only other", &[1.0])] {
            let findings = BENCH.measure(&parsed(line).unwrap());
            let report = BenchReport { bench: "some", command: String::new(), findings };
            let figures = report.json()["figures"].clone();
            let figures = figures.as_array().unwrap().iter();
            let measured: Vec<_> = figures.filter_map(|figure| figure["value"].as_f64()).collect();
            assert_eq!(measured, values);
        }
        BENCH.try_all(&3.0);
    }
}
