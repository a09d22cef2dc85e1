//! Guards every call of the C ABI: no panic unwinds into C, and nothing runs in a forked process.

use std::any::Any;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::failure::Failure;

/// Runs a call and turns its outcome into a status. The text of a failure is stored for the thread.
pub fn guard(call: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    // Before anything that locks: a thread of the parent may have held a lock at the fork.
    let outcome = if is_forked() { Err(Failure::Forked) } else { unwound(call) };
    outcome.unwrap_or_else(|failure| {
        failure.remember();
        failure.status()
    })
}

fn unwound(call: impl FnOnce() -> Result<c_int, Failure>) -> Result<c_int, Failure> {
    // State that a panic may leave inconsistent is behind locks, which are then poisoned, so the next call reports it.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(Failure::Panicked(words(panic.as_ref()))))
}

/// Records that this process has threads of the library from now on, which no forked child will have.
pub fn has_threads() {
    OWNER.store(process::id(), Ordering::Relaxed);
}

fn is_forked() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != NOBODY && owner != process::id()
}

fn words(panic: &(dyn Any + Send)) -> String {
    let known = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    known.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned())
}

/// The process that connected first. Relaxed suffices: a process cannot see its own number change.
static OWNER: AtomicU32 = AtomicU32::new(NOBODY);
/// No process has this number.
const NOBODY: u32 = 0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure;
    use crate::layout::{RMS_EBUSY, RMS_EPANIC};

    #[test]
    fn a_panic_becomes_a_number_and_a_text() {
        assert_eq!(guard(|| panic!("the {} fell", "sky")), RMS_EPANIC);
        assert!(failure::last().contains("the sky fell"), "{}", failure::last());
    }

    #[test]
    fn a_failure_is_remembered_until_the_next_one() {
        assert_eq!(guard(|| Err(Failure::Busy("somebody waits"))), RMS_EBUSY);
        assert_eq!(guard(|| Ok(0)), 0);
        assert_eq!(failure::last(), "somebody waits");
    }
}
