//! Formats a message about a place in a text file: file, line and column, the line itself, and a caret.

use std::fmt::Write as _;
use std::ops::Range;

/// The most characters of a line or of a word that are shown: a file by mistake may have lines of megabytes.
const MAX_SHOWN: usize = 80;
/// How many more a word may have that is a value which was cut, with what stands beside it.
const N_BESIDE: usize = 8;
/// How many characters before a span are shown where the line is cut.
const N_BEFORE: usize = 20;

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
    let message = shortened(&message.replace('\n', ", "), source.get(start..end).unwrap_or_default());
    let (line, n_left, width) = cut(line, column - 1, width);
    let mut text = format!("{name}:{line_number}:{column}: {message}\n{margin} |\n{line_number} | {line}\n");
    let _ = write!(text, "{margin} | {}{}", " ".repeat(n_left), "^".repeat(width));
    text
}

/// Returns the part of a long line around a span, and where the span is there; all in characters.
fn cut(line: &str, at: usize, width: usize) -> (String, usize, usize) {
    let n_chars = line.chars().count();
    if n_chars <= MAX_SHOWN {
        return (line.to_owned(), at, width);
    }
    let first = at.saturating_sub(N_BEFORE).min(n_chars - MAX_SHOWN);
    let dots = |is_cut: bool| if is_cut { "…" } else { "" };
    let (before, after) = (dots(first > 0), dots(first + MAX_SHOWN < n_chars));
    let shown: String = line.chars().skip(first).take(MAX_SHOWN).collect();
    let width = width.min((first + MAX_SHOWN).saturating_sub(at)).max(1);
    (format!("{before}{shown}{after}"), at - first + before.chars().count(), width)
}

/// Cuts a long value that the message quotes, and other long words of it.
fn shortened(message: &str, value: &str) -> String {
    let value = value.trim_matches(['"', '\'']);
    let message = if value.len() > MAX_SHOWN { message.replace(value, &prefix(value)) } else { message.to_owned() };
    // A value that was cut stands in quotes, and with a comma.
    let is_long = |word: &str| word.chars().count() > MAX_SHOWN + N_BESIDE;
    let short = |word: &str| if is_long(word) { prefix(word) } else { word.to_owned() };
    message.split(' ').map(short).collect::<Vec<_>>().join(" ")
}

fn prefix(text: &str) -> String {
    let mut chars = text.chars();
    let shown: String = chars.by_ref().take(MAX_SHOWN).collect();
    if chars.next().is_some() { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_values_that_are_long_are_cut() {
        let text = format!("a = 1\nspeed = \"{}\" # why\n", "x ".repeat(50_000));
        let start = text.find('"').expect("a quote");
        let end = text.rfind('"').expect("a quote") + 1;
        let said = pointed("f", &text, start..end, &format!("'{}' is no number", "x ".repeat(50_000)));
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[0].starts_with("f:2:9: 'x x x ") && lines[0].ends_with("x …' is no number"), "{said}");
        assert!(lines[2].starts_with("2 | speed = \"x x ") && lines[2].ends_with('…'), "{said}");
        assert!(lines.iter().all(|line| line.chars().count() < 120), "{said}");
        let key = format!("{} = 1", "k".repeat(1000));
        let said = pointed("f", &key, 0..1000, &format!("unknown field `{}`, expected `speed`", "k".repeat(1000)));
        assert!(said.contains("k…`, expected `speed`") && said.chars().count() < 400, "{said}");
    }

    #[test]
    fn the_caret_follows_its_place_in_a_long_line() {
        let text = format!("{}!{}", "a".repeat(500), "b".repeat(500));
        let lines = pointed("f", &text, 500..501, "wrong");
        let (line, caret) = lines.split_once("1 | ").and_then(|(_, rest)| rest.split_once("\n  | ")).expect("both");
        assert_eq!((line.chars().nth(21), caret.find('^')), (Some('!'), Some(21)), "{lines}");
        let said = pointed("f", &text, text.len()..text.len(), "wrong");
        assert!(said.ends_with(&format!("b\n  | {}^", " ".repeat(81))), "{said}");
    }
}
