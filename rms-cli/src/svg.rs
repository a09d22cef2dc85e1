//! Common parts of all SVG output: lines, rounding, and escaped text.

use std::fmt::Write as _;

/// Adds a line; writing to a string cannot fail.
pub fn put(svg: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(svg, "{line}");
}

/// Rounds to hundredths of a pixel: smaller differences are invisible, and files stay small and reproducible.
pub fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Escapes a text for use in a document.
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
