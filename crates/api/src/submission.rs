//! What a client asks for: a job as it is written in JSON, judged, and made into what the brain and the
//! store take.

use std::collections::BTreeMap;
use std::sync::Arc;

use filch_scheduler::id::{Digest, JobId};
use filch_scheduler::name::Name;
use filch_scheduler::spec::{self, Backoff, JobSpec};
use filch_scheduler::time::{Millis, Wall};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::problem::Problem;
use crate::time::Moment;
use crate::{id, limits, span};

/// The kind of jobs that are commands.
pub const COMMAND: &str = "command";

/// A job as it is submitted. What is missing has a default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// A UUID made by the client, version 7 for choice, so that the submit can be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What kind of work it is; a worker must know it. Either this or `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub kind: Option<String>,
    /// A program and its arguments; no shell looks at them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub run: Option<Vec<String>>,
    /// Any JSON: the arguments of the handler, or what the command reads on stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Value>))]
    pub args: Option<Box<RawValue>>,
    /// Variables of the command's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The folder in which the command runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// The line it waits in; `default` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub queue: Option<String>,
    /// Higher is sooner.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i16,
    /// The ids of the jobs that must end first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// How they must end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub when: When,
    /// What happens if they cannot end that way any more.
    #[serde(default, skip_serializing_if = "is_default")]
    pub otherwise: OtherwiseAction,
    /// It does not start before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    /// What happens after an attempt that failed: an object, or how many attempts there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may take: `90s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// A second name for the same job: the same key and body, the same job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub key: Option<String>,
    /// The trace that this job belongs to, in W3C's form; handed on to the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How a job's parents must have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is what it says")]
pub enum When {
    #[default]
    AllSucceeded,
    AnySucceeded,
    AllDone,
    AnyFailed,
}

/// What happens to a job whose condition can no longer hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OtherwiseAction {
    /// It is cancelled.
    #[default]
    Cancel,
    /// It waits for an operator.
    Hold,
    /// It runs all the same.
    Run,
}

/// How often a job is tried, and how long filch waits in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RetryPolicy {
    /// Attempts altogether.
    pub max: u16,
    /// How the wait grows.
    pub backoff: Growth,
    /// The first wait.
    pub base: Span,
    /// The longest wait.
    pub cap: Span,
    /// What each wait is multiplied by, in percent.
    pub factor_percent: u16,
    /// The wait is changed by at most so many percent, by chance.
    pub jitter_percent: u8,
}

/// How the wait between attempts grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Growth {
    /// No wait.
    None,
    /// Always the same.
    Fixed,
    /// Longer each time.
    Exponential,
}

/// A span of time as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Millis);

impl Span {
    fn read(text: &str) -> Result<Self, String> {
        let millis = span::read(text)?.as_millis();
        u32::try_from(millis)
            .map(|millis| Self(Millis(millis)))
            .map_err(|_| "a span of time is at most 49 days".into())
    }
}

impl Serialize for Span {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&span::write(self.0.duration()))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::read(&text).map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for RetryPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Object {
            max: Option<u16>,
            backoff: Option<Growth>,
            base: Option<Span>,
            cap: Option<Span>,
            factor_percent: Option<u16>,
            jitter_percent: Option<u8>,
        }
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "`retry` is a number of attempts, or an object like \
            {\"max\": 5, \"backoff\": \"exponential\", \"base\": \"2s\", \"cap\": \"5m\"}"
        )]
        enum Form {
            Max(u16),
            Object(Object),
        }
        Ok(match Form::deserialize(deserializer)? {
            Form::Max(max) => Self { max, ..Self::default() },
            Form::Object(object) => {
                let default = Self::default();
                Self {
                    max: object.max.unwrap_or(default.max),
                    backoff: object.backoff.unwrap_or(default.backoff),
                    base: object.base.unwrap_or(default.base),
                    cap: object.cap.unwrap_or(default.cap),
                    factor_percent: object.factor_percent.unwrap_or(default.factor_percent),
                    jitter_percent: object.jitter_percent.unwrap_or(default.jitter_percent),
                }
            }
        })
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::from(spec::Retry::default())
    }
}

