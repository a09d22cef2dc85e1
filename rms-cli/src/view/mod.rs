//! Draws occupation profiles: the same slabs as terminal blocks and as SVG.

pub mod axis;
pub mod blocks;
pub mod slabs;
pub mod svg;
