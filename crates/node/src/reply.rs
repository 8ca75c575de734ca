//! Answers in the format of Python's `json.dumps`: one line, a space after each comma and colon,
//! pure ASCII, keys in the order in which they are added.

use std::fmt::{Display, Write as _};

/// An object being written.
pub(crate) struct Object<'a> {
    text: &'a mut String,
    is_empty: bool,
}

/// Writes one object as a line.
pub(crate) fn line(text: &mut String, fill: impl FnOnce(&mut Object<'_>)) {
    object(text, fill);
    text.push('\n');
}

fn object(text: &mut String, fill: impl FnOnce(&mut Object<'_>)) {
    text.push('{');
    fill(&mut Object { text, is_empty: true });
    text.push('}');
}

impl Object<'_> {
    pub(crate) fn string(&mut self, key: &str, value: &str) {
        self.key(key);
        quote(self.text, value);
    }

    pub(crate) fn number(&mut self, key: &str, value: impl Into<i128>) {
        self.key(key);
        write(self.text, value.into());
    }

    pub(crate) fn boolean(&mut self, key: &str, value: bool) {
        self.key(key);
        write(self.text, value);
    }

    pub(crate) fn object(&mut self, key: &str, fill: impl FnOnce(&mut Object<'_>)) {
        self.key(key);
        object(self.text, fill);
    }

    fn key(&mut self, key: &str) {
        if !self.is_empty {
            self.text.push_str(", ");
        }
        self.is_empty = false;
        quote(self.text, key);
        self.text.push_str(": ");
    }
}

fn quote(text: &mut String, value: &str) {
    text.push('"');
    for character in value.chars() {
        match character {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            ' '..='~' => text.push(character),
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write(text, format_args!("\\u{unit:04x}"));
                }
            }
        }
    }
    text.push('"');
}

fn write(text: &mut String, value: impl Display) {
    write!(text, "{value}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_as_python_does() {
        let mut text = String::new();
        quote(&mut text, "a \"b\" \\ / \u{8}\u{c}\n\r\t \0\u{1f}\u{7f} é\u{2028}😀");
        // Python's json.dumps("a \"b\" \\ / \b\f\n\r\t \0\x1f\x7f é\u2028😀")
        let expected = r#""a \"b\" \\ / \b\f\n\r\t \u0000\u001f\u007f \u00e9\u2028\ud83d\ude00""#;
        assert_eq!(text, expected);
    }

    #[test]
    fn objects_have_a_space_after_commas_and_colons() {
        let mut text = String::new();
        line(&mut text, |object| {
            object.object("a", |_| {});
            object.number("b", -1);
            object.boolean("c", true);
        });
        assert_eq!(text, "{\"a\": {}, \"b\": -1, \"c\": true}\n");
    }
}
