//! Prints an error with all its causes, once, at the edge.

use std::error::Error;
use std::fmt::Write as _;

/// The error and what caused it, from the outside in.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing into a string cannot fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
