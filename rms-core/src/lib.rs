//! Every decision of the server and of a node, without clock, threads, files or sockets.
//!
//! [`Rms`] is the whole server: an [`Event`] enters, a [`Step`] of [`Fact`]s and effects leaves, and
//! [`Step::commit`] is the only door to the effects: facts are durable first. [`agent::Agent`] is the same
//! for one node. The simulator and the production programs run exactly this code.

mod access;
mod admit;
pub mod agent;
mod agents;
mod answer;
mod audit;
mod calls;
pub mod effect;
pub mod event;
mod evolving;
mod executable;
mod ghosts;
mod launchers;
mod lifecycle;
pub mod negotiate;
pub mod plan;
mod quota;
mod rms;
pub mod share;
pub mod state;
mod step;
#[cfg(test)]
mod tests;

pub use effect::Effect;
pub use event::{Event, Ticket};
pub use plan::plan;
pub use rms::{Config, Rms};
pub use state::fact::Fact;
pub use state::{Misfit, State};
pub use step::{Journal, Step, Uncommitted};
