//! Join tokens as the server remembers them: never the secret, only its digest.

use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::time::Time;

/// A short-lived right to one certificate for one identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Public part; it names the token in lists and logs.
    pub id: String,
    /// SHA-256 of the secret part.
    pub digest: [u8; 32],
    /// The identity it gives; a token without a name takes the name that the joining agent asks for.
    pub identity: TokenIdentity,
    /// For agents: the cluster to join.
    pub cluster: Option<String>,
    pub created: Time,
    pub created_by: String,
    pub expires: Time,
    pub state: TokenState,
    /// The same key may redeem it again for the same certificate until it expires: the first answer may have been lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redeemed: Option<Redeemed>,
}

/// With which key a token was redeemed, and for which certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redeemed {
    /// SHA-256 of the public key.
    pub key: [u8; 32],
    pub serial: String,
}

/// The identity that a token creates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenIdentity {
    Named(Identity),
    /// An agent that names itself.
    AnyAgent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenState {
    Open,
    Used { at: Time },
    Revoked { at: Time, by: String },
}

/// A certificate that was issued and when it stops being accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Lower-case hexadecimal, as certificate tools print it without colons.
    pub serial: String,
    pub identity: Identity,
    pub issued: Time,
    pub expires: Time,
    pub revoked: Option<Time>,
    /// The serials of those whose place it takes: they are good until it is first used, or an answer that is lost would
    /// leave its holder without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
}
