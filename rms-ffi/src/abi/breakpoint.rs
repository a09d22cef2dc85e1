//! The functions for simple malleable programs.

use std::ffi::c_int;

use super::keep;
use super::pointer;
use crate::guard::guard;
use crate::layout::{Change, RMS_GROW, RMS_NOTHING, RMS_OK, RMS_SHRINK, Session};
use crate::sessions;
use negotiation::Direction;

/// For programs that have declared limits with automatic set: call it where the program can be changed. It never
/// blocks. RMS_OK: there is a change to make, see rms_change; make it, and call again. RMS_NOTHING: go on. RMS_ESTATE:
/// rms_release_done() is due, after every RMS_SHRINK, even with is_done set; until then every call returns this, and
/// the program is not changed further. RMS_EENDED: the session is over.
#[unsafe(no_mangle)]
pub extern "C" fn rms_breakpoint(session: *mut Session, change: *mut Change) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        // First, as a change that cannot be written must not be taken.
        let size = pointer::size_at(change, "change")?;
        let Some(found) = session.breakpoint()? else {
            return Ok(RMS_NOTHING);
        };
        let kept = keep::change(&found.nodes);
        let kind = match found.direction {
            Direction::Grow => RMS_GROW,
            Direction::Shrink => RMS_SHRINK,
        };
        let told = Change {
            size,
            kind,
            is_done: found.is_done.into(),
            id: found.id.map_or(0, crate::number::id),
            generation: found.generation,
            n_after: found.n_after,
            nodes: kept.names,
            n_nodes: found.nodes.len(),
        };
        pointer::write(change, told, "change")?;
        Ok(RMS_OK)
    })
}

/// Confirms that the application has left the nodes that rms_breakpoint() told it to leave, or continues without those
/// that are already gone (is_done). Nodes that are lost while it leaves them count as left. Call it after every RMS_SHRINK, before the next rms_breakpoint(). What still runs
/// on nodes that were left is killed after the RMS's grace time.
#[unsafe(no_mangle)]
pub extern "C" fn rms_release_done(session: *mut Session) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        session.release_done()?;
        Ok(RMS_OK)
    })
}
