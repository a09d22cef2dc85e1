//! Links between programs: mutually authenticated connections, over QUIC or a local socket, that carry channels of
//! frames.

mod accept;
mod backoff;
mod channel;
mod connection;
mod door;
mod endpoint;
mod error;
mod joining;
mod knock;
mod lasting;
mod local;
mod log_limit;
mod outbox;
mod peering;
mod places;
mod shares;
mod socket;
mod tuning;

pub use accept::{Accepted, Joining};
pub use backoff::Backoff;
pub use channel::{Budget, ByteCount, Channel, Held, Receiver, Sender};
pub use door::dial_local;
pub use endpoint::{Endpoint, Serve, resolve};
pub use error::{EndpointError, LinkError};
pub(crate) use joining::JoinChannel;
pub use joining::port_unreachable;
pub use outbox::{Outbox, OutboxClosed};
pub use peering::{End, Link, REVOKED};
pub use tuning::Tuning;

pub use crate::tls::Expect;
