//! Reading and writing words: the basis of the trace language.
//!
//! A line consists of words, quoted texts and the marks `[ ] ; , :`. Every type that appears in a
//! trace defines in one place how it is written and read; for closed enums the `words!` macro
//! generates both from one line, so that they cannot differ.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::Context;
use crate::id::{
    CommitNo, Digest, Fence, FetchNo, Hold, JobId, LeaseNo, MessageNo, QuestionNo, RequestNo, Seq,
    SessionNo, WorkerId,
};
use crate::message::ErrorText;
use crate::name::Name;
use crate::record::StoredText;
use crate::time::{Duration, Millis, Monotonic, Wall};

/// A line that cannot be read, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceError(pub(super) String);

impl fmt::Display for TraceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl core::error::Error for TraceError {}

pub(super) type Read<T> = Result<T, TraceError>;

/// A type that has a text form in a trace.
pub(super) trait Words: Sized {
    /// Whether it is always a single word, so that a list of it needs no marks in between.
    const ONE_WORD: bool = false;
    fn write(&self, writer: &mut Writer<'_>);
    fn read(reader: &mut Reader<'_>) -> Read<Self>;
}

/// What the words to come can leave out: facts from earlier lines, and from this one so far.
pub(super) struct Known<'a> {
    pub(super) before: &'a Context,
    here: Context,
}

impl<'a> Known<'a> {
    fn new(before: &'a Context) -> Self {
        Self { before, here: Context::default() }
    }

    pub(super) fn id_of(&self, seq: Seq) -> Option<JobId> {
        self.before.id_of(seq).or_else(|| self.here.id_of(seq))
    }

    pub(super) fn seq_of(&self, id: JobId) -> Option<Seq> {
        self.before.seq_of(id).or_else(|| self.here.seq_of(id))
    }

    /// Learns of a job that earlier lines have not mentioned.
    pub(super) fn meet(&mut self, seq: Seq, id: JobId) {
        if self.before.id_of(seq).is_none() && self.before.seq_of(id).is_none() {
            self.here.meet(seq, id);
        }
    }
}

/// Writes a line.
pub(super) struct Writer<'a> {
    pub(super) known: Known<'a>,
    line: String,
}

impl<'a> Writer<'a> {
    pub(super) fn new(context: &'a Context) -> Self {
        Self { known: Known::new(context), line: String::new() }
    }

    pub(super) fn finish(self) -> String {
        self.line
    }

    /// A word, after a space if one is due.
    pub(super) fn word(&mut self, word: &str) {
        if !self.line.is_empty() && !self.line.ends_with('[') {
            self.line.push(' ');
        }
        self.line.push_str(word);
    }

    /// A mark, right behind the word before it.
    pub(super) fn mark(&mut self, mark: char) {
        if mark == '[' && !self.line.is_empty() && !self.line.ends_with('[') {
            self.line.push(' ');
        }
        self.line.push(mark);
    }

    /// `word value`, unless the value is the default.
    pub(super) fn field<T: Words + PartialEq>(&mut self, word: &str, value: &T, default: &T) {
        if value != default {
            self.word(word);
            value.write(self);
        }
    }

    /// Several values with a mark between them.
    pub(super) fn list<T: Words>(&mut self, values: &[T], mark: char) {
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                self.mark(mark);
            }
            value.write(self);
        }
    }
}

/// A token of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Word(String),
    Quoted(String),
    Mark(char),
}

const MARKS: &[char] = &['[', ']', ';', ',', ':'];

