//! Formats a message about a place in a text file: file, line and column, the line itself, and a caret.

use std::fmt::Write as _;
use std::ops::Range;

/// Formats `message` about the part `span` of `source`, a file named `name`.
pub fn pointed(name: &str, source: &str, span: Range<usize>, message: &str) -> String {
    let start = span.start.min(source.len());
    let before = source.get(..start).unwrap_or(source);
    let line_number = before.matches('\n').count() + 1;
    let line_start = before.rfind('\n').map_or(0, |idx| idx + 1);
    let line = source.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or("");
    let column = before.get(line_start..).map_or(0, |text| text.chars().count()) + 1;
    // For a span over several lines, the caret points at its beginning.
    let end = span.end.clamp(start, line_start + line.len().max(start - line_start));
    let width = source.get(start..end).map_or(1, |text| text.chars().count()).max(1);
    let margin = " ".repeat(line_number.to_string().len());
    let message = message.replace('\n', ", ");
    let mut text = format!("{name}:{line_number}:{column}: {message}\n{margin} |\n{line_number} | {line}\n");
    let _ = write!(text, "{margin} | {}{}", " ".repeat(column - 1), "^".repeat(width));
    text
}
