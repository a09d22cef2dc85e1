//! Join tokens as the server stores them: never the secret, only its digest.

use serde::{Deserialize, Serialize};

use crate::identity::Identity;
use crate::time::Time;

/// A short-lived permission to obtain one certificate for one identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The public part, which names the token in lists and logs.
    pub id: String,
    /// SHA-256 of the secret part.
    pub digest: [u8; 32],
    /// The identity that it grants; with a token without a name, the joining agent chooses its name.
    pub identity: TokenIdentity,
    /// The cluster that an agent joins.
    pub cluster: Option<String>,
    pub created: Time,
    pub created_by: String,
    pub expires: Time,
    pub state: TokenState,
    /// Set once redeemed: the same key may redeem it again for the same certificate until it expires, because the first
    /// answer may have been lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redeemed: Option<Redeemed>,
    /// The fingerprint of the CA that the token names; it cannot be redeemed once another CA signs. Unknown for older
    /// tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
}

/// The key that redeemed a token, and the certificate that was issued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Redeemed {
    /// SHA-256 of the public key.
    pub key: [u8; 32],
    pub serial: String,
}

/// The identity that a token grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenIdentity {
    Named(Identity),
    /// An agent that chooses its name.
    AnyAgent,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TokenState {
    Open,
    Used { at: Time },
    Revoked { at: Time, by: String },
}

/// A certificate that was issued, and when it expires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    /// Lower-case hexadecimal without colons.
    pub serial: String,
    pub identity: Identity,
    pub issued: Time,
    pub expires: Time,
    pub revoked: Option<Time>,
    /// The serials of the certificates that it replaces: they stay valid until it is first used; otherwise a lost
    /// answer would leave its holder without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// The serial of the certificate of the same holder that it renews. That stays valid: programs may be connected
    /// with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews: Option<String>,
}
