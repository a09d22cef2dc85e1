//! Texts about the library, its errors and its numbers; these calls work in any process and thread, at any time.

use std::ffi::{c_char, c_int};

use super::pointer;
use crate::failure;
use crate::number;

/// The version of the library, like "0.1.0". The library owns the text.
#[unsafe(no_mangle)]
pub extern "C" fn rms_version() -> *const c_char {
    VERSION.as_ptr().cast()
}

/// What a status means, in general. The library owns the text; it is never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn rms_strerror(status: c_int) -> *const c_char {
    failure::describe(status).as_ptr()
}

/// Why the latest call of *this thread* that failed did so, and what to do about it. As with errno, other threads
/// have their own, and a call that succeeds does not change it. Copies as much as fits and ends it; returns the
/// whole length without the end, so NULL and 0 ask for the length alone.
#[unsafe(no_mangle)]
pub extern "C" fn rms_last_error(buffer: *mut c_char, size: usize) -> usize {
    // No guard: it would overwrite the error that is requested. Nothing here can panic except on allocation failure.
    pointer::fill(buffer, size, &failure::last())
}

/// How 'rms negotiations' writes the number of a negotiation, like "a1". Copies and returns as rms_last_error() does;
/// the text of a number that is none is empty.
#[unsafe(no_mangle)]
pub extern "C" fn rms_id_text(id: u64, buffer: *mut c_char, size: usize) -> usize {
    let text = number::negotiation(id).map(|id| id.to_string()).unwrap_or_default();
    pointer::fill(buffer, size, &text)
}

static VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
