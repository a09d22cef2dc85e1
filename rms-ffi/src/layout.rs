//! What crosses the boundary: the structs and constants of the header, with their documentation for C.
//!
//! Every struct begins with its size as the caller was compiled with it, so that later versions may append fields.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// The call succeeded.
pub const RMS_OK: c_int = 0;
/// Nothing came in time, or there is nothing to do. Not an error.
pub const RMS_NOTHING: c_int = 1;
/// An argument is invalid.
pub const RMS_EINVAL: c_int = -1;
/// The session does not exist, or was closed.
pub const RMS_ESESSION: c_int = -2;
/// This process was forked from the one that connected. Only exec and _exit are possible in it.
pub const RMS_EFORK: c_int = -3;
/// A bug in the library. Close the session.
pub const RMS_EPANIC: c_int = -4;
/// This process does not belong to a job that may negotiate.
pub const RMS_EJOB: c_int = -5;
/// There is no connection to the RMS.
pub const RMS_ECONNECT: c_int = -6;
/// The RMS refused the request.
pub const RMS_EREFUSED: c_int = -7;
/// The negotiation is unknown or over.
pub const RMS_EUNKNOWN: c_int = -8;
/// Not possible in the current state.
pub const RMS_ESTATE: c_int = -9;
/// The session is over: the job is ending, or has another negotiator.
pub const RMS_EENDED: c_int = -10;
/// A buffer or array of the caller is too small.
pub const RMS_ESPACE: c_int = -11;
/// The session is in use in another way, or too many are open.
pub const RMS_EBUSY: c_int = -12;
/// A file cannot be written, or the system lacks a resource.
pub const RMS_EIO: c_int = -13;
/// A struct is newer than the library, or its size is not set.
pub const RMS_EVERSION: c_int = -14;
/// No answer came in time. The RMS may or may not have received the request; it may be repeated.
pub const RMS_ETIMEDOUT: c_int = -15;

/// The application gets more nodes.
pub const RMS_GROW: i32 = 1;
/// The application gives back nodes.
pub const RMS_SHRINK: i32 = 2;
/// The application gets more wall time.
pub const RMS_EXTEND: i32 = 3;
/// The application will end earlier.
pub const RMS_SHORTEN: i32 = 4;
/// The application gets more cores on nodes that it has.
pub const RMS_MORE_CORES: i32 = 5;
/// The application gives back cores of its nodes.
pub const RMS_FEWER_CORES: i32 = 6;
/// The application gets more memory on nodes that it has, in MiB on each.
pub const RMS_MORE_MEMORY: i32 = 7;
/// The application gives back memory of its nodes.
pub const RMS_LESS_MEMORY: i32 = 8;
/// The application gets more devices on nodes that it has, of the name in the terms.
pub const RMS_MORE_DEVICES: i32 = 9;
/// The application gives back devices of its nodes.
pub const RMS_FEWER_DEVICES: i32 = 10;
/// The application gets more licences of a cluster, of the name in the terms.
pub const RMS_MORE_LICENCES: i32 = 11;
/// The application gives back licences of a cluster.
pub const RMS_FEWER_LICENCES: i32 = 12;

/// Any number is of use.
pub const RMS_SIZES_ANY: i32 = 0;
/// Multiples of sizes[0].
pub const RMS_SIZES_MULTIPLE: i32 = 1;
/// 1, 2, 4, 8, ...
pub const RMS_SIZES_POWER_OF_TWO: i32 = 2;
/// Only the numbers in sizes, ascending; at most 256.
pub const RMS_SIZES_LISTED: i32 = 3;

