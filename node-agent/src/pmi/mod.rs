//! Process management for MPI: PMI-1 as MPICH and its relatives speak it to whoever started their ranks.
//!
//! Each host of a job has a [`ranks::Ranks`], which answers its own ranks; host 0 also has the [`hub::Hub`],
//! where the hosts' fences meet. Both are pure and live in the supervisors, so an agent may restart in the
//! middle; agents only carry [`hub::HubFrame`]s from host to host.

pub mod hub;
pub mod line;
pub mod ranks;

/// As the ranks are told by `get_maxes`.
pub const KVSNAME_MAX: usize = 256;
pub const KEYLEN_MAX: usize = 64;
pub const VALLEN_MAX: usize = 4096;
/// No line of the protocol is longer: a command, a name, a key, a value and their labels.
pub const LINE_MAX: usize = KVSNAME_MAX + KEYLEN_MAX + VALLEN_MAX + 256;
