//! Finds the end of a JSON value byte by byte, in whatever pieces the input arrives.
//!
//! Invalid JSON is detected at its first wrong byte, without waiting for more input. Only the
//! syntax is checked here, not the meaning of a value, and not whether its bytes are UTF-8.

use crate::limits;

/// The state of a scanner that has read the start of a value.
#[derive(Debug)]
pub(crate) struct Scan {
    state: State,
    /// One bit for each open array (0) or object (1), the innermost lowest.
    objects: u128,
    depth: u8,
}

const _: () = assert!(limits::DEPTH as u32 <= u128::BITS, "one bit for each level");

/// The result of scanning some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All bytes belong to the value, which continues.
    More,
    /// The value ends before the byte of this index.
    Ends(usize),
    Bad(Flaw),
}

/// What is wrong with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    NotJson,
    LoneSurrogate,
    NotUtf8,
    TooDeep,
    TooLong,
    CutShort,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Value,
    /// After `[`.
    ValueOrEnd,
    /// After `{`.
    KeyOrEnd,
    Key,
    Colon,
    CommaOrEnd,
    Text(Role),
    Escape(Role),
    /// After `\u`: how many digits are missing, the digits read, and whether a high surrogate came
    /// before.
    Hex {
        role: Role,
        missing: u8,
        digits: u16,
        high: bool,
    },
    /// A high surrogate was read: a backslash must follow, then a `u`.
    Pair {
        role: Role,
        backslash: bool,
    },
    /// The remaining bytes of `true`, `false` or `null`.
    Word(&'static [u8]),
    Number(Number),
    Ended,
}

/// Whether a string is a key or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Key,
    Value,
}

/// The part of a number that was read last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
}

impl Scan {
    pub(crate) const fn new() -> Self {
        Self { state: State::Value, objects: 0, depth: 0 }
    }

    /// Scans more bytes. It must not be called again unless it returned `More`.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Progress {
        let mut index = 0;
        while index < bytes.len() {
            if let State::Text(_) = self.state {
                // Fast path: most input is plain text within strings.
                index += bytes[index..]
                    .iter()
                    .position(|byte| matches!(byte, b'"' | b'\\' | ..=0x1f))
                    .unwrap_or(bytes.len() - index);
                if index == bytes.len() {
                    break;
                }
            }
            // The byte after a number does not belong to it.
            if let State::Number(number) = self.state {
                match number.then(bytes[index]) {
                    Some(number) => {
                        self.state = State::Number(number);
                        index += 1;
                        continue;
                    }
                    None if !number.may_end() => return Progress::Bad(Flaw::NotJson),
                    None => self.state = self.after_value(),
                }
            }
            if let State::Ended = self.state {
                return Progress::Ends(index);
            }
            match self.step(bytes[index]) {
                Ok(state) => self.state = state,
                Err(flaw) => return Progress::Bad(flaw),
            }
            index += 1;
        }
        if let State::Ended = self.state { Progress::Ends(index) } else { Progress::More }
    }

    /// Whether the value is complete if the input ends here.
    pub(crate) fn ends_here(&self) -> bool {
        matches!(self.state, State::Number(number) if self.depth == 0 && number.may_end())
    }

    fn step(&mut self, byte: u8) -> Result<State, Flaw> {
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        let state = match self.state {
            State::Value
            | State::ValueOrEnd
            | State::KeyOrEnd
            | State::Key
            | State::Colon
            | State::CommaOrEnd
                if is_space =>
            {
                self.state
            }
            State::ValueOrEnd if byte == b']' => self.close(),
            State::Value | State::ValueOrEnd => self.begin(byte)?,
            State::KeyOrEnd if byte == b'}' => self.close(),
            State::Key | State::KeyOrEnd if byte == b'"' => State::Text(Role::Key),
            State::Colon if byte == b':' => State::Value,
            State::CommaOrEnd => match (byte, self.in_object()) {
                (b',', true) => State::Key,
                (b',', false) => State::Value,
                (b'}', true) | (b']', false) => self.close(),
                _ => return Err(Flaw::NotJson),
            },
            State::Text(Role::Key) if byte == b'"' => State::Colon,
            State::Text(Role::Value) if byte == b'"' => self.after_value(),
            State::Text(role) if byte == b'\\' => State::Escape(role),
            State::Text(role) if byte >= b' ' => State::Text(role),
            State::Escape(role) => match byte {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => State::Text(role),
                b'u' => State::Hex { role, missing: 4, digits: 0, high: false },
                _ => return Err(Flaw::NotJson),
            },
            State::Hex { role, missing, digits, high } => {
                let digit = (byte as char).to_digit(16).ok_or(Flaw::NotJson)?;
                let digits = digits << 4 | digit as u16;
                match (missing, digits, high) {
                    (2.., _, _) => State::Hex { role, missing: missing - 1, digits, high },
                    (_, 0xd800..=0xdbff, false) => State::Pair { role, backslash: false },
                    (_, 0xdc00..=0xdfff, true) => State::Text(role),
                    (_, 0xdc00..=0xdfff, false) | (_, _, true) => return Err(Flaw::LoneSurrogate),
                    _ => State::Text(role),
                }
            }
            State::Pair { role, backslash: false } if byte == b'\\' => {
                State::Pair { role, backslash: true }
            }
            State::Pair { role, backslash: true } if byte == b'u' => {
                State::Hex { role, missing: 4, digits: 0, high: true }
            }
            State::Pair { .. } => return Err(Flaw::LoneSurrogate),
            State::Word(rest) if rest[0] == byte => match &rest[1..] {
                [] => self.after_value(),
                rest => State::Word(rest),
            },
            State::KeyOrEnd | State::Key | State::Colon | State::Text(_) | State::Word(_) => {
                return Err(Flaw::NotJson);
            }
            State::Number(_) | State::Ended => unreachable!("the caller handles both"),
        };
        Ok(state)
    }

    /// Reads the first byte of a value.
    fn begin(&mut self, byte: u8) -> Result<State, Flaw> {
        Ok(match byte {
            b'{' => self.open(true)?,
            b'[' => self.open(false)?,
            b'"' => State::Text(Role::Value),
            b'-' => State::Number(Number::Minus),
            b'0' => State::Number(Number::Zero),
            b'1'..=b'9' => State::Number(Number::Whole),
            b't' => State::Word(b"rue"),
            b'f' => State::Word(b"alse"),
            b'n' => State::Word(b"ull"),
            _ => return Err(Flaw::NotJson),
        })
    }

    fn open(&mut self, object: bool) -> Result<State, Flaw> {
        if self.depth == limits::DEPTH {
            return Err(Flaw::TooDeep);
        }
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(object);
        Ok(if object { State::KeyOrEnd } else { State::ValueOrEnd })
    }

    const fn close(&mut self) -> State {
        self.depth -= 1;
        self.objects >>= 1;
        self.after_value()
    }

    const fn after_value(&self) -> State {
        if self.depth == 0 { State::Ended } else { State::CommaOrEnd }
    }

    const fn in_object(&self) -> bool {
        self.objects & 1 == 1
    }
}