/// Splits a line into tokens and reads them.
pub(super) struct Reader<'a> {
    pub(super) known: Known<'a>,
    tokens: Vec<Token>,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(line: &str, context: &'a Context) -> Read<Self> {
        Ok(Self { known: Known::new(context), tokens: tokens(line)?, at: 0 })
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn is_at_end(&self) -> bool {
        self.at == self.tokens.len()
    }

    /// The next word, without taking it.
    pub(super) fn peek_word(&self) -> Option<&str> {
        match self.peek() {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// Takes this word if it is next.
    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let is_next = self.peek_word() == Some(word);
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn take_mark(&mut self, mark: char) -> bool {
        let is_next = self.peek() == Some(&Token::Mark(mark));
        self.at += usize::from(is_next);
        is_next
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Read<()> {
        if self.take_word(word) { Ok(()) } else { Err(self.wanted(&format!("`{word}`"))) }
    }

    pub(super) fn expect_mark(&mut self, mark: char) -> Read<()> {
        if self.take_mark(mark) { Ok(()) } else { Err(self.wanted(&format!("`{mark}`"))) }
    }

    pub(super) fn expect_end(&self) -> Read<()> {
        if self.is_at_end() { Ok(()) } else { Err(self.wanted("the end of the line")) }
    }

    /// Any word.
    pub(super) fn word(&mut self, what: &str) -> Read<String> {
        let word = self.peek_word().map(ToOwned::to_owned).ok_or_else(|| self.wanted(what))?;
        self.at += 1;
        Ok(word)
    }

    pub(super) fn wanted(&self, what: &str) -> TraceError {
        let found = match self.peek() {
            Some(Token::Word(word)) => format!("`{word}`"),
            Some(Token::Quoted(text)) => format!("{text:?}"),
            Some(Token::Mark(mark)) => format!("`{mark}`"),
            None => "the end of the line".into(),
        };
        TraceError(format!("expected {what}, found {found}"))
    }

    /// A word read by `parse`.
    fn parse<T>(&mut self, what: &str, parse: impl Fn(&str) -> Option<T>) -> Read<T> {
        let parsed = self.peek_word().and_then(parse).ok_or_else(|| self.wanted(what))?;
        self.at += 1;
        Ok(parsed)
    }

    /// `word value`, if the word is next; else the default stays.
    pub(super) fn field<T: Words>(&mut self, word: &str, value: &mut T) -> Read<()> {
        if self.take_word(word) {
            *value = T::read(self)?;
        }
        Ok(())
    }

    /// Several values with a mark between them, or nothing if the line is over.
    pub(super) fn list<T: Words>(&mut self, mark: char) -> Read<Vec<T>> {
        if self.is_at_end() {
            return Ok(Vec::new());
        }
        let mut values = Vec::from([T::read(self)?]);
        while self.take_mark(mark) {
            values.push(T::read(self)?);
        }
        Ok(values)
    }
}

fn tokens(line: &str) -> Read<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let (text, after) = quoted(rest)?;
            tokens.push(Token::Quoted(text));
            rest = after;
        } else if MARKS.contains(&first) {
            tokens.push(Token::Mark(first));
            rest = &rest[1..];
        } else {
            let ends = |c: char| c.is_whitespace() || c == '"' || MARKS.contains(&c);
            let end = rest.find(ends).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// A quoted text and what follows it.
fn quoted(line: &str) -> Read<(String, &str)> {
    let mut text = String::new();
    let mut chars = line.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((text, &line[at + 1..])),
            '\\' => match chars.next().map(|(_, c)| c) {
                Some('n') => text.push('\n'),
                Some('r') => text.push('\r'),
                Some('t') => text.push('\t'),
                Some('x') => {
                    let digits: String =
                        chars.by_ref().map(|(_, c)| c).take_while(|&c| c != ';').collect();
                    let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                    text.push(code.ok_or_else(|| TraceError(format!("no character {digits}")))?);
                }
                Some(c @ ('"' | '\\')) => text.push(c),
                _ => return Err(TraceError("a `\\` that escapes nothing".into())),
            },
            c => text.push(c),
        }
    }
    Err(TraceError("a quoted text without an end".into()))
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            // Characters that a terminal or an editor would not show as they are.
            c if c.is_control() || c.is_whitespace() && c != ' ' => {
                quoted.push_str(&format!("\\x{:x};", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

macro_rules! plain_numbers {
    ($($type:ty),*) => {$(
        impl Words for $type {
            const ONE_WORD: bool = true;
            fn write(&self, writer: &mut Writer<'_>) {
                writer.word(&self.to_string());
            }
            fn read(reader: &mut Reader<'_>) -> Read<Self> {
                reader.parse("a number", |word| word.parse().ok())
            }
        }
    )*};
}
plain_numbers!(u8, u16, u32, u64, i16, i64);

macro_rules! wrapped_numbers {
    ($($type:ident),*) => {$(
        impl Words for $type {
            const ONE_WORD: bool = true;
            fn write(&self, writer: &mut Writer<'_>) {
                self.0.write(writer);
            }
            fn read(reader: &mut Reader<'_>) -> Read<Self> {
                Words::read(reader).map(Self)
            }
        }
    )*};
}
wrapped_numbers!(CommitNo, Fence, FetchNo, LeaseNo, MessageNo, QuestionNo, SessionNo);

/// A type that is one word, from two functions.
macro_rules! one_word {
    ($type:ty, $what:literal, $write:expr, $read:expr) => {
        impl Words for $type {
            const ONE_WORD: bool = true;
            fn write(&self, writer: &mut Writer<'_>) {
                let word = $write(self, &writer.known);
                writer.word(&word);
            }
            fn read(reader: &mut Reader<'_>) -> Read<Self> {
                let read = |word: &str| $read(word, &reader.known);
                let value = reader.peek_word().and_then(read);
                let value = value.ok_or_else(|| reader.wanted($what))?;
                reader.at += 1;
                Ok(value)
            }
        }
    };
}

one_word!(
    RequestNo,
    "a request such as `r1`",
    |it: &RequestNo, _: &Known<'_>| format!("r{}", it.0),
    |word: &str, _: &Known<'_>| Some(RequestNo(word.strip_prefix('r')?.parse().ok()?))
);
one_word!(
    WorkerId,
    "a worker such as `w1`",
    |it: &WorkerId, _: &Known<'_>| worker_word(*it),
    |word: &str, _: &Known<'_>| read_worker(word)
);
one_word!(
    JobId,
    "a job such as `a`",
    |it: &JobId, _: &Known<'_>| id_word(*it),
    |word: &str, _: &Known<'_>| read_id(word)
);
one_word!(
    Seq,
    "a job such as `a` or `#1`",
    |it: &Seq, known: &Known<'_>| seq_word(*it, known),
    |word: &str, known: &Known<'_>| read_seq(word, known)
);
one_word!(
    Hold,
    "a job and its fence such as `a.1`",
    |it: &Hold, known: &Known<'_>| format!("{}.{}", seq_word(it.job, known), it.fence.0),
    |word: &str, known: &Known<'_>| read_hold(word, known)
);
one_word!(
    Digest,
    "a digest in hexadecimal",
    |it: &Digest, _: &Known<'_>| format!("{:x}", it.0),
    |word: &str, _: &Known<'_>| u128::from_str_radix(word, 16).ok().map(Digest)
);
one_word!(
    Duration,
    "a time such as `10s`, `20ms` or `5us`",
    |it: &Duration, _: &Known<'_>| time_word(crate::time::micros(*it)),
    |word: &str, _: &Known<'_>| read_time(word).map(Duration::from_micros)
);
one_word!(
    Monotonic,
    "a time such as `10s`, `20ms` or `5us`",
    |it: &Monotonic, _: &Known<'_>| time_word(it.0),
    |word: &str, _: &Known<'_>| read_time(word).map(Monotonic)
);
one_word!(
    Wall,
    "a time such as `10s` or `20ms`",
    |it: &Wall, _: &Known<'_>| millis_word(it.0),
    |word: &str, _: &Known<'_>| read_millis(word).map(Wall)
);
one_word!(
    Millis,
    "a time such as `10s` or `20ms`",
    |it: &Millis, _: &Known<'_>| millis_word(u64::from(it.0)),
    |word: &str, _: &Known<'_>| Some(Millis(u32::try_from(read_millis(word)?).ok()?))
);

pub(super) fn worker_word(worker: WorkerId) -> String {
    let letter = if worker.is_embedded() { 'e' } else { 'w' };
    format!("{letter}{}", worker.random())
}

pub(super) fn read_worker(word: &str) -> Option<WorkerId> {
    let worker = match word.split_at_checked(1)? {
        ("w", digits) => WorkerId::new(digits.parse().ok()?)?,
        ("e", digits) => WorkerId::embedded(digits.parse().ok()?),
        _ => return None,
    };
    (worker_word(worker) == word).then_some(worker)
}

/// A readable id as its name, with its time if it has one; any other as its digits.
pub(super) fn id_word(id: JobId) -> String {
    match id.name() {
        Some((name, Wall(0))) => name.as_str().to_owned(),
        Some((name, at)) => format!("{}@{}", name.as_str(), at.0),
        None => format!("%{:032x}", id.0),
    }
}

pub(super) fn read_id(word: &str) -> Option<JobId> {
    if let Some(digits) = word.strip_prefix('%') {
        return u128::from_str_radix(digits, 16).ok().map(JobId);
    }
    let (name, at) = word.split_once('@').unwrap_or((word, "0"));
    JobId::named(name, Wall(at.parse().ok()?))
}

fn seq_word(seq: Seq, known: &Known<'_>) -> String {
    match known.id_of(seq) {
        Some(id) => id_word(id),
        None => format!("#{}", seq.0),
    }
}

fn read_seq(word: &str, known: &Known<'_>) -> Option<Seq> {
    match word.strip_prefix('#') {
        Some(digits) => digits.parse().ok().map(Seq),
        None => known.seq_of(read_id(word)?),
    }
}

fn read_hold(word: &str, known: &Known<'_>) -> Option<Hold> {
    let (job, fence) = word.rsplit_once('.')?;
    Some(Hold { job: read_seq(job, known)?, fence: Fence(fence.parse().ok()?) })
}

/// A time in the largest unit that leaves no fraction.
pub(super) fn time_word(micros: u64) -> String {
    match micros {
        0 => "0s".into(),
        _ if micros.is_multiple_of(1_000_000) => format!("{}s", micros / 1_000_000),
        _ if micros.is_multiple_of(1_000) => format!("{}ms", micros / 1_000),
        _ => format!("{micros}us"),
    }
}

pub(super) fn read_time(word: &str) -> Option<u64> {
    let unit = word.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = (word[..unit].parse::<u64>().ok()?, &word[unit..]);
    match unit {
        "s" => number.checked_mul(1_000_000),
        "ms" => number.checked_mul(1_000),
        "us" => Some(number),
        _ => None,
    }
}

fn millis_word(millis: u64) -> String {
    match millis {
        _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
}

/// Does not go through microseconds: the latest wall clock time would not fit.
fn read_millis(word: &str) -> Option<u64> {
    let unit = word.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = (word[..unit].parse::<u64>().ok()?, &word[unit..]);
    match unit {
        "s" => number.checked_mul(1_000),
        "ms" => Some(number),
        _ => None,
    }
}

impl Words for Name {
    const ONE_WORD: bool = true;
    fn write(&self, writer: &mut Writer<'_>) {
        let text = self.as_str();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
        let plain = !text.is_empty() && text != "-" && text.chars().all(is_plain);
        writer.word(&if plain { text.to_owned() } else { quote(text) });
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        match reader.peek() {
            Some(Token::Word(text) | Token::Quoted(text)) => {
                let name = Self::from(text.as_str());
                reader.at += 1;
                Ok(name)
            }
            _ => Err(reader.wanted("a name")),
        }
    }
}

macro_rules! quoted_texts {
    ($($type:ty),*) => {$(
        impl Words for $type {
            const ONE_WORD: bool = true;
            fn write(&self, writer: &mut Writer<'_>) {
                writer.word(&quote(self));
            }
            fn read(reader: &mut Reader<'_>) -> Read<Self> {
                match reader.peek() {
                    Some(Token::Quoted(text)) => {
                        let text = text.as_str().into();
                        reader.at += 1;
                        Ok(text)
                    }
                    _ => Err(reader.wanted("a text in quotes")),
                }
            }
        }
    )*};
}
quoted_texts!(ErrorText, StoredText);

/// `None` is `-`.
impl<T: Words> Words for Option<T> {
    const ONE_WORD: bool = T::ONE_WORD;
    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Some(value) => value.write(writer),
            None => writer.word("-"),
        }
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        if reader.take_word("-") { Ok(None) } else { T::read(reader).map(Some) }
    }
}

/// One value is written by itself, any other number of them in brackets.
impl<T: Words> Words for Vec<T> {
    fn write(&self, writer: &mut Writer<'_>) {
        if let [one] = self.as_slice() {
            one.write(writer);
            return;
        }
        writer.mark('[');
        for (at, value) in self.iter().enumerate() {
            if at > 0 && !T::ONE_WORD {
                writer.mark(';');
            }
            value.write(writer);
        }
        writer.mark(']');
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        if !reader.take_mark('[') {
            return Ok(Self::from([T::read(reader)?]));
        }
        let mut values = Self::new();
        while !reader.take_mark(']') {
            if !values.is_empty() && !T::ONE_WORD {
                reader.expect_mark(';')?;
            }
            values.push(T::read(reader)?);
        }
        Ok(values)
    }
}

/// Writes and reads a closed enum, from one line per variant: the words, with the fields in
/// between. The first word identifies the variant.
macro_rules! words {
    ($type:ty { $($variant:ident { $($key:tt: $field:ident),* } = [$first:literal $($item:tt)*],)* }) => {
        impl $crate::trace::text::Words for $type {
            fn write(&self, writer: &mut $crate::trace::text::Writer<'_>) {
                match self {
                    $(Self::$variant { $($key: $field),* } => {
                        writer.word($first);
                        $($crate::trace::text::write_item!(writer $item);)*
                    })*
                }
            }
            fn read(
                reader: &mut $crate::trace::text::Reader<'_>,
            ) -> $crate::trace::text::Read<Self> {
                $(if reader.take_word($first) {
                    $($crate::trace::text::read_item! { reader $item })*
                    return Ok(Self::$variant { $($key: $field),* });
                })*
                let all = [$(concat!("`", $first, "`")),*].join(", ");
                Err(reader.wanted(&all))
            }
        }
    };
}
pub(super) use words;

macro_rules! write_item {
    ($writer:ident $word:literal) => {
        $writer.word($word)
    };
    ($writer:ident $field:ident) => {
        $crate::trace::text::Words::write($field, $writer)
    };
}
pub(super) use write_item;

macro_rules! read_item {
    ($reader:ident $word:literal) => {
        $reader.expect_word($word)?;
    };
    ($reader:ident $field:ident) => {
        let $field = $crate::trace::text::Words::read($reader)?;
    };
}
pub(super) use read_item;
