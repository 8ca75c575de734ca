//! The loop: reads a value and writes a line, until the input ends.

use std::fmt;
use std::io::{Read, Result, Write};

use crate::node::{LogNote, Node};
use crate::stream::{Item, Stream};

/// Answers every message of `input` on `output`, each as soon as it is complete, and logs to `log`
/// why an input got no answer. Returns at the end of the input, or with the first error of `input`
/// or `output`. Errors of `log` are ignored.
pub fn serve(
    input: impl Read,
    mut output: impl Write,
    mut log: impl Write,
    seed: u64,
) -> Result<()> {
    let mut log_line = |text: fmt::Arguments<'_>| {
        let _ = writeln!(log, "{text}");
    };
    let mut node = Node::new(seed);
    let mut stream = Stream::new(input);
    let mut answer = String::new();
    while let Some(item) = stream.next()? {
        match item {
            Item::Bad { at, flaw } => {
                log_line(format_args!("byte {at}: {}; skipped to the next line", flaw.text()));
            }
            Item::Value(value) => {
                let note = node.handle(value, &mut answer);
                output.write_all(answer.as_bytes())?;
                output.flush()?;
                answer.clear();
                match note {
                    Some(LogNote::Ignored(why)) => log_line(format_args!("ignored a value: {why}")),
                    Some(LogNote::Simulated(summary)) => log_line(format_args!("{summary}")),
                    None => {}
                }
            }
        }
    }
    Ok(())
}
