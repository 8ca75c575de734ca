//! A small writer of SVG documents: elements with attributes, and text that cannot break out of
//! them.
//!
//! ```
//! use filch_sim::svg::SvgWriter;
//!
//! let mut svg = SvgWriter::new(20, 10, "a & b", "rect { fill: red }");
//! svg.element("rect").attr("width", 20).attr("height", 10).title("the whole");
//! svg.element("text").attr("x", 4).text("<b>");
//! let document = svg.finish();
//! assert!(document.contains("<title>a &amp; b</title>"));
//! assert!(document.contains("<text x=\"4\">&lt;b&gt;</text>"));
//! ```

use std::fmt::{self, Display, Write as _};

/// An SVG document that is being written.
pub struct SvgWriter {
    document: String,
    /// Elements that [`SvgWriter::end`] has to close, the innermost last.
    open: Vec<&'static str>,
}

/// An element whose attributes are being written. One of the methods that take it by value ends it.
#[must_use]
pub struct SvgElement<'svg> {
    writer: &'svg mut SvgWriter,
    name: &'static str,
}

impl SvgWriter {
    /// Begins a document of this size. `style` is CSS and is not escaped.
    pub fn new(width: impl Display, height: impl Display, title: &str, style: &str) -> Self {
        let mut writer = Self { document: String::new(), open: Vec::new() };
        let root = writer.element("svg").attr("xmlns", "http://www.w3.org/2000/svg");
        let root = root.attr("viewBox", format_args!("0 0 {width} {height}"));
        root.attr("width", &width).attr("height", &height).attr("role", "img").begin();
        writer.element("title").text(title);
        let _ = writeln!(writer.document, "<style>{style}</style>");
        writer
    }

    /// Begins an element.
    pub fn element(&mut self, name: &'static str) -> SvgElement<'_> {
        self.document.push('<');
        self.document.push_str(name);
        SvgElement { writer: self, name }
    }

    /// Ends the innermost element that [`SvgElement::begin`] left open.
    pub fn end(&mut self) {
        if let Some(name) = self.open.pop() {
            let _ = writeln!(self.document, "</{name}>");
        }
    }

    /// Ends everything that is open, and returns the document.
    #[must_use]
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.end();
        }
        self.document
    }

    fn escape(&mut self, value: impl Display) {
        // Writing to a string does not fail.
        let _ = write!(Escape(&mut self.document), "{value}");
    }
}

impl SvgElement<'_> {
    /// Adds an attribute.
    pub fn attr(self, name: &str, value: impl Display) -> Self {
        let _ = write!(self.writer.document, " {name}=\"");
        self.writer.escape(value);
        self.writer.document.push('"');
        self
    }

    /// Adds the attribute `class`, unless it is empty.
    pub fn class(self, class: &str) -> Self {
        if class.is_empty() { self } else { self.attr("class", class) }
    }

    /// Ends the element without content.
    pub fn empty(self) {
        self.writer.document.push_str("/>\n");
    }

    /// Ends the element with this text.
    pub fn text(self, text: impl Display) {
        self.writer.document.push('>');
        self.writer.escape(text);
        let _ = writeln!(self.writer.document, "</{}>", self.name);
    }

    /// Ends the element with a title only, which browsers show as a tooltip.
    pub fn title(self, title: impl Display) {
        self.writer.document.push_str("><title>");
        self.writer.escape(title);
        let _ = writeln!(self.writer.document, "</title></{}>", self.name);
    }

    /// Leaves the element open: what is written next is inside it, until [`SvgWriter::end`].
    pub fn begin(self) {
        self.writer.document.push_str(">\n");
        self.writer.open.push(self.name);
    }
}

/// Writes text as XML may hold it, in an element or in an attribute.
struct Escape<'document>(&'document mut String);

impl fmt::Write for Escape<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // XML cannot represent most control characters at all.
                control if control.is_control() => self.0.push('\u{fffd}'),
                '\u{fffe}' | '\u{ffff}' => self.0.push('\u{fffd}'),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_nest_and_text_is_escaped() {
        let mut svg = SvgWriter::new(8, 2.5, "'<\u{1b}>\"", ".a { fill: red }");
        svg.element("g").class("a").begin();
        svg.element("rect").class("").attr("x", format_args!("{:.1}", 0.25)).empty();
        svg.element("path").attr("d", "M0 0\"/><script>").title("a < b\u{ffff}");
        let expected = "\
<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 8 2.5\" width=\"8\" height=\"2.5\" role=\"img\">
<title>&#39;&lt;\u{fffd}&gt;&quot;</title>
<style>.a { fill: red }</style>
<g class=\"a\">
<rect x=\"0.2\"/>
<path d=\"M0 0&quot;/&gt;&lt;script&gt;\"><title>a &lt; b\u{fffd}</title></path>
</g>
</svg>
";
        assert_eq!(svg.finish(), expected);
    }
}
