//! What the tests share: deployments, the MPI test programs, the C library, and the rules that the sources themselves must keep.

pub mod apps;
pub mod conformance;
pub mod harness;
pub mod hostile;
pub mod network;
pub mod sdk;
#[cfg(test)]
mod tidy;
