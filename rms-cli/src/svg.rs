//! What every SVG that is written here needs: lines, rounding, and texts that cannot break out of the document.

use std::fmt::Write as _;

/// Adds a line. Writing to a string cannot fail.
pub fn put(svg: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(svg, "{line}");
}

/// Hundredths of a pixel: nobody sees less, and files stay small and equal everywhere.
pub fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// A text as it may stand in a document.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other if other.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}
