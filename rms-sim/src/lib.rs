//! Runs the real core and the real node logic in virtual time, with faults and with checkers.
//!
//! Nothing here schedules: [`World`] moves messages between the [`rms_core::ServerLoop`] that production runs and one
//! [`rms_core::agent::Agent`] per node, runs model processes, injects faults on request, and after each step calls the
//! [`check`]ers. The same seed gives the same bytes. [`batch`] runs long workloads fast, with nothing around the core
//! that the workload does not need.

mod agenda;
pub mod application;
pub mod batch;
pub mod check;
pub mod crowd;
pub mod dice;
pub mod fault;
mod journal;
pub mod launcher;
mod link;
pub mod node;
mod people;
pub mod program;
pub mod scenario;
mod server;
pub mod story;
pub mod supervisor;
mod trace;
pub mod work;
pub mod workload;
mod world;

pub use check::Violation;
pub use dice::Dice;
pub use people::{admin, user};
pub use program::Program;
pub use server::CrashPoint;
pub use work::{ModelJob, moldable, rigid, script, spanning};
pub use world::{World, WorldBuilder};