/// The RMS proposes a change, or answers a proposal with a counter-proposal. Accept, counter or reject it in time.
pub const RMS_EVENT_OFFER: i32 = 1;
/// The negotiation is agreed, but not ready yet. Growth: nodes are being prepared. Shrink: leave nodes at the next
/// breakpoint, then call rms_release().
pub const RMS_EVENT_AGREED: i32 = 2;
/// The change is complete: nodes that were added can be used; nodes that were removed are gone.
pub const RMS_EVENT_READY: i32 = 3;
/// The negotiation has ended without a result; nothing has changed. But nodes that were not released in time are taken,
/// which RMS_EVENT_NODES reports.
pub const RMS_EVENT_OVER: i32 = 4;
/// The nodes of the application, or the time when it is ended, have changed. The event names the nodes that can be
/// used; rms_nodes() also returns nodes that are agreed but not ready yet, and another such event follows when they are
/// ready. This event comes before RMS_EVENT_READY, and mostly before RMS_EVENT_AGREED and RMS_EVENT_OVER of the same
/// change. Do not wait for it after another event: it may have come already, or been merged with a later one. Compare
/// the generation.
pub const RMS_EVENT_NODES: i32 = 5;
/// A warning, described in the text: the RMS did not accept a request, or is temporarily unreachable.
pub const RMS_EVENT_WARNING: i32 = 6;
/// The job has ended or is being ended, also by its wall time (see rms_until). No event follows.
pub const RMS_EVENT_ENDED: i32 = 7;
/// The job has another negotiator now. No event follows.
pub const RMS_EVENT_REPLACED: i32 = 8;
/// The RMS no longer negotiates with this job. No event follows.
pub const RMS_EVENT_LOST: i32 = 9;

/// Nodes are lost, and the application continues without them: a forced shrink. Sent only to applications that set
/// survives_loss or were submitted with --on-node-loss shrink; others are ended.
pub const RMS_EVENT_NODES_LOST: i32 = 10;

/// For a job with a profile: its next stage needs fewer nodes, and begins at deadline_ms. Leave these nodes, or as many
/// others, and name them by rms_release() with id 0. RMS_EVENT_NODES announces nodes that a stage adds, and
/// rms_next_stage() returns the stages and their times.
pub const RMS_EVENT_STAGE_ENDS: i32 = 11;

/// How a negotiation ended: a proposal was rejected.
pub const RMS_REJECTED: i32 = 1;
/// No answer came in time.
pub const RMS_EXPIRED: i32 = 2;
/// The proposal was withdrawn by its sender.
pub const RMS_WITHDRAWN: i32 = 3;
/// It was agreed, but could not be carried out.
pub const RMS_FAILED: i32 = 4;

/// Size of a buffer for the name of a node or cluster, including the terminating NUL.
pub const RMS_NAME_SIZE: usize = 256;

/// One connection between the application and the RMS. Opaque; do not dereference it.
#[derive(Debug)]
pub struct Session {
    _private: (),
}

/// How to connect. All zero except the size means the defaults.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// sizeof(rms_options).
    pub size: usize,
    /// How long to wait for the connection, and later for each answer. 0: 30 seconds.
    pub timeout_ms: i64,
    /// Not 0: the application continues without lost nodes, as long as it has its minimum.
    pub survives_loss: i32,
    /// Reserved.
    pub reserved: i32,
}

/// The sizes between which the RMS may change the application.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Limits {
    /// sizeof(rms_limits).
    pub size: usize,
    /// The minimum number of nodes, at least 1; the RMS never asks for fewer.
    pub least: u32,
    /// The maximum number of nodes; the RMS never offers more.
    pub most: u32,
    /// Which totals in between are of use: RMS_SIZES_...
    pub shape: i32,
    /// Not 0: the library itself answers the RMS's offers within these limits, and rms_breakpoint() returns the
    /// resulting changes.
    pub automatic: i32,
    /// The numbers that the shape needs.
    pub sizes: *const u64,
    /// How many numbers are in sizes.
    pub n_sizes: usize,
    /// The declared speed-up, ascending by nodes; NULL: not declared.
    pub speedup: *const SpeedupPoint,
    /// How many points are in speedup.
    pub n_speedup: usize,
}

/// The speed on a number of nodes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SpeedupPoint {
    /// The number of nodes.
    pub nodes: u32,
    /// The speed, in thousandths of that on one node.
    pub milli: u32,
}

