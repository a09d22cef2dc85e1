//! Sources of jobs for experiments: traces and generators.

pub mod cirne;
pub mod draw;
pub mod lublin;
pub mod swf;
