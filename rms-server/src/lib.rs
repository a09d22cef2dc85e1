//! The server around the core: real time, sockets and disk. All decisions are made by `rms-core`.
//!
//! Events enter through the [`inbox`], the [`driver`] alone runs the core and commits to the [`journal`], and effects
//! are put into bounded outboxes, from which each link's session takes them.

pub mod allocator;
mod authority;
pub mod clock;
pub mod config;
pub mod dir;
mod disk_space;
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
pub mod rotation;
pub mod run;
mod session;
mod shared;
mod trace;
