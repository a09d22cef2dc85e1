//! The cluster of `rms up`: a server and node agents as processes of this user on this machine.

pub mod build;
pub mod cgroups;
pub mod layout;
pub mod ledger;
pub mod process;
pub mod spawn;
pub mod stop;
pub mod sweep;
