//! What crosses the boundary: the structs and constants of the header, with their documentation for C.
//!
//! Every struct begins with its size as the caller was compiled with it, so that later versions may append fields.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// The call succeeded.
pub const RMS_OK: c_int = 0;
/// Nothing came within the time, or nothing is to be done. No error.
pub const RMS_NOTHING: c_int = 1;
/// An argument is not what it must be.
pub const RMS_EINVAL: c_int = -1;
/// That is no session, or it was closed.
pub const RMS_ESESSION: c_int = -2;
/// This process was forked from the one that connected. Only exec and _exit are possible in it.
pub const RMS_EFORK: c_int = -3;
/// A bug of the library. The session should be closed.
pub const RMS_EPANIC: c_int = -4;
/// This process does not belong to a job that may negotiate.
pub const RMS_EJOB: c_int = -5;
/// There is no connection to the RMS.
pub const RMS_ECONNECT: c_int = -6;
/// The RMS refuses.
pub const RMS_EREFUSED: c_int = -7;
/// That negotiation is not known, or is over.
pub const RMS_EUNKNOWN: c_int = -8;
/// That is not possible now.
pub const RMS_ESTATE: c_int = -9;
/// Nothing more can be said: the job is ending, or it has another negotiator.
pub const RMS_EENDED: c_int = -10;
/// A buffer or an array of the caller is too small.
pub const RMS_ESPACE: c_int = -11;
/// The session is in use in another way, or too many are open.
pub const RMS_EBUSY: c_int = -12;
/// A file cannot be written, or the system lacks a resource.
pub const RMS_EIO: c_int = -13;
/// A struct is newer than the library, or its size is not set.
pub const RMS_EVERSION: c_int = -14;
/// No answer came in time. It is not known whether the RMS has heard it; it may be said again.
pub const RMS_ETIMEDOUT: c_int = -15;

/// The application gets more nodes.
pub const RMS_GROW: i32 = 1;
/// The application gives nodes back.
pub const RMS_SHRINK: i32 = 2;
/// The application gets more wall time.
pub const RMS_EXTEND: i32 = 3;
/// The application will end earlier.
pub const RMS_SHORTEN: i32 = 4;
/// The application gets more cores on nodes that it has.
pub const RMS_MORE_CORES: i32 = 5;
/// The application gives cores of its nodes back.
pub const RMS_FEWER_CORES: i32 = 6;
/// The application gets more memory on nodes that it has, in MiB on each.
pub const RMS_MORE_MEMORY: i32 = 7;
/// The application gives memory of its nodes back.
pub const RMS_LESS_MEMORY: i32 = 8;
/// The application gets more devices on nodes that it has, of the name in the terms.
pub const RMS_MORE_DEVICES: i32 = 9;
/// The application gives devices of its nodes back.
pub const RMS_FEWER_DEVICES: i32 = 10;
/// The application gets more licences of a cluster, of the name in the terms.
pub const RMS_MORE_LICENCES: i32 = 11;
/// The application gives licences of a cluster back.
pub const RMS_FEWER_LICENCES: i32 = 12;

/// Every number of nodes is of use.
pub const RMS_SIZES_ANY: i32 = 0;
/// Multiples of sizes[0].
pub const RMS_SIZES_MULTIPLE: i32 = 1;
/// 1, 2, 4, 8, ...
pub const RMS_SIZES_POWER_OF_TWO: i32 = 2;
/// Exactly the numbers in sizes, ascending.
pub const RMS_SIZES_LISTED: i32 = 3;

/// The RMS proposes something, or answers a proposal with another. Accept, counter or reject it in time.
pub const RMS_EVENT_OFFER: i32 = 1;
/// There is agreement, and it is not ready yet. A growth: nodes are being prepared. A shrink: leave nodes at the next
/// breakpoint, then say so with rms_release().
pub const RMS_EVENT_AGREED: i32 = 2;
/// It is done: the nodes that came can be used; the nodes that went are gone.
pub const RMS_EVENT_READY: i32 = 3;
/// The negotiation has ended without a result; nothing has changed. But nodes that were not released in time are
/// taken: then RMS_EVENT_NODES comes, too.
pub const RMS_EVENT_OVER: i32 = 4;
/// The nodes of the application, or the time when it is ended, have changed. The event names those that can be used: nodes
/// that were agreed and are not ready yet are told by rms_nodes(), and by another such event when they are.
pub const RMS_EVENT_NODES: i32 = 5;
/// Something is not as it should be, and is told in the text: the RMS did not take what was said, or is away for
/// a while.
pub const RMS_EVENT_WARNING: i32 = 6;
/// The job has ended or is being ended. Nothing comes after it.
pub const RMS_EVENT_ENDED: i32 = 7;
/// The job has another negotiator now. Nothing comes after it.
pub const RMS_EVENT_REPLACED: i32 = 8;
/// The RMS does not negotiate with this job any more. Nothing comes after it.
pub const RMS_EVENT_LOST: i32 = 9;

