//! The text form of the events and effects of `agent`.

use alloc::format;
use alloc::vec::Vec;

use super::server::read_numbers;
use super::text::{Read, Reader, Words, Writer, words};
use crate::agent::{AgentEffect, AgentEvent, StopReason, Verdict};
use crate::id::{MessageNo, SessionNo, WorkerId};
use crate::message::{FromWorker, ToWorker};

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

/// The server has no name in an agent's trace.
const SERVER: &str = "server";

fn server_word(
    session: SessionNo,
    number: MessageNo,
    expected: (SessionNo, MessageNo),
) -> alloc::string::String {
    match (session, number) == expected {
        true => SERVER.into(),
        false => format!("{SERVER}/{}#{}", session.0, number.0),
    }
}

fn read_server(word: &str) -> Option<Option<(SessionNo, MessageNo)>> {
    let rest = word.strip_prefix(SERVER)?;
    if rest.is_empty() {
        return Some(None);
    }
    Some(Some(read_numbers(rest.strip_prefix('/')?)?))
}

impl Words for AgentEvent {
    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Connected => writer.word("connected"),
            Self::Disconnected => writer.word("disconnected"),
            Self::Received { session, number, messages } => {
                let word = server_word(*session, *number, writer.known.before.expected_of_server());
                writer.word(&word);
                writer.mark(':');
                writer.list(messages, ',');
            }
            Self::Ended(report) => {
                writer.word("ended");
                report.write(writer);
            }
            Self::Progressed { hold, percent } => {
                writer.word("progressed");
                hold.write(writer);
                percent.write(writer);
            }
            Self::Idle => writer.word("idle"),
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
            let messages: Vec<ToWorker> = reader.list(',')?;
            let (session, number) =
                numbers.unwrap_or_else(|| reader.known.before.expected_of_server());
            return Ok(Self::Received { session, number, messages });
        }
        let wanted = reader.wanted("an event");
        match reader.word("an event")?.as_str() {
            "connected" => Ok(Self::Connected),
            "disconnected" => Ok(Self::Disconnected),
            "ended" => Ok(Self::Ended(Words::read(reader)?)),
            "progressed" => {
                Ok(Self::Progressed { hold: Words::read(reader)?, percent: Words::read(reader)? })
            }
            "idle" => Ok(Self::Idle),
            "drain" => Ok(Self::Drain { grace: Words::read(reader)? }),
            "tick" => Ok(Self::Tick),
            _ => Err(wanted),
        }
    }
}

impl Words for AgentEffect {
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
            Self::Send { worker, session, number, messages } => {
                let is_hello = matches!(messages.first(), Some(FromWorker::Hello(_)));
                let expected = writer.known.before.expected(*worker, is_hello);
                writer.word("say");
                if writer.known.before.speaker != Some(*worker) {
                    writer.word("as");
                    worker.write(writer);
                }
                if (*session, *number) != expected {
                    writer.word(&format!("{}#{}", session.0, number.0));
                }
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
        if reader.take_word("say") {
            return read_say(reader);
        }
        let wanted = reader.wanted("an effect");
        match reader.word("an effect")?.as_str() {
            "connect-in" => Ok(Self::Connect { wait: Words::read(reader)? }),
            "disconnect" => Ok(Self::Disconnect { session: Words::read(reader)? }),
            "run" => Ok(Self::Start(Words::read(reader)?)),
            "stop" => Ok(Self::Stop { hold: Words::read(reader)?, why: Words::read(reader)? }),
            "answered" => {
                Ok(Self::Answered { hold: Words::read(reader)?, verdict: Words::read(reader)? })
            }
            "leave" => Ok(Self::Leave),
            _ => Err(wanted),
        }
    }
}

/// `say as w1 2#7: heartbeat`, of which only the first word and the messages are required.
fn read_say(reader: &mut Reader<'_>) -> Read<AgentEffect> {
    let wanted = reader.wanted("the worker that speaks");
    let worker = match reader.take_word("as") {
        true => WorkerId::read(reader)?,
        false => reader.known.before.speaker.ok_or(wanted)?,
    };
    let wanted = reader.wanted("a session and a number such as `2#7`");
    let numbers = match reader.take_mark(':') {
        true => None,
        false => {
            let word = reader.word("a session")?;
            reader.expect_mark(':')?;
            Some(read_numbers(&word).ok_or(wanted)?)
        }
    };
    let messages: Vec<FromWorker> = reader.list(',')?;
    let is_hello = matches!(messages.first(), Some(FromWorker::Hello(_)));
    let (session, number) =
        numbers.unwrap_or_else(|| reader.known.before.expected(worker, is_hello));
    Ok(AgentEffect::Send { worker, session, number, messages })
}
