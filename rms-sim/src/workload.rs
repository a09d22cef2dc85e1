//! Where the jobs of an experiment come from: traces and generators.

pub mod evolving;
