//! Threads that leave the application's signals alone.

use std::thread::{Builder, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::failure::Failure;

/// Starts a thread in which no signal of the application is delivered: its handlers run in its own threads. Threads
/// inherit the mask of who starts them.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Failure> {
    let failed = |errno: nix::Error| Failure::Io { what: "cannot block signals".to_owned(), source: errno.into() };
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(failed)?;
    let spawned = Builder::new().name(name.to_owned()).spawn(run);
    before.thread_set_mask().map_err(failed)?;
    spawned.map_err(|source| Failure::Io { what: "no thread for the session".to_owned(), source })
}
