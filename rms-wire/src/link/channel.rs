//! Frames over one bidirectional stream of a link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quinn::VarInt;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::connection::{RecvStream, SendStream, Streams};
use super::error::LinkError;
use super::peering::{SMALL_FRAME, Wire};
use super::tuning::Tuning;
use crate::codec::{self, DecodeError, HEADER_BYTES, Header, Unparsed, Variant};
use crate::message::{Message, Size};

/// A channel: frames go out in order and come in in order. Dropping it ends both directions.
#[derive(Debug)]
pub struct Channel {
    sender: Sender,
    receiver: Receiver,
}

/// The outgoing half.
#[derive(Debug)]
pub struct Sender {
    pub(super) wire: Wire,
    stream: SendStream,
    n_bytes: ByteCount,
}

/// Counts the bytes of frames, headers included, over one half of a channel; QUIC's overhead is not counted. Clones
/// share the counter.
#[derive(Clone, Debug, Default)]
pub struct ByteCount(Arc<AtomicU64>);

impl ByteCount {
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, n_bytes: usize) {
        self.0.fetch_add(n_bytes as u64, Ordering::Relaxed);
    }
}

/// The incoming half. Receiving is cancel safe: bytes that were read are kept for the next call. The memory for a
/// peer's large frames is limited: further large frames, on any of its channels, wait for it.
#[derive(Debug)]
pub struct Receiver {
    wire: Wire,
    stream: RecvStream,
    n_bytes: ByteCount,
    header: [u8; HEADER_BYTES],
    n_header: usize,
    payload: Vec<u8>,
    /// Held while a large frame, or any frame within a budget, is being read.
    permit: Option<OwnedSemaphorePermit>,
    budget: Option<Budget>,
    /// The deadline for the rest of a frame that has begun.
    until: Option<Instant>,
}

/// The memory that frames of some channels share, in KiB, and how long a frame waits for its part of it.
#[derive(Clone, Debug)]
pub struct Budget {
    pub kib: Arc<Semaphore>,
    /// The total: a larger frame takes only this much.
    pub most: u32,
    /// Absent for no limit.
    pub patience: Option<Duration>,
}

impl Budget {
    /// Returns what a frame of `n_bytes` takes together with its decoded message, whose kind allows at most `max`
    /// bytes.
    pub fn kib_of(n_bytes: usize, max: usize) -> u32 {
        let n_bytes = n_bytes + n_bytes.saturating_mul(8).min(max);
        u32::try_from(n_bytes / 1024 + 1).unwrap_or(u32::MAX)
    }
}

/// A reservation of memory for one large frame. It is released on drop.
#[derive(Debug, Default)]
pub struct Held {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Channel {
    pub(super) fn new(wire: Wire, (send, receive): Streams) -> Channel {
        let sender = Sender { wire: wire.clone(), stream: send, n_bytes: ByteCount::default() };
        Channel { sender, receiver: Receiver::new(wire, receive) }
    }

    /// Sends one frame. See [`Sender::send`].
    ///
    /// # Errors
    /// The message exceeds its limit, or the channel or link has ended.
    pub async fn send<M: Message>(&mut self, message: &M) -> Result<(), LinkError> {
        self.sender.send(message).await
    }

    /// Receives the next frame; `None` after the last one. See [`Receiver::recv`].
    ///
    /// # Errors
    /// See [`Receiver::recv`].
    pub async fn recv<M: Message>(&mut self) -> Result<Option<M>, LinkError> {
        self.receiver.recv().await
    }

    /// See [`Receiver::next_kind`].
    ///
    /// # Errors
    /// See [`Receiver::recv`].
    pub async fn next_kind(&mut self) -> Result<Option<u16>, LinkError> {
        self.receiver.next_kind().await
    }

    /// Signals that nothing more will be sent; receiving continues.
    pub fn finish(&mut self) {
        self.sender.finish();
    }

    pub fn split(self) -> (Sender, Receiver) {
        (self.sender, self.receiver)
    }
}

impl Sender {
    /// Sends one frame; waits while the peer does not read. Not cancel safe: half a frame would be left on the channel,
    /// which the peer treats as a violation. Use an [`Outbox`](super::Outbox) alongside other work.
    ///
    /// # Errors
    /// The message exceeds its limit, or the channel or link has ended.
    pub async fn send<M: Message>(&mut self, message: &M) -> Result<(), LinkError> {
        let frame = codec::encode(message)?;
        if M::MAY_WAIT { self.write(&frame).await } else { self.send_encoded(&frame).await }
    }

    /// Writes a frame. Resets the channel if the peer does not read in time, so that its memory is freed.
    pub(super) async fn send_encoded(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        let patience = Tuning::frame_patience(self.wire.frame(), frame.len());
        let written = tokio::time::timeout(patience, self.write(frame)).await;
        written.unwrap_or_else(|_| {
            self.stream.reset(GIVEN_UP);
            Err(LinkError::Unread { secs: patience.as_secs() })
        })
    }

