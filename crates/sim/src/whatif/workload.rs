//! Workloads: which jobs are submitted when, and how long each takes.
//!
//! A few distributions are generated from a line of text; any other workload comes from a file
//! (`lines`).

mod lines;

use std::fmt;

use filch_scheduler::name::Name;
use filch_scheduler::time::Duration;

use crate::random::Random;

/// The jobs of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Workload {
    /// In the order of submission.
    pub jobs: Vec<WorkloadJob>,
}

/// One job of a workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadJob {
    /// When it is submitted, from the start. Jobs are in this order.
    pub at: Duration,
    /// How long it runs.
    pub cost: Duration,
    /// Its queue.
    pub queue: Name,
    /// Higher is sooner, with strategies that use priorities.
    pub priority: i16,
    /// Its id in the workload.
    pub id: Option<String>,
    /// The jobs that must end first, as indexes into this workload; all are lower than its own.
    pub after: Vec<usize>,
}

/// Why a text is not a valid workload, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadError {
    /// What is wrong, and where.
    pub what: String,
    /// What would be right.
    pub help: String,
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}\n  help: {}", self.what, self.help)
    }
}

impl std::error::Error for WorkloadError {}

/// The largest number of jobs in a workload.
pub const JOBS_MAX: usize = 10_000_000;

/// The longest cost and the latest submission of a job.
pub const SPAN_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The largest total cost of a workload, so that no clock overflows.
pub const TOTAL_MAX: Duration = Duration::from_secs(1_000 * 365 * 24 * 60 * 60);

/// The tail of `pareto` ends at this many times its shortest cost: a single huge job would hide
/// everything else about a schedule.
const PARETO_MAX: f64 = 10_000.0;

/// One way to write a workload.
struct Form {
    word: &'static str,
    parts: &'static [&'static str],
    example: &'static str,
    make: fn(&Reader<'_>, seed: u64) -> Result<Vec<WorkloadJob>, WorkloadError>,
}

