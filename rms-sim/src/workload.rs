//! Where the jobs of an experiment come from: traces and generators.

pub mod cirne;
pub mod draw;
pub mod lublin;
pub mod swf;