/// Nodes are lost, and the application goes on without them: a shrink by force. Only who has set survives_loss, or was
/// submitted with --on-node-loss shrink, is told; others are ended.
pub const RMS_EVENT_NODES_LOST: i32 = 10;

/// Of a job with a profile: its next stage needs fewer nodes, and begins at deadline_ms. Leave these, or as many others,
/// and name them by rms_release() with the id 0. Nodes that come with a stage are told by RMS_EVENT_NODES, and
/// rms_next_stage() says what comes when.
pub const RMS_EVENT_STAGE_ENDS: i32 = 11;

/// How a negotiation ended: an answer was no.
pub const RMS_REJECTED: i32 = 1;
/// No answer came in time.
pub const RMS_EXPIRED: i32 = 2;
/// Who proposed it took it back.
pub const RMS_WITHDRAWN: i32 = 3;
/// It was agreed and did not come about.
pub const RMS_FAILED: i32 = 4;

/// Room for the name of a node or a cluster, its end included.
pub const RMS_NAME_SIZE: usize = 256;

/// One connection between the application and the RMS. Never look into it: it points nowhere.
#[derive(Debug)]
pub struct Session {
    _private: (),
}

/// How to connect. All zero but the size means the defaults.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Options {
    /// sizeof(rms_options).
    pub size: usize,
    /// For how long a connection, and later an answer, is awaited. 0: 30 seconds.
    pub timeout_ms: i64,
    /// Not 0: the application goes on without nodes that are lost, as long as it has its least.
    pub survives_loss: i32,
    /// Nothing.
    pub reserved: i32,
}

/// Between which sizes the RMS may change the application.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Limits {
    /// sizeof(rms_limits).
    pub size: usize,
    /// It is never asked to hold fewer nodes; at least 1.
    pub least: u32,
    /// It is never offered more.
    pub most: u32,
    /// Which totals between are of use: RMS_SIZES_...
    pub shape: i32,
    /// Not 0: the library answers the RMS's offers within these limits by itself, and rms_breakpoint() tells what
    /// came of it.
    pub automatic: i32,
    /// What the shape needs.
    pub sizes: *const u64,
    /// How many numbers are in sizes.
    pub n_sizes: usize,
    /// The declared speed-up, ascending by nodes; NULL: not declared.
    pub speedup: *const SpeedupPoint,
    /// How many points are in speedup.
    pub n_speedup: usize,
}

/// With so many nodes, so many thousandths of the speed on one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SpeedupPoint {
    /// The number of nodes.
    pub nodes: u32,
    /// The speed, in thousandths of that on one node.
    pub milli: u32,
}

/// What is asked for, or countered with.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Terms {
    /// sizeof(rms_terms).
    pub size: usize,
    /// RMS_GROW, RMS_SHRINK, RMS_EXTEND, RMS_SHORTEN, or one of RMS_MORE_... and their opposites. A counter is about the
    /// same as the offer, and may say 0.
    pub kind: i32,
    /// Which totals are of use: RMS_SIZES_...
    pub shape: i32,
    /// How many nodes, licences or milliseconds, or how many cores, MiB or devices on each node, more or less.
    pub quantity: u64,
    /// The sender cannot use fewer. 0: as many as the quantity.
    pub least: u64,
    /// What the shape needs.
    pub sizes: *const u64,
    /// How many numbers are in sizes.
    pub n_sizes: usize,
    /// For a node and hour, in thousandths; who gets nodes pays.
    pub price: u64,
    /// For how long after they are ready, in milliseconds. 0: until the application ends.
    pub duration_ms: i64,
    /// Ready by then, in milliseconds since 1970 by the RMS's clock. 0: whenever.
    pub deadline_ms: i64,
    /// Higher is more urgent; binds nobody.
    pub priority: i32,
    /// For how many seconds an answer is awaited, and with it for nodes to become free. 0: 60; more than an hour counts
    /// as an hour.
    pub valid_s: u32,
    /// On this cluster, whether the application has nodes there or not. NULL: where its first node is.
    pub cluster: *const c_char,
    /// A shrink: which nodes, by name, as many as the quantity. NULL: it is chosen when they are released. Of cores, memory
    /// and devices: on which nodes. NULL: on all.
    pub nodes: *const *const c_char,
    /// How many names are in nodes.
    pub n_nodes: usize,
    /// Of devices and licences: their name, like gpu, gpu:a100 or matlab. NULL for all else.
    pub name: *const c_char,
}

