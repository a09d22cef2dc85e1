//! Reads and writes through foreign pointers: the only module that dereferences them.
//!
//! It checks what can be checked: null, alignment, lengths, sizes of structs, UTF-8. That a pointer which passes these
//! checks points to what the header says is the caller's promise, as everywhere in C.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::slice;

use crate::failure::Failure;
use crate::layout::Versioned;

/// The maximum length of an array; no cluster has more nodes.
const MAX_ITEMS: usize = 1 << 20;
/// The maximum length of a text, in bytes.
const MAX_TEXT: usize = 4096;

/// Reads a struct of the caller, who may use another version of the header: fields that it lacks are zero.
pub fn read<T: Versioned>(from: *const T, what: &'static str) -> Result<T, Failure> {
    let size = size_at(from, what)?;
    let mut value = MaybeUninit::<T>::zeroed();
    let shared = size.min(size_of::<T>());
    // SAFETY: the caller's struct is `size` bytes long, as its first field says, and ours has room for `shared`. All
    // bytes of ours are initialised, and every bit pattern is a valid value.
    let value = unsafe {
        from.cast::<u8>().copy_to_nonoverlapping(value.as_mut_ptr().cast(), shared);
        value.assume_init()
    };
    // SAFETY: as above; these are the bytes after the fields that this version knows.
    let newer = unsafe { slice::from_raw_parts(from.cast::<u8>().add(shared), size - shared) };
    if newer.iter().any(|byte| *byte != 0) {
        return Err(Failure::NewerStruct { what });
    }
    Ok(value)
}

/// Checks that a struct can be written; called before anything that cannot be undone.
pub fn check<T: Versioned>(to: *mut T, what: &'static str) -> Result<(), Failure> {
    size_at(to, what).map(|_| ())
}

/// Writes the fields that the caller's version has. The size field stays; fields that only the caller knows become
/// zero.
pub fn write<T: Versioned>(to: *mut T, value: T, what: &'static str) -> Result<(), Failure> {
    let size = size_at(to, what)?;
    let header = size_of::<usize>();
    let shared = size.min(size_of::<T>());
    let from = &raw const value;
    // SAFETY: `to` has `size` bytes, as its first field says, and `value` has at least `shared`. A struct on our own
    // stack does not overlap with it.
    unsafe {
        let to = to.cast::<u8>();
        from.cast::<u8>().add(header).copy_to_nonoverlapping(to.add(header), shared - header);
        to.add(shared).write_bytes(0, size - shared);
    }
    Ok(())
}

/// Writes one element of an array whose elements are `stride` bytes apart, and its size field.
pub fn write_element<T: Versioned>(array: *mut T, stride: usize, idx: usize, value: T) -> Result<(), Failure> {
    // SAFETY: the caller promises that the array has more than `idx` elements of `stride` bytes.
    let element = unsafe { array.cast::<u8>().add(idx * stride).cast::<T>() };
    if !element.is_aligned() {
        return Err(Failure::BadSize { what: "the array", size: stride, least: T::FIRST });
    }
    // SAFETY: it is aligned and writable by the caller's promise.
    unsafe { element.cast::<usize>().write(stride) };
    write(element, value, "the array")
}

/// Returns the size that the caller has set in a struct.
pub fn size_at<T: Versioned>(at: *const T, what: &'static str) -> Result<usize, Failure> {
    aligned(at, what)?;
    // SAFETY: not null, aligned, and by the caller's promise a struct that begins with its size.
    let size = unsafe { at.cast::<usize>().read() };
    // No struct is that large: such a size is an uninitialised field.
    if size < T::FIRST || size > MAX_TEXT {
        return Err(Failure::BadSize { what, size, least: T::FIRST });
    }
    Ok(size)
}

/// Writes a plain value.
pub fn put<T: Copy>(to: *mut T, value: T, what: &'static str) -> Result<(), Failure> {
    aligned(to, what)?;
    // SAFETY: not null, aligned, and by the caller's promise valid for writing one `T`.
    unsafe { to.write(value) };
    Ok(())
}

/// Checks that a pointer is neither null nor misaligned.
pub fn aligned<T>(at: *const T, what: &'static str) -> Result<(), Failure> {
    if at.is_null() {
        return Err(Failure::Null { what });
    }
    if !at.is_aligned() {
        return Err(Failure::Misaligned { what });
    }
    Ok(())
}

/// Copies an array of the caller; null is allowed if it has no elements.
pub fn array<T: Copy>(from: *const T, n_items: usize, what: &'static str) -> Result<Vec<T>, Failure> {
    if n_items == 0 {
        return Ok(Vec::new());
    }
    aligned(from, what)?;
    if n_items > MAX_ITEMS {
        return Err(Failure::TooLong { what, most: MAX_ITEMS });
    }
    // SAFETY: not null, aligned, and by the caller's promise `n_items` elements long, which is bounded above.
    Ok(unsafe { slice::from_raw_parts(from, n_items) }.to_vec())
}

/// Copies a text of the caller.
pub fn text(from: *const c_char, what: &'static str) -> Result<String, Failure> {
    aligned(from, what)?;
    // Not CStr::from_ptr alone, which would read an unterminated text without bound.
    // SAFETY: not null, and by the caller's promise readable up to a NUL, behind which nothing is read.
    let n_bytes = (0..MAX_TEXT).find(|idx| unsafe { *from.add(*idx) } == 0);
    let n_bytes = n_bytes.ok_or(Failure::TooLong { what, most: MAX_TEXT })?;
    // SAFETY: these bytes and the NUL behind them were just read.
    let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), n_bytes + 1) };
    let text = CStr::from_bytes_with_nul(bytes).ok().and_then(|text| text.to_str().ok());
    text.map(str::to_owned).ok_or(Failure::NotUtf8 { what })
}

/// Copies a text that may be null.
pub fn optional_text(from: *const c_char, what: &'static str) -> Result<Option<String>, Failure> {
    if from.is_null() { Ok(None) } else { text(from, what).map(Some) }
}

/// Copies an array of texts.
pub fn texts(from: *const *const c_char, n_items: usize, what: &'static str) -> Result<Vec<String>, Failure> {
    array(from, n_items, what)?.into_iter().map(|item| text(item, what)).collect()
}

/// Copies a text into a buffer as snprintf does: truncated if need be, and always NUL-terminated. Returns its full
/// length without the NUL.
pub fn fill(buffer: *mut c_char, size: usize, text: &str) -> usize {
    if !buffer.is_null() && size > 0 {
        let n_bytes = text.floor_char_boundary(size - 1);
        // SAFETY: the caller provides `size` bytes; at most that many are written, the NUL included.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), n_bytes);
            buffer.add(n_bytes).write(0);
        }
    }
    text.len()
}
