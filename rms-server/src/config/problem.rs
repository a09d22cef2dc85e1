//! Errors in a configuration file, shown with their position.

use std::ops::Range;
use std::path::PathBuf;

use rms_model::pointed::pointed;
use thiserror::Error;

/// Why a configuration is rejected.
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

    /// Returns an error about the part `span` of `source`.
    pub(super) fn at(name: &str, source: &str, span: Range<usize>, message: String) -> ConfigError {
        ConfigError::Wrong(pointed(name, source, span, &message))
    }
}
