//! Keeps texts that the caller may read until its thread asks for the next ones.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::ptr;

/// Pointers to the texts.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// An array of names; null if there are none.
    pub names: *const *const c_char,
    pub text: *const c_char,
}

/// Owns the texts that were handed out. The pointers point into the heap buffers of the strings, which do not move with
/// this struct.
#[derive(Debug, Default)]
pub struct Strings {
    names: Vec<CString>,
    pointers: Vec<*const c_char>,
    text: CString,
}

impl Strings {
    pub fn new(names: &[String], text: &str) -> Strings {
        let names: Vec<CString> = names.iter().map(|name| c_string(name)).collect();
        let pointers = names.iter().map(|name| name.as_ptr()).collect();
        Strings { names, pointers, text: c_string(text) }
    }

    pub fn kept(&self) -> Kept {
        debug_assert_eq!(self.names.len(), self.pointers.len());
        let names = if self.pointers.is_empty() { ptr::null() } else { self.pointers.as_ptr() };
        Kept { names, text: self.text.as_ptr() }
    }
}

/// Keeps the texts of an event for this thread, in place of the previous ones.
pub fn event(names: &[String], text: &str) -> Kept {
    EVENT.with(|slot| replace(slot, names, text))
}

/// Keeps the nodes of a change for this thread, in place of the previous ones.
pub fn change(names: &[String]) -> Kept {
    CHANGE.with(|slot| replace(slot, names, ""))
}

fn replace(slot: &RefCell<Strings>, names: &[String], text: &str) -> Kept {
    let mut slot = slot.borrow_mut();
    *slot = Strings::new(names, text);
    slot.kept()
}

/// Removes NUL bytes, which would end the text early; names contain none, and in a reason they carry no meaning.
fn c_string(text: &str) -> CString {
    let bytes = text.bytes().filter(|byte| *byte != 0).collect::<Vec<u8>>();
    CString::new(bytes).expect("the zeros were taken out")
}

thread_local! {
    static EVENT: RefCell<Strings> = RefCell::default();
    static CHANGE: RefCell<Strings> = RefCell::default();
}
