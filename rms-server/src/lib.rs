//! The server around the core: real time, sockets and disk. What it decides, `rms-core` decides.

pub mod clock;
pub mod config;
pub mod dir;
pub mod history;
pub mod journal;
