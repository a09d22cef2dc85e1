//! Turns messages into frames and back: the only place that touches bincode.
//!
//! A frame is `kind u16 | version u16 | length u32`, little-endian, and `length` bytes of payload. Decoding
//! has a budget, so a short frame cannot ask for much memory, and must use up the payload exactly. Wire
//! types hold neither themselves nor sequences of nothing, which no budget stops; a test reads the sources for that.

use bincode::config::{Configuration, Limit, standard};
use thiserror::Error;

use crate::message::{BULK_BYTES, CHUNK_BYTES, HELLO_BYTES, Kind, Message, ORDINARY_BYTES, Size, WHOLE_BYTES};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 8;

/// What precedes a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: u16,
    pub version: u16,
    pub length: u32,
}

/// Why bytes are not the expected message. The peer is wrong; its link is to be closed.
#[derive(Debug, Error)]
pub enum DecodeError {
    #[error("the peer sent a frame of unknown kind {0}")]
    UnknownKind(u16),
    #[error("the peer sent a frame of kind {actual:?} where {expected:?} was expected")]
    WrongKind { expected: Kind, actual: Kind },
    #[error("the peer sent {kind:?} in version {actual}, but this program speaks version {expected}")]
    WrongVersion { kind: Kind, expected: u16, actual: u16 },
    #[error("the peer sent {kind:?} of {length} bytes, but at most {max} are taken")]
    TooLong { kind: Kind, length: usize, max: usize },
    #[error("the peer sent {kind:?} that cannot be decoded")]
    Payload { kind: Kind, source: bincode::error::DecodeError },
    #[error("the peer sent {kind:?} followed by {trailing} bytes that belong to nothing")]
    Trailing { kind: Kind, trailing: usize },
}

/// Why a message cannot be sent. The sender asked too much of one frame.
#[derive(Debug, Error)]
pub enum EncodeError {
    #[error("{kind:?} would be {length} bytes long, but at most {max} are taken")]
    TooLong { kind: Kind, length: usize, max: usize },
    #[error("{kind:?} cannot be encoded")]
    Payload { kind: Kind, source: bincode::error::EncodeError },
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&self.kind.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.version.to_le_bytes());
        bytes[4..].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    pub fn from_bytes([k0, k1, v0, v1, l0, l1, l2, l3]: [u8; HEADER_BYTES]) -> Header {
        Header {
            kind: u16::from_le_bytes([k0, k1]),
            version: u16::from_le_bytes([v0, v1]),
            length: u32::from_le_bytes([l0, l1, l2, l3]),
        }
    }

    /// The length of the payload, if the frame may hold an `M`. Checked before the payload is read.
    ///
    /// # Errors
    /// Unknown or unexpected kind or version, or a length over the kind's limit.
    pub fn expect<M: Message>(self) -> Result<usize, DecodeError> {
        let actual = Kind::from_number(self.kind).ok_or(DecodeError::UnknownKind(self.kind))?;
        if actual != M::KIND {
            return Err(DecodeError::WrongKind { expected: M::KIND, actual });
        }
        if self.version != M::VERSION {
            return Err(DecodeError::WrongVersion { kind: M::KIND, expected: M::VERSION, actual: self.version });
        }
        let length = self.length as usize;
        let max = M::SIZE.bytes();
        if length > max {
            return Err(DecodeError::TooLong { kind: M::KIND, length, max });
        }
        Ok(length)
    }
}

/// A whole frame: header and payload.
///
/// # Errors
/// A message over the limit of its kind.
pub fn encode<M: Message>(message: &M) -> Result<Vec<u8>, EncodeError> {
    let mut frame = vec![0; HEADER_BYTES];
    bincode_encode(message, &mut frame).map_err(|source| EncodeError::Payload { kind: M::KIND, source })?;
    let length = frame.len() - HEADER_BYTES;
    let max = M::SIZE.bytes();
    if length > max {
        return Err(EncodeError::TooLong { kind: M::KIND, length, max });
    }
    let header = Header { kind: M::KIND.number(), version: M::VERSION, length: length as u32 };
    frame[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    Ok(frame)
}

/// The message that a payload holds.
///
/// # Errors
/// Anything that is not exactly one `M`, or wants more memory than its kind may have.
pub fn decode<M: Message>(payload: &[u8]) -> Result<M, DecodeError> {
    let length = payload.len();
    let max = M::SIZE.bytes();
    if length > max {
        return Err(DecodeError::TooLong { kind: M::KIND, length, max });
    }
    let decoded = match M::SIZE {
        Size::Hello => bincode_decode(payload, HELLO),
        Size::Chunk => bincode_decode(payload, CHUNK),
        Size::Ordinary => bincode_decode(payload, ORDINARY),
        Size::Bulk => bincode_decode(payload, BULK),
        Size::Whole => bincode_decode(payload, WHOLE),
    };
    let (message, consumed) = decoded.map_err(|source| DecodeError::Payload { kind: M::KIND, source })?;
    if consumed != length {
        return Err(DecodeError::Trailing { kind: M::KIND, trailing: length - consumed });
    }
    Ok(message)
}

/// The message of a whole frame, as [`encode`] made it.
///
/// # Errors
/// As [`Header::expect`] and [`decode`]; a frame that is cut short counts as undecodable.
pub fn decode_frame<M: Message>(frame: &[u8]) -> Result<M, DecodeError> {
    let missing = |additional| DecodeError::Payload {
        kind: M::KIND,
        source: bincode::error::DecodeError::UnexpectedEnd { additional },
    };
    let Some((header, payload)) = frame.split_first_chunk::<HEADER_BYTES>() else {
        return Err(missing(HEADER_BYTES - frame.len()));
    };
    let length = Header::from_bytes(*header).expect::<M>()?;
    if payload.len() < length {
        return Err(missing(length - payload.len()));
    }
    if payload.len() > length {
        return Err(DecodeError::Trailing { kind: M::KIND, trailing: payload.len() - length });
    }
    decode(payload)
}

type Budget<const N: usize> = Configuration<bincode::config::LittleEndian, bincode::config::Varint, Limit<N>>;

const HELLO: Budget<HELLO_BYTES> = standard().with_limit();
const CHUNK: Budget<CHUNK_BYTES> = standard().with_limit();
const ORDINARY: Budget<ORDINARY_BYTES> = standard().with_limit();
const BULK: Budget<BULK_BYTES> = standard().with_limit();
const WHOLE: Budget<WHOLE_BYTES> = standard().with_limit();

#[expect(clippy::disallowed_methods, reason = "the one place that may: it has a limit and checks what is consumed")]
fn bincode_decode<M: Message, const N: usize>(
    payload: &[u8],
    budget: Budget<N>,
) -> Result<(M, usize), bincode::error::DecodeError> {
    bincode::decode_from_slice(payload, budget)
}

#[expect(clippy::disallowed_methods, reason = "the one place that may")]
fn bincode_encode<M: Message>(message: &M, frame: &mut Vec<u8>) -> Result<usize, bincode::error::EncodeError> {
    bincode::encode_into_std_write(message, frame, standard())
}
