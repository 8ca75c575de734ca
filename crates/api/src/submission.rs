//! A submitted job as JSON: validated, and converted into what the scheduler and the store take.

use std::collections::BTreeMap;

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

/// The queue of jobs that name none.
const DEFAULT_QUEUE: &str = "default";

/// The kind of jobs that are commands.
pub const COMMAND: &str = "command";

/// A job to submit. Missing fields have defaults.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// A UUID chosen by the client, preferably version 7, so that the request can be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The kind of work; a worker must have a handler for it. Either this or `run`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub kind: Option<String>,
    /// A program and its arguments, without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_items = 1))]
    pub run: Option<Vec<String>>,
    /// Any JSON: the arguments of the handler, or the standard input of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Value>))]
    pub args: Option<Box<RawValue>>,
    /// Environment variables of the command.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The working directory of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// Queue to submit to; `default` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub queue: Option<String>,
    /// Jobs with a higher priority start first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i16,
    /// The parents: ids of jobs that must end first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// How the parents must end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub when: When,
    /// What happens to this job if the parents can no longer end that way.
    #[serde(default, skip_serializing_if = "is_default")]
    pub otherwise: OtherwiseAction,
    /// The earliest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Moment>,
    /// The retry policy: an object, or the number of attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// How long one attempt may take: `90s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// Idempotency key: submitting again with the same key and body returns the same job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(min_length = 1, max_length = 200))]
    pub key: Option<String>,
    /// The W3C trace context to pass on to the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How a job's parents must end.
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

/// What happens to a job whose condition can no longer be met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum OtherwiseAction {
    /// It is cancelled.
    #[default]
    Cancel,
    /// It is held until an operator acts.
    Hold,
    /// It runs anyway.
    Run,
}

/// How often a job is attempted, and how long filch waits in between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RetryPolicy {
    /// The total number of attempts.
    pub max: u16,
    /// How the wait grows.
    pub backoff: Growth,
    /// The first wait.
    pub base: Span,
    /// The longest wait.
    pub cap: Span,
    /// What each wait is multiplied by, in percent.
    pub factor_percent: u16,
    /// Random jitter of each wait, in percent.
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

/// A duration as text, such as `90s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Millis);

impl Span {
    fn read(text: &str) -> Result<Self, String> {
        let millis = span::read(text)?.as_millis();
        u32::try_from(millis)
            .map(|millis| Self(Millis(millis)))
            .map_err(|_| "a duration is at most 49 days".into())
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

/// The work of a job, for its worker: the stored payload. The arguments are the text that was
/// submitted, untouched.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Work {
    /// The program and its arguments, if it is a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Vec<String>>,
    /// The arguments of the handler, or the standard input of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Box<RawValue>>,
    /// The command's environment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The command's working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// The W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl Submission {
    /// The id of this job as the `index`th that is submitted under an idempotency key.
    #[must_use]
    pub fn keyed_id(&self, key: &str, index: u64) -> JobId {
        id::keyed_job(self.queue.as_deref().unwrap_or(DEFAULT_QUEUE), key, index)
    }

    /// Validates a submission; `fallback` makes an id if it has none. The payload is [`Work`] as
    /// JSON.
    ///
    /// # Errors
    /// If it is invalid; the error explains what to do.
    pub fn validate(self, fallback: impl FnOnce() -> JobId) -> Result<JobSpec, Problem> {
        let id = match &self.id {
            Some(text) => id::read_job(text).ok_or_else(|| {
                Problem::invalid(format!("malformed id {text:?}"))
                    .help("use a UUID, preferably version 7, or leave `id` out")
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
            return Err(Problem::invalid("`env` and `dir` are only for commands")
                .help("pass such values in \"args\"")
                .at(if self.env.is_empty() { "/dir" } else { "/env" }));
        }
        let parents = self.after.iter().enumerate().map(|(index, text)| {
            id::read_job(text).ok_or_else(|| {
                Problem::invalid(format!("malformed job id {text:?}"))
                    .help("write the full UUID of each parent")
                    .at(format!("/after/{index}"))
            })
        });
        let parents = parents.collect::<Result<Vec<_>, _>>()?;
        let retry = self.retry.as_ref().map(RetryPolicy::validate).unwrap_or_default();
        if retry.max == 0 {
            return Err(Problem::invalid("`max` must be at least 1").at("/retry/max"));
        }
        if let Backoff::Exponential { factor_percent: ..100, .. } = retry.backoff {
            return Err(Problem::invalid("`factor_percent` must be at least 100")
                .help("100 keeps the wait the same, 200 doubles it with each attempt")
                .at("/retry/factor_percent"));
        }
        if self.timeout == Some(Span(Millis(0))) {
            return Err(Problem::invalid("`timeout` must be longer than zero")
                .help("use a longer timeout, or leave it out")
                .at("/timeout"));
        }
        let mut judged = JobSpec {
            id,
            body: Digest::default(),
            key: self.key.as_deref().map(|key| name("key", key)).transpose()?,
            queue: name("queue", self.queue.as_deref().unwrap_or(DEFAULT_QUEUE))?,
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
            payload: None,
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
                "keep it under {} bytes: store the data elsewhere and submit its location",
                limits::PAYLOAD_BYTES
            ))
            .at("/args"));
        }
        judged.body = digest(&judged, &payload);
        judged.payload = Some(payload.into());
        Ok(judged)
    }
}

/// Validates a name: of a queue, a kind, a key, a job of a flow.
///
/// # Errors
/// If it is empty, too long, or contains control characters.
pub fn name(field: &str, text: &str) -> Result<Name, Problem> {
    let problem = |title: String| Problem::invalid(title).at(format!("/{field}"));
    if text.is_empty() {
        return Err(problem(format!("`{field}` is empty")));
    }
    if text.len() > limits::NAME_BYTES {
        let title = format!("`{field}` is too long: {} bytes", text.len());
        return Err(Problem::new(422, "name-too-long", title)
            .help(format!("use at most {} bytes", limits::NAME_BYTES))
            .at(format!("/{field}")));
    }
    if text.chars().any(char::is_control) {
        return Err(problem(format!("`{field}` contains control characters: {text:?}")));
    }
    Ok(Name::from(text))
}

/// A digest of everything that was submitted except the id. It is stored with the job, so it must
/// never change.
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
