//! Escapes control characters and characters that change the reading order in text that we print.
//!
//! `output` applies this to everything. The escapes are those of JSON, so an escaped JSON document
//! still has the same value.

use std::borrow::Cow;

/// The text on one line, with control characters escaped.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    escape(text, is_control)
}

/// The same, but newlines and tabs stay.
pub(crate) fn escaped_lines(text: &str) -> Cow<'_, str> {
    escape(text, |character| is_control(character) && !matches!(character, '\n' | '\t'))
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
            // None of these characters needs more than four digits.
            _ if is_escaped(character) => shown += &format!("\\u{:04x}", u32::from(character)),
            _ => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// A command, quoted for a shell.
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

fn is_control(character: char) -> bool {
    let changes_direction = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let breaks_the_line = matches!(character, '\u{2028}' | '\u{2029}');
    changes_direction || breaks_the_line || character.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
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
    fn escaped_json_has_the_same_value() {
        let value: String = (0..0x3000).filter_map(char::from_u32).collect();
        for written in [serde_json::to_string(&value), serde_json::to_string_pretty(&[&value])] {
            let written = written.unwrap();
            let shown = escaped_lines(&written);
            assert!(!shown.chars().any(|character| character != '\n' && is_control(character)));
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            assert_eq!(read(&shown), read(&written));
        }
    }

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let words = ["sh", "-c", "echo 'a b'", "", "x=1"].map(str::to_owned);
        assert_eq!(command(&words), r"sh -c 'echo '\''a b'\''' '' x=1");
    }
}
