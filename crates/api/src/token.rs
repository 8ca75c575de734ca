//! Tokens: their text form, roles and requests. The server decides what each role may do.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use filch_scheduler::name::Name;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::problem::Problem;
use crate::time::Moment;
use crate::{limits, span};

/// The role of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Submits jobs, and reads and changes them by id.
    Submit,
    /// Runs jobs.
    Work,
    /// Reads everything.
    View,
    /// Reads everything and manages jobs, queues and workers; cannot submit jobs.
    Operate,
    /// Everything, including tokens.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Submit, Self::Work, Self::View, Self::Operate, Self::Admin];

    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Work => "work",
            Self::View => "view",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let role = Self::ALL.into_iter().find(|role| role.word() == text);
        role.ok_or_else(|| {
            format!("unknown role {text:?}: use submit, work, view, operate or admin")
        })
    }
}

/// The prefix of every token, so that people and secret scanners recognise leaked ones.
pub const PREFIX: &str = "filch_";

/// Digits of a token's id, which is not secret.
const ID_DIGITS: usize = 8;

/// Bytes of its secret part.
const SECRET_BYTES: usize = 32;

/// A complete token, as its bearer has it: `filch_`, its id, and 256 secret bits. Only
/// [`Secret::reveal`] returns it as text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// A new token, from the system's random number generator.
    ///
    /// # Panics
    /// If the system has no randomness: tokens could be guessed then.
    #[must_use]
    pub fn generate() -> Self {
        let mut bytes = [0; ID_DIGITS / 2 + SECRET_BYTES];
        getrandom::fill(&mut bytes).expect("the system has randomness");
        let (id, secret) = bytes.split_at(ID_DIGITS / 2);
        Self(format!("{PREFIX}{}_{}", hex(id), hex(secret)))
    }

    /// Parses a token, without white space around it.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let is_hex = |text: &str, digits| {
            text.len() == digits
                && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let is_one = is_hex(id, ID_DIGITS) && is_hex(secret, 2 * SECRET_BYTES);
        is_one.then(|| Self(text.to_owned()))
    }

    /// Its public id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0[PREFIX.len()..PREFIX.len() + ID_DIGITS]
    }

    /// The digest, which is stored in place of the token.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The token as text, for its bearer, and for the header in which it is sent.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Secret({PREFIX}{}_...)", self.id())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether this text contains a token.
#[must_use]
pub fn is_in(text: &str) -> bool {
    let length = PREFIX.len() + ID_DIGITS + 1 + 2 * SECRET_BYTES;
    let at = |(start, _)| text.get(start..start + length).and_then(Secret::read).is_some();
    text.match_indices(PREFIX).any(at)
}

/// A request for a new token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Its role.
    pub role: Role,
    /// The queues that it is limited to; all if missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<String>,
    /// How long it is valid: `30d`, `12h`; forever if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// A display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A validated token request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidatedToken {
    /// Its role.
    pub role: Role,
    /// The queues that it is limited to; all if empty.
    pub queues: Vec<Name>,
    /// How long it is valid.
    pub expires: Option<Duration>,
    /// Its name.
    pub name: String,
}

/// The maximum number of queues of one token.
const QUEUES_MAX: usize = 100;

impl TokenRequest {
    /// Validates the request.
    ///
    /// # Errors
    /// Returns what is wrong.
    pub fn validate(self) -> Result<ValidatedToken, Problem> {
        let Self { role, queues, expires, name } = self;
        if queues.len() > QUEUES_MAX {
            let title = format!("too many queues for one token: {}", queues.len());
            return Err(Problem::invalid(title)
                .help(format!("name at most {QUEUES_MAX}, or make several tokens"))
                .at("/queues"));
        }
        if role == Role::Admin && !queues.is_empty() {
            return Err(Problem::invalid("an admin token cannot be limited to queues")
                .help("leave out the queues, or choose another role")
                .at("/queues"));
        }
        let queues = queues.iter().map(|queue| crate::submission::name("queue", queue));
        let queues = queues.collect::<Result<Vec<_>, _>>()?;
        let expires = expires.as_deref().map(read_span).transpose();
        let expires = expires.map_err(|why| Problem::invalid(why).at("/expires"))?;
        let name = name.unwrap_or_default();
        if name.len() > limits::NAME_BYTES || name.chars().any(char::is_control) {
            let title = "the name of a token is too long, or has control characters";
            return Err(Problem::invalid(title)
                .help(format!("use at most {} bytes of plain text", limits::NAME_BYTES))
                .at("/name"));
        }
        Ok(ValidatedToken { role, queues, expires, name })
    }
}

