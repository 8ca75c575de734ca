//! The nesting depth of JSON input, checked before it is parsed.

use crate::limits;
use crate::problem::Problem;

/// Rejects JSON that is nested too deeply. The text need not be valid: the parser that reads it
/// afterwards reports what is wrong.
///
/// # Errors
/// Returns the code `too-deep`.
pub fn check_depth(text: &[u8]) -> Result<(), Problem> {
    let mut depth = 0_usize;
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'[' | b'{' => {
                depth += 1;
                if depth > limits::JSON_DEPTH {
                    return Err(too_deep());
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

fn too_deep() -> Problem {
    let most = limits::JSON_DEPTH;
    Problem::new(400, "too-deep", format!("the JSON is nested more than {most} levels deep"))
        .help("put deeply nested data into a string or a file, and submit that")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_deep_as_the_bound_is_fine_and_one_more_is_not() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let nested = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
            assert!(check_depth(nested(limits::JSON_DEPTH).as_bytes()).is_ok());
            let refused = check_depth(nested(limits::JSON_DEPTH + 1).as_bytes()).unwrap_err();
            assert_eq!(refused.code, "too-deep");
        }
    }

    #[test]
    fn brackets_in_strings_do_not_count() {
        let text = format!("[\"{}\", \"\\\"{}\"]", "[".repeat(100), "{".repeat(100));
        assert!(check_depth(text.as_bytes()).is_ok());
        assert!(check_depth(b"]]]]\"[").is_ok(), "what is no JSON is for others to refuse");
    }
}
