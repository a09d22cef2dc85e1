//! The errors of links, and the text for the end of a connection.

use std::net::SocketAddr;
use std::path::PathBuf;

use quinn::{ConnectionError, ReadError, VarInt, WriteError};
use thiserror::Error;

use crate::codec::{DecodeError, EncodeError};
use crate::parts::Malformed;
use crate::tls::{PeerError, ProofError, TlsError};

/// Why an endpoint cannot be made or changed.
#[derive(Debug, Error)]
pub enum EndpointError {
    #[error("cannot bind to {address}")]
    Bind { address: SocketAddr, source: std::io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why a link could not be established, or why something could not be sent or received on it.
#[derive(Debug, Error)]
pub enum LinkError {
    #[error("cannot find {address}")]
    Resolve { address: String, source: std::io::Error },
    #[error("{address} stands for no address")]
    NoAddress { address: String },
    #[error("cannot connect to {address}")]
    Connect { address: SocketAddr, source: quinn::ConnectError },
    #[error("cannot connect to the local socket {}", path.display())]
    Local { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The connection has ended, or never began.
    #[error("{reason}")]
    Closed { reason: String },
    /// We do not accept the peer's certificate.
    #[error("{reason}")]
    Untrusted { reason: String },
    /// The node answers that the port is unreachable.
    #[error("nothing listens on this UDP port there (refused): is the server running, and is the port its own?")]
    Refused,
    /// There was no answer at all.
    #[error(
        "no answer within {secs} s: is this the server's address, and do the networks between pass UDP on this port?"
    )]
    NoAnswer { secs: u64 },
    /// The other side refuses us.
    #[error("denied: {reason}")]
    Denied { reason: String },
    #[error("nothing was agreed within {secs} s")]
    TooSlow { secs: u64 },
    /// A connection that was not a link yet lost its place to a newer one.
    #[error("others wanted the place: connect again")]
    Evicted,
    /// Only this channel was closed; the link continues.
    #[error("the peer did not finish a frame within {secs} s")]
    Unfinished { secs: u64 },
    /// Only this channel was closed; the link continues.
    #[error("the peer did not read a frame within {secs} s")]
    Unread { secs: u64 },
    /// Other channels use up the memory that they share with this one.
    #[error("there is no room for a frame: others that nobody reads take it")]
    NoRoom,
    #[error("the peer ended the channel in the middle of a frame")]
    CutShort,
    #[error("the peer ended the channel where it should have spoken")]
    Silent,
    /// Only this channel was closed; the link continues.
    #[error("the peer gave up the channel")]
    ChannelReset,
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("the peer sent something that cannot be")]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error("the peer's certificate is unusable")]
    Peer(#[from] PeerError),
    #[error(transparent)]
    Proof(#[from] ProofError),
    #[error("the peer has no certificate")]
    NoCertificate,
    #[error("only {expected} may connect here, not {actual}")]
    Role { expected: String, actual: String },
    #[error("no protocol in common with the peer")]
    Protocol,
}

impl LinkError {
    /// Converts the end of a connection. A peer that rejects our certificate will reject it again, and likewise we the
    /// peer's.
    pub(super) fn closed(error: &ConnectionError) -> LinkError {
        let reason = reason(error);
        match rejected_by(error) {
            Some(RejectedBy::Peer) => LinkError::Denied { reason },
            Some(RejectedBy::Us) => LinkError::Untrusted { reason },
            None => LinkError::Closed { reason },
        }
    }

    pub(super) fn read(error: ReadError) -> LinkError {
        match error {
            ReadError::ConnectionLost(error) => LinkError::closed(&error),
            ReadError::Reset(_) | ReadError::ClosedStream => LinkError::ChannelReset,
            ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected => {
                unreachable!("streams are read in order and 0-RTT is off")
            }
        }
    }

    pub(super) fn write(error: WriteError) -> LinkError {
        match error {
            WriteError::ConnectionLost(error) => LinkError::closed(&error),
            WriteError::Stopped(_) | WriteError::ClosedStream => LinkError::ChannelReset,
            WriteError::ZeroRttRejected => unreachable!("0-RTT is off"),
        }
    }

    /// Returns whether the peer violated the protocol, so that its link must be closed.
    pub fn is_violation(&self) -> bool {
        match self {
            LinkError::Decode(_) | LinkError::Malformed(_) | LinkError::CutShort | LinkError::Silent => true,
            LinkError::Resolve { .. }
            | LinkError::NoAddress { .. }
            | LinkError::Connect { .. }
            | LinkError::Local { .. }
            | LinkError::Endpoint(_)
            | LinkError::Closed { .. }
            | LinkError::Untrusted { .. }
            | LinkError::Refused
            | LinkError::NoAnswer { .. }
            | LinkError::Denied { .. }
            | LinkError::TooSlow { .. }
            | LinkError::Evicted
            | LinkError::Unfinished { .. }
            | LinkError::Unread { .. }
            | LinkError::NoRoom
            | LinkError::ChannelReset
            | LinkError::Encode(_)
            | LinkError::Peer(_)
            | LinkError::Proof(_)
            | LinkError::NoCertificate
            | LinkError::Role { .. }
            | LinkError::Protocol => false,
        }
    }
}

/// Codes of closed connections; the accompanying reason is for people.
pub(super) const CODE_CLOSED: VarInt = VarInt::from_u32(0);
pub(super) const CODE_DENIED: VarInt = VarInt::from_u32(1);
pub(super) const CODE_VIOLATION: VarInt = VarInt::from_u32(2);
/// The whole endpoint is closed; another process may take its place.
pub(super) const CODE_LEAVING: VarInt = VarInt::from_u32(3);

/// Returns why a connection has ended, in words.
pub(super) fn reason(error: &ConnectionError) -> String {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            let words = String::from_utf8_lossy(&close.reason);
            // The text comes from an untrusted peer and is sanitised, as it is logged and printed.
            let words: String = words.chars().filter(|c| !c.is_control()).take(MAX_REASON_BYTES).collect();
            if words.is_empty() { "closed by the peer".to_owned() } else { words }
        }
        ConnectionError::ConnectionClosed(close) => {
            let code = u64::from(close.error_code);
            match alert(code) {
                Some(words) => words.to_owned(),
                None => format!("refused by the peer: {}", close.error_code),
            }
        }
        ConnectionError::TimedOut => UNHEARD.to_owned(),
        ConnectionError::Reset => "the peer has lost the connection (was it restarted?)".to_owned(),
        ConnectionError::LocallyClosed => "closed here".to_owned(),
        ConnectionError::VersionMismatch => "the peer speaks another version of QUIC".to_owned(),
        ConnectionError::TransportError(error) => match alert(u64::from(error.code)) {
            // The error was found on our side: rustls says more than the alert that was sent.
            Some(_) if !error.reason.is_empty() => format!("the peer was not accepted: {}", plain(&error.reason)),
            Some(words) => format!("the peer was not accepted: {words}"),
            None => format!("the peer broke the rules of QUIC: {error}"),
        },
        ConnectionError::CidsExhausted => "no connection ids are left".to_owned(),
    }
}