const FORMS: [Form; 6] = [
    Form {
        word: "uniform",
        parts: &["N", "COST"],
        example: "uniform:1000:2ms",
        make: |reader, _| {
            let (count, cost) = (reader.count(0)?, reader.cost(1)?);
            Ok((0..count).map(|_| reader.job(cost)).collect())
        },
    },
    Form {
        word: "skew",
        parts: &["N", "SHORT", "LONG", "EVERY"],
        example: "skew:1000:1ms:100ms:50",
        make: |reader, _| {
            let (count, every) = (reader.count(0)?, reader.count(3)?);
            let (short, long) = (reader.cost(1)?, reader.cost(2)?);
            Ok((0..count)
                .map(|at| reader.job(if at % every == 0 { long } else { short }))
                .collect())
        },
    },
    Form {
        word: "zipf",
        parts: &["N", "MAX", "EXPONENT"],
        example: "zipf:1000:500ms:1.1",
        make: |reader, seed| {
            let (count, max) = (reader.count(0)?, reader.cost(1)?);
            let exponent = reader.number(2, 0.0)?;
            let cost = |rank: usize| whole(max.div_f64((rank as f64).powf(exponent)));
            // A job without any cost would be another kind of job.
            let least = max.min(Duration::from_micros(1));
            let mut jobs: Vec<WorkloadJob> =
                (1..=count).map(|rank| reader.job(cost(rank).max(least))).collect();
            shuffle(&mut jobs, seed);
            Ok(jobs)
        },
    },
    Form {
        word: "pareto",
        parts: &["N", "MIN", "ALPHA"],
        example: "pareto:1000:1ms:1.2",
        make: |reader, seed| {
            let (count, min) = (reader.count(0)?, reader.cost(1)?);
            let alpha = reader.number(2, 0.01)?;
            let mut random = Random::new(seed);
            let mut draw = || {
                // Above 0 and at most 1, so that the division below is sound.
                let chance = ((random.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
                let factor = chance.powf(-1.0 / alpha).min(PARETO_MAX);
                reader.job(whole(min.mul_f64(factor)).min(SPAN_MAX))
            };
            Ok((0..count).map(|_| draw()).collect())
        },
    },
    Form {
        word: "tree",
        parts: &["DEPTH", "FANOUT", "COST"],
        example: "tree:5:4:10ms",
        make: |reader, _| {
            let (depth, fanout, cost) = (reader.count(0)?, reader.count(1)?, reader.cost(2)?);
            let count = reader.tree(depth, fanout)?;
            // Level by level, so the index of a parent follows from the index of the child.
            let parent = |at: usize| if at == 0 { Vec::new() } else { vec![(at - 1) / fanout] };
            Ok((0..count).map(|at| WorkloadJob { after: parent(at), ..reader.job(cost) }).collect())
        },
    },
    Form {
        word: "file",
        parts: &["PATH"],
        example: "file:jobs.jsonl",
        make: |reader, _| lines::read(reader.parts[0]),
    },
];

impl Workload {
    /// The workload that this text describes: `uniform:N:COST`, `skew:N:SHORT:LONG:EVERY`,
    /// `zipf:N:MAX:EXPONENT`, `pareto:N:MIN:ALPHA`, `tree:DEPTH:FANOUT:COST`, or `file:PATH` with
    /// one JSON object a line. The seed decides what is left to chance.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use filch_sim::whatif::workload::Workload;
    ///
    /// let workload = Workload::parse("skew:100:1ms:50ms:10", 1)?;
    /// assert_eq!(workload.jobs.len(), 100);
    /// assert_eq!(workload.jobs[0].cost, Duration::from_millis(50));
    /// assert_eq!(workload.jobs[1].cost, Duration::from_millis(1));
    /// # Ok::<(), filch_sim::whatif::workload::WorkloadError>(())
    /// ```
    ///
    /// # Errors
    /// If it has another form, exceeds a bound, or the file cannot be read or is inconsistent.
    pub fn parse(text: &str, seed: u64) -> Result<Self, WorkloadError> {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        let form = FORMS.iter().find(|form| form.word == word).ok_or_else(|| {
            let forms: Vec<String> = FORMS.iter().map(Form::written).collect();
            WorkloadError {
                what: format!("unknown kind of workload `{word}`"),
                help: format!("write one of {}", forms.join(", ")),
            }
        })?;
        // A path may contain colons; the last part takes the rest.
        let parts: Vec<&str> = rest.splitn(form.parts.len(), ':').collect();
        let reader = Reader { text, form, parts, queue: Name::from("default") };
        if reader.parts.len() < form.parts.len() || reader.parts.contains(&"") {
            let given = reader.parts.iter().filter(|part| !part.is_empty()).count();
            let (needed, kind) = (form.parts.len(), form.word);
            return Err(reader.wrong(format!(
                "the workload `{text}` is incomplete: {kind} needs {needed} parts and has {given}"
            )));
        }
        let jobs = (form.make)(&reader, seed)?;
        let total: Duration = jobs.iter().map(|job| job.cost).sum();
        if total > TOTAL_MAX {
            return Err(WorkloadError {
                what: format!("the jobs of `{text}` take more than 1,000 years in all"),
                help: "use fewer or shorter jobs".into(),
            });
        }
        Ok(Self { jobs })
    }
}

impl Form {
    fn written(&self) -> String {
        format!("{}:{}", self.word, self.parts.join(":"))
    }
}

/// The parts of one text, parsed as its form requires.
struct Reader<'a> {
    text: &'a str,
    form: &'a Form,
    parts: Vec<&'a str>,
    queue: Name,
}

impl Reader<'_> {
    /// A job with this cost and defaults for everything else.
    fn job(&self, cost: Duration) -> WorkloadJob {
        let queue = self.queue.clone();
        WorkloadJob { at: Duration::ZERO, cost, queue, priority: 0, id: None, after: Vec::new() }
    }

    fn wrong(&self, what: String) -> WorkloadError {
        let Form { example, .. } = self.form;
        WorkloadError {
            what,
            help: format!("write {}, for example {example}", self.form.written()),
        }
    }

    /// Names a part in an error.
    fn part(&self, place: usize) -> String {
        format!("{} `{}` of `{}`", self.form.parts[place], self.parts[place], self.text)
    }

    fn count(&self, place: usize) -> Result<usize, WorkloadError> {
        let text = self.parts[place];
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(count) if (1..=JOBS_MAX).contains(&count) => Ok(count),
            Ok(0) => Err(self.wrong(format!("{} must be at least 1", self.part(place)))),
            _ if is_number => Err(self.too_many(&self.part(place))),
            _ => Err(self.wrong(format!("{} is not a whole number", self.part(place)))),
        }
    }

    fn too_many(&self, whose: &str) -> WorkloadError {
        self.wrong(format!("{whose} is too large: a workload has at most 10,000,000 jobs"))
    }

    fn cost(&self, place: usize) -> Result<Duration, WorkloadError> {
        let read = self.parts[place].parse::<jiff::SignedDuration>().ok();
        let Some(cost) = read.and_then(|cost| Duration::try_from(cost).ok()) else {
            let part = self.part(place);
            return Err(self.wrong(format!("{part} is not a duration like 200us, 2ms, 1.5s or 1m")));
        };
        if cost > SPAN_MAX {
            return Err(self.wrong(format!("{} is longer than 30 days", self.part(place))));
        }
        Ok(whole(cost))
    }

    fn number(&self, place: usize, least: f64) -> Result<f64, WorkloadError> {
        let most = 10.0;
        match self.parts[place].parse::<f64>() {
            Ok(number) if (least..=most).contains(&number) => Ok(number),
            Ok(_) => {
                let part = self.part(place);
                Err(self.wrong(format!("{part} must be between {least} and {most}")))
            }
            Err(_) => Err(self.wrong(format!("{} is not a number like 1.2", self.part(place)))),
        }
    }

    /// How many jobs such a tree has.
    fn tree(&self, depth: usize, fanout: usize) -> Result<usize, WorkloadError> {
        let (mut count, mut level) = (0_usize, 1_usize);
        for _ in 0..depth {
            count = count.saturating_add(level);
            level = level.saturating_mul(fanout);
            if count > JOBS_MAX {
                return Err(self.too_many(&format!("the tree `{}`", self.text)));
            }
        }
        Ok(count)
    }
}