    async fn write(&mut self, frame: &[u8]) -> Result<(), LinkError> {
        match self.stream.write_all(frame).await {
            Ok(()) => {
                self.n_bytes.add(frame.len());
                Ok(())
            }
            Err(quinn::WriteError::ConnectionLost(error)) => Err(self.wire.ended(&error)),
            Err(error) => Err(LinkError::write(error)),
        }
    }

    /// Returns the counter of the bytes sent.
    pub fn n_bytes(&self) -> ByteCount {
        self.n_bytes.clone()
    }

    /// Signals that nothing more will be sent.
    pub fn finish(&mut self) {
        self.stream.finish();
    }

    /// Waits until the peer reads no more, before the channel is finished; for ever on a local link. Cancel safe.
    pub async fn stopped(&self) {
        self.stream.stopped().await;
    }

    /// Waits until the peer has received everything, or has stopped the channel.
    pub async fn delivered(&mut self) {
        self.stream.delivered().await;
    }
}

impl Receiver {
    fn new(wire: Wire, stream: RecvStream) -> Receiver {
        let n_bytes = ByteCount::default();
        Receiver {
            wire,
            stream,
            n_bytes,
            header: [0; HEADER_BYTES],
            n_header: 0,
            payload: Vec::new(),
            permit: None,
            budget: None,
            until: None,
        }
    }

    /// Sets a budget: from now on, a frame of any length is read only once it has its part of the budget.
    pub fn within(&mut self, budget: Budget) {
        self.budget = Some(budget);
    }

    /// Returns the counter of the bytes received, in whole frames.
    pub fn n_bytes(&self) -> ByteCount {
        self.n_bytes.clone()
    }

    /// Receives the next frame, or `None` when the peer has finished. Cancel safe. If the peer sends anything but a
    /// complete, well-formed `M`, its link is closed, and the reason is logged.
    ///
    /// # Errors
    /// The channel or the link has ended, or the frame is not a valid `M`.
    pub async fn recv<M: Message>(&mut self) -> Result<Option<M>, LinkError> {
        let received = self.read_frame::<M, _>(codec::decode).await;
        self.permit = None;
        self.checked(received)
    }

    /// Like [`Receiver::recv`], but returns the memory reservation, which [`Receiver::recv`] releases at once: for
    /// messages that are kept while they are processed.
    ///
    /// # Errors
    /// See [`Receiver::recv`].
    pub async fn recv_held<M: Message>(&mut self) -> Result<Option<(M, Held)>, LinkError> {
        let received = self
            .read_frame::<M, _>(codec::decode)
            .await
            .map(|message| message.map(|message| (message, Held { _permit: self.permit.take() })));
        self.checked(received)
    }

    /// Like [`Receiver::recv_held`], but decodes an `R` if the frame is a complete value but not an `M`: so peers of
    /// other versions, and faulty ones, get an answer.
    ///
    /// # Errors
    /// See [`Receiver::recv`].
    pub async fn recv_or<M: Message, R: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<(Result<M, Unparsed<R>>, Held)>, LinkError> {
        let received = self
            .read_frame::<M, _>(codec::decode_or::<M, R>)
            .await
            .map(|message| message.map(|message| (message, Held { _permit: self.permit.take() })));
        self.checked(received)
    }

    /// Like [`Receiver::recv`], but a variant that cannot be decoded is skipped and logged, because the peer may be
    /// newer. The `needed` variants are not skipped: without one part, the others would be taken for the whole.
    ///
    /// # Errors
    /// See [`Receiver::recv`].
    pub async fn recv_known<M: Message>(&mut self, needed: &[&str]) -> Result<Option<M>, LinkError> {
        loop {
            match self.recv_or::<M, Variant>().await? {
                None => return Ok(None),
                Some((Ok(message), _)) => return Ok(Some(message)),
                Some((Err(unparsed), _)) if needed.contains(&unparsed.read.0.as_str()) => {
                    return self.checked(Err(unparsed.error.into()));
                }
                Some((Err(unparsed), _)) => {
                    let remote = self.wire.connection().remote_address();
                    let Variant(variant) = unparsed.read;
                    tracing::warn!(%remote, variant, error = %unparsed.error, "skipped a message");
                }
            }
        }
    }

    /// Like [`Receiver::recv`], where a frame must follow.
    ///
    /// # Errors
    /// Those of [`Receiver::recv`], or the peer has finished.
    pub async fn recv_required<M: Message>(&mut self) -> Result<M, LinkError> {
        let received = self.recv().await?.ok_or_else(|| self.unexpected_end(LinkError::Silent));
        self.checked(received)
    }

