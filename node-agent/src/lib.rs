//! One node of a cluster: describes it, starts and ends what the server desires, reports what is so.
//!
//! The decisions are [`rms_core::agent`]'s. Here is what waits and does: processes in cgroups, sockets, files.

pub mod cgroup;
pub mod frame;
pub mod pmi;
pub mod spawner;
pub mod spool;
pub mod supervisor;
pub mod sys;
pub mod topology;
