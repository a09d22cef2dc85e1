//! Identities of peers: certificates, the authority that signs them, and the TLS configurations that require them.

mod authority;
mod config;
mod credentials;
mod files;
mod key;
mod peer;
mod pem;
mod revoked;
mod verifier;

pub use authority::{Authority, AuthorityError, Rotation, key_of_request};
pub use config::ProofError;
pub use config::TlsError;
pub(crate) use config::{client_config, join_config, proven, server_config};
pub use credentials::{Credentials, CredentialsError};
pub use files::FileError;
pub use key::{KeyError, NewKey, draw_serial};
pub use peer::{Peer, PeerError, fingerprint};
pub use revoked::Revoked;
pub use verifier::Expect;

/// ALPN of all traffic that needs a certificate; it carries the major version.
pub const ALPN: &[u8] = b"limber/1";
/// ALPN for redeeming a token, which needs no certificate. Nothing else is served there.
pub const ALPN_JOIN: &[u8] = b"limber-join/1";
