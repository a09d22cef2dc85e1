//! Whole deployments of real processes for tests: a server, agents, and the command `rms` against them.
//!
//! Everything is in one temporary directory and listens on loopback at its own ports, so tests run in parallel;
//! dropping a [`Deployment`] ends every process that names the directory, and nothing else.

mod binaries;
mod cgroups;
mod command;
mod deployment;
mod disk;
mod processes;

pub use binaries::{Binaries, binaries, example, library};
pub use command::{Output, submit_all, wait_until};
pub use deployment::{Builder, Deployment, NodeOptions};
pub use disk::SmallDisk;
pub use processes::{Reaper, is_alive};
