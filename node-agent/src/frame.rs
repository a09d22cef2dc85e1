//! Frames between an agent and its own helper processes on a Unix socket: a message or raw bytes.
//!
//! Both ends are the same program on the same node, usually of one version, and no other user can open the socket; so
//! this is plain JSON and no wire format. Unknown messages of another version are errors that close the connection,
//! never panics.

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<M> {
    Message(M),
    /// Bytes of a stream, whose number has been agreed on in messages. An empty piece means that the stream has ended.
    Bytes {
        stream: u64,
        bytes: Vec<u8>,
    },
}

/// An error that ends a connection.
#[derive(Debug, Error)]
pub enum FrameError {
    #[error("a frame of {0} bytes is longer than any this program sends")]
    TooLong(usize),
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    #[error("a frame is cut short")]
    Short,
    #[error("cannot parse a message")]
    Message(#[from] serde_json::Error),
}

/// The longest frame. Scripts and environments are sent in one frame; both are limited far below this at submission.
const MAX_FRAME: usize = 64 << 20;
const HEAD: usize = 5;
const KIND_MESSAGE: u8 = 0;
const KIND_BYTES: u8 = 1;

/// Returns the frame of a message.
pub fn message<M: Serialize>(message: &M) -> Vec<u8> {
    let mut frame = vec![0; HEAD];
    serde_json::to_writer(&mut frame, message).expect("own messages are maps with string keys, which JSON can hold");
    seal(frame, KIND_MESSAGE)
}

/// Returns the frame of a piece of a stream.
pub fn bytes(stream: u64, bytes: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD + 8 + bytes.len());
    frame.resize(HEAD, 0);
    frame.extend_from_slice(&stream.to_le_bytes());
    frame.extend_from_slice(bytes);
    seal(frame, KIND_BYTES)
}

fn seal(mut frame: Vec<u8>, kind: u8) -> Vec<u8> {
    let length = (frame.len() - HEAD) as u32;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame[4] = kind;
    frame
}

/// Assembles frames from the bytes of a socket.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// The position up to which the buffer is consumed.
    start: usize,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the number of bytes that are not consumed yet.
    pub fn n_waiting(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// Returns the next complete frame, if there is one.
    ///
    /// # Errors
    /// The other end does not speak this protocol.
    pub fn take<M: DeserializeOwned>(&mut self) -> Result<Option<Frame<M>>, FrameError> {
        let rest = &self.buffer[self.start..];
        let Some((head, rest)) = rest.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let frame = match head[4] {
            KIND_MESSAGE => Frame::Message(serde_json::from_slice(payload)?),
            KIND_BYTES => {
                let (stream, bytes) = payload.split_first_chunk::<8>().ok_or(FrameError::Short)?;
                Frame::Bytes { stream: u64::from_le_bytes(*stream), bytes: bytes.to_vec() }
            }
            kind => return Err(FrameError::Kind(kind)),
        };
        self.start += HEAD + length;
        if self.start == self.buffer.len() {
            self.buffer.clear();
            // Do not keep the memory of one large script forever.
            self.buffer.shrink_to(16 << 10);
            self.start = 0;
        }
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_at_any_cut() {
        let mut wire = message(&"one".to_owned());
        wire.extend(bytes(7, b"\0\xff"));
        wire.extend(bytes(8, b""));
        wire.extend(message(&"two".to_owned()));
        for n in 1..wire.len() {
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for piece in wire.chunks(n) {
                decoder.push(piece);
                while let Some(frame) = decoder.take::<String>().expect("valid") {
                    frames.push(frame);
                }
            }
            let expected = [
                Frame::Message("one".to_owned()),
                Frame::Bytes { stream: 7, bytes: b"\0\xff".to_vec() },
                Frame::Bytes { stream: 8, bytes: Vec::new() },
                Frame::Message("two".to_owned()),
            ];
            assert_eq!(frames, expected, "cut into pieces of {n}");
        }
    }

    #[test]
    fn strangers_are_refused() {
        let check = |wire: &[u8], problem: &str| {
            let mut decoder = Decoder::default();
            decoder.push(wire);
            let error = decoder.take::<String>().expect_err(problem).to_string();
            assert!(error.contains(problem), "{error}");
        };
        check(&[255, 255, 255, 255, 0], "longer than any");
        check(&[0, 0, 0, 0, 9], "unknown kind 9");
        check(&[3, 0, 0, 0, 1, 0, 0, 0], "cut short");
        check(&[2, 0, 0, 0, 0, b'{', b'}'], "cannot parse");
    }
}
