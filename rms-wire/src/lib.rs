//! The messages between the programs of Limber, and the links that carry them: messages, framing, TLS, QUIC.
//!
//! Messages consist of the types of `rms-api` and `rms-model`, encoded as they are: the types' own decoders refuse
//! invalid values. [`codec`] is the only module that encodes or decodes. [`parts`] splits messages that are too long
//! for one frame. [`tls`] proves the identity of peers, [`link`] carries frames over QUIC.

pub mod answer;
pub mod codec;
pub mod follow;
pub mod hello;
pub mod join;
pub mod launcher;
pub mod link;
pub mod masks;
pub mod message;
pub mod negotiate;
pub mod parts;
pub mod peer;
pub mod pmi;
pub mod reply;
pub mod request;
pub mod tls;
pub mod to_agent;
pub mod to_server;
pub mod token;

pub use answer::AnswerPart;
pub use follow::{Chunk, FollowOrder, Followed, Input, InputAt, Missing, Offset, Spooled, Stream};
pub use hello::{Hello, HelloAnswer, JoinAnswer, JoinRequest};
pub use join::{JoinError, Joined, Joiner, come_with, end_join, join, join_in};
pub use launcher::{LauncherSays, LauncherTold};
pub use link::{
    Accepted, Backoff, ByteCount, Channel, End, Endpoint, Expect, Link, LinkError, Outbox, Receiver, Sender, Serve,
    Tuning,
};
pub use masks::{MasksAsked, MasksSeen};
pub use message::{Kind, Message};
pub use negotiate::{NegotiatorSays, NegotiatorTold};
pub use parts::Malformed;
pub use peer::{PeerExec, PeerOpen, PmiDown, PmiUp, StepDown, StepUp};
pub use reply::CallError;
pub use request::{ClientRequest, Follow, Watch};
pub use tls::{Authority, Credentials, NewKey, Revoked};
pub use to_agent::ToAgent;
pub use to_server::ToServer;
pub use token::TokenText;
