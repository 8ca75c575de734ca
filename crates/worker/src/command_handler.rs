//! The handler of commands: passes their output on while they run, and turns exit codes into
//! outcomes.

use filch_api::session::OutputStream;
use serde_json::value::RawValue;

use crate::command::{self, Command, How, Runner};
use crate::handler::{Attempt, Ended, Outcome};
use crate::shell::Happened;

/// How long a job waits after this worker could not guard it any more.
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
        How::Unstarted(why) => Outcome::Unstarted(why),
        How::Interrupted(_) => Outcome::Snoozed(SNOOZE),
    };
    Ended { outcome, log: (!finished.log.is_empty()).then_some(finished.log) }
}

/// Decodes bytes to text; a character may be split between two reads.
#[derive(Default)]
struct Text {
    rest: Vec<u8>,
}

impl Text {
    /// The text so far; an incomplete character waits for its rest.
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
    fn a_split_character_is_decoded() {
        let mut text = Text::default();
        let bytes = "aé😀z".as_bytes();
        let read: String = bytes.iter().map(|&byte| text.add(&[byte])).collect();
        assert_eq!(read, "aé😀z");
        assert_eq!(text.add(b"\xffa"), "\u{fffd}a");
    }
}
