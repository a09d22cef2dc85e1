//! How an application and the RMS agree on a change of resources: the template, and the dialogue that both ends run.
//!
//! A [`Template`] (002, §5.1) contains what is negotiated: the parties, a status that follows from the items, and a
//! list of resources, each with its quantity, its own terms and its own status. A [`Dialogue`] is one negotiation as a
//! state machine without clock and sockets; both ends run this code and differ only in their [`Side`]. [`Dialogues`]
//! holds all negotiations between the RMS and one application.
//!
//! The RMS is the arbiter: the decision of its end is the result of the negotiation. The application's end states what
//! it wants and waits for that decision, because over a lossy channel two ends that both decide cannot always agree.
//! `docs/negotiation.md` is the specification for authors of another end.

#![warn(missing_docs)]

mod concession;
pub mod dialogue;
pub mod dialogues;
pub mod draft;
pub mod error;
pub mod message;
mod owner;
pub mod subject;
pub mod table;
pub mod template;
pub mod terms;
mod voice;

pub use dialogue::{Dialogue, Reminded, Reminder};
pub use dialogues::Dialogues;
pub use draft::{Draft, DraftItem};
pub use error::{ActError, Breach, Forgery, Rejected, Worse};
pub use message::{Message, Reason, Statement};
pub use owner::{Action, Change, Output, Rules};
pub use subject::{Direction, NegotiationId, Parties, Resource, SetRule, Side};
pub use table::{Ending, Phase};
pub use template::{Item, ItemStatus, Status, Template, TemplateError, Which};
pub use terms::{Price, Quantity, Sizes, Terms};
