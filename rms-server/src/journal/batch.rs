//! The format of one append: a header, its facts, and a digest that chains it to the batch before.
//!
//! All numbers are little-endian. A header is `LMBF`, the bytes of the body, the number of facts, the kind, the number
//! of the first fact, the last fact that was durable when this was written, the digest of the batch before, and the
//! digest over all that and the body. In the body each fact is its length, the fact that holds its environment (0:
//! itself), and the fact in MessagePack with named fields.

use ring::digest::{Context, SHA256};

/// Half of a SHA-256: it detects failures of disks, not changes by somebody who can write the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(pub [u8; Digest::LEN]);

impl Digest {
    pub const LEN: usize = 16;
    /// The digest before the first batch.
    pub const NONE: Digest = Digest([0; Digest::LEN]);

    /// Returns the digest over the concatenated parts.
    pub fn of(parts: &[&[u8]]) -> Digest {
        let mut context = Context::new(&SHA256);
        parts.iter().for_each(|part| context.update(part));
        let mut digest = [0; Digest::LEN];
        digest.copy_from_slice(&context.finish().as_ref()[..Digest::LEN]);
        Digest(digest)
    }
}

/// The kind of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Facts,
    /// The end of a segment: the next one begins with `first_seq`.
    Seal,
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub n_bytes: u32,
    pub n_facts: u32,
    pub first_seq: u64,
    /// All facts up to this one were on the disk when this was written: if they are missing later, that is damage.
    pub durable_seq: u64,
    pub previous: Digest,
}

pub const HEADER_LEN: usize = 64;
pub const MAGIC: &[u8; 4] = b"LMBF";

/// The length of the header before its digest.
const DIGESTED_LEN: usize = HEADER_LEN - Digest::LEN;

impl Header {
    /// Returns the header as it is stored, and the digest of the batch.
    pub fn encode(&self, body: &[u8]) -> ([u8; HEADER_LEN], Digest) {
        let kind: u32 = match self.kind {
            Kind::Facts => 0,
            Kind::Seal => 1,
        };
        let mut bytes = [0; HEADER_LEN];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[4..8].copy_from_slice(&self.n_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.n_facts.to_le_bytes());
        bytes[12..16].copy_from_slice(&kind.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_seq.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.durable_seq.to_le_bytes());
        bytes[32..DIGESTED_LEN].copy_from_slice(&self.previous.0);
        let digest = Digest::of(&[&bytes[..DIGESTED_LEN], body]);
        bytes[DIGESTED_LEN..].copy_from_slice(&digest.0);
        (bytes, digest)
    }

    /// Parses a header; whether it is intact is checked by [`Header::verify`].
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Option<Header> {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|idx| bytes[at + idx]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|idx| bytes[at + idx]));
        let kind = match word(12) {
            0 => Kind::Facts,
            1 => Kind::Seal,
            _ => return None,
        };
        if &bytes[..4] != MAGIC {
            return None;
        }
        let previous = Digest(std::array::from_fn(|idx| bytes[32 + idx]));
        let (first_seq, durable_seq) = (long(16), long(24));
        Some(Header { kind, n_bytes: word(4), n_facts: word(8), first_seq, durable_seq, previous })
    }

    /// Returns the digest of the batch, if header and body match it.
    pub fn verify(bytes: &[u8; HEADER_LEN], body: &[u8]) -> Option<Digest> {
        let digest = Digest::of(&[&bytes[..DIGESTED_LEN], body]);
        (bytes[DIGESTED_LEN..] == digest.0).then_some(digest)
    }
}

/// Appends a fact to a body.
pub fn push_fact(
    body: &mut Vec<u8>,
    environment_of: Option<u64>,
    fact: &rms_core::Fact,
) -> Result<(), rmp_serde::encode::Error> {
    let begin = body.len();
    body.extend_from_slice(&[0; 4]);
    // Facts count from 1, so 0 stands for none.
    body.extend_from_slice(&environment_of.unwrap_or(0).to_le_bytes());
    rmp_serde::encode::write_named(body, fact)?;
    debug_assert_eq!(
        rmp_serde::from_slice(&body[begin + FACT_HEADER_LEN..]).ok().as_ref(),
        Some(fact),
        "an encoded fact can be decoded again"
    );
    let n_bytes = u32::try_from(body.len() - begin - FACT_HEADER_LEN).expect("a fact is smaller than a frame");
    body[begin..begin + 4].copy_from_slice(&n_bytes.to_le_bytes());
    Ok(())
}

/// Returns the fact at `offset` of a body: its bytes, which fact holds its environment, and where the next one begins.
pub fn fact_at(body: &[u8], offset: usize) -> Option<(&[u8], Option<u64>, usize)> {
    let header = body.get(offset..offset + FACT_HEADER_LEN)?;
    let n_bytes = u32::from_le_bytes(header[..4].try_into().ok()?) as usize;
    let environment_of = u64::from_le_bytes(header[4..].try_into().ok()?);
    let begin = offset + FACT_HEADER_LEN;
    let bytes = body.get(begin..begin + n_bytes)?;
    Some((bytes, (environment_of != 0).then_some(environment_of), begin + n_bytes))
}

const FACT_HEADER_LEN: usize = 12;
