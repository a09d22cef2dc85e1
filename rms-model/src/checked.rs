//! Decodes fields that need more validation than their type: `#[serde(deserialize_with = "checked::name")]`.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::name::check_name;
use crate::sizes::Sizes;
use crate::time::Span;

/// The longest script of a submission.
pub const MAX_SCRIPT_BYTES: usize = 4 << 20;
/// The largest environment, names and values together.
pub const MAX_ENVIRONMENT_BYTES: usize = 2 << 20;
/// The most tasks for which a submission gives numbers of their own.
pub const MAX_COUNTS: usize = 4096;
/// The most jobs that a call may name.
pub const MAX_IDS: usize = 65_536;

/// Returns whether a count is zero, so that it is not serialised.
pub fn is_zero<T: Default + PartialEq>(amount: &T) -> bool {
    *amount == T::default()
}

/// Decodes text that is passed to the kernel as a C string.
///
/// # Errors
/// The text contains a NUL.
pub fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    c_string(String::deserialize(from)?)
}

/// Decodes a list of texts like [`text`].
///
/// # Errors
/// See [`text`].
pub fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Vec::<String>::deserialize(from)?.into_iter().map(c_string).collect()
}

/// Decodes a [`text`], if present. The field needs `default`, too.
///
/// # Errors
/// See [`text`].
pub fn opt_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(from)?.map(c_string).transpose()
}

/// Decodes a script of at most [`MAX_SCRIPT_BYTES`].
///
/// # Errors
/// The script is longer.
pub fn script<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let script = String::deserialize(from)?;
    match script.len() {
        n_bytes if n_bytes > MAX_SCRIPT_BYTES => {
            Err(D::Error::custom(format_args!("a script of {n_bytes} bytes; at most {MAX_SCRIPT_BYTES} are taken")))
        }
        _ => Ok(script),
    }
}

/// Decodes the name of a user, a node, a cluster, a feature or a token.
///
/// # Errors
/// See [`NameError`](crate::name::NameError).
pub fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    named(String::deserialize(from)?)
}

/// Decodes a [`name`], if present. The field needs `default`, too.
///
/// # Errors
/// See [`name`].
pub fn opt_name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(from)?.map(named).transpose()
}

/// Decodes a list of names like [`name`].
///
/// # Errors
/// See [`name`].
pub fn names<'de, D: Deserializer<'de>, C: FromIterator<String>>(from: D) -> Result<C, D::Error> {
    Vec::<String>::deserialize(from)?.into_iter().map(named).collect()
}

/// Decodes a length of time, which must not be negative.
///
/// # Errors
/// The time is negative.
pub fn span<'de, D: Deserializer<'de>>(from: D) -> Result<Span, D::Error> {
    lasting(Span::deserialize(from)?)
}

/// Decodes a [`span`], if present. The field needs `default`, too.
///
/// # Errors
/// See [`span`].
pub fn opt_span<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Span>, D::Error> {
    Option::<Span>::deserialize(from)?.map(lasting).transpose()
}

/// Decodes at most [`MAX_IDS`] jobs: each costs the server a lookup and a line of the answer.
///
/// # Errors
/// There are more jobs.
pub fn ids<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<crate::JobId>, D::Error> {
    let ids = Vec::deserialize(from)?;
    match ids.len() {
        n if n > MAX_IDS => Err(D::Error::custom(format_args!("{n} jobs are named; at most {MAX_IDS} are taken"))),
        _ => Ok(ids),
    }
}

/// Decodes at most [`MAX_COUNTS`] numbers.
///
/// # Errors
/// There are more.
pub fn counts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
    let counts: Vec<u32> = Vec::deserialize(from)?;
    match counts.len() {
        n if n > MAX_COUNTS => {
            Err(D::Error::custom(format_args!("{n} numbers for tasks; at most {MAX_COUNTS} are taken")))
        }
        _ => Ok(counts),
    }
}

/// Decodes valid sizes; see [`Sizes::is_valid`].
///
/// # Errors
/// Multiples of 0, or a list of totals that is empty, too long or not ascending.
pub fn sizes<'de, D: Deserializer<'de>>(from: D) -> Result<Sizes, D::Error> {
    let sizes = Sizes::deserialize(from)?;
    let error = || {
        D::Error::custom("sizes that are multiples of 0, or a list of totals that is empty, too long or does not rise")
    };
    if sizes.is_valid() { Ok(sizes) } else { Err(error()) }
}

fn c_string<E: Error>(text: String) -> Result<String, E> {
    if text.contains('\0') { Err(E::custom("a text that holds the character NUL")) } else { Ok(text) }
}

fn named<E: Error>(name: String) -> Result<String, E> {
    check_name(&name).map(|()| name).map_err(E::custom)
}

fn lasting<E: Error>(span: Span) -> Result<Span, E> {
    if span < Span::ZERO { Err(E::custom(format_args!("a negative span, {span}"))) } else { Ok(span) }
}
