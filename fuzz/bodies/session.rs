//! Messages between a worker and the server: as arbitrary text, and as arbitrary values of the
//! message types.
//!
//! The first byte chooses: after `u` comes the text of a frame to the server, after `d` one to the
//! worker; after any other byte, the rest of the input builds a message to the worker.

use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Arbitrary as _, Result, Unstructured};
use filch_api::delivery;
use filch_api::session::{Arrived, DownFrame, UpFrame};
use filch_scheduler::id::{CommitNo, Fence, Hold, JobId, MessageNo, QuestionNo, Seq, SessionNo};
use filch_scheduler::message::{
    Assignment, Delivery, Placement, Serves, StartMode, Suspects, ToWorker, WorkerBatch,
};
use filch_scheduler::name::Name;
use filch_scheduler::time::Millis;

pub(crate) fn run(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    match (first, str::from_utf8(rest)) {
        (b'u', Ok(text)) => up(text),
        (b'd', Ok(text)) => {
            if let Ok(delivery) = delivery::read(text) {
                serde_json::from_str::<DownFrame>(text).expect("both ways to read a frame agree");
                down(delivery);
            }
        }
        (b'u' | b'd', Err(_)) => {}
        _ => {
            if let Ok(delivery) = delivery(&mut Unstructured::new(rest)) {
                down(delivery);
            }
        }
    }
}

/// A frame that can be read can be written and read again, with the same meaning.
fn up(text: &str) {
    let arrived = Arrived::read(text);
    let Ok(frame) = serde_json::from_str::<UpFrame>(text) else { return };
    let written = serde_json::to_string(&frame).expect("a frame can be written");
    let again: UpFrame = serde_json::from_str(&written).expect("a written frame can be read");
    assert_eq!(serde_json::to_string(&again).expect("a frame can be written"), written);
    let (Ok(heard), again) = (frame.hear(), again.hear()) else { return };
    same(&heard, &arrived.expect("the same frame, read message by message").batch);
    same(&heard, &again.expect("the same frame was valid before"));

    // Built from its messages again, the frame is the same.
    let WorkerBatch { worker, session, number, ref messages } = heard;
    let said = UpFrame::say(worker, session, number, messages);
    let said = said.hear().expect("a worker sends valid frames");
    assert_eq!(said.messages, heard.messages);
}

fn same(one: &WorkerBatch, other: &WorkerBatch) {
    assert_eq!((one.worker, one.session, one.number), (other.worker, other.session, other.number));
    assert_eq!(one.messages, other.messages);
}

/// Both ways to write a delivery agree, and reading brings it back.
fn down(delivery: Delivery) {
    let written = delivery::write(delivery.clone());
    let frame: DownFrame = serde_json::from_str(&written).expect("a written frame can be read");
    let by_hand = serde_json::to_string(&frame).expect("a frame can be written");
    let by_parts =
        serde_json::to_string(&delivery::frame(delivery.clone())).expect("a frame can be written");
    assert_eq!(by_hand, by_parts);
    assert_eq!(delivery::read(&written), Ok(delivery));
}

/// Any message that the server could send.
fn delivery(chance: &mut Unstructured<'_>) -> Result<Delivery> {
    let mut works = Vec::new();
    let mut messages = Vec::new();
    for _ in 0..chance.int_in_range(0..=6)? {
        messages.push(message(chance, &mut works)?);
    }
    let (session, number) =
        (SessionNo(u64::arbitrary(chance)?), MessageNo(u64::arbitrary(chance)?));
    let grace = Option::<u32>::arbitrary(chance)?;
    let grace = grace.map(|millis| Duration::from_millis(millis.into()));
    Ok(Delivery { session, number, messages, works, grace })
}

fn message(chance: &mut Unstructured<'_>, works: &mut Vec<(Hold, Arc<str>)>) -> Result<ToWorker> {
    Ok(match chance.int_in_range(0..=9)? {
        0 => ToWorker::Reconcile {
            lease: Duration::from_millis(u32::arbitrary(chance)?.into()),
            keep: holds(chance)?,
        },
        1..=3 => {
            let mut jobs = Vec::new();
            for _ in 0..chance.int_in_range(0..=4)? {
                let job = assignment(chance)?;
                works.push((job.hold, work(chance)?));
                jobs.push(job);
            }
            ToWorker::Assign(jobs)
        }
        4 => ToWorker::AskToGive {
            question: QuestionNo(u64::arbitrary(chance)?),
            most: u32::arbitrary(chance)?,
            most_bound: u32::arbitrary(chance)?,
            suspects: *chance.choose(&[Suspects::Move, Suspects::Stay])?,
            serves: match bool::arbitrary(chance)? {
                true => Serves::All,
                false => Serves::Named([name(chance)?, name(chance)?].into_iter().collect()),
            },
        },
        5 => ToWorker::StartGranted(hold(chance)?),
        6 => ToWorker::Cancel(hold(chance)?),
        7 => ToWorker::Refused { hold: hold(chance)?, current: fence(chance)? },
        8 => ToWorker::Accepted(holds(chance)?),
        _ => chance
            .choose(&[ToWorker::DrainNow, ToWorker::Gone, ToWorker::Renewed(MessageNo(3))])?
            .clone(),
    })
}

fn assignment(chance: &mut Unstructured<'_>) -> Result<Assignment> {
    Ok(Assignment {
        hold: hold(chance)?,
        id: JobId(u128::arbitrary(chance)?),
        queue: name(chance)?,
        kind: name(chance)?,
        era: CommitNo(u64::arbitrary(chance)?),
        rank: i64::arbitrary(chance)?,
        attempt: u16::arbitrary(chance)?,
        start: *chance.choose(&[StartMode::Freely, StartMode::Confirmed])?,
        place: *chance.choose(&[Placement::Anywhere, Placement::FreeSlot])?,
        timeout: Option::<u32>::arbitrary(chance)?.map(Millis),
    })
}

fn name(chance: &mut Unstructured<'_>) -> Result<Name> {
    <&str>::arbitrary(chance).map(Name::from)
}

fn hold(chance: &mut Unstructured<'_>) -> Result<Hold> {
    Ok(Hold { job: Seq(u64::arbitrary(chance)?), fence: Fence(u64::arbitrary(chance)?) })
}

fn holds(chance: &mut Unstructured<'_>) -> Result<Vec<Hold>> {
    (0..chance.int_in_range(0..=3)?).map(|_| hold(chance)).collect()
}

fn fence(chance: &mut Unstructured<'_>) -> Result<Option<Fence>> {
    Ok(Option::<u64>::arbitrary(chance)?.map(Fence))
}

fn work(chance: &mut Unstructured<'_>) -> Result<Arc<str>> {
    let works = ["{}", r#"{"run":["a",""]}"#, r#"{"args":123456789012345678901234567890.10}"#];
    Ok(Arc::from(*chance.choose(&works)?))
}