/// The terms of a request or counter-proposal.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Terms {
    /// sizeof(rms_terms).
    pub size: usize,
    /// RMS_GROW, RMS_SHRINK, RMS_EXTEND, RMS_SHORTEN, or one of RMS_MORE_... and their opposites. A counter-proposal is
    /// of the same kind as the offer, and may set 0.
    pub kind: i32,
    /// Which totals are of use: RMS_SIZES_...
    pub shape: i32,
    /// The change: a number of nodes, licences or milliseconds, or of cores, MiB or devices on each node.
    pub quantity: u64,
    /// The minimum that the sender can use. 0: the quantity.
    pub least: u64,
    /// The numbers that the shape needs.
    pub sizes: *const u64,
    /// How many numbers are in sizes.
    pub n_sizes: usize,
    /// The price of a node and hour, in thousandths; whoever gets nodes pays.
    pub price: u64,
    /// How long they are kept after they are ready, in milliseconds. 0: until the application ends.
    pub duration_ms: i64,
    /// When they must be ready, in milliseconds since 1970 by the RMS's clock. 0: at any time. A time that is over is
    /// RMS_EINVAL.
    pub deadline_ms: i64,
    /// Higher is more urgent; a hint, not binding.
    pub priority: i32,
    /// How many seconds to wait for an answer, and for nodes to become free. 0: 60; more than an hour counts as an
    /// hour. 0 in a counter-proposal, which waits 60 seconds.
    pub valid_s: u32,
    /// The cluster, whether the application has nodes there or not. NULL: that of its first node. Wall time has none:
    /// NULL. In a counter-proposal, that of the offer, or NULL.
    pub cluster: *const c_char,
    /// Shrink: the names of the nodes, as many as the quantity. NULL: they are chosen when they are released. Cores,
    /// memory and devices: the nodes on which they change. NULL: all. NULL for all else.
    pub nodes: *const *const c_char,
    /// How many names are in nodes.
    pub n_nodes: usize,
    /// The name of devices and licences, like gpu, gpu:a100 or matlab. NULL for all else. In a counter-proposal, that
    /// of the offer, or NULL.
    pub name: *const c_char,
}

/// An event. Its text and nodes belong to the library and stay valid until the thread that received them asks for the
/// next event, or until its callback returns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    /// sizeof(rms_event). Set it before the call.
    pub size: usize,
    /// RMS_EVENT_...
    pub kind: i32,
    /// RMS_GROW, RMS_SHRINK, RMS_EXTEND, RMS_SHORTEN, or one of RMS_MORE_... and their opposites; 0 if unknown, or if
    /// the event is not about a negotiation.
    pub what: i32,
    /// The negotiation; 0: none.
    pub id: u64,
    /// The change: a number of nodes, licences or milliseconds, or of cores, MiB or devices on each node.
    pub quantity: u64,
    /// Offer: the minimum that the RMS can use.
    pub least: u64,
    /// Offer: the maximum that the RMS can use.
    pub most: u64,
    /// Offer: the price of a node and hour, in thousandths.
    pub price: u64,
    /// Offer: how long, in milliseconds. 0: until the application ends.
    pub duration_ms: i64,
    /// Offer: when it must be ready, in milliseconds since 1970 by the RMS's clock. 0: at any time.
    pub deadline_ms: i64,
    /// Offer: when the nodes must be given back, by the same clock. 0: never.
    pub give_back_by_ms: i64,
    /// Offer: how long an answer is accepted, in milliseconds from when the event is taken.
    pub valid_ms: i64,
    /// Counts the proposals of both ends.
    pub round: u32,
    /// RMS_EVENT_READY, RMS_EVENT_NODES: counts the changes of the application's nodes, from 1. 0 in other events.
    pub generation: u32,
    /// RMS_EVENT_OVER: RMS_REJECTED, ...
    pub ending: i32,
    /// How many resources it is about. If more than one, this API can only accept or reject it; the fields describe the
    /// first.
    pub n_items: u32,
    /// Names of the nodes that it is about, if known. RMS_EVENT_AGREED: those that are removed unless others are
    /// released.
    pub nodes: *const *const c_char,
    /// How many names are in nodes.
    pub n_nodes: usize,
    /// The event or its reason as text. Never NULL.
    pub text: *const c_char,
}