    /// Returns the error for an unexpected end: a protocol violation, unless the peer may have reset the channel.
    fn unexpected_end(&self, broken: LinkError) -> LinkError {
        if self.stream.has_ambiguous_end() { LinkError::ChannelReset } else { broken }
    }

    fn checked<T>(&self, received: Result<T, LinkError>) -> Result<T, LinkError> {
        if let Err(error) = &received
            && error.is_violation()
        {
            self.wire.violated(error);
        }
        received
    }

    /// Returns the kind number of the next frame, which is still to be received; `None` after the last one. Cancel
    /// safe.
    ///
    /// # Errors
    /// See [`Receiver::recv`].
    pub async fn next_kind(&mut self) -> Result<Option<u16>, LinkError> {
        let is_there = self.read_header().await;
        Ok(self.checked(is_there)?.then(|| Header::from_bytes(self.header).kind))
    }

    /// Reads the header; returns false if the peer has finished.
    async fn read_header(&mut self) -> Result<bool, LinkError> {
        while self.n_header < HEADER_BYTES {
            match self.read_some(Part::Header).await? {
                0 if self.n_header == 0 => return Ok(false),
                0 => return Err(self.unexpected_end(LinkError::CutShort)),
                n_read => self.n_header += n_read,
            }
            if self.n_header == HEADER_BYTES {
                // The deadline now depends on the length.
                self.until = None;
            }
        }
        Ok(true)
    }

    async fn read_frame<M: Message, T>(
        &mut self,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, LinkError> {
        if !self.read_header().await? {
            return Ok(None);
        }
        let length = Header::from_bytes(self.header).expect::<M>()?;
        if self.permit.is_none() {
            match &self.budget {
                Some(budget) => self.permit = Some(acquire(budget, length, M::SIZE.bytes()).await?),
                // Chunks of streams are bounded by their receivers.
                None if length > SMALL_FRAME && M::SIZE != Size::Chunk => {
                    self.permit = Some(self.wire.large_frame(length).await);
                }
                None => {}
            }
            self.until = None;
        }
        while self.payload.len() < length {
            // The buffer grows with the bytes that have arrived, not with the announced length.
            let at_most = (length - self.payload.len()).min(READ_BYTES);
            if self.read_some(Part::Payload { at_most }).await? == 0 {
                return Err(self.unexpected_end(LinkError::CutShort));
            }
        }
        let decoded = decode(&self.payload);
        self.n_bytes.add(HEADER_BYTES + length);
        self.n_header = 0;
        self.until = None;
        // Large frames are rare: their memory is not kept for the next one.
        if self.payload.capacity() > READ_BYTES {
            self.payload = Vec::new();
        } else {
            self.payload.clear();
        }
        Ok(Some(decoded?))
    }

    /// Reads once; returns 0 at the end. Cancel safe.
    async fn read_some(&mut self, part: Part) -> Result<usize, LinkError> {
        if self.n_header == 0 {
            return self.read_any(part).await;
        }
        let patience = Tuning::frame_patience(self.wire.frame(), self.n_announced());
        let until = *self.until.get_or_insert_with(|| Instant::now() + patience);
        // Bytes that are available already are read, even after the deadline.
        let read = tokio::time::timeout_at(until, self.read_any(part)).await;
        read.unwrap_or_else(|_| {
            self.stream.stop(GIVEN_UP);
            Err(LinkError::Unfinished { secs: patience.as_secs() })
        })
    }

    /// Returns the length announced in the header, once the header is complete.
    fn n_announced(&self) -> usize {
        if self.n_header < HEADER_BYTES { 0 } else { Header::from_bytes(self.header).length as usize }
    }

    async fn read_any(&mut self, part: Part) -> Result<usize, LinkError> {
        let read = match part {
            Part::Header => self.stream.read(&mut self.header[self.n_header..]).await,
            Part::Payload { at_most } => self.stream.read_more(at_most, &mut self.payload).await,
        };
        read.map_err(|error| match error {
            quinn::ReadError::ConnectionLost(error) => self.wire.ended(&error),
            error => LinkError::read(error),
        })
    }
}

async fn acquire(budget: &Budget, n_bytes: usize, max: usize) -> Result<OwnedSemaphorePermit, LinkError> {
    let part = Arc::clone(&budget.kib).acquire_many_owned(Budget::kib_of(n_bytes, max).min(budget.most));
    let part = match budget.patience {
        None => part.await,
        Some(patience) => tokio::time::timeout(patience, part).await.map_err(|_| LinkError::NoRoom)?,
    };
    Ok(part.expect("the semaphore is never closed"))
}

enum Part {
    Header,
    Payload { at_most: usize },
}

const READ_BYTES: usize = 64 << 10;

/// The error code that the peer gets when we reset a channel.
const GIVEN_UP: VarInt = VarInt::from_u32(1);
