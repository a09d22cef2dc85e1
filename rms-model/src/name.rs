//! Names of peers, nodes, clusters and features, restricted to simple characters.

use thiserror::Error;

/// The error for a text that is not a name of a peer, a node, a cluster or a feature.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not a name: use 1 to 64 letters, digits, '-', '_' or '.', starting with a letter, a digit or '_'")]
pub struct NameError(String);

/// Checks a name. Names appear in file names, certificates and tables, so only simple characters are allowed.
///
/// # Errors
/// See [`NameError`].
pub fn check_name(name: &str) -> Result<(), NameError> {
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let is_plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    if starts_well && is_plain && name.len() <= 64 { Ok(()) } else { Err(NameError(name.chars().take(80).collect())) }
}
