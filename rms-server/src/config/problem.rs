//! What is wrong with a configuration file, shown at its place.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::PathBuf;

use thiserror::Error;

/// Why a configuration is not taken.
#[derive(Debug, Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {path}", path = path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    /// The whole message with line and caret.
    #[error("{0}")]
    Wrong(String),
}

impl ConfigError {
    pub(super) fn of_toml(name: &str, source: &str, error: &toml::de::Error) -> ConfigError {
        match error.span() {
            Some(span) => ConfigError::at(name, source, span, error.message().to_owned()),
            None => ConfigError::Wrong(format!("{name}: {}", error.message())),
        }
    }

    /// `message` about the part `span` of `source`.
    pub(super) fn at(name: &str, source: &str, span: Range<usize>, message: String) -> ConfigError {
        let start = span.start.min(source.len());
        let before = source.get(..start).unwrap_or(source);
        let line_number = before.matches('\n').count() + 1;
        let line_start = before.rfind('\n').map_or(0, |idx| idx + 1);
        let line = source.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or("");
        let column = before.get(line_start..).map_or(0, |text| text.chars().count()) + 1;
        // A part over several lines is pointed at where it begins.
        let end = span.end.clamp(start, line_start + line.len().max(start - line_start));
        let width = source.get(start..end).map_or(1, |text| text.chars().count()).max(1);
        let margin = " ".repeat(line_number.to_string().len());
        let message = message.replace('\n', ", ");
        let mut text = format!("{name}:{line_number}:{column}: {message}\n{margin} |\n{line_number} | {line}\n");
        let _ = write!(text, "{margin} | {}{}", " ".repeat(column - 1), "^".repeat(width));
        ConfigError::Wrong(text)
    }
}
