//! Threads that receive none of the application's signals.

use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::failure::Failure;

/// Starts a thread in which all signals are blocked, so that the application's handlers run in its own threads. A
/// thread inherits the mask of the thread that starts it.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let failed = |errno: nix::Error| Failure::Io { what: "cannot block signals".to_owned(), source: errno.into() };
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(failed)?;
    let spawned = Builder::new().name(name.to_owned()).spawn(run);
    before.thread_set_mask().map_err(failed)?;
    spawned.map_err(|source| Failure::Io { what: "no thread for the session".to_owned(), source })
}
