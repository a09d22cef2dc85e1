//! The first frames of a connection: who is there, and how one without a certificate gets one.

use rms_api::Refused;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::message::{Kind, Message, Size};

/// Sent by the side that connects, on the first channel. Who it is, its certificate says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the program, for logs only.
    pub software: String,
    /// Over a local socket, where no TLS has proven it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

/// That the sender holds the key of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// In DER, the sender's own first.
    pub chain: Vec<ByteBuf>,
    /// Ed25519, over `limber local hello 1` and a zero byte, the 32 bytes that were said first, and the sender's user id (32
    /// bits, little-endian), which the kernel must name, too.
    pub signature: ByteBuf,
}

/// What the other side says to it. Without a welcome nothing else is read: a TLS client believes itself
/// connected before the server has looked at its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloAnswer {
    Welcome {
        software: String,
        /// The fingerprints of the CAs that it trusts, first the one that has signed its certificate. Whoever has others
        /// renews its own certificate with the server.
        authorities: Vec<String>,
    },
    Denied {
        reason: String,
    },
}

/// Redeems a token, over TLS that the caller has pinned to the CA.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    pub token_id: String,
    #[serde(with = "serde_bytes")]
    pub secret: Vec<u8>,
    /// The name that an agent wants, if its token names none.
    pub name: Option<String>,
    /// What the machine of an agent calls itself: its name if neither its token nor it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Whether it is an agent that joins, or somebody else: a token for the other is refused, and not spent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_agent: Option<bool>,
    /// A certificate signing request in DER; only its key counts.
    #[serde(with = "serde_bytes")]
    pub csr: Vec<u8>,
    /// The serial of the certificate whose place the new one takes; if it is of the same identity, it is revoked.
    pub replaces: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JoinAnswer {
    /// Certificates in PEM.
    Granted {
        chain: String,
        ca: String,
        /// The cluster that the token names, for agents.
        cluster: Option<String>,
    },
    Refused(Refused),
}

impl std::fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret stays out of every log.
        f.debug_struct("JoinRequest")
            .field("token_id", &self.token_id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Message for Hello {
    const KIND: Kind = Kind::Hello;
    const SIZE: Size = Size::Hello;
}

impl Message for HelloAnswer {
    const KIND: Kind = Kind::HelloAnswer;
    const SIZE: Size = Size::Hello;
}

impl Message for JoinRequest {
    const KIND: Kind = Kind::JoinRequest;
    const SIZE: Size = Size::Hello;
}

impl Message for JoinAnswer {
    const KIND: Kind = Kind::JoinAnswer;
    const SIZE: Size = Size::Hello;
}

/// What peers may log of us.
pub(crate) const SOFTWARE: &str = concat!("limber ", env!("CARGO_PKG_VERSION"));
