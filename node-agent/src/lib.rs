//! One node of a cluster: describes it, starts and ends the jobs that the server desires, and reports their state.
//!
//! [`rms_core::NodeLoop`] makes the decisions. This crate does the blocking work: processes in cgroups, sockets, files.

pub mod address;
pub mod cgroup;
pub mod config;
pub mod devices;
pub mod driver;
pub mod exec;
pub mod follow;
pub mod frame;
pub mod hash;
pub mod keys;
pub mod leftovers;
pub mod local;
pub mod lookup;
pub mod masks;
pub mod order;
pub mod peer;
pub mod pmi;
pub mod rsh;
pub mod run;
pub mod seat;
pub mod setup;
pub mod share;
pub mod slow_teams;
pub mod spawner;
pub mod spool;
pub mod step;
pub mod step_part;
pub mod supervisor;
pub mod sys;
pub mod takeover;
pub mod topology;
pub mod uplink;
pub mod watch;
pub mod work_queues;
