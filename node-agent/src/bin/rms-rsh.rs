//! The remote shell of `mpirun` inside a job.

fn main() {}
