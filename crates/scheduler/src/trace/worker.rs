//! The words of `agent`: its events and effects.

use alloc::vec::Vec;

use super::server::{read_speaker, speaker_word};
use super::text::{Read, Reader, Words, Writer, words};
use crate::agent::{Effect, Event, Outcome, StopReason, Verdict};
use crate::id::{MessageNo, SessionNo, WorkerId};
use crate::message::{FromWorker, ToWorker};

words!(Outcome {
    Finished {} = ["finished"],
    Failed { again: again, error: error } = ["failed" again error],
    Snoozed { 0: wait } = ["snoozed" wait],
    Stopped {} = ["stopped"],
});

words!(StopReason {
    Cancelled {} = ["cancelled"],
    TimedOut {} = ["timed-out"],
    Drained {} = ["drained"],
    Fenced {} = ["fenced"],
});

words!(Verdict {
    Accepted {} = ["accepted"],
    Refused {} = ["refused"],
});

/// The server has no name of its own in an agent's trace.
const SERVER: &str = "server";

fn server_word(
    session: SessionNo,
    number: MessageNo,
    expected: (SessionNo, MessageNo),
) -> alloc::string::String {
    match (session, number) == expected {
        true => SERVER.into(),
        false => alloc::format!("{SERVER}/{}#{}", session.0, number.0),
    }
}

fn read_server(word: &str) -> Option<Option<(SessionNo, MessageNo)>> {
    let rest = word.strip_prefix(SERVER)?;
    if rest.is_empty() {
        return Some(None);
    }
    let (session, number) = rest.strip_prefix('/')?.split_once('#')?;
    Some(Some((
        SessionNo(session.parse().ok()?),
        MessageNo(number.parse().ok()?),
    )))
}

impl Words for Event {
    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Connected => writer.word("connected"),
            Self::Disconnected => writer.word("disconnected"),
            Self::Received {
                session,
                number,
                messages,
            } => {
                let word = server_word(*session, *number, writer.context.expected_of_server());
                writer.word(&word);
                writer.mark(':');
                writer.list(messages, ',');
            }
            Self::Ended { hold, outcome } => {
                writer.word("ended");
                hold.write(writer);
                outcome.write(writer);
            }
            Self::Progressed { hold, percent } => {
                writer.word("progressed");
                hold.write(writer);
                percent.write(writer);
            }
            Self::Drain { grace } => {
                writer.word("drain");
                grace.write(writer);
            }
            Self::Tick => writer.word("tick"),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        if let Some(numbers) = reader.peek_word().and_then(read_server) {
            reader.word("the server")?;
            reader.expect_mark(':')?;
            let messages: Vec<ToWorker> = if reader.is_at_end() {
                Vec::new()
            } else {
                reader.list(',')?
            };
            let (session, number) = numbers.unwrap_or_else(|| reader.context.expected_of_server());
            return Ok(Self::Received {
                session,
                number,
                messages,
            });
        }
        let wanted = reader.wanted("an event");
        match reader.word("an event")?.as_str() {
            "connected" => Ok(Self::Connected),
            "disconnected" => Ok(Self::Disconnected),
            "ended" => Ok(Self::Ended {
                hold: Words::read(reader)?,
                outcome: Words::read(reader)?,
            }),
            "progressed" => Ok(Self::Progressed {
                hold: Words::read(reader)?,
                percent: Words::read(reader)?,
            }),
            "drain" => Ok(Self::Drain {
                grace: Words::read(reader)?,
            }),
            "tick" => Ok(Self::Tick),
            _ => Err(wanted),
        }
    }
}

impl Words for Effect {
    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Connect { wait } => {
                writer.word("connect-in");
                wait.write(writer);
            }
            Self::Disconnect { session } => {
                writer.word("disconnect");
                session.write(writer);
            }
            Self::Send {
                worker,
                session,
                number,
                messages,
            } => {
                let is_hello = matches!(messages.first(), Some(FromWorker::Hello(_)));
                let expected = writer.context.expected(*worker, is_hello);
                writer.word(&speaker_word(*worker, *session, *number, expected));
                writer.mark(':');
                writer.list(messages, ',');
            }
            Self::Start(assignment) => {
                writer.word("run");
                assignment.write(writer);
            }
            Self::Stop { hold, why } => {
                writer.word("stop");
                hold.write(writer);
                why.write(writer);
            }
            Self::Answered { hold, verdict } => {
                writer.word("answered");
                hold.write(writer);
                verdict.write(writer);
            }
            Self::Leave => writer.word("leave"),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let speaker: Option<(WorkerId, _)> = reader.peek_word().and_then(read_speaker);
        if let Some((worker, numbers)) = speaker {
            reader.word("a worker")?;
            reader.expect_mark(':')?;
            let messages: Vec<FromWorker> = if reader.is_at_end() {
                Vec::new()
            } else {
                reader.list(',')?
            };
            let is_hello = matches!(messages.first(), Some(FromWorker::Hello(_)));
            let (session, number) =
                numbers.unwrap_or_else(|| reader.context.expected(worker, is_hello));
            return Ok(Self::Send {
                worker,
                session,
                number,
                messages,
            });
        }
        let wanted = reader.wanted("an effect");
        match reader.word("an effect")?.as_str() {
            "connect-in" => Ok(Self::Connect {
                wait: Words::read(reader)?,
            }),
            "disconnect" => Ok(Self::Disconnect {
                session: Words::read(reader)?,
            }),
            "run" => Ok(Self::Start(Words::read(reader)?)),
            "stop" => Ok(Self::Stop {
                hold: Words::read(reader)?,
                why: Words::read(reader)?,
            }),
            "answered" => Ok(Self::Answered {
                hold: Words::read(reader)?,
                verdict: Words::read(reader)?,
            }),
            "leave" => Ok(Self::Leave),
            _ => Err(wanted),
        }
    }
}
