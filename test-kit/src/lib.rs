//! What the tests of all crates share: seeded randomness, submissions and nodes of jobs, and whole deployments of real
//! processes.
//!
//! Everything of a deployment is in one temporary directory and listens on loopback at its own ports, so tests run in
//! parallel; dropping a [`Deployment`] ends every process that names the directory, and nothing else.

mod binaries;
mod cgroups;
mod command;
mod deployment;
mod dice;
mod disk;
mod processes;
mod samples;

pub use binaries::{Binaries, binaries, example, library};
pub use cgroups::Cgroups;
pub use command::{Output, submit_all, wait_until};
pub use deployment::{Builder, Deployment, NodeOptions};
pub use dice::{Dice, Replay, any_seed, for_seeds, one_seed, seeds, variable};
pub use disk::SmallDisk;
pub use processes::{Reaper, is_alive};
pub use samples::{place, submission};
