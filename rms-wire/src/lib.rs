//! What travels between the programs of Limber, and the links that carry it: messages, framing, TLS, QUIC.
//!
//! Wire types are apart from the domain's: a [`Message`] is what a frame holds, [`convert`] parses it into
//! the types of `rms-model` and `rms-core`, and what does not parse closes the link. [`codec`] is the only
//! place that encodes or decodes. [`tls`] says who speaks, [`link`] carries frames over QUIC.

pub mod answer;
pub mod call;
pub mod codec;
pub mod convert;
pub mod evolving;
pub mod follow;
pub mod hello;
pub mod join;
pub mod launcher;
pub mod link;
pub mod message;
pub mod negotiate;
pub mod peer;
pub mod refused;
pub mod reply;
pub mod request;
pub mod tls;
pub mod to_agent;
pub mod to_server;
pub mod token;
pub mod vocabulary;

pub use answer::{ClientAnswer, ServerReport};
pub use call::ClientCall;
pub use convert::Malformed;
pub use follow::{Chunk, FollowOrder, Followed, Input, Missing, Offset, Spooled, Stream};
pub use hello::{Hello, HelloAnswer, JoinAnswer, JoinRequest};
pub use join::{JoinError, Joined, join, join_again};
pub use launcher::{LauncherSays, LauncherTold};
pub use link::{
    Accepted, Backoff, ByteCount, Channel, End, Endpoint, Expect, Link, LinkError, Outbox, Receiver, Sender, Serve,
    Tuning,
};
pub use message::{Kind, Message};
pub use negotiate::{NegotiatorSays, NegotiatorTold};
pub use peer::{PeerExec, PeerOpen, PmiDown, PmiUp, StepDown, StepUp};
pub use refused::Refused;
pub use reply::{CallError, Reply};
pub use request::{ClientRequest, Follow, HistoryQuery, LauncherReport, LauncherTraffic, Watch};
pub use tls::{Authority, Credentials, NewKey, Revoked};
pub use to_agent::ToAgent;
pub use to_server::ToServer;
pub use token::TokenText;
