//! Texts about the library, its errors and its numbers; these calls work in any process and thread, at any time.

use std::ffi::{c_char, c_int};

use super::pointer;
use crate::failure;
use crate::number;

/// Returns the version of the library, like "0.1.0". The library owns the text.
#[unsafe(no_mangle)]
pub extern "C" fn rms_version() -> *const c_char {
    VERSION.as_ptr().cast()
}

/// Returns the general meaning of a status. The library owns the text; it is never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn rms_strerror(status: c_int) -> *const c_char {
    failure::describe(status).as_ptr()
}

/// Gets why the latest failed call of *this thread* failed, and what to do about it. As with errno, each thread has its
/// own, and a call that succeeds does not change it. Copies as much as fits, NUL-terminated; returns the full length
/// without the NUL, so NULL and 0 ask for the length alone.
#[unsafe(no_mangle)]
pub extern "C" fn rms_last_error(buffer: *mut c_char, size: usize) -> usize {
    // No guard: it would overwrite the error that is requested. Nothing here can panic except on allocation failure.
    pointer::fill(buffer, size, &failure::last())
}

/// Gets the id of a negotiation as 'rms negotiations' writes it, like "a1". Copies and returns as rms_last_error()
/// does; the text of an invalid number is empty.
#[unsafe(no_mangle)]
pub extern "C" fn rms_id_text(id: u64, buffer: *mut c_char, size: usize) -> usize {
    let text = number::negotiation(id).map(|id| id.to_string()).unwrap_or_default();
    pointer::fill(buffer, size, &text)
}

static VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