impl Number {
    /// The state after one more byte, if it belongs to the number.
    const fn then(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Minus, b'0') => Self::Zero,
            (Self::Minus, b'1'..=b'9') | (Self::Whole, b'0'..=b'9') => Self::Whole,
            (Self::Zero | Self::Whole, b'.') => Self::Point,
            (Self::Point | Self::Fraction, b'0'..=b'9') => Self::Fraction,
            (Self::Zero | Self::Whole | Self::Fraction, b'e' | b'E') => Self::Exponent,
            (Self::Exponent, b'+' | b'-') => Self::ExponentSign,
            (Self::Exponent | Self::ExponentSign | Self::ExponentDigits, b'0'..=b'9') => {
                Self::ExponentDigits
            }
            _ => return None,
        })
    }

    const fn may_end(self) -> bool {
        matches!(self, Self::Zero | Self::Whole | Self::Fraction | Self::ExponentDigits)
    }
}

impl Flaw {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::NotJson => "not JSON",
            Self::LoneSurrogate => "unpaired surrogate",
            Self::NotUtf8 => "not UTF-8",
            Self::TooDeep => "nested more than 128 levels deep",
            Self::TooLong => "longer than 1048576 bytes",
            Self::CutShort => "input ended in the middle of a value",
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scan(text: &str) -> Progress {
        Scan::new().read(text.as_bytes())
    }

    #[test]
    fn a_value_ends_where_the_next_begins() {
        assert_eq!(scan("{}{}"), Progress::Ends(2));
        assert_eq!(scan("12 34"), Progress::Ends(2));
        assert_eq!(scan("-1.5e+3[]"), Progress::Ends(7));
        assert_eq!(scan("01"), Progress::Ends(1));
        assert_eq!(scan("nulltrue"), Progress::Ends(4));
        assert_eq!(scan("\"a\\\"b\"c"), Progress::Ends(6));
    }

    #[test]
    fn invalid_json_is_detected_at_its_first_wrong_byte() {
        for bad in [
            "}",
            "{,",
            "{\"a\",",
            "[1 2",
            "[1,]",
            "{\"a\":1,}",
            "\"\n",
            "\"\\x",
            "-a",
            "1.x",
            "nul ",
        ] {
            let before = &bad[..bad.len() - 1];
            assert_eq!(scan(bad), Progress::Bad(Flaw::NotJson), "{bad}");
            if !before.is_empty() {
                assert_eq!(scan(before), Progress::More, "{before}");
            }
        }
    }

    #[test]
    fn surrogates_come_in_pairs() {
        assert_eq!(scan(r#""\ud83d\ude00""#), Progress::Ends(14));
        for lone in [r#""\ud83d""#, r#""\ud83dx"#, r#""\ud83d\n"#, r#""\ud83d\ud83d"#, r#""\ude00"#]
        {
            assert_eq!(scan(lone), Progress::Bad(Flaw::LoneSurrogate), "{lone}");
        }
    }

    #[test]
    fn only_a_number_can_end_with_the_input() {
        for (text, ends) in [("1", true), ("0", true), ("1.5", true), ("1e9", true)]
            .into_iter()
            .chain([("-", false), ("1.", false), ("1e", false), ("[1", false), ("tru", false)])
        {
            let mut scan = Scan::new();
            assert_eq!(scan.read(text.as_bytes()), Progress::More);
            assert_eq!(scan.ends_here(), ends, "{text}");
        }
    }

    proptest! {
        /// For any sequence of JSON tokens after an opening bracket, the scanner agrees with
        /// `serde_json`.
        #[test]
        fn the_scanner_agrees_with_serde_json(
            open in "[\\[{]",
            pieces in proptest::collection::vec(
                proptest::sample::select(vec![
                    "{", "}", "[", "]", ",", ":", "\"a\"", "\"", "\\n", "1", "-", "0", ".5", "e7", "true", "nul",
                    "l", " ", "\n", "é", "\\u00e9", "x",
                ]),
                0..12,
            ),
        ) {
            let text = open + &pieces.concat();
            let mut values = serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>();
            let expected = match values.next().expect("there is a bracket") {
                Ok(_) => Progress::Ends(values.byte_offset()),
                Err(error) if error.is_eof() => Progress::More,
                Err(_) => Progress::Bad(Flaw::NotJson),
            };
            prop_assert_eq!(scan(&text), expected, "{}", text);
        }
    }
}