/// Something that happened. Its text and its nodes belong to the library and stay until the thread that got them asks
/// for the next event, or until its callback returns.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Event {
    /// sizeof(rms_event). Set it before the call.
    pub size: usize,
    /// RMS_EVENT_...
    pub kind: i32,
    /// RMS_GROW, RMS_SHRINK, RMS_EXTEND, RMS_SHORTEN, or one of RMS_MORE_... and their opposites; 0 if it is not known,
    /// or not about a negotiation.
    pub what: i32,
    /// Which negotiation; 0: none.
    pub id: u64,
    /// How many nodes, licences or milliseconds, or how many cores, MiB or devices on each node, more or less.
    pub quantity: u64,
    /// An offer: the RMS cannot use fewer.
    pub least: u64,
    /// An offer: the RMS cannot use more.
    pub most: u64,
    /// An offer: what a node costs for an hour, in thousandths.
    pub price: u64,
    /// An offer: for how long, in milliseconds. 0: until the application ends.
    pub duration_ms: i64,
    /// An offer: ready by then, in milliseconds since 1970 by the RMS's clock. 0: whenever.
    pub deadline_ms: i64,
    /// An offer: given back by then, by the same clock. 0: never.
    pub give_back_by_ms: i64,
    /// An offer: for so long an answer counts, in milliseconds from when the event is taken.
    pub valid_ms: i64,
    /// Counts the proposals of both ends.
    pub round: u32,
    /// Counts the changes of the application's nodes, from 1.
    pub generation: u32,
    /// RMS_EVENT_OVER: RMS_REJECTED, ...
    pub ending: i32,
    /// How many resources it is about. If more than one, it can only be accepted or rejected from here; the
    /// fields tell of the first.
    pub n_items: u32,
    /// Names of the nodes that it is about, if they are known: of RMS_EVENT_AGREED, those that go unless others
    /// are released.
    pub nodes: *const *const c_char,
    /// How many names are in nodes.
    pub n_nodes: usize,
    /// The event in words, or the reason. Never NULL.
    pub text: *const c_char,
}

/// A node that the application holds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Node {
    /// sizeof(rms_node). Of an array, only that of the first is looked at.
    pub size: usize,
    /// Its number in the RMS.
    pub node: u32,
    /// How many of its CPUs are the application's.
    pub cpus: u32,
    /// Not 0: the application was asked to leave it and has not confirmed that it has.
    pub is_departing: i32,
    /// Not 0: it was agreed and is not ready yet, or others that come with it are not; nothing can be started there before.
    pub is_coming: i32,
    /// Its name.
    pub name: [c_char; RMS_NAME_SIZE],
    /// Where its agent is reached: IP address and UDP port of QUIC. Programs reach each other by the name.
    pub address: [c_char; RMS_NAME_SIZE],
    /// The cluster that it belongs to.
    pub cluster: [c_char; RMS_NAME_SIZE],
}

/// What has to be done at a breakpoint. Its nodes belong to the library and stay until the same thread calls
/// rms_breakpoint() again.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Change {
    /// sizeof(rms_change). Set it before the call.
    pub size: usize,
    /// RMS_GROW: use these nodes from now on. RMS_SHRINK: leave these nodes, then call rms_release_done(), which is due
    /// where is_done is set, too.
    pub kind: i32,
    /// A shrink, not 0: the RMS has taken the nodes already, or they are lost; what ran there has been killed.
    pub is_done: i32,
    /// Which negotiation; 0: none, for a stage of the job begins, others have asked, or nodes are lost.
    pub id: u64,
    /// Counts the changes of the application's nodes, from 1.
    pub generation: u32,
    /// How many nodes are to be used after this change.
    pub n_after: u32,
    /// Names of the nodes that came or are to be left.
    pub nodes: *const *const c_char,
    /// How many names are in nodes.
    pub n_nodes: usize,
}

/// Where an application with a profile is.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stage {
    /// sizeof(rms_stage). Set it before the call.
    pub size: usize,
    /// The stage that it is in, counted from 1.
    pub number: u32,
    /// How many there are, with those that are over.
    pub n_stages: u32,
    /// How many nodes this one has.
    pub nodes: u32,
    /// How many the next one has; 0: this is the last one.
    pub next_nodes: u32,
    /// When this one is over, in milliseconds since 1970 by the RMS's clock. If the nodes of the next one are not free
    /// then, it goes on.
    pub until_ms: i64,
}

/// What is called for each event, in a thread of the library. It may call every function but rms_close() and
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
