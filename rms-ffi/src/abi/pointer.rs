//! Reads and writes what foreign pointers point to: the only place where one is followed.
//!
//! What can be checked is: null, alignment, lengths, sizes of structs, UTF-8. That a pointer which is none of these
//! points to what the header says is the caller's promise, as everywhere in C.

use std::ffi::{CStr, c_char};
use std::mem::MaybeUninit;
use std::slice;

use crate::failure::Failure;
use crate::layout::Versioned;

/// Longer arrays are a mistake: no cluster has more nodes.
const MAX_ITEMS: usize = 1 << 20;
/// Longer texts are a mistake.
const MAX_TEXT: usize = 4096;

/// A struct of the caller, perhaps of another version of the header: fields that it lacks are zero.
pub fn read<T: Versioned>(from: *const T, what: &'static str) -> Result<T, Failure> {
    let size = size_at(from, what)?;
    let mut value = MaybeUninit::<T>::zeroed();
    let shared = size.min(size_of::<T>());
    // SAFETY: the caller's struct is `size` bytes long, as it says itself, and ours has room for `shared`. All bytes of
    // ours are set, and every pattern of them is a value.
    let value = unsafe {
        from.cast::<u8>().copy_to_nonoverlapping(value.as_mut_ptr().cast(), shared);
        value.assume_init()
    };
    // SAFETY: as above; these are the bytes behind what we know.
    let newer = unsafe { slice::from_raw_parts(from.cast::<u8>().add(shared), size - shared) };
    if newer.iter().any(|byte| *byte != 0) {
        return Err(Failure::NewerStruct { what });
    }
    Ok(value)
}

/// Whether there is a struct that can be written; asked before something is done that cannot be undone.
pub fn check<T: Versioned>(to: *mut T, what: &'static str) -> Result<(), Failure> {
    size_at(to, what).map(|_| ())
}

/// Writes as much of a struct as the caller knows. The size stays; what only the caller knows becomes zero.
pub fn write<T: Versioned>(to: *mut T, value: T, what: &'static str) -> Result<(), Failure> {
    let size = size_at(to, what)?;
    let header = size_of::<usize>();
    let shared = size.min(size_of::<T>());
    let from = &raw const value;
    // SAFETY: `to` has `size` bytes, as the caller says there, and `value` has `shared`, which is not more. A struct
    // on our own stack does not overlap with it.
    unsafe {
        let to = to.cast::<u8>();
        from.cast::<u8>().add(header).copy_to_nonoverlapping(to.add(header), shared - header);
        to.add(shared).write_bytes(0, size - shared);
    }
    Ok(())
}

/// Writes one element of an array whose elements are `stride` bytes apart, each with its size.
pub fn write_element<T: Versioned>(array: *mut T, stride: usize, idx: usize, value: T) -> Result<(), Failure> {
    // SAFETY: the caller says that the array has more than `idx` elements of `stride` bytes.
    let element = unsafe { array.cast::<u8>().add(idx * stride).cast::<T>() };
    if !element.is_aligned() {
        return Err(Failure::BadSize { what: "the array", size: stride, least: T::FIRST });
    }
    // SAFETY: it is aligned, and belongs to the caller, who lets it be written.
    unsafe { element.cast::<usize>().write(stride) };
    write(element, value, "the array")
}

/// The size that the caller has set in a struct.
pub fn size_at<T: Versioned>(at: *const T, what: &'static str) -> Result<usize, Failure> {
    aligned(at, what)?;
    // SAFETY: not null, aligned, and by the caller's promise a struct that begins with its size.
    let size = unsafe { at.cast::<usize>().read() };
    // A struct is never a page long: such a size is a field that nobody has set.
    if size < T::FIRST || size > MAX_TEXT {
        return Err(Failure::BadSize { what, size, least: T::FIRST });
    }
    Ok(size)
}

/// Writes a plain value where the caller wants it.
pub fn put<T: Copy>(to: *mut T, value: T, what: &'static str) -> Result<(), Failure> {
    aligned(to, what)?;
    // SAFETY: not null, aligned, and by the caller's promise a place for one `T`.
    unsafe { to.write(value) };
    Ok(())
}

/// Whether a value can be written there.
pub fn aligned<T>(at: *const T, what: &'static str) -> Result<(), Failure> {
    if at.is_null() {
        return Err(Failure::Null { what });
    }
    if !at.is_aligned() {
        return Err(Failure::Misaligned { what });
    }
    Ok(())
}

/// An array of the caller, copied; null is allowed if it has no elements.
pub fn array<T: Copy>(from: *const T, n_items: usize, what: &'static str) -> Result<Vec<T>, Failure> {
    if n_items == 0 {
        return Ok(Vec::new());
    }
    aligned(from, what)?;
    if n_items > MAX_ITEMS {
        return Err(Failure::TooLong { what, most: MAX_ITEMS });
    }
    // SAFETY: not null, aligned, and by the caller's promise as many elements as it says, which we bound.
    Ok(unsafe { slice::from_raw_parts(from, n_items) }.to_vec())
}

/// A text of the caller, copied.
pub fn text(from: *const c_char, what: &'static str) -> Result<String, Failure> {
    aligned(from, what)?;
    // Not CStr::from_ptr alone: a text without end would be read to the end of the world.
    // SAFETY: not null, and by the caller's promise readable up to a zero, behind which nothing is read.
    let n_bytes = (0..MAX_TEXT).find(|idx| unsafe { *from.add(*idx) } == 0);
    let n_bytes = n_bytes.ok_or(Failure::TooLong { what, most: MAX_TEXT })?;
    // SAFETY: these bytes and the zero behind them were read just now.
    let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), n_bytes + 1) };
    let text = CStr::from_bytes_with_nul(bytes).ok().and_then(|text| text.to_str().ok());
    text.map(str::to_owned).ok_or(Failure::NotUtf8 { what })
}

/// A text that may be absent.
pub fn optional_text(from: *const c_char, what: &'static str) -> Result<Option<String>, Failure> {
    if from.is_null() { Ok(None) } else { text(from, what).map(Some) }
}

/// An array of texts, copied.
pub fn texts(from: *const *const c_char, n_items: usize, what: &'static str) -> Result<Vec<String>, Failure> {
    array(from, n_items, what)?.into_iter().map(|item| text(item, what)).collect()
}

/// Copies a text into a buffer as snprintf does: cut off if need be, and always ended. How long it is without its
/// end.
pub fn fill(buffer: *mut c_char, size: usize, text: &str) -> usize {
    if !buffer.is_null() && size > 0 {
        let n_bytes = text.floor_char_boundary(size - 1);
        // SAFETY: the caller gives `size` bytes; fewer than that and the end are written.
        unsafe {
            buffer.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), n_bytes);
            buffer.add(n_bytes).write(0);
        }
    }
    text.len()
}
