//! Mutations of valid JSON texts.

use filch_e2e::random::TestRandom;
use serde_json::{Value, json};

/// How the cases below are weighted.
const WAYS: u64 = 10;

/// Changes a JSON text, in most cases so that it is no longer valid.
pub(super) fn mutate(random: &mut TestRandom, valid: &str) -> Vec<u8> {
    match random.below(WAYS) {
        0 => cut(random, valid),
        1 => flip_bits(random, valid),
        2 => insert_invalid(random, valid),
        3 => deepen(random, valid),
        4 => (0..random.below(200)).map(|_| random.draw() as u8).collect(),
        5 => repeat_a_piece(random, valid),
        6 => join(random, valid),
        _ => replace_a_value(random, valid),
    }
}

fn place(random: &mut TestRandom, text: &str) -> usize {
    random.below(text.len() as u64 + 1) as usize
}

/// Truncates it.
fn cut(random: &mut TestRandom, valid: &str) -> Vec<u8> {
    let end = random.below(valid.len() as u64) as usize;
    valid.as_bytes()[..end].to_vec()
}

/// Flips a few bits.
fn flip_bits(random: &mut TestRandom, valid: &str) -> Vec<u8> {
    let mut bytes = valid.as_bytes().to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
    }
    bytes
}

/// Inserts invalid UTF-8, or a character that JSON does not allow.
fn insert_invalid(random: &mut TestRandom, valid: &str) -> Vec<u8> {
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
    let at = place(random, valid);
    [&valid.as_bytes()[..at], piece, &valid.as_bytes()[at..]].concat()
}

/// Inserts many levels of nesting, closed or not.
fn deepen(random: &mut TestRandom, valid: &str) -> Vec<u8> {
    let depth = 1 << (4 + random.below(14));
    let (open, close) = [("[", "]"), ("{\"a\":", "}")][random.below(2) as usize];
    let close = if random.below(2) == 0 { close.repeat(depth) } else { String::new() };
    let at = place(random, valid);
    [&valid[..at], &open.repeat(depth), "1", &close, &valid[at..]].concat().into_bytes()
}

/// Repeats a part: a field, half a field, a bracket.
fn repeat_a_piece(random: &mut TestRandom, valid: &str) -> Vec<u8> {
    let (one, other) = (place(random, valid), place(random, valid));
    let (from, to) = (one.min(other), one.max(other));
    [&valid[..to], &valid[from..to], &valid[to..]].concat().into_bytes()
}

/// Two texts in place of one, with something between them.
fn join(random: &mut TestRandom, valid: &str) -> Vec<u8> {
    let between = ["", ",", "\n", "\0", " null "][random.below(5) as usize];
    [valid, between, valid].concat().into_bytes()
}

/// Replaces one of the values by one of another type.
fn replace_a_value(random: &mut TestRandom, valid: &str) -> Vec<u8> {
    let mut value: Value = serde_json::from_str(valid).expect("it was valid before");
    let count = count(&value);
    let mut at = random.below(count);
    visit(&mut value, &mut |value| {
        if at == 0 {
            *value = strange(random);
        }
        at = at.wrapping_sub(1);
    });
    // `serde_json` has no values as large as these.
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

fn strange(random: &mut TestRandom) -> Value {
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
