//! The production core in virtual time, and experiments around it.

pub mod offline;
pub mod workload;