impl From<spec::Retry> for RetryPolicy {
    fn from(retry: spec::Retry) -> Self {
        let (backoff, base, cap, factor_percent) = match retry.backoff {
            Backoff::None => (Growth::None, Millis(0), Millis(0), 100),
            Backoff::Fixed(wait) => (Growth::Fixed, wait, wait, 100),
            Backoff::Exponential { base, factor_percent, cap } => {
                (Growth::Exponential, base, cap, factor_percent)
            }
        };
        Self {
            max: retry.max,
            backoff,
            base: Span(base),
            cap: Span(cap),
            factor_percent,
            jitter_percent: retry.jitter_percent,
        }
    }
}

impl RetryPolicy {
    fn validate(&self) -> spec::Retry {
        let backoff = match self.backoff {
            Growth::None => Backoff::None,
            Growth::Fixed => Backoff::Fixed(self.base.0),
            Growth::Exponential => Backoff::Exponential {
                base: self.base.0,
                factor_percent: self.factor_percent,
                cap: self.cap.0,
            },
        };
        spec::Retry { max: self.max, backoff, jitter_percent: self.jitter_percent }
    }
}

impl From<When> for spec::Condition {
    fn from(when: When) -> Self {
        match when {
            When::AllSucceeded => Self::AllSucceeded,
            When::AnySucceeded => Self::AnySucceeded,
            When::AllDone => Self::AllDone,
            When::AnyFailed => Self::AnyFailed,
        }
    }
}

impl From<spec::Condition> for When {
    fn from(condition: spec::Condition) -> Self {
        match condition {
            spec::Condition::AllSucceeded => Self::AllSucceeded,
            spec::Condition::AnySucceeded => Self::AnySucceeded,
            spec::Condition::AllDone => Self::AllDone,
            spec::Condition::AnyFailed => Self::AnyFailed,
        }
    }
}

/// What a worker is told to do, and what is kept as the payload. The arguments are the text that was
/// submitted, untouched.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    /// The program and its arguments, if it is a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Vec<String>>,
    /// The arguments of the handler, or what the command reads on stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Box<RawValue>>,
    /// The command's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The command's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// The trace it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// A submission that can be carried out.
#[derive(Clone, Debug)]
pub struct ValidatedJob {
    /// For the brain.
    pub spec: JobSpec,
    /// For the store and, in the end, the worker: [`Work`] as JSON.
    pub payload: Arc<str>,
}

impl Submission {
    /// Judges a submission; `fallback` makes an id if it has none.
    ///
    /// # Errors
    /// If it cannot be carried out, with what to do about it.
    pub fn validate(self, fallback: impl FnOnce() -> JobId) -> Result<ValidatedJob, Problem> {
        let id = match &self.id {
            Some(text) => id::read_job(text).ok_or_else(|| {
                Problem::invalid(format!("{text:?} is no id"))
                    .help("make a UUID, version 7 for choice, or leave `id` out")
                    .at("/id")
            })?,
            None => fallback(),
        };
        let kind = match (&self.kind, &self.run) {
            (None, Some(run)) if run.first().is_some_and(|program| !program.is_empty()) => {
                Name::from(COMMAND)
            }
            (None, Some(_)) => {
                return Err(Problem::invalid("the command has no program").at("/run"));
            }
            (Some(kind), None) if kind == COMMAND => {
                return Err(Problem::invalid("a command needs a program")
                    .help("write \"run\": [\"program\", \"argument\"]")
                    .at("/run"));
            }
            (Some(kind), None) => name("kind", kind)?,
            _ => {
                return Err(Problem::invalid("a job has either a kind or a command")
                    .help("write \"kind\": \"resize\", or \"run\": [\"program\", \"argument\"]")
                    .at("/kind"));
            }
        };
        if self.run.is_none() && (!self.env.is_empty() || self.dir.is_some()) {
            return Err(Problem::invalid("only commands have an environment and a folder")
                .help("put it into \"args\"")
                .at(if self.env.is_empty() { "/dir" } else { "/env" }));
        }
        let parents = self.after.iter().enumerate().map(|(index, text)| {
            id::read_job(text).ok_or_else(|| {
                Problem::invalid(format!("{text:?} is no id of a job"))
                    .help("write the whole UUID of each parent")
                    .at(format!("/after/{index}"))
            })
        });
        let parents = parents.collect::<Result<Vec<_>, _>>()?;
        let retry = self.retry.as_ref().map(RetryPolicy::validate).unwrap_or_default();
        if retry.max == 0 {
            return Err(Problem::invalid("a job has at least one attempt").at("/retry/max"));
        }
        if let Backoff::Exponential { factor_percent: ..100, .. } = retry.backoff {
            return Err(Problem::invalid("a wait does not become shorter with each attempt")
                .help("write a factor_percent of at least 100; 200 doubles the wait")
                .at("/retry/factor_percent"));
        }
        if self.timeout == Some(Span(Millis(0))) {
            return Err(Problem::invalid("an attempt that may take no time can never succeed")
                .help("write a longer timeout, or leave it out")
                .at("/timeout"));
        }
        let mut judged = JobSpec {
            id,
            body: Digest::default(),
            key: self.key.as_deref().map(|key| name("key", key)).transpose()?,
            queue: name("queue", self.queue.as_deref().unwrap_or("default"))?,
            kind,
            priority: self.priority,
            parents,
            condition: self.when.into(),
            otherwise: match self.otherwise {
                OtherwiseAction::Cancel => spec::Otherwise::Cancel,
                OtherwiseAction::Hold => spec::Otherwise::Hold,
                OtherwiseAction::Run => spec::Otherwise::Run,
            },
            not_before: self.at.map(|moment| moment.0),
            retry,
            timeout: self.timeout.map(|timeout| timeout.0),
        };
        let work = Work {
            run: self.run,
            args: self.args,
            env: self.env,
            dir: self.dir,
            traceparent: self.traceparent,
        };
        let payload = serde_json::to_string(&work).expect("what was JSON can be written as JSON");
        if payload.len() > limits::PAYLOAD_BYTES {
            return Err(Problem::new(
                413,
                "payload-too-large",
                format!("the job has {} bytes of arguments", payload.len()),
            )
            .help(format!(
                "keep it under {} bytes: put the data somewhere and submit where it is",
                limits::PAYLOAD_BYTES
            ))
            .at("/args"));
        }
        judged.body = digest(&judged, &payload);
        Ok(ValidatedJob { spec: judged, payload: Arc::from(payload) })
    }
}