/// The duration rounded up to whole microseconds, the resolution of the simulated clocks.
fn whole(span: Duration) -> Duration {
    let micros = span.as_nanos().div_ceil(1_000);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

/// A random order; all orders are equally likely.
fn shuffle(jobs: &mut [WorkloadJob], seed: u64) {
    let mut random = Random::new(seed);
    for last in (1..jobs.len()).rev() {
        jobs.swap(last, random.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn costs(text: &str, seed: u64) -> Vec<u64> {
        let workload = Workload::parse(text, seed).unwrap();
        workload.jobs.iter().map(|job| job.cost.as_micros() as u64).collect()
    }

    #[test]
    fn distributions_have_the_expected_costs() {
        assert_eq!(costs("uniform:3:1.5ms", 0), [1_500; 3]);
        assert_eq!(costs("skew:5:200us:2ms:2", 0), [2_000, 200, 2_000, 200, 2_000]);
        assert_eq!(costs("uniform:2:1ns", 0), [1; 2], "not nothing");

        let mut zipf = costs("zipf:4:12ms:1", 7);
        zipf.sort_unstable();
        assert_eq!(zipf, [3_000, 4_000, 6_000, 12_000]);
        assert_eq!(costs("zipf:3:1us:9", 7), [1; 3]);

        let pareto = costs("pareto:10000:1ms:1", 7);
        assert!(pareto.iter().all(|cost| (1_000..=10_000_000).contains(cost)));
        // Of a Pareto distribution with exponent 1, half are below twice the least and a tenth
        // above ten times.
        let below = pareto.iter().filter(|&&cost| cost < 2_000).count();
        let above = pareto.iter().filter(|&&cost| cost > 10_000).count();
        assert!((4_800..5_200).contains(&below) && (900..1_100).contains(&above));

        let tree = Workload::parse("tree:3:2:1ms", 0).unwrap();
        let after: Vec<&[usize]> = tree.jobs.iter().map(|job| job.after.as_slice()).collect();
        assert_eq!(after, [&[][..], &[0], &[0], &[1], &[1], &[2], &[2]]);
        assert_eq!(Workload::parse("tree:4:1:1ms", 0).unwrap().jobs.len(), 4);
    }

    #[test]
    fn the_seed_determines_random_workloads() {
        for text in ["zipf:100:1s:1.1", "pareto:100:1ms:1.5"] {
            assert_eq!(costs(text, 7), costs(text, 7));
            assert_ne!(costs(text, 7), costs(text, 8));
        }
    }

    #[test]
    fn errors_name_the_mistake_and_the_correct_form() {
        for (text, what, help) in [
            ("", "unknown kind of workload ``", "write one of uniform:N:COST, skew:"),
            ("unifrm:1:2ms", "unknown kind of workload `unifrm`", "file:PATH"),
            ("uniform", "needs 2 parts and has 0", "write uniform:N:COST, for example uniform:"),
            ("uniform:7", "needs 2 parts and has 1", "uniform:N:COST"),
            ("uniform::2ms", "needs 2 parts and has 1", "uniform:N:COST"),
            ("uniform:x:2ms", "N `x` of `uniform:x:2ms` is not a whole number", "uniform:N:COST"),
            ("uniform:-1:2ms", "is not a whole number", "uniform:N:COST"),
            ("uniform:0:2ms", "must be at least 1", "uniform:N:COST"),
            ("uniform:10000001:2ms", "at most 10,000,000 jobs", "uniform:N:COST"),
            ("uniform:99999999999999999999:2ms", "at most 10,000,000 jobs", "uniform:N:COST"),
            ("uniform:1:2", "COST `2` of `uniform:1:2` is not a duration like", "uniform:N:COST"),
            ("uniform:1:-2s", "is not a duration", "uniform:N:COST"),
            ("uniform:1:2ms:3", "COST `2ms:3`", "uniform:N:COST"),
            ("uniform:1:721h", "longer than 30 days", "uniform:N:COST"),
            ("uniform:20000:700h", "more than 1,000 years", "fewer or shorter"),
            ("skew:9:1ms:2ms:0", "EVERY `0` of `skew:9:1ms:2ms:0` must be", "for example skew:"),
            (
                "zipf:9:1ms:x",
                "EXPONENT `x` of `zipf:9:1ms:x` is not a number",
                "zipf:N:MAX:EXPONENT",
            ),
            ("zipf:9:1ms:nan", "must be between 0 and 10", "zipf:N:MAX:EXPONENT"),
            ("pareto:9:1ms:0", "must be between 0.01 and 10", "pareto:N:MIN:ALPHA"),
            ("tree:30:9:1ms", "the tree `tree:30:9:1ms` is too large", "tree:DEPTH:FANOUT:COST"),
            ("file:", "needs 1 parts and has 0", "file:jobs.jsonl"),
            ("file:no/such.jsonl", "cannot read the workload no/such.jsonl (", "JSON lines"),
        ] {
            let error = Workload::parse(text, 0).unwrap_err();
            assert!(error.what.contains(what), "{text}: {error}");
            assert!(error.help.contains(help), "{text}: {error}");
        }
    }

    /// Parses these lines from a file; its path is `FILE` in what is returned.
    fn from_file(name: &str, lines: &str) -> Result<Workload, WorkloadError> {
        let path = std::env::temp_dir().join(format!("filch-{}-{name}", std::process::id()));
        fs::write(&path, lines).unwrap();
        let result = Workload::parse(&format!("file:{}", path.display()), 0);
        fs::remove_file(&path).unwrap();
        let short = |text: &str| text.replace(&path.display().to_string(), "FILE");
        result.map_err(|error| WorkloadError { what: short(&error.what), ..error })
    }

    #[test]
    fn jobs_of_a_file_are_ordered_for_submission() {
        let lines = r#"
            {"cost_ms": 1, "id": "child", "after": ["late", "early"]}
            {"cost_ms": 2, "at_ms": 7.5, "id": "late", "queue": "img", "priority": -3}

            {"cost_ms": 0.25, "id": "early"}
            {"cost_ms": 4, "at_ms": 7.5}
        "#;
        let jobs = from_file("order", lines).unwrap().jobs;
        let seen: Vec<String> = jobs
            .iter()
            .map(|job| {
                let WorkloadJob { at, cost, queue, priority, id, after } = job;
                let id = id.as_deref().unwrap_or("-");
                format!("{id} {queue} {priority} at {at:?} for {cost:?} after {after:?}")
            })
            .collect();
        assert_eq!(
            seen,
            [
                "early default 0 at 0ns for 250µs after []",
                "late img -3 at 7.5ms for 2ms after []",
                // With the last of its parents, not before.
                "child default 0 at 7.5ms for 1ms after [1, 0]",
                "- default 0 at 7.5ms for 4ms after []",
            ]
        );
    }

    #[test]
    fn errors_in_a_file_name_the_line() {
        let long = format!("{{\"cost_ms\": 1, \"id\": \"{}\"}}", "x".repeat(201));
        let cycle = r#"{"cost_ms":1,"id":"x","after":["a"]}
{"cost_ms":1,"id":"a","after":["b"]}
{"cost_ms":1,"id":"b","after":["a"]}"#;
        for (name, lines, what) in [
            ("empty", "\n \n", "FILE has no jobs"),
            ("text", "{\"cost_ms\": 1}\n\nhello", "FILE:3: the line is not a JSON object"),
            ("end", "{\"cost_ms\": 1", "FILE:1: column 13: EOF"),
            ("list", "[1]", "FILE:1: the line is not a JSON object"),
            ("field", "{\"cost\": 1}", "FILE:1: column 7: unknown field `cost`, expected one of"),
            ("lacks", "{\"at_ms\": 1}", "missing field `cost_ms`"),
            ("minus", "{\"cost_ms\": -1}", "FILE:1: cost_ms cannot be -1"),
            ("huge", "{\"cost_ms\": 1e300}", "cost_ms cannot be 1"),
            ("beyond", "{\"cost_ms\": 1, \"at_ms\": 1e999}", "number out of range"),
            ("later", "{\"cost_ms\": 1, \"at_ms\": 2592000001}", "at_ms cannot be 2592000001"),
            ("priority", "{\"cost_ms\": 1, \"priority\": 40000}", "expected i16"),
            ("long", &long, "FILE:1: the id has 201 bytes"),
            (
                "same",
                "{\"cost_ms\":1,\"id\":\"a\"}\n{\"cost_ms\":1,\"id\":\"a\"}",
                "FILE:2: line 1 has the id \"a\" already",
            ),
            ("unknown", "{\"cost_ms\":1,\"after\":[\"b\"]}", "FILE:1: no line has the id \"b\""),
            (
                "twice",
                "{\"cost_ms\":1,\"id\":\"a\"}\n{\"cost_ms\":1,\"after\":[\"a\",\"a\"]}",
                "FILE:2: it is after \"a\" twice",
            ),
            (
                "itself",
                "{\"cost_ms\":1,\"id\":\"a\",\"after\":[\"a\"]}",
                "FILE:1: the jobs wait for each other: \"a\" after \"a\"",
            ),
            ("cycle", cycle, "FILE:2: the jobs wait for each other: \"a\" after \"b\" after \"a\""),
        ] {
            let error = from_file(name, lines).unwrap_err();
            assert!(error.what.contains(what), "{name}: {error}");
            assert!(!error.help.is_empty());
        }
    }
}