/// Parses how long a token is valid.
///
/// # Errors
/// Returns an error that suggests what to write instead.
pub fn read_span(text: &str) -> Result<Duration, String> {
    match span::read(text) {
        Ok(span) if span.is_zero() => Err("the expiry must be longer than zero".into()),
        Ok(span) => Ok(span),
        Err(_) => Err("malformed duration: write one like 30d, 12h or 1h30m".into()),
    }
}

/// A token as it is listed: never the token itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Token {
    /// Its public id.
    pub id: String,
    /// A display name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The queues that it is limited to; all if empty.
    pub queues: Vec<String>,
    /// When it was created.
    #[cfg_attr(feature = "schema", schema(value_type = String, format = DateTime))]
    pub created_at: Moment,
    /// When it expires.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub expires_at: Option<Moment>,
    /// When it was revoked.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, format = DateTime))]
    pub revoked_at: Option<Moment>,
}

/// A new token. Its secret cannot be shown again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Made {
    /// The token itself.
    #[serde(with = "revealed")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub secret: Secret,
    /// The token as it will be listed.
    pub token: Token,
}

/// The only place where a token is serialized.
mod revealed {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Secret;

    pub(super) fn serialize<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(secret.reveal())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
        let text = String::deserialize(from)?;
        // The error does not quote the text: it may be a secret all the same.
        Secret::read(&text).ok_or_else(|| serde::de::Error::custom("malformed token"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_made_and_shows_only_its_id() {
        let secret = Secret::generate();
        assert_eq!(Secret::read(secret.reveal()), Some(secret.clone()));
        assert_eq!(secret.reveal().len(), 79);
        let shown = format!("{secret:?}");
        assert!(shown.contains(secret.id()) && !shown.contains(&secret.reveal()[15..]), "{shown}");
        assert_ne!(secret.reveal(), Secret::generate().reveal());
        assert!(is_in(&format!("x filch_ {} y", secret.reveal())));
        assert!(!is_in(&secret.reveal()[..78]) && !is_in("filch_"));
        for text in ["", "filch_", "filch_00000000_00", &secret.reveal().to_uppercase()] {
            assert_eq!(Secret::read(text), None, "{text}");
        }
    }

    #[test]
    fn a_token_request_is_validated() {
        let wanted = |text: &str| {
            let wanted: TokenRequest =
                serde_json::from_str(text).map_err(|error| error.to_string())?;
            wanted.validate().map_err(|problem| problem.to_string())
        };
        let judged = wanted(r#"{"role":"submit","queues":["a"],"expires":"30d","name":"ci"}"#);
        let expires = Some(Duration::from_secs(30 * 86_400));
        let expected = ValidatedToken {
            role: Role::Submit,
            queues: vec!["a".into()],
            expires,
            name: "ci".into(),
        };
        assert_eq!(judged, Ok(expected));
        for (text, why) in [
            (r#"{"role":"king"}"#, "unknown variant `king`"),
            (r#"{"role":"admin","queues":["a"]}"#, "cannot be limited"),
            (r#"{"role":"view","queues":[""]}"#, "is empty"),
            (r#"{"role":"view","expires":"0d"}"#, "longer than zero"),
            (r#"{"role":"view","expires":"soon"}"#, "like 30d"),
            (r#"{"role":"view","name":"a\nb"}"#, "control characters"),
        ] {
            let said = wanted(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
