//! The vocabulary of Limber: the messages between users, launchers, the command line, the wire and the core.
//!
//! This crate makes no decisions and sends nothing.

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
pub mod terms;

pub use answer::Answer;
pub use call::{Call, Query};
pub use refusal::{Refusal, Refused};
