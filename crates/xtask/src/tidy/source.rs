//! Just enough of Rust's lexer to tell code, comments and string literals apart, line by line. C is
//! close enough to be read in the same way.

/// One line of a source file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Line {
    /// The line without its comments and without the contents of its string literals.
    pub code: String,
    /// The comment on this line, from its `//` or `/*` on; all of the line within a block comment.
    pub comment: Option<String>,
}

/// Where the lexer is.
enum Within {
    Code,
    LineComment,
    /// How deep block comments are nested.
    BlockComment(usize),
    /// With escapes.
    Text,
    /// With this many `#` behind its closing quote.
    RawText(usize),
}

pub(super) fn lines(text: &str) -> Vec<Line> {
    let characters: Vec<char> = text.chars().collect();
    let mut lines = Vec::new();
    let mut line = Line::default();
    let mut within = Within::Code;
    let mut at = 0;
    while let Some(&character) = characters.get(at) {
        let rest = &characters[at..];
        if character == '\n' {
            if matches!(within, Within::LineComment) {
                within = Within::Code;
            }
            lines.push(std::mem::take(&mut line));
            at += 1;
            continue;
        }
        let taken = match within {
            Within::LineComment => 1,
            Within::BlockComment(depth) if rest.starts_with(&['*', '/']) => {
                within = if depth > 1 { Within::BlockComment(depth - 1) } else { Within::Code };
                line.comment.get_or_insert_default().push_str("*/");
                at += 2;
                continue;
            }
            Within::BlockComment(depth) if rest.starts_with(&['/', '*']) => {
                within = Within::BlockComment(depth + 1);
                2
            }
            Within::BlockComment(_) => 1,
            Within::Text => {
                if character == '"' {
                    within = Within::Code;
                    line.code.push('"');
                }
                // A line that ends in a backslash still ends.
                at += if character == '\\' && rest.get(1).is_some_and(|next| *next != '\n') {
                    2
                } else {
                    1
                };
                continue;
            }
            Within::RawText(hashes) => {
                let is_end = character == '"'
                    && rest.len() > hashes
                    && rest[1..=hashes].iter().all(|next| *next == '#');
                if is_end {
                    within = Within::Code;
                    line.code.push('"');
                }
                at += if is_end { 1 + hashes } else { 1 };
                continue;
            }
            Within::Code if rest.starts_with(&['/', '/']) => {
                within = Within::LineComment;
                2
            }
            Within::Code if rest.starts_with(&['/', '*']) => {
                within = Within::BlockComment(1);
                2
            }
            Within::Code => {
                let taken = literal(rest, &line.code).map_or(1, |(taken, next)| {
                    within = next;
                    taken
                });
                line.code.extend(&rest[..taken]);
                at += taken;
                continue;
            }
        };
        line.comment.get_or_insert_default().extend(&rest[..taken]);
        at += taken;
    }
    if line != Line::default() {
        lines.push(line);
    }
    lines
}

/// If a literal starts here: how many characters open it, and where the lexer is then. A character
/// literal is taken as a whole, so that a quote in it opens nothing.
fn literal(rest: &[char], before: &str) -> Option<(usize, Within)> {
    match rest[0] {
        '"' => Some((1, Within::Text)),
        '\'' => {
            let escape = usize::from(rest.get(1) == Some(&'\\'));
            let is_character = rest.get(2 + escape) == Some(&'\'');
            // Otherwise a lifetime, or an escape such as `\u{1}`, in which no quote can be.
            is_character.then_some((3 + escape, Within::Code))
        }
        'r' => {
            let is_part = |last: char| last.is_alphanumeric() || last == '_';
            let opens = match before.strip_suffix(['b', 'c']) {
                Some(shorter) => !shorter.ends_with(is_part),
                None => !before.ends_with(is_part),
            };
            let hashes = rest[1..].iter().take_while(|next| **next == '#').count();
            let is_raw = opens && rest.get(1 + hashes) == Some(&'"');
            is_raw.then_some((2 + hashes, Within::RawText(hashes)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line as code, then its comment behind a bar.
    fn read(text: &str) -> Vec<String> {
        let lines = lines(text).into_iter();
        lines.map(|line| format!("{}|{}", line.code, line.comment.unwrap_or_default())).collect()
    }

    #[test]
    fn comments_and_literals_are_told_apart() {
        for (text, expected) in [
            ("let a = 1; // why", "let a = 1; |// why"),
            ("/// Says \"so\".", "|/// Says \"so\"."),
            ("a /* b /* c */ d */ e", "a  e|/* b /* c */ d */"),
            (r#"print("// no \" comment") // but this"#, r#"print("") |// but this"#),
            ("let c = '\"'; // x", "let c = '\"'; |// x"),
            ("let c = '\\''; // x", "let c = '\\''; |// x"),
            ("fn f<'a>(x: &'a str) {} // x", "fn f<'a>(x: &'a str) {} |// x"),
            ("let r = r#\"a \" // b\"#; // c", "let r = r#\"\"; |// c"),
            ("let r = br\"\\\"; // c", "let r = br\"\"; |// c"),
            ("let bar = 1; // c", "let bar = 1; |// c"),
        ] {
            assert_eq!(read(text), [expected], "{text}");
        }
    }

    #[test]
    fn literals_and_blocks_may_go_over_several_lines() {
        let text = "let a = \"one\n// two\\\n// three\";\n/* four\nfive */ let b;\n";
        assert_eq!(read(text), ["let a = \"|", "|", "\";|", "|/* four", " let b;|five */"]);
    }
}
