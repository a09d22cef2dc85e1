//! The vocabulary of Limber: what users, launchers, the command line, the wire and the core say to each other.
//!
//! Nothing here decides or sends anything.

pub mod answer;
pub mod audit;
pub mod call;
pub mod desired;
pub mod filter;
pub mod masks;
pub mod negotiate;
pub mod refusal;
pub mod stages;
pub mod subscription;

pub use answer::Answer;
pub use call::{Call, Query};
pub use refusal::{Refusal, Refused};
