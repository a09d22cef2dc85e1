//! The application's calls in a negotiation.

use std::ffi::{c_char, c_int};

use super::arguments;
use super::pointer;
use crate::guard::guard;
use crate::layout::{Limits, RMS_OK, Session, Terms};
use crate::number;
use crate::sessions;

/// Declares the sizes between which the RMS may change the application from now on, instead of the limits of the
/// submission.
#[unsafe(no_mangle)]
pub extern "C" fn rms_declare(session: *mut Session, limits: *const Limits) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        session.declare(arguments::limits(limits)?)?;
        Ok(RMS_OK)
    })
}

/// Opens a negotiation: asks for nodes or time, or offers nodes back. Its progress is reported by events with this id;
/// in each direction one can be open, opened by the program or by the RMS: one that grows (RMS_GROW, RMS_EXTEND,
/// RMS_MORE_...) and one that shrinks: RMS_ESTATE if there is one. Returns when the request is sent, not when it is
/// answered. A cluster, nodes or a name in terms of a kind that has none are RMS_EINVAL. If it fails, the id is left as
/// it was.
#[unsafe(no_mangle)]
pub extern "C" fn rms_ask(session: *mut Session, terms: *const Terms, id: *mut u64) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        // First, as a negotiation whose number cannot be written must not be opened.
        pointer::aligned(id, "id")?;
        let opened = session.ask(arguments::terms(terms)?)?;
        pointer::put(id, number::id(opened), "id")?;
        Ok(RMS_OK)
    })
}

/// Accepts the RMS's proposal in this negotiation. It is agreed only when RMS_EVENT_AGREED, or a later event, says so.
#[unsafe(no_mangle)]
pub extern "C" fn rms_accept(session: *mut Session, id: u64) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        session.accept(number::negotiation(id)?)?;
        Ok(RMS_OK)
    })
}

/// Answers a proposal of the RMS with a counter-proposal, about the same resource: a kind, cluster or name that is not
/// the offer's is RMS_EINVAL. It must not be worse for the RMS than the application's previous one.
#[unsafe(no_mangle)]
pub extern "C" fn rms_counter(session: *mut Session, id: u64, terms: *const Terms) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        let id = number::negotiation(id)?;
        session.counter(id, arguments::counter(terms)?)?;
        Ok(RMS_OK)
    })
}

/// Rejects the RMS's proposal in this negotiation, which ends it.
#[unsafe(no_mangle)]
pub extern "C" fn rms_reject(session: *mut Session, id: u64) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        session.reject(number::negotiation(id)?)?;
        Ok(RMS_OK)
    })
}

/// Withdraws the application's own proposal, or leaves the negotiation. If it was agreed at the same time, it goes on,
/// as the next event with this id tells.
#[unsafe(no_mangle)]
pub extern "C" fn rms_withdraw(session: *mut Session, id: u64) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        session.withdraw(number::negotiation(id)?)?;
        Ok(RMS_OK)
    })
}

/// Releases nodes at a breakpoint, after RMS_EVENT_AGREED of a shrink: the application has left these nodes, or is
/// about to; as many as agreed, without the job's first node, which stays. NULL and 0: the nodes that RMS_EVENT_AGREED
/// named. Nodes among those that are lost meanwhile count as left, named or not; if all are, the shrink is ready
/// without a release, and a late one is RMS_OK. What still runs there after the RMS's grace time is killed.
/// RMS_EVENT_READY reports that they are gone. With id 0, after RMS_EVENT_STAGE_ENDS: the nodes to leave when the next stage begins; until then
/// the application keeps them. Without a profile, id 0 is not a negotiation.
#[unsafe(no_mangle)]
pub extern "C" fn rms_release(session: *mut Session, id: u64, nodes: *const *const c_char, n_nodes: usize) -> c_int {
    guard(|| {
        let session = sessions::find(session.addr())?;
        let nodes = pointer::texts(nodes, n_nodes, "nodes")?;
        let is_of_stage = id == 0 && session.holding().stages.is_some();
        let id = if is_of_stage { None } else { Some(number::negotiation(id)?) };
        session.release(id, nodes)?;
        Ok(RMS_OK)
    })
}
