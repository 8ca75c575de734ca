//! Flow files: a file that is accepted, in any of the three formats, is also accepted by a server,
//! and stays the same when it is written as JSON and read again. An error names an existing line.
//!
//! The first byte chooses the format.

use std::path::Path;

use filch_api::flow::Flow;
use filch_api::flow_file::{File, Form};

pub(crate) fn run(input: &[u8]) {
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
            // The end of the text may count as one more line.
            let lines = text.bytes().filter(|&byte| byte == b'\n' || byte == b'\r').count() + 2;
            assert!(wrong.line.is_none_or(|line| (1..=lines).contains(&line)), "{wrong:?}");
        }
        Ok(flow) => {
            let written = serde_json::to_string(&flow).expect("a flow can be written");
            let sent = Flow::read(written.as_bytes()).expect("a server can read the flow");
            sent.validate(Some("key")).expect("a server accepts a valid flow");
            let again = read(Form::Json, &written).expect("a written flow can be read");
            assert_eq!(serde_json::to_string(&again).expect("a flow can be written"), written);
        }
    }
}
