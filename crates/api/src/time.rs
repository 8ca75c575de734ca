//! Timestamps as text, in UTC: `2026-01-31T12:00:00.5Z`.

use filch_scheduler::time::Wall;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A timestamp of the wall clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub Wall);

impl Moment {
    /// Reads a timestamp with its offset from UTC.
    ///
    /// # Errors
    /// Returns an error that suggests what to write instead.
    pub fn read(text: &str) -> Result<Self, String> {
        let read = text.parse::<Timestamp>().ok();
        let millis = read.and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
        millis.map(|millis| Self(Wall(millis))).ok_or_else(|| {
            "invalid time; write one like 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+01:00".into()
        })
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let millis = i64::try_from(self.0.0).unwrap_or(i64::MAX);
        match Timestamp::from_millisecond(millis) {
            Ok(moment) => write!(formatter, "{moment}"),
            Err(_) => write!(formatter, "{}", Timestamp::MAX),
        }
    }
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::read(&text).map_err(serde::de::Error::custom)
    }
}
