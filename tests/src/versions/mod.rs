//! Programs of other versions among those under test: relays between two of them rewrite what they say to each other.
//!
//! The programs are those that were built. What another version of one would have written, and would not have
//! understood, is put in and taken out on the way, by a relay with certificates for both ends of a link
//! (`relay`), and on the socket between an agent and its supervisors (`spool`).

mod relay;
mod schema;
mod spool;

pub use relay::{Held, Relay};
pub use schema::Schema;
pub use spool::leave_as;
