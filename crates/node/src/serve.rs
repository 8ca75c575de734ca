//! The loop: a value comes in, a line goes out, until the input ends.

use std::fmt;
use std::io::{Read, Result, Write};

use crate::node::{Node, Remark};
use crate::stream::{Item, Stream};

/// Answers every message of `input` on `output`, each as soon as it is complete, and says on `talk` what
/// was wrong with what got no answer. Ends when the input does, or with the first error of `input` or
/// `output`; whether anybody listens to `talk` does not matter.
pub fn serve(
    input: impl Read,
    mut output: impl Write,
    mut talk: impl Write,
    seed: u64,
) -> Result<()> {
    let mut say = |words: fmt::Arguments<'_>| {
        let _ = writeln!(talk, "{words}");
    };
    let mut node = Node::new(seed);
    let mut stream = Stream::new(input);
    let mut answer = String::new();
    while let Some(item) = stream.next()? {
        match item {
            Item::Bad { at, flaw } => {
                say(format_args!("byte {at}: {}; skipped to the next line", flaw.text()));
            }
            Item::Value(value) => {
                let remark = node.handle(value, &mut answer);
                output.write_all(answer.as_bytes())?;
                output.flush()?;
                answer.clear();
                match remark {
                    Some(Remark::Ignored(why)) => say(format_args!("no message: {why}")),
                    Some(Remark::Simulated(summary)) => say(format_args!("{summary}")),
                    None => {}
                }
            }
        }
    }
    Ok(())
}