/// A node that the application holds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Node {
    /// sizeof(rms_node). In an array, only that of the first element is read.
    pub size: usize,
    /// Its number in the RMS.
    pub node: u32,
    /// How many of its CPUs are the application's.
    pub cpus: u32,
    /// Not 0: the application was asked to leave it and has not confirmed that it has.
    pub is_departing: i32,
    /// Not 0: it is agreed but it, or another node of the same growth, is not ready yet; nothing can be started there
    /// until all are.
    pub is_coming: i32,
    /// Its name.
    pub name: [c_char; RMS_NAME_SIZE],
    /// Where its agent is reached: IP address and UDP port of QUIC. Programs reach each other by the name.
    pub address: [c_char; RMS_NAME_SIZE],
    /// The cluster that it belongs to.
    pub cluster: [c_char; RMS_NAME_SIZE],
}

/// What to do at a breakpoint. Its nodes belong to the library and stay valid until the same thread calls
/// rms_breakpoint() again.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Change {
    /// sizeof(rms_change). Set it before the call.
    pub size: usize,
    /// RMS_GROW: use these nodes from now on. RMS_SHRINK: leave these nodes, then call rms_release_done(), also if
    /// is_done is set.
    pub kind: i32,
    /// Shrink: not 0 if the RMS has already taken the nodes, or they are lost; what ran there has been killed.
    pub is_done: i32,
    /// The negotiation; 0: none, as a stage of the job begins, someone else requested the change, or nodes are lost.
    pub id: u64,
    /// How often the application's nodes have changed so far, from 1, as rms_generation() returns it: changes that are
    /// still to be reported count, so several may have the same one.
    pub generation: u32,
    /// The number of nodes to use after this change.
    pub n_after: u32,
    /// Names of the nodes that were added or are to be left.
    pub nodes: *const *const c_char,
    /// How many names are in nodes.
    pub n_nodes: usize,
}

/// The current stage of an application with a profile.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stage {
    /// sizeof(rms_stage). Set it before the call.
    pub size: usize,
    /// The current stage, counted from 1.
    pub number: u32,
    /// The number of stages, including those that are over.
    pub n_stages: u32,
    /// The nodes of the current stage.
    pub nodes: u32,
    /// The nodes of the next stage; 0: this is the last one.
    pub next_nodes: u32,
    /// When the current stage ends, in milliseconds since 1970 by the RMS's clock. If the nodes of the next stage are
    /// not free then, it continues.
    pub until_ms: i64,
}

/// The callback for events, called in a thread of the library. It may call every function except rms_close() and
/// rms_on_event(), and must return.
pub type EventCallback = Option<unsafe extern "C" fn(session: *mut Session, event: *const Event, user: *mut c_void)>;

/// A struct of the header whose first field is its size as the caller was compiled with it.
///
/// # Safety
/// The struct is `repr(C)`, begins with a `usize`, and every bit pattern is a valid value of it.
pub unsafe trait Versioned: Copy {
    /// Its size in the first version of the header.
    const FIRST: usize;
}

// SAFETY: C structs of numbers and pointers whose padding carries no meaning: every bit pattern is a valid value, all
// zeros included. Each begins with its size.
unsafe impl Versioned for Options {
    const FIRST: usize = std::mem::offset_of!(Options, survives_loss);
}

// SAFETY: as above.
unsafe impl Versioned for Stage {
    const FIRST: usize = size_of::<Stage>();
}

// SAFETY: as above.
unsafe impl Versioned for Limits {
    const FIRST: usize = size_of::<Limits>();
}

// SAFETY: as above.
unsafe impl Versioned for Terms {
    const FIRST: usize = size_of::<Terms>();
}

// SAFETY: as above.
unsafe impl Versioned for Event {
    const FIRST: usize = size_of::<Event>();
}

// SAFETY: as above.
unsafe impl Versioned for Node {
    const FIRST: usize = size_of::<Node>();
}

// SAFETY: as above.
unsafe impl Versioned for Change {
    const FIRST: usize = size_of::<Change>();
}

impl Default for Event {
    fn default() -> Event {
        Event {
            size: size_of::<Event>(),
            kind: 0,
            what: 0,
            id: 0,
            quantity: 0,
            least: 0,
            most: 0,
            price: 0,
            duration_ms: 0,
            deadline_ms: 0,
            give_back_by_ms: 0,
            valid_ms: 0,
            round: 0,
            generation: 0,
            ending: 0,
            n_items: 0,
            nodes: ptr::null(),
            n_nodes: 0,
            text: ptr::null(),
        }
    }
}
