//! Texts that were right before something was done to them.

use filch_e2e::random::Random;
use serde_json::{Value, json};

/// What is done to a text.
const WAYS: u64 = 10;

/// Makes something else of a JSON text, mostly something wrong.
pub(super) fn mangle(random: &mut Random, right: &str) -> Vec<u8> {
    match random.below(WAYS) {
        0 => cut(random, right),
        1 => bend(random, right),
        2 => spoil(random, right),
        3 => deepen(random, right),
        4 => (0..random.below(200)).map(|_| random.draw() as u8).collect(),
        5 => repeat_a_piece(random, right),
        6 => join(random, right),
        _ => replace_a_value(random, right),
    }
}

fn place(random: &mut Random, text: &str) -> usize {
    random.below(text.len() as u64 + 1) as usize
}

/// Breaks off.
fn cut(random: &mut Random, right: &str) -> Vec<u8> {
    let end = random.below(right.len() as u64) as usize;
    right.as_bytes()[..end].to_vec()
}

/// Changes a few bits.
fn bend(random: &mut Random, right: &str) -> Vec<u8> {
    let mut bytes = right.as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
    }
    bytes
}

/// Puts in what is no UTF-8, or no character that JSON has.
fn spoil(random: &mut Random, right: &str) -> Vec<u8> {
    let pieces: [&[u8]; 8] = [
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\0",
        b"\x1b",
        b"\\ud800",
        b"\xe2\x80",
    ];
    let piece = pieces[random.below(pieces.len() as u64) as usize];
    let at = place(random, right);
    [&right.as_bytes()[..at], piece, &right.as_bytes()[at..]].concat()
}

/// Puts in more levels than anybody reads, closed or not.
fn deepen(random: &mut Random, right: &str) -> Vec<u8> {
    let depth = 1 << (4 + random.below(14));
    let (open, close) = [("[", "]"), ("{\"a\":", "}")][random.below(2) as usize];
    let close = if random.below(2) == 0 { close.repeat(depth) } else { String::new() };
    let at = place(random, right);
    [&right[..at], &open.repeat(depth), "1", &close, &right[at..]].concat().into_bytes()
}

/// Says something twice: a field, half a field, a bracket.
fn repeat_a_piece(random: &mut Random, right: &str) -> Vec<u8> {
    let (one, other) = (place(random, right), place(random, right));
    let (from, to) = (one.min(other), one.max(other));
    [&right[..to], &right[from..to], &right[to..]].concat().into_bytes()
}

/// Two texts where one should be, with something between them.
fn join(random: &mut Random, right: &str) -> Vec<u8> {
    let between = ["", ",", "\n", "\0", " null "][random.below(5) as usize];
    [right, between, right].concat().into_bytes()
}

/// Puts something of another kind in the place of one of the values, or beside them.
fn replace_a_value(random: &mut Random, right: &str) -> Vec<u8> {
    let mut value: Value = serde_json::from_str(right).expect("what is mangled was right before");
    let count = count(&value);
    let mut at = random.below(count);
    visit(&mut value, &mut |value| {
        if at == 0 {
            *value = strange(random);
        }
        at = at.wrapping_sub(1);
    });
    // No value of `serde_json` is as large as these.
    let huge = ["1e999", "-1e999", "18446744073709551616", "-9223372036854775809", "1E+9999999999"];
    let huge = huge[random.below(huge.len() as u64) as usize];
    value.to_string().replace("\"HUGE\"", huge).into_bytes()
}

fn count(value: &Value) -> u64 {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

fn visit(value: &mut Value, act: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| visit(item, act)),
        Value::Object(fields) => fields.values_mut().for_each(|field| visit(field, act)),
        _ => {}
    }
    act(value);
}

fn strange(random: &mut Random) -> Value {
    match random.below(14) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(-1),
        3 => json!(u64::MAX),
        4 => json!(i64::MIN),
        5 => json!(0.5),
        6 => json!(""),
        7 => json!("x".repeat(1 << random.below(16))),
        8 => json!("\u{0}\u{1b}[2J\u{202e}"),
        9 => json!([]),
        10 => json!({}),
        11 => json!({"unknown": 1}),
        12 => json!(vec![json!([1, 1]); random.below(2_000) as usize]),
        _ => json!("HUGE"),
    }
}
