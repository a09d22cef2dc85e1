//! Every decision of the server and of a node, without clock, threads, files or sockets.
//!
//! [`Rms`] is the whole server: it takes an [`Event`] and returns a [`Step`] of [`Fact`]s and effects. [`Step::commit`]
//! releases the effects only after the facts are durable. [`NodeLoop`] is the same for one node. The simulator and the
//! production programs run exactly this code.

mod access;
mod admin;
mod admit;
pub mod agent;
mod agents;
mod answer;
mod audit;
mod calls;
mod context;
mod depth;
pub mod effect;
pub mod event;
mod executable;
mod ghosts;
mod jobs;
mod launch;
mod launchers;
pub mod negotiate;
pub mod node_loop;
mod notices;
pub mod plan;
mod published;
mod queue;
mod quota;
mod rate;
mod rights;
mod rms;
pub mod server_loop;
pub mod share;
mod stages;
pub mod state;
mod step;
#[cfg(test)]
mod tests;
mod update;

pub use context::Config;
pub use depth::Walk;
pub use effect::Effect;
pub use event::{Event, Ticket};
pub use node_loop::NodeLoop;
pub use plan::plan;
pub use rms::Rms;
pub use server_loop::ServerLoop;
pub use state::fact::Fact;
pub use state::{ApplyError, Replay, State};
pub use step::{CommitError, Journal, Step, Write};
