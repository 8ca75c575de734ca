//! Traces: a line that can be read stays the same when it is written and read again, and an error
//! says what was expected.

use filch_scheduler::trace::{Context, Traced, parse, parse_line, print, print_line};
use filch_scheduler::{agent, dispatch, record};

pub(crate) fn run(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let (mut server, mut worker) = (Context::default(), Context::default());
    for line in text.lines() {
        if let Some(effect) = line.trim().strip_prefix("->") {
            there_and_back::<dispatch::DispatchEffect>(effect, &mut server);
            there_and_back::<agent::AgentEffect>(effect, &mut worker);
            continue;
        }
        there_and_back::<record::Loaded>(line, &mut server);
        moment::<dispatch::DispatchEvent>(line, &mut server);
        moment::<agent::AgentEvent>(line, &mut worker);
    }
}

fn moment<T: Traced + PartialEq + std::fmt::Debug>(line: &str, context: &mut Context) {
    let mut before = context.clone();
    match parse_line(line, context) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok((now, rest)) => {
            let written = print_line(now, rest, &mut before.clone());
            let again = parse_line(&written, &mut before).expect("a written line can be read");
            assert_eq!(again, (now, rest), "{written:?}");
            there_and_back::<T>(rest, context);
        }
    }
}

fn there_and_back<T: Traced + PartialEq + std::fmt::Debug>(text: &str, context: &mut Context) {
    match parse::<T>(text, context) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(value) => {
            let written = print(&value, context);
            let again = parse::<T>(&written, context);
            assert_eq!(again.as_ref(), Ok(&value), "{written:?}");
            value.learn(context);
        }
    }
}
