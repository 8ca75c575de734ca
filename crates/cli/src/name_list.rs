//! Comma-separated lists of names on the command line. Blanks around names are ignored.

/// One name of a list, without the blanks around it.
///
/// # Errors
/// If it is empty, with what to write instead.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("write comma-separated names, like a,b".to_owned()),
        name => Ok(name.to_owned()),
    }
}

/// The list without blanks around its names.
pub(crate) fn without_blanks(text: &str) -> String {
    text.split(',').map(str::trim).collect::<Vec<_>>().join(",")
}
