//! What the tests share: programs of other versions, sweeps of seeds, the MPI and OpenMP test programs, the C library, and the rules that the sources themselves must keep.

pub mod apps;
pub mod conformance;
pub mod hostile;
pub mod network;
pub mod openmp;
pub mod sdk;
pub mod seeds;
#[cfg(test)]
mod tidy;
pub mod versions;
