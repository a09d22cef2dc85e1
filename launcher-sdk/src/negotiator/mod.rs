//! For applications that grow and shrink while they run (002): a process of the job negotiates with the server.
//!
//! An *evolving* application [requests](Negotiator::request) more nodes, fewer nodes or more time. A *malleable* one
//! [declares](Negotiator::declare) the sizes between which it can be changed, and answers when the server offers nodes
//! or asks for nodes back. An application may do both. A change that both ends agree on is *accepted*; it becomes
//! *ready* when processes can be placed on the new nodes, or when the processes on the old ones are gone.
//!
//! Any process of a job that was submitted as negotiating (`rms submit --malleable 2-8 --negotiable`) may negotiate for
//! it: the node's agent places a key and a certificate for the job, and [`Negotiator::connect`] finds them through the
//! environment.
//!
//! A job that was submitted with a profile (`rms submit --profile 2x10m,4x1h`) learns its stages here: the current and
//! coming ones are in [`Holding::stages`], nodes that come with a stage are reported like any others, and
//! [`Event::StageEnds`] says which nodes to leave for a smaller stage. It cannot request anything here; `rms evolve`
//! announces other stages.
//!
//! There are two ways, from the least to the most work:
//!
//! 1. [`Resizing`]: declare limits, and call [`Resizing::breakpoint`] where the application can be changed.
//! 2. A [`Negotiator`]: requests, [events](Event) and answers one by one.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use launcher_sdk::negotiator::{Change, Limits, Negotiator, Resizing};
//!
//! let negotiator = Negotiator::connect().await?;
//! let mut resizing = Resizing::within(&negotiator, Limits::between(2, 16).in_powers_of_two()).await?;
//! for _iteration in 0..1000 {
//!     // … compute …
//!     while let Some(change) = resizing.breakpoint().await? {
//!         match change {
//!             Change::Added(added) => println!("{} nodes more: start processes there", added.nodes.len()),
//!             Change::Leave(leave) => {
//!                 println!("move away from {:?}", leave.names());
//!                 leave.done().await?;
//!             }
//!             Change::Lost(nodes) => println!("{} nodes are lost, and what ran there", nodes.len()),
//!         }
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Threads
//!
//! A negotiator has one thread of its own, which holds the connection, answers for the application and runs the timers;
//! so an application that computes for hours in its only thread stays connected. [`Negotiator`] and [`Negotiation`] are
//! handles to it: cheap to clone, [`Send`] and [`Sync`], usable from any thread and any async runtime, also
//! concurrently. Each event goes to one of the waiting callers. The thread ends when the last handle is dropped.
//!
//! # When the server is unreachable
//!
//! The thread reconnects, with growing delays, and continues the open negotiations. Requests that are made meanwhile are
//! sent then; offers may expire while the connection is down. Nothing is decided without the server.

mod channel;
mod clock;
mod environment;
mod error;
mod event;
mod handle;
mod hostfile;
mod limits;
mod mpirun;
mod negotiations;
mod owner;
mod policy;
mod queue;
mod resizing;
#[cfg(test)]
mod tests;
mod want;

pub use environment::JobEnvironment;
pub use error::{ConnectError, NegotiatorError};
pub use event::{Agreed, Event, Offer, Ready, StageEnds, Warning};
pub use handle::{Negotiation, Negotiator, Settled};
pub use hostfile::HostfileStyle;
pub use limits::Limits;
pub use negotiation::{
    ActError, Direction, Ending, Item, ItemStatus, NegotiationId, Phase, Price, Quantity, Reason, Resource, SetRule,
    Side, Sizes, Template, Terms,
};
pub use policy::{Decision, Policy, within};
pub use resizing::{Added, Change, Leave, Resizing};
pub use rms_api::answer::{StageLine, Stages};
pub use rms_api::negotiate::{HeldNode, Holding, Keeps};
pub use want::Want;
