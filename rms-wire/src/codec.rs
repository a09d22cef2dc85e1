//! Encodes messages as frames and decodes them: the only module that calls bincode and MessagePack.
//!
//! A frame is `kind u16 | version u16 | length u32`, little-endian, and `length` bytes of payload. Decoding has a
//! budget, so a short frame cannot request much memory, and must consume the payload exactly. Messages neither are
//! recursive nor contain sequences of zero-sized elements, which no budget bounds; a test checks the sources for that.

use std::fmt;

use bincode::config::{Configuration, Limit, standard};
use rmp::Marker;
use serde::de::{self, DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

use crate::message::{
    BULK_BYTES, CHUNK_BYTES, Encoding, HELLO_BYTES, Kind, Message, ORDINARY_BYTES, Size, WHOLE_BYTES,
};

/// Bytes before the payload.
pub const HEADER_BYTES: usize = 8;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: u16,
    pub version: u16,
    pub length: u32,
}

/// Why bytes are not the expected message. The peer is at fault; its link must be closed.
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
    Payload { kind: Kind, source: PayloadError },
    #[error("the peer sent {kind:?} followed by {trailing} bytes that belong to nothing")]
    Trailing { kind: Kind, trailing: usize },
}

/// What is wrong with a payload.
#[derive(Debug, Error)]
pub enum PayloadError {
    #[error(transparent)]
    Named(#[from] rmp_serde::decode::Error),
    #[error(transparent)]
    Fixed(#[from] bincode::error::DecodeError),
    #[error("it is cut short")]
    CutShort,
    #[error("it holds more values than {max} bytes of memory can")]
    TooMany { max: usize },
    #[error("byte {at} is none that MessagePack has for plain values")]
    Marker { at: usize },
}

/// Why a message cannot be sent: it does not fit into one frame.
#[derive(Debug, Error)]
pub enum EncodeError {
    #[error("{kind:?} would be {length} bytes long, but at most {max} are taken")]
    TooLong { kind: Kind, length: usize, max: usize },
    #[error("{kind:?} would hold more values than {max} bytes of memory can")]
    TooMany { kind: Kind, max: usize },
    #[error("{kind:?} cannot be encoded")]
    Named { kind: Kind, source: rmp_serde::encode::Error },
    #[error("{kind:?} cannot be encoded")]
    Fixed { kind: Kind, source: bincode::error::EncodeError },
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

    /// Returns the length of the payload, if the frame may hold an `M`. Checked before the payload is read.
    ///
    /// # Errors
    /// An unknown or unexpected kind or version, or a length above the kind's limit.
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

/// Encodes a message as a whole frame: header and payload.
///
/// # Errors
/// The message exceeds the limits of its kind: its receiver would close the link.
pub fn encode<M: Message>(message: &M) -> Result<Vec<u8>, EncodeError> {
    let mut frame = vec![0; HEADER_BYTES];
    match M::ENCODING {
        Encoding::Named => {
            encode_named(message, &mut frame).map_err(|source| EncodeError::Named { kind: M::KIND, source })?;
        }
        Encoding::Fixed => {
            encode_fixed(message, &mut frame).map_err(|source| EncodeError::Fixed { kind: M::KIND, source })?;
        }
    }
    let length = frame.len() - HEADER_BYTES;
    let max = M::SIZE.bytes();
    if length > max {
        return Err(EncodeError::TooLong { kind: M::KIND, length, max });
    }
    // A value has at least one byte, so most messages need not be weighed.
    let may_be_heavy = length.saturating_mul(1 + HEAVIEST) > max;
    if M::ENCODING == Encoding::Named && may_be_heavy && weigh(&frame[HEADER_BYTES..], max).is_err() {
        return Err(EncodeError::TooMany { kind: M::KIND, max });
    }
    let header = Header { kind: M::KIND.number(), version: M::VERSION, length: length as u32 };
    frame[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    Ok(frame)
}

/// Decodes the message in a payload.
///
/// # Errors
/// The payload is not exactly one `M`, or needs more memory than its kind may use.
pub fn decode<M: Message>(payload: &[u8]) -> Result<M, DecodeError> {
    let length = payload.len();
    let max = M::SIZE.bytes();
    if length > max {
        return Err(DecodeError::TooLong { kind: M::KIND, length, max });
    }
    let decoded = match M::ENCODING {
        Encoding::Named => weigh(payload, max).and_then(|n_bytes| Ok((decode_named(&payload[..n_bytes])?, n_bytes))),
        Encoding::Fixed => match M::SIZE {
            Size::Hello => decode_fixed(payload, HELLO),
            Size::Chunk => decode_fixed(payload, CHUNK),
            Size::Ordinary => decode_fixed(payload, ORDINARY),
            Size::Bulk => decode_fixed(payload, BULK),
            Size::Whole => decode_fixed(payload, WHOLE),
        },
    };
    let (message, consumed) = decoded.map_err(|source| DecodeError::Payload { kind: M::KIND, source })?;
    if consumed != length {
        return Err(DecodeError::Trailing { kind: M::KIND, trailing: length - consumed });
    }
    Ok(message)
}

/// A complete value that is not a message of its kind, and the part of it that could be decoded.
#[derive(Debug)]
pub struct Unparsed<R> {
    pub read: R,
    pub error: DecodeError,
}

/// Like [`decode`], but decodes only an `R` if the payload is a complete value but not an `M`.
///
/// # Errors
/// Those of [`decode`]; also if the value is not an `R` either.
pub fn decode_or<M: Message, R: DeserializeOwned>(payload: &[u8]) -> Result<Result<M, Unparsed<R>>, DecodeError> {
    match decode(payload) {
        Ok(message) => Ok(Ok(message)),
        Err(error @ DecodeError::Payload { kind: _, source: PayloadError::Named(_) }) => match decode_named(payload) {
            Ok(read) => Ok(Err(Unparsed { read, error })),
            Err(_) => Err(error),
        },
        Err(error) => Err(error),
    }
}

/// The name of a variant; its content is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant(pub String);

impl<'de> Deserialize<'de> for Variant {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Variant, D::Error> {
        from.deserialize_any(VariantVisitor)
    }
}

struct VariantVisitor;

impl<'de> Visitor<'de> for VariantVisitor {
    type Value = Variant;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a variant: its name, or a map of its name to what it holds")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Variant, E> {
        Ok(Variant(name.to_owned()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Variant, A::Error> {
        let name = map.next_key()?.ok_or_else(|| de::Error::custom("a variant without a name"))?;
        let _skipped: IgnoredAny = map.next_value()?;
        Ok(Variant(name))
    }
}

/// Returns the length of the first value of a MessagePack payload, with everything that it contains.
///
/// # Errors
/// The value is truncated, or would take more than about `max` bytes of memory: each number counts as 16 bytes, each
/// text and container as [`HEAVIEST`].
fn weigh(payload: &[u8], max: usize) -> Result<usize, PayloadError> {
    let (mut at, mut n_open, mut weight) = (0, 1_u64, payload.len());
    while n_open > 0 {
        let marker = Marker::from_u8(*payload.get(at).ok_or(PayloadError::CutShort)?);
        // The bytes of the value, and how many values it contains.
        let (n_bytes, n_held) = match marker {
            Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => (0, 0),
            Marker::U8 | Marker::I8 => (1, 0),
            Marker::U16 | Marker::I16 => (2, 0),
            Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
            Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
            Marker::FixStr(len) => (u64::from(len), 0),
            Marker::Str8 | Marker::Bin8 => (1 + number(payload, at, 1)?, 0),
            Marker::Str16 | Marker::Bin16 => (2 + number(payload, at, 2)?, 0),
            Marker::Str32 | Marker::Bin32 => (4 + number(payload, at, 4)?, 0),
            Marker::FixArray(len) => (0, u64::from(len)),
            Marker::Array16 => (2, number(payload, at, 2)?),
            Marker::Array32 => (4, number(payload, at, 4)?),
            Marker::FixMap(len) => (0, 2 * u64::from(len)),
            Marker::Map16 => (2, 2 * number(payload, at, 2)?),
            Marker::Map32 => (4, 2 * number(payload, at, 4)?),
            Marker::FixExt1
            | Marker::FixExt2
            | Marker::FixExt4
            | Marker::FixExt8
            | Marker::FixExt16
            | Marker::Ext8
            | Marker::Ext16
            | Marker::Ext32
            | Marker::Reserved => return Err(PayloadError::Marker { at }),
        };
        at = usize::try_from(n_bytes).ok().and_then(|n_bytes| at.checked_add(1 + n_bytes)).unwrap_or(usize::MAX);
        if at > payload.len() {
            return Err(PayloadError::CutShort);
        }
        n_open = n_open - 1 + n_held;
        let is_number = n_held == 0 && n_bytes <= 8;
        weight += if is_number { 16 } else { HEAVIEST };
        // Each remaining value takes at least one byte.
        if weight > max || n_open > (payload.len() - at) as u64 {
            return Err(if weight > max { PayloadError::TooMany { max } } else { PayloadError::CutShort });
        }
    }
    Ok(at)
}

/// What a text or container counts beside its bytes.
const HEAVIEST: usize = 32;

/// Reads the big-endian length of `n_bytes` bytes that follows the marker at `at`.
fn number(payload: &[u8], at: usize, n_bytes: usize) -> Result<u64, PayloadError> {
    let bytes = payload.get(at + 1..at + 1 + n_bytes).ok_or(PayloadError::CutShort)?;
    Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// Decodes the message of a whole frame, as encoded by [`encode`].
///
/// # Errors
/// Those of [`Header::expect`] and [`decode`]; a truncated frame counts as undecodable.
pub fn decode_frame<M: Message>(frame: &[u8]) -> Result<M, DecodeError> {
    let missing = |additional| DecodeError::Payload {
        kind: M::KIND,
        source: bincode::error::DecodeError::UnexpectedEnd { additional }.into(),
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

/// The maximum nesting depth of containers in messages.
const MAX_DEPTH: usize = 64;

fn decode_named<M: DeserializeOwned>(payload: &[u8]) -> Result<M, rmp_serde::decode::Error> {
    let mut decoder = rmp_serde::Deserializer::from_read_ref(payload);
    decoder.set_max_depth(MAX_DEPTH);
    M::deserialize(&mut decoder)
}

fn encode_named<M: Message>(message: &M, frame: &mut Vec<u8>) -> Result<(), rmp_serde::encode::Error> {
    rmp_serde::encode::write_named(frame, message)
}

#[expect(clippy::disallowed_methods, reason = "the one place that may: it has a limit and checks what is consumed")]
fn decode_fixed<M: Message, const N: usize>(payload: &[u8], budget: Budget<N>) -> Result<(M, usize), PayloadError> {
    Ok(bincode::serde::decode_from_slice(payload, budget)?)
}

#[expect(clippy::disallowed_methods, reason = "the one place that may")]
fn encode_fixed<M: Message>(message: &M, frame: &mut Vec<u8>) -> Result<usize, bincode::error::EncodeError> {
    bincode::serde::encode_into_std_write(message, frame, standard())
}
