//! Where the jobs of an experiment come from: traces and generators.

pub mod cirne;
pub mod delegated;
mod draw;
pub mod evolving;
pub mod lublin;
pub mod swf;
