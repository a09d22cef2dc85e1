//! Reads vectors and holds the production core against them.

pub mod rms_pass;
