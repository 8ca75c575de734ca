//! The parts of an SVG document that all pictures share.

use crate::escape::escaped;

/// The start of a document of this size, with its title.
pub(crate) fn start(width: usize, height: usize, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" xml:space=\"preserve\">\n\
         <title>{}</title>\n",
        text(title)
    )
}

/// Escapes text for XML. Characters that XML does not allow are escaped or replaced.
pub(crate) fn text(text: &str) -> String {
    let mut safe = String::new();
    for character in escaped(text).chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            character => safe.push(character),
        }
    }
    safe
}
