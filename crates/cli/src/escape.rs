//! Text from elsewhere on a person's terminal: what could move the cursor, ring or turn the reading order
//! is shown as an escape, everything else as it is.

use std::borrow::Cow;

/// The text in one line, without anything that a terminal obeys.
pub(crate) fn escaped(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if is_obeyed(character) {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
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
    let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || character.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        for (text, shown) in [
            ("plain Größe ✓", "plain Größe ✓"),
            ("a\u{1b}[2Jb", r"a\u{1b}[2Jb"),
            ("two\nlines\tand a bell\u{7}", r"two\nlines\tand a bell\u{7}"),
            ("\u{9b}1m", r"\u{9b}1m"),
            ("gnp.\u{202e}exe", r"gnp.\u{202e}exe"),
        ] {
            assert_eq!(escaped(text), shown);
        }
    }

    #[test]
    fn commands_can_be_pasted() {
        let words = ["sh", "-c", "echo 'a b'", "", "x=1"].map(str::to_owned);
        assert_eq!(command(&words), r"sh -c 'echo '\''a b'\''' '' x=1");
    }
}
