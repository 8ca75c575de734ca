//! A command as an attempt at a job: what it prints is passed on as it comes, and its exit code decides.

use filch_api::session::OutputStream;
use serde_json::value::RawValue;

use crate::command::{self, Command, How, Runner};
use crate::handler::{Attempt, Ended, Outcome};
use crate::shell::Happened;

/// How long a job waits that could not be run through no fault of its own.
const SNOOZE: std::time::Duration = std::time::Duration::from_secs(1);

pub(crate) async fn run(runner: &Runner, mut attempt: Attempt) -> Ended {
    let work = attempt.work();
    let command = Command {
        argv: work.run.unwrap_or_default(),
        stdin: work.args.as_deref().map_or_else(String::new, |args| RawValue::get(args).to_owned()),
        env: work.env,
        dir: work.dir.map(Into::into),
        job: attempt.job(),
        attempt: attempt.number(),
        fence: attempt.fence(),
        traceparent: work.traceparent,
    };
    let (hold, happened) = (attempt.assignment.hold, attempt.happened.clone());
    let mut texts = [Text::default(), Text::default()];
    let output = move |stream, bytes: &[u8]| {
        let (stream, text) = match stream {
            command::Stream::Stdout => (OutputStream::Stdout, &mut texts[0]),
            command::Stream::Stderr => (OutputStream::Stderr, &mut texts[1]),
        };
        let text = text.add(bytes);
        if !text.is_empty() {
            let _ = happened.send(Happened::Printed { hold, stream, text });
        }
    };
    let finished = runner.run(command, output, attempt.stopped()).await;
    let failed = |how: String| match &finished.last_words {
        Some(said) => Outcome::failed(format!("{how}: {said}")),
        None => Outcome::failed(how),
    };
    let outcome = match finished.how {
        How::Exited(0) => Outcome::Finished(finished.result),
        How::Exited(code) => failed(format!("exit code {code}")),
        How::Signalled(signal) => failed(format!("killed by signal {signal}")),
        How::NotStarted(why) => Outcome::failed(why),
        How::Stopped => Outcome::Stopped,
        How::Interrupted(_) => Outcome::Snoozed(SNOOZE),
    };
    Ended { outcome, log: (!finished.log.is_empty()).then_some(finished.log) }
}

/// Bytes as text, where a character may be cut in two.
#[derive(Default)]
struct Text {
    rest: Vec<u8>,
}

impl Text {
    /// What can be read so far; the beginning of a character waits for its end.
    fn add(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let keep = match std::str::from_utf8(&self.rest) {
            Err(error) if error.error_len().is_none() => self.rest.len() - error.valid_up_to(),
            _ => 0,
        };
        let rest = self.rest.split_off(self.rest.len() - keep);
        let text = String::from_utf8_lossy(&self.rest).into_owned();
        self.rest = rest;
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_is_cut_in_two_is_read_whole() {
        let mut text = Text::default();
        let bytes = "aé😀z".as_bytes();
        let read: String = bytes.iter().map(|&byte| text.add(&[byte])).collect();
        assert_eq!(read, "aé😀z");
        assert_eq!(text.add(b"\xffa"), "\u{fffd}a");
    }
}
