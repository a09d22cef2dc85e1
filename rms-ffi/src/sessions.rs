//! All open sessions of the process, by the numbers that C programs hold in place of pointers.
//!
//! A handle is never dereferenced, only looked up, and no number is reused. So a handle that was closed, or never was
//! valid, is an error and not a crash.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::failure::Failure;
use crate::session::Session;

/// Opens a session and returns its handle.
pub fn connect(patience: Duration, survives_loss: bool) -> Result<usize, Failure> {
    if open().len() >= MOST_OPEN {
        return Err(Failure::Busy("too many sessions are open: close one; an application needs no more than one"));
    }
    let session = Arc::new(Session::connect(patience, survives_loss)?);
    // Not a multiple of the page size: nobody mistakes it for a readable address.
    let handle = NEXT.fetch_add(STEP, Ordering::Relaxed);
    open().insert(handle, session);
    Ok(handle)
}

/// Returns the session of a handle.
pub fn find(handle: usize) -> Result<Arc<Session>, Failure> {
    open().get(&handle).cloned().ok_or(Failure::NoSession)
}

/// Closes the session of a handle.
pub fn close(handle: usize) -> Result<(), Failure> {
    let session = find(handle)?;
    session.check_that_it_can_close()?;
    // Another thread may have closed it first.
    open().remove(&handle).ok_or(Failure::NoSession)?;
    session.close();
    Ok(())
}

fn open() -> MutexGuard<'static, BTreeMap<usize, Arc<Session>>> {
    OPEN.lock().expect("nobody panics while holding the list")
}

static OPEN: Mutex<BTreeMap<usize, Arc<Session>>> = Mutex::new(BTreeMap::new());
static NEXT: AtomicUsize = AtomicUsize::new(STEP + 1);
const STEP: usize = 8;
/// Each session has threads and a connection.
const MOST_OPEN: usize = 16;
