//! A batch on its way to a worker, together with the payloads of its jobs: passed as it is between
//! threads, and over a socket as a [`DownFrame`] in JSON.
//!
//! Every job takes this path, so frames are written and read by hand where that saves copies: the
//! payload's text is neither parsed nor rebuilt.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use filch_scheduler::id::{CommitNo, Hold, MessageNo, SessionNo};
use filch_scheduler::message::{Assignment, Delivery, Placement, StartMode, ToWorker};
use filch_scheduler::name::Name;
use filch_scheduler::time::Millis;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::id;
use crate::session::{Down, DownFrame, InvalidFrame, WireHold};

/// As a frame in JSON.
#[must_use]
pub fn write(delivery: Delivery) -> String {
    let mut text = String::with_capacity(128 + delivery.works.len() * 320);
    let mut works = delivery.works.iter();
    let _ = write!(
        text,
        "{{\"session\":{},\"number\":{},\"messages\":[",
        delivery.session.0, delivery.number.0
    );
    for (index, message) in delivery.messages.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        match message {
            ToWorker::Assign(jobs) => assign(&mut text, &jobs, &mut works),
            other => {
                let down = Down::say(other, |_| unreachable!("only assigned jobs have work"));
                text += &serde_json::to_string(&down).expect("a message can be written");
            }
        }
    }
    text.push(']');
    if let Some(grace) = delivery.grace {
        let _ = write!(text, ",\"grace_ms\":{}", grace.as_millis());
    }
    text.push('}');
    text
}

/// Reads a frame.
///
/// # Errors
/// If it is not a valid frame.
pub fn read(text: &str) -> Result<Delivery, InvalidFrame> {
    let frame: FrameIn<'_> = serde_json::from_str(text).map_err(|_| InvalidFrame("not a frame"))?;
    let mut works = Vec::new();
    let mut names = Vec::new();
    let messages = frame.messages.into_iter().map(|message| {
        let unreadable = |_| InvalidFrame("unknown message");
        let inside = message.get().trim_start_matches(['{', ' ', '\t', '\r', '\n']);
        if !inside.starts_with("\"assign\"") {
            let down: Down = serde_json::from_str(message.get()).map_err(unreadable)?;
            // This also reads assignments whose name is written with escapes.
            return down.hear(|hold, work| works.push((hold, Arc::from(work.get()))));
        }
        let AssignIn { assign } = serde_json::from_str(message.get()).map_err(unreadable)?;
        works.reserve(assign.len());
        let jobs = assign.into_iter().map(|job| job.read(&mut works, &mut names));
        jobs.collect::<Result<_, _>>().map(ToWorker::Assign)
    });
    let messages = messages.collect::<Result<_, _>>()?;
    let (session, number) = (SessionNo(frame.session), MessageNo(frame.number));
    let grace = frame.grace_ms.map(Duration::from_millis);
    Ok(Delivery { session, number, messages, works, grace })
}

/// As a frame with typed messages.
#[must_use]
pub fn frame(delivery: Delivery) -> DownFrame {
    let mut works = delivery.works.into_iter();
    let mut work = |_| {
        let (_, text) = works.next().expect("each assigned job comes with its work");
        RawValue::from_string(text.to_string())
            .unwrap_or_else(|_| RawValue::from_string("{}".into()).expect("an object is JSON"))
    };
    let messages =
        delivery.messages.into_iter().map(|message| Down::say(message, &mut work)).collect();
    let grace_ms = delivery.grace.map(|grace| grace.as_millis() as u64);
    let (session, number) = (delivery.session.0, delivery.number.0);
    DownFrame { session, number, messages, grace_ms }
}

fn assign(
    text: &mut String,
    jobs: &[Assignment],
    works: &mut std::slice::Iter<'_, (Hold, Arc<str>)>,
) {
    text.push_str("{\"assign\":[");
    for (index, job) in jobs.iter().enumerate() {
        let (hold, work) = works.next().expect("each assigned job comes with its work");
        assert!(*hold == job.hold, "works come in the order of their jobs");
        if index > 0 {
            text.push(',');
        }
        let Hold { job: seq, fence } = job.hold;
        let _ = write!(text, "{{\"job\":[{},{}],\"id\":\"", seq.0, fence.0);
        text.push_str(id::write_job(job.id, &mut [0; 36]));
        text.push_str("\",\"queue\":");
        quote(text, &job.queue);
        text.push_str(",\"kind\":");
        quote(text, &job.kind);
        let _ = write!(
            text,
            ",\"era\":{},\"rank\":{},\"attempt\":{}",
            job.era.0, job.rank, job.attempt
        );
        if job.start == StartMode::Confirmed {
            text.push_str(",\"confirm\":true");
        }
        if job.place == Placement::FreeSlot {
            text.push_str(",\"free_slot\":true");
        }
        if let Some(Millis(timeout)) = job.timeout {
            let _ = write!(text, ",\"timeout_ms\":{timeout}");
        }
        text.push_str(",\"work\":");
        text.push_str(work);
        text.push('}');
    }
    text.push_str("]}");
}

