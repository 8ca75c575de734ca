//! Lists on the command line: names with commas between them, and blanks wherever people write them.

/// One name of a list, without the blanks around it.
///
/// # Errors
/// With what to write instead, if there is none.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("write names with commas between them, like a,b".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// The same list without blanks around its names.
pub(crate) fn without_blanks(text: &str) -> String {
    text.split(',').map(str::trim).collect::<Vec<_>>().join(",")
}
