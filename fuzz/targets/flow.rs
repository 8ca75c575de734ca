//! Files with flows: whichever form it was written in, what is read is what a server would take, and reads
//! the same once it is written as JSON; what is wrong is said with its line.
//!
//! The first byte chooses the form.

#![no_main]

use std::path::Path;

use filch_api::flow::Flow;
use filch_api::flow_file::{File, Form};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((form, text)) = input.split_first() else { return };
    let form = match form {
        b'j' => Form::Json,
        b't' => Form::Toml,
        _ => Form::Yaml,
    };
    let Ok(text) = str::from_utf8(text) else { return };
    let read = |form, text: &str| {
        File { path: Path::new("folder/flow"), text }.read(form, Path::new("/here"))
    };
    match read(form, text) {
        Err(wrong) => {
            assert!(!wrong.what.is_empty() && !wrong.help.is_empty(), "{wrong:?}");
            // The end of a text may be counted as a line of its own.
            let lines = text.bytes().filter(|&byte| byte == b'\n' || byte == b'\r').count() + 2;
            assert!(wrong.line.is_none_or(|line| (1..=lines).contains(&line)), "{wrong:?}");
        }
        Ok(flow) => {
            let written = serde_json::to_string(&flow).expect("it can be written");
            let sent = Flow::read(written.as_bytes()).expect("a server reads what is sent");
            sent.validate(Some("key")).expect("a server takes what was judged to be fine");
            let again = read(Form::Json, &written).expect("what was written can be read");
            assert_eq!(serde_json::to_string(&again).expect("it can be written"), written);
        }
    }
});
