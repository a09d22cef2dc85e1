//! Draws occupation profiles: the same segments as terminal blocks and as SVG.

pub mod axis;
pub mod blocks;
pub mod segments;
pub mod svg;
