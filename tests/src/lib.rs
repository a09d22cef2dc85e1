//! What the tests share: the MPI test programs, and the rules that the sources themselves must keep.

pub mod apps;
pub mod conformance;
pub mod harness;
pub mod hostile;
pub mod network;
#[cfg(test)]
mod tidy;
