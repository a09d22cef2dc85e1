//! Reads vectors and holds the production core against them.

mod evolution;
pub mod fit;
pub mod mapping;
pub mod mates;
pub mod moldable;
pub mod ndrms_sim;
pub mod offline;
mod place;
pub mod rms_pass;
pub mod schema;
pub mod sd_sim;
pub mod slices;