/// Returns a reason of rustls without the names of its types.
fn plain(reason: &str) -> &str {
    let ours = reason.strip_prefix("invalid peer certificate: Other(OtherError(");
    ours.and_then(|reason| reason.strip_suffix("))")).unwrap_or(reason)
}

/// The side that rejected the other's certificate.
enum RejectedBy {
    Peer,
    Us,
}

fn rejected_by(error: &ConnectionError) -> Option<RejectedBy> {
    let is_about_certificate = |code: u64| matches!(code.checked_sub(0x100), Some(42..=46 | 48 | 49 | 51 | 116));
    match error {
        ConnectionError::ConnectionClosed(close) => {
            is_about_certificate(close.error_code.into()).then_some(RejectedBy::Peer)
        }
        ConnectionError::TransportError(error) => is_about_certificate(error.code.into()).then_some(RejectedBy::Us),
        ConnectionError::ApplicationClosed(_)
        | ConnectionError::TimedOut
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::VersionMismatch
        | ConnectionError::CidsExhausted => None,
    }
}

/// Returns what a TLS alert, carried as QUIC error `0x100 + alert`, says about a certificate or the protocol.
fn alert(code: u64) -> Option<&'static str> {
    match code.checked_sub(0x100)? {
        40 => Some("the handshake failed"),
        42 | 43 | 46 => Some("the peer does not accept our certificate"),
        44 => Some("our certificate is revoked"),
        45 => Some("our certificate is not valid at this time (expired, or a clock is wrong)"),
        48 => Some("our certificate is of another authority"),
        49 => Some("our certificate gives no access"),
        51 => Some("our certificate is of another authority, or damaged"),
        112 => Some("the peer does not know the name it was called by"),
        116 => Some("a certificate is required"),
        120 => Some("the peer speaks another version of the protocol"),
        _ => Some("the handshake failed"),
    }
    .filter(|_| code < 0x200)
}

/// The reason for the end of a link on which nothing arrives.
pub(super) const UNHEARD: &str = "the peer has not been heard of for too long";

/// A reason must fit into one datagram with the close frame.
pub(super) const MAX_REASON_BYTES: usize = 900;
