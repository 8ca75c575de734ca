//! Text from elsewhere on a person's terminal: what could move the cursor, ring or turn the reading order
//! is shown as JSON would write it, everything else as it is.
//!
//! Nothing that is printed can do without this (see `output`), and since the escapes are JSON's, a JSON
//! document still says the same afterwards.

use std::borrow::Cow;

/// The text in one line, without anything that a terminal obeys.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, is_obeyed)
}

/// The same of a whole text: its lines and columns stay.
pub(crate) fn escaped_lines(text: &str) -> Cow<'_, str> {
    escape(text, |character| is_obeyed(character) && !matches!(character, '\n' | '\t'))
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    let Some(first) = text.find(&is_escaped) else {
        return Cow::Borrowed(text);
    };
    let mut shown = String::with_capacity(text.len() + 8);
    shown.push_str(&text[..first]);
    for character in text[first..].chars() {
        match character {
            '\n' if is_escaped(character) => shown.push_str("\\n"),
            '\r' if is_escaped(character) => shown.push_str("\\r"),
            '\t' if is_escaped(character) => shown.push_str("\\t"),
            // None of them needs more than four digits.
            _ if is_escaped(character) => shown += &format!("\\u{:04x}", u32::from(character)),
            _ => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// A command as a shell would take it.
pub(crate) fn command(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn is_obeyed(character: char) -> bool {
    let turns = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let breaks_the_line = matches!(character, '\u{2028}' | '\u{2029}');
    turns || breaks_the_line || character.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        for (text, shown) in [
            ("plain Größe ✓", "plain Größe ✓"),
            ("a\u{1b}[2Jb", r"a\u001b[2Jb"),
            ("two\nlines\tand a bell\u{7}", r"two\nlines\tand a bell\u0007"),
            ("\u{9b}1m", r"\u009b1m"),
            ("gnp.\u{202e}exe", r"gnp.\u202eexe"),
        ] {
            assert_eq!(escaped(text), shown);
        }
        assert_eq!(escaped_lines("two\n\tlines\r\u{7f}"), "two\n\tlines\\r\\u007f");
    }

    #[test]
    fn json_says_the_same_afterwards() {
        let value: String = (0..0x3000).filter_map(char::from_u32).collect();
        for written in [serde_json::to_string(&value), serde_json::to_string_pretty(&[&value])] {
            let written = written.unwrap();
            let shown = escaped_lines(&written);
            assert!(!shown.chars().any(|character| character != '\n' && is_obeyed(character)));
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(read(&shown), read(&written));
        }
    }

    #[test]
    fn commands_can_be_pasted() {
        let words = ["sh", "-c", "echo 'a b'", "", "x=1"].map(str::to_owned);
        assert_eq!(command(&words), r"sh -c 'echo '\''a b'\''' '' x=1");
    }
}
