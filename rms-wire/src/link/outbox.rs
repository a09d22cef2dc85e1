//! A bounded queue of frames to one peer, for senders that must not wait for it.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use thiserror::Error;
use tokio::sync::mpsc;

use super::channel::Sender;
use super::error::CODE_CLOSED;
use super::peering::Wire;
use crate::codec::{self, EncodeError};
use crate::message::Message;

/// Queues messages without waiting and writes them in the background. When the peer reads too slowly and the queue is
/// full, the link is closed: peers are sent complete state, so the peer gets everything again when it reconnects.
/// Clones share the queue; when the last one is dropped, the rest is written and the channel finished.
#[derive(Debug)]
pub struct Outbox<M> {
    frames: mpsc::Sender<Vec<u8>>,
    queued_bytes: Arc<AtomicUsize>,
    wire: Wire,
    of: PhantomData<fn(M)>,
}

/// Why a message was not queued.
#[derive(Debug, Error)]
pub enum OutboxClosed {
    #[error("the link has ended")]
    Ended,
    #[error("the link was closed: {n_frames} frames were waiting for a peer that does not read")]
    Full { n_frames: usize },
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl<M: Message> Outbox<M> {
    /// Creates a queue of at most `n_frames` frames and 32 MiB.
    pub fn new(sender: Sender, n_frames: usize) -> Outbox<M> {
        // When it is full, `push` closes the link.
        let (frames, queue) = mpsc::channel(n_frames);
        let queued_bytes = Arc::new(AtomicUsize::new(0));
        let wire = sender.wire.clone();
        tokio::spawn(write(sender, queue, Arc::clone(&queued_bytes)));
        Outbox { frames, queued_bytes, wire, of: PhantomData }
    }

    /// Queues a message without waiting.
    ///
    /// # Errors
    /// The link has ended, or was closed now because the queue is full.
    pub fn push(&self, message: &M) -> Result<(), OutboxClosed> {
        let frame = codec::encode(message)?;
        let n_bytes = frame.len();
        let queued = self.queued_bytes.fetch_add(n_bytes, Ordering::Relaxed);
        if queued > 0 && queued + n_bytes > MAX_QUEUED_BYTES {
            return Err(self.overflow());
        }
        match self.frames.try_send(frame) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => Err(self.overflow()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(OutboxClosed::Ended),
        }
    }

    fn overflow(&self) -> OutboxClosed {
        let n_frames = self.frames.max_capacity() - self.frames.capacity();
        let reason = format!("closed: {n_frames} frames were waiting for a peer that does not read");
        tracing::warn!(remote = %self.wire.connection().remote_address(), reason);
        self.wire.close(CODE_CLOSED, &reason);
        OutboxClosed::Full { n_frames }
    }
}

impl<M> Clone for Outbox<M> {
    fn clone(&self) -> Outbox<M> {
        let (frames, queued_bytes) = (self.frames.clone(), Arc::clone(&self.queued_bytes));
        Outbox { frames, queued_bytes, wire: self.wire.clone(), of: PhantomData }
    }
}

async fn write(mut sender: Sender, mut queue: mpsc::Receiver<Vec<u8>>, queued_bytes: Arc<AtomicUsize>) {
    while let Some(frame) = queue.recv().await {
        if sender.send_encoded(&frame).await.is_err() {
            // The reader of the same channel gets the reason; pushes fail from here on.
            return;
        }
        queued_bytes.fetch_sub(frame.len(), Ordering::Relaxed);
    }
    sender.finish();
    sender.delivered().await;
}

const MAX_QUEUED_BYTES: usize = 32 << 20;
