//! Fingerprints of errors: the same failure with another id, or at another time, has the same
//! fingerprint.
//!
//! [`shape`] removes from a message whatever differs from job to job; [`of`] hashes the rest,
//! together with the queue and the kind of the job that failed.

use sha2::{Digest as _, Sha256};

/// How much of a message counts; the rest is most often a stack trace.
const BYTES: usize = 2_048;

/// The fingerprint of a group of failures: twelve hexadecimal digits.
#[must_use]
pub fn of(queue: &str, kind: &str, error: &str) -> String {
    let mut hash = Sha256::new();
    for part in [queue, kind, &shape(error)] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    let digest: [u8; 32] = hash.finalize().into();
    digest[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether this is a well-formed fingerprint.
#[must_use]
pub fn is_one(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// A message without the parts that differ from job to job: numbers, ids, paths, addresses and
/// times are replaced by placeholders. An id may consist of digits only, so ids and numbers share a
/// placeholder. Codes stay, since they distinguish failures: `exit code 1` is not `exit code 137`.
///
/// ```
/// use filch_api::fingerprint::shape;
///
/// assert_eq!(
///     shape("user 4711: cannot open /data/7/in.csv at 10.0.0.7:5432 (exit code 2)"),
///     "user <n>: cannot open <path> at <address> (exit code 2)"
/// );
/// ```
#[must_use]
pub fn shape(error: &str) -> String {
    let mut rest = &error[..error.floor_char_boundary(BYTES)];
    let mut shape = Shape::default();
    while let Some(first) = rest.chars().next() {
        let length = if let Some(length) = quoted_path(rest) {
            shape.replace(&rest[..1], "<path>", &rest[..1]);
            length
        } else if is_between(first) {
            shape.text.push(if first.is_whitespace() { ' ' } else { first });
            first.len_utf8()
        } else {
            let length = word_length(rest);
            shape.word(&rest[..length]);
            length
        };
        rest = &rest[length..];
    }
    // White space does not count.
    shape.text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether this character separates words.
fn is_between(character: char) -> bool {
    character.is_whitespace() || "\"'`()[]{}<>;|=,".contains(character)
}

/// The length of the first word. A comma between digits is part of a number.
fn word_length(text: &str) -> usize {
    let mut before = ' ';
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let after = characters.peek().map_or(' ', |(_, after)| *after);
        let is_inside = character == ',' && before.is_ascii_digit() && after.is_ascii_digit();
        if is_between(character) && !is_inside {
            return at;
        }
        before = character;
    }
    text.len()
}

/// The length of a path in quotes, which may contain any characters.
fn quoted_path(text: &str) -> Option<usize> {
    let quote = text.chars().next().filter(|first| "\"'`".contains(*first))?;
    let inside = &text[1..];
    let end = inside.find(quote)?;
    begins_path(&inside[..end]).then_some(end + 2)
}

fn begins_path(word: &str) -> bool {
    let bytes = word.as_bytes();
    let is_drive = bytes.len() > 3 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':';
    (word.len() > 1 && ["/", "./", "../", "~/", "\\\\"].iter().any(|start| word.starts_with(start)))
        || (is_drive && matches!(bytes[2], b'\\' | b'/'))
}

/// The shape of a message, as far as it was read.
#[derive(Default)]
struct Shape {
    text: String,
    /// Whether the last word announces a code.
    is_code_next: bool,
}

impl Shape {
    fn replace(&mut self, before: &str, by: &str, after: &str) {
        self.is_code_next = false;
        // A date and a time of day next to each other count as one time.
        if by != "<time>" || !self.text.trim_end().ends_with("<time>") {
            self.text.push_str(before);
            self.text.push_str(by);
        }
        self.text.push_str(after);
    }

    fn word(&mut self, whole: &str) {
        let word = whole.trim_end_matches(['.', ':', '!', '?']);
        let tail = &whole[word.len()..];
        if let Some(by) = thing(word) {
            self.replace("", by, tail);
            return;
        }
        let is_code = self.is_code_next && word.len() <= 3 && is_digits(word);
        if is_code {
            self.text.push_str(word);
        } else {
            self.numbers(word);
        }
        self.text.push_str(tail);
        let lower = word.to_ascii_lowercase();
        self.is_code_next =
            ["code", "status", "signal", "errno", "error", "http"].contains(&lower.as_str());
    }

    /// Replaces parts of a word that are numbers or ids, as in `worker-17` and
    /// `cus_9s6XKzkNRiz8i3`.
    fn numbers(&mut self, word: &str) {
        for part in word.split_inclusive(SEAMS) {
            let bare = part.trim_end_matches(SEAMS);
            if is_id(bare) {
                self.text.push_str("<n>");
            } else {
                self.digits(bare);
            }
            self.text.push_str(&part[bare.len()..]);
        }
    }

    /// Replaces numbers, which may contain points and commas.
    fn digits(&mut self, part: &str) {
        let mut is_inside = false;
        let mut characters = part.chars().peekable();
        while let Some(character) = characters.next() {
            let is_before_digit = characters.peek().is_some_and(char::is_ascii_digit);
            let is_joint = is_inside && matches!(character, '.' | ',') && is_before_digit;
            let is_number = character.is_ascii_digit() || is_joint;
            if !is_number {
                self.text.push(character);
            } else if !is_inside {
                self.text.push_str("<n>");
            }
            is_inside = is_number;
        }
    }
}

/// Characters that separate the parts of a word.
const SEAMS: [char; 7] = ['-', '_', ':', '/', '@', '#', '\\'];

/// The placeholder for a whole word, if the word differs from job to job.
fn thing(word: &str) -> Option<&'static str> {
    if word.contains("://") {
        return Some("<url>");
    }
    if is_time(word) {
        return Some("<time>");
    }
    if is_address(word) {
        return Some("<address>");
    }
    if is_uuid(word) || is_id(word.strip_prefix("0x").unwrap_or(word)) {
        return Some("<n>");
    }
    if word.starts_with("0x") && word.len() > 2 && is_hex(&word[2..]) {
        return Some("<n>");
    }
    let last = word.rsplit('/').next().unwrap_or_default();
    let is_file = word.contains('/') && last.contains('.') && !last.starts_with('.');
    (begins_path(word) || is_file || word.matches('/').count() > 1).then_some("<path>")
}

fn is_digits(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_hex(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether this is an id: long enough, and either hexadecimal, or a mix of letters and digits that
/// no word has.
fn is_id(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_number = digits == word.len();
    word.len() >= 8 && is_plain && !is_number && (is_hex(word) || digits >= 2)
}

fn is_uuid(word: &str) -> bool {
    let lengths = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = word.split('-').collect();
    parts.len() == 5
        && parts.iter().zip(lengths).all(|(part, length)| part.len() == length)
        && parts.iter().all(|part| is_hex(part))
}

/// `2026-01-31`, `12:00:00.123`, or both with a T between them and a time zone at the end.
fn is_time(word: &str) -> bool {
    let is_date = |text: &str| {
        let parts: Vec<&str> = text.split(['-', '/']).collect();
        let is_long = |part: &&&str| part.len() == 4;
        let fits = |part: &&str| is_digits(part) && matches!(part.len(), 1 | 2 | 4);
        parts.len() == 3 && parts.iter().all(fits) && parts.iter().filter(is_long).count() == 1
    };
    let is_clock = |text: &str| {
        let text = text.trim_end_matches(['Z', 'z']);
        let text = text.find(['+', '-']).map_or(text, |zone| &text[..zone]);
        let text = text.split(['.', ',']).next().unwrap_or_default();
        let parts: Vec<&str> = text.split(':').collect();
        matches!(parts.len(), 2 | 3) && parts.iter().all(|part| part.len() == 2 && is_digits(part))
    };
    is_date(word)
        || is_clock(word)
        || word.split_once(['T', 't']).is_some_and(|(date, time)| is_date(date) && is_clock(time))
}

/// An IP address, possibly with a port.
fn is_address(word: &str) -> bool {
    let is_v6 = word.matches(':').count() > 1 && word.parse::<std::net::Ipv6Addr>().is_ok();
    is_v6
        || word.parse::<std::net::Ipv4Addr>().is_ok()
        || word.parse::<std::net::SocketAddrV4>().is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_differs_from_job_to_job_is_taken_out() {
        for (error, seen) in [
            ("", ""),
            ("plain words stay", "plain words stay"),
            ("took 1.5s, 1,024 bytes of 3 GiB left", "took <n>s, <n> bytes of <n> GiB left"),
            ("version 1.2.3 of worker-17", "version <n> of worker-<n>"),
            ("no row 550e8400-e29b-41d4-a716-446655440000!", "no row <n>!"),
            ("commit deadbeef, blob 8f14e45fceea167a", "commit <n>, blob <n>"),
            ("customer cus_9s6XKzkNRiz8i3 is gone", "customer cus_<n> is gone"),
            ("at 0x7ffe and 0x00007f12ab34", "at <n> and <n>"),
            ("2026-01-31T12:00:00.123Z timed out", "<time> timed out"),
            ("2026-01-31 12:00:00,5 timed out", "<time> timed out"),
            ("[12:00:01] timed out", "[<time>] timed out"),
            ("dial 10.1.2.3:80 and [2001:db8::1]:80", "dial <address> and [<address>]:<n>"),
            ("GET https://a.example/x?id=7: refused", "GET <url>=<n>: refused"),
            ("open \"/tmp/my file 7.txt\": no", "open \"<path>\": no"),
            ("src/main.rs:10:5 and C:\\x\\y.txt", "<path> and <path>"),
            ("an I/O error, and/or TCP/IP", "an I/O error, and/or TCP/IP"),
            ("exit code 137", "exit code 137"),
            ("killed by signal 9", "killed by signal 9"),
            ("HTTP status 503: try later", "HTTP status 503: try later"),
            ("No such file (os error 2)", "No such file (os error 2)"),
            ("error 20260131 of a job", "error <n> of a job"),
            ("two\n\t lines", "two lines"),
        ] {
            assert_eq!(shape(error), seen, "{error}");
        }
    }

    #[test]
    fn codes_queues_and_kinds_make_groups_of_their_own() {
        let same = of("img", "resize", "no user 1");
        assert_eq!(of("img", "resize", "no user 22"), same);
        assert!(is_one(&same) && !is_one("xyz") && !is_one(&same[1..]));
        let others = [
            of("img", "resize", "no group 1"),
            of("imgr", "esize", "no user 1"),
            of("img", "command", "no user 1"),
            of("img", "resize", "exit code 1"),
            of("img", "resize", "exit code 2"),
        ];
        for (index, one) in others.iter().enumerate() {
            assert!(*one != same && !others[..index].contains(one), "{index}");
        }
    }

    #[test]
    fn a_shape_ends_where_nobody_looks_any_more() {
        let long = format!("{}ß and more", "é".repeat(1_023) + "x");
        assert_eq!(shape(&long).chars().count(), 1_024);
        let one = format!("no{}", " x".repeat(4_000));
        assert_eq!(shape(&one), shape(&format!("{one} and something else")));
    }

    /// Two values of something that differs from job to job.
    fn differing() -> impl Strategy<Value = [String; 2]> {
        let twice = |text: fn(u128) -> String| {
            (any::<u128>(), any::<u128>()).prop_map(move |(one, other)| [text(one), text(other)])
        };
        prop_oneof![
            twice(|n| uuid::Uuid::from_u128(n).to_string()),
            twice(|n| format!("{n:032x}")),
            twice(|n| format!("{:016x}", n as u64 | 1 << 60)),
            twice(|n| (n as u32).to_string()),
            twice(|n| format!("{}.{}", n as u16, (n >> 16) as u8)),
            twice(|n| format!("job-{}", n as u16)),
            twice(|n| format!("/var/{:x}/in {}.csv", n as u16, n as u8).replace(' ', "-")),
            twice(|n| std::net::Ipv4Addr::from(n as u32).to_string()),
            twice(|n| format!("{}:{}", std::net::Ipv4Addr::from(n as u32), (n >> 32) as u16)),
            twice(|n| {
                let at = filch_scheduler::time::Wall((n % 4_000_000_000_000) as u64);
                crate::time::Moment(at).to_string()
            }),
        ]
    }

    proptest! {
        /// Renaming ids does not change the group.
        #[test]
        fn the_same_failure_of_other_jobs_is_in_the_same_group(
            words in prop::collection::vec("[a-z]{1,7}", 1..6),
            things in prop::collection::vec((differing(), 0_usize..6, 0_usize..4), 0..4),
        ) {
            let tell = |which: usize| {
                let mut told = words.clone();
                for (thing, at, dress) in &things {
                    let [before, after] = [["", ""], ["\"", "\""], ["(", ")"], ["", ":"]][*dress];
                    told.insert((*at).min(told.len()), format!("{before}{}{after}", thing[which]));
                }
                told.join(" ")
            };
            prop_assert_eq!(shape(&tell(0)), shape(&tell(1)), "{:?} {:?}", tell(0), tell(1));
        }

        /// Any text has a shape, and always the same one.
        #[test]
        fn any_text_has_a_shape(text in any::<String>()) {
            let once = shape(&text);
            prop_assert!(once.len() <= 3 * text.len());
            prop_assert_eq!(shape(&text), once);
        }
    }
}
