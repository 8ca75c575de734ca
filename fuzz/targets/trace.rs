//! Traces: whatever can be read as a line of one is written and read again, the same; what cannot be read
//! says what was expected.

#![no_main]

use filch_scheduler::trace::{Context, Traced, parse, parse_line, print, print_line};
use filch_scheduler::{agent, dispatch, record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
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
});

fn moment<T: Traced + PartialEq + std::fmt::Debug>(line: &str, context: &mut Context) {
    let mut before = context.clone();
    match parse_line(line, context) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok((now, rest)) => {
            let written = print_line(now, rest, &mut before.clone());
            let again = parse_line(&written, &mut before).expect("what was written can be read");
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
