//! The first frames of a connection: they identify the peer, and let a peer without a certificate obtain one.

use rms_api::Refused;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::message::{Kind, Message, Size};

/// Sent by the side that connects, on the first channel. Its certificate is its identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the program, for logs only.
    pub software: String,
    /// Present over a local socket, where TLS has not proven the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

/// The proof that the sender holds the key of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// The certificates in DER, the sender's own first.
    pub chain: Vec<ByteBuf>,
    /// Ed25519 over `limber local hello 1` and a zero byte, the 32 bytes that the other side sent first, and the
    /// sender's user id (32 bits, little-endian), which the kernel must confirm.
    pub signature: ByteBuf,
}

/// The answer to a [`Hello`]. Without a welcome nothing else is read: a TLS client considers itself connected before
/// the server has verified its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloAnswer {
    Welcome {
        software: String,
        /// The fingerprints of the CAs that the server trusts, first the one that signed its certificate. A peer with
        /// other CAs renews its own certificate with the server.
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
    /// The name that an agent requests if its token names none.
    pub name: Option<String>,
    /// The machine's own name, which becomes the agent's name if neither its token nor `name` gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Whether an agent joins; a token of the other kind is refused and not used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_agent: Option<bool>,
    /// A certificate signing request in DER; only its key is used.
    #[serde(with = "serde_bytes")]
    pub csr: Vec<u8>,
    /// The serial of the certificate that the new one replaces; it is revoked if it belongs to the same identity.
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
        // The secret must not appear in any log.
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

/// The version that peers may log.
pub(crate) const SOFTWARE: &str = concat!("limber ", env!("CARGO_PKG_VERSION"));