fn quote(text: &mut String, name: &Name) {
    let name = name.as_str();
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_. ".contains(&byte)) {
        text.push('"');
        text.push_str(name);
        text.push('"');
    } else {
        *text += &serde_json::to_string(name).expect("text can be written as JSON");
    }
}

#[derive(Deserialize)]
struct FrameIn<'a> {
    session: u64,
    number: u64,
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
    grace_ms: Option<u64>,
}

/// Assigned jobs that borrow their texts.
#[derive(Deserialize)]
struct AssignIn<'a> {
    #[serde(borrow)]
    assign: Vec<AssignedIn<'a>>,
}

#[derive(Deserialize)]
struct AssignedIn<'a> {
    job: WireHold,
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    queue: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    era: u64,
    rank: i64,
    attempt: u16,
    #[serde(default)]
    confirm: bool,
    #[serde(default)]
    free_slot: bool,
    timeout_ms: Option<u32>,
    #[serde(borrow)]
    work: &'a RawValue,
}

impl AssignedIn<'_> {
    fn read(
        self,
        works: &mut Vec<(Hold, Arc<str>)>,
        names: &mut Vec<Name>,
    ) -> Result<Assignment, InvalidFrame> {
        let hold = Hold::from(self.job);
        works.push((hold, Arc::from(self.work.get())));
        Ok(Assignment {
            hold,
            id: id::read_job(&self.id).ok_or(InvalidFrame("malformed job id"))?,
            queue: shared(names, &self.queue),
            kind: shared(names, &self.kind),
            era: CommitNo(self.era),
            rank: self.rank,
            attempt: self.attempt,
            start: if self.confirm { StartMode::Confirmed } else { StartMode::Freely },
            place: if self.free_slot { Placement::FreeSlot } else { Placement::Anywhere },
            timeout: self.timeout_ms.map(Millis),
        })
    }
}

/// How many names are shared: most jobs have one of a few names. Further names are allocated each
/// time.
const NAMES_SHARED: usize = 8;

fn shared(names: &mut Vec<Name>, text: &str) -> Name {
    if let Some(name) = names.iter().find(|name| name.as_str() == text) {
        return name.clone();
    }
    let name = Name::from(text);
    if names.len() < NAMES_SHARED {
        names.push(name.clone());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use filch_scheduler::id::{Fence, JobId, Seq};

    fn delivery() -> Delivery {
        let hold = |job, fence| Hold { job: Seq(job), fence: Fence(fence) };
        let assignment = |job, queue: &str| Assignment {
            hold: hold(job, 2),
            id: JobId(u128::MAX / 7 + u128::from(job)),
            queue: Name::from(queue),
            kind: Name::from("resize"),
            era: CommitNo(9),
            rank: -5,
            attempt: 3,
            start: StartMode::Confirmed,
            place: Placement::FreeSlot,
            timeout: Some(Millis(70)),
        };
        let free = Assignment {
            start: StartMode::Freely,
            place: Placement::Anywhere,
            timeout: None,
            ..assignment(8, "default")
        };
        Delivery {
            session: SessionNo(3),
            number: MessageNo(4),
            messages: vec![
                ToWorker::Reconcile { lease: Duration::from_secs(10), keep: vec![hold(1, 1)] },
                ToWorker::Assign(vec![assignment(7, "quotes \" and \\ é"), free]),
                ToWorker::Accepted(vec![hold(5, 6)]),
                ToWorker::Gone,
            ],
            works: vec![
                (hold(7, 2), Arc::from(r#"{"args":123456789012345678901234567890}"#)),
                (hold(8, 2), Arc::from("{}")),
            ],
            grace: Some(Duration::from_millis(1_500)),
        }
    }

    #[test]
    fn a_written_frame_is_read_back() {
        assert_eq!(read(&write(delivery())), Ok(delivery()));
    }

    #[test]
    fn an_escaped_message_name_is_understood() {
        let written = write(delivery()).replace("{\"assign\"", "{\"\\u0061ssign\"");
        assert_eq!(read(&written), Ok(delivery()));
    }

    #[test]
    fn both_writers_produce_the_same_frame() {
        let by_hand: serde_json::Value =
            serde_json::from_str(&write(delivery())).expect("it is JSON");
        assert_eq!(by_hand, serde_json::to_value(frame(delivery())).expect("it can be written"));
    }
}