/// Judges a name: of a queue, a kind, a key, a job of a flow.
///
/// # Errors
/// If it is empty, too long, or would not be seen as it is.
pub fn name(field: &str, text: &str) -> Result<Name, Problem> {
    let problem = |title: String| Problem::invalid(title).at(format!("/{field}"));
    if text.is_empty() {
        return Err(problem(format!("the {field} has no name")));
    }
    if text.len() > limits::NAME_BYTES {
        let title = format!("the {field} has a name of {} bytes", text.len());
        return Err(Problem::new(422, "name-too-long", title)
            .help(format!("use at most {} bytes", limits::NAME_BYTES))
            .at(format!("/{field}")));
    }
    if text.chars().any(char::is_control) {
        return Err(problem(format!("the {field} {text:?} has control characters in its name")));
    }
    Ok(Name::from(text))
}

/// A digest of everything that was said but the id. It is kept with the job, so this must give the same
/// for ever.
fn digest(spec: &JobSpec, payload: &str) -> Digest {
    let mut hash = Sha256::new();
    let mut text = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    text("filch job 1");
    text(payload);
    text(spec.key.as_ref().map_or("", Name::as_str));
    text(spec.queue.as_str());
    text(spec.kind.as_str());
    let mut number = |number: u64| hash.update(number.to_le_bytes());
    number(spec.priority as u64);
    number(match spec.condition {
        spec::Condition::AllSucceeded => 0,
        spec::Condition::AnySucceeded => 1,
        spec::Condition::AllDone => 2,
        spec::Condition::AnyFailed => 3,
    });
    number(match spec.otherwise {
        spec::Otherwise::Cancel => 0,
        spec::Otherwise::Hold => 1,
        spec::Otherwise::Run => 2,
    });
    number(spec.not_before.map_or(u64::MAX, |Wall(at)| at));
    number(spec.timeout.map_or(u64::MAX, |Millis(timeout)| timeout.into()));
    let (growth, base, factor, cap) = match spec.retry.backoff {
        Backoff::None => (0, Millis(0), 0, Millis(0)),
        Backoff::Fixed(wait) => (1, wait, 0, Millis(0)),
        Backoff::Exponential { base, factor_percent, cap } => (2, base, factor_percent, cap),
    };
    for part in [growth, base.0.into(), factor.into(), cap.0.into()] {
        number(part);
    }
    number(spec.retry.max.into());
    number(spec.retry.jitter_percent.into());
    number(spec.parents.len() as u64);
    for parent in &spec.parents {
        hash.update(parent.0.to_le_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    Digest(u128::from_le_bytes(digest[..16].try_into().expect("a digest has more than 16 bytes")))
}
