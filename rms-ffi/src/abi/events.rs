//! Events: by polling, by a pollable descriptor, or by a callback.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::arguments;
use super::keep;
use super::pointer;
use crate::failure::Failure;
use crate::guard::guard;
use crate::layout::{Event, EventCallback, RMS_NOTHING, RMS_OK, Session};
use crate::mailbox::Taken;
use crate::sessions;
use crate::told::{self, Telling};

/// Returns a file descriptor that is readable while an event is pending, for poll(), select() or an event loop. Only
/// check whether it is readable, do not read from it; rms_close() closes it. Negative: an error.
#[unsafe(no_mangle)]
pub extern "C" fn rms_fd(session: *mut Session) -> c_int {
    guard(|| Ok(sessions::find(session.addr())?.mailbox().fd()))
}

/// Gets the next event, waiting for up to this many milliseconds; 0: not at all; negative: without limit. RMS_NOTHING:
/// none came. After the last one: RMS_EENDED. Each event goes to one of the threads that ask. Events that are not
/// fetched are merged, so that only few are pending: only the oldest stays as it was when it came, or, with automatic
/// set, the last 64. The current state is returned by rms_nodes(), rms_generation() and rms_until(). An offer that
/// expired before it was read is not delivered, only that it is over.
#[unsafe(no_mangle)]
pub extern "C" fn rms_next_event(session: *mut Session, timeout_ms: c_int, event: *mut Event) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        // First, as an event that cannot be written must not be taken.
        pointer::check(event, "event")?;
        if session.has_callback() {
            return Err(Failure::Busy(
                "the callback gets the events; take it away with rms_on_event(session, NULL, NULL)",
            ));
        }
        match session.next_event(arguments::wait(timeout_ms)) {
            Taken::Event(taken) => {
                pointer::write(event, tell(&told::telling(&taken, session.now())), "event")?;
                Ok(RMS_OK)
            }
            Taken::Nothing => Ok(RMS_NOTHING),
            Taken::Over(reason) => Err(Failure::Ended(reason)),
            Taken::Closed => Err(Failure::NoSession),
        }
    })
}

/// Calls a function for each event from now on, in a thread of the library, one event at a time; pending events come
/// first. NULL removes it, and returns once it is no longer running. Must not be called from the callback itself.
#[unsafe(no_mangle)]
pub extern "C" fn rms_on_event(session: *mut Session, callback: EventCallback, user: *mut c_void) -> c_int {
    guard(|| {
        let handle = session.addr();
        let session = sessions::find(handle)?;
        let Some(callback) = callback else {
            session.take_callback()?;
            return Ok(RMS_OK);
        };
        let user = user.expose_provenance();
        session.set_callback(move |taken, now| {
            let event = tell(&told::telling(taken, now));
            let session = ptr::without_provenance_mut(handle);
            // SAFETY: this is the caller's function, called as documented. `event` and its texts outlive the call.
            // `user` points to data of the caller, who was told that the function runs in another thread.
            unsafe { callback(session, &raw const event, ptr::with_exposed_provenance_mut(user)) };
        })?;
        Ok(RMS_OK)
    })
}

/// Returns the event as C sees it; its texts are kept for this thread.
fn tell(telling: &Telling) -> Event {
    let kept = keep::event(&telling.nodes, &telling.text);
    Event { nodes: kept.names, n_nodes: telling.nodes.len(), text: kept.text, ..telling.event }
}
