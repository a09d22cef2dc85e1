//! The server around the core: real time, sockets and disk. What it decides, `rms-core` decides.
//!
//! Events enter by the [`inbox`], the [`driver`] alone runs the core and commits to the [`journal`], and the
//! router leaves effects in bounded outboxes, from which each link's session takes them.

pub mod allocator;
mod authority;
pub mod clock;
pub mod config;
pub mod dir;
pub mod driver;
pub mod history;
pub mod inbox;
pub mod init;
pub mod journal;
pub mod launcher_outbox;
mod listener;
pub mod mailbox;
pub mod negotiator_outbox;
pub mod open_error;
pub mod outbox;
mod peers;
pub mod reach;
pub mod registry;
mod room;
pub mod rotation;
pub mod run;
mod session;
mod shared;
mod trace;
