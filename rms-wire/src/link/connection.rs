//! The connection under a link, and its streams: QUIC, or a local socket, which reports its end with QUIC's error
//! types.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use quinn::{ConnectionError, ReadError, VarInt, WriteError};

use super::local;
use super::tuning::Allowance;

/// A connection. Clones share it.
#[derive(Clone, Debug)]
pub(super) enum Connection {
    Quic(quinn::Connection),
    Local(local::Connection),
}

/// The outgoing half of a stream. It is finished on drop.
#[derive(Debug)]
pub(super) enum SendStream {
    Quic(quinn::SendStream),
    Local(local::SendStream),
}

/// The incoming half of a stream. It is stopped on drop.
#[derive(Debug)]
pub(super) enum RecvStream {
    Quic(quinn::RecvStream),
    Local(local::RecvStream),
}

pub(super) type Streams = (SendStream, RecvStream);

impl Connection {
    pub async fn open_bi(&self) -> Result<Streams, ConnectionError> {
        match self {
            Connection::Quic(quic) => quic.open_bi().await.map(of_quic),
            Connection::Local(local) => local.open_bi().await.map(of_local),
        }
    }

    pub async fn accept_bi(&self) -> Result<Streams, ConnectionError> {
        match self {
            Connection::Quic(quic) => quic.accept_bi().await.map(of_quic),
            Connection::Local(local) => local.accept_bi().await.map(of_local),
        }
    }

    pub fn close(&self, code: VarInt, reason: &[u8]) {
        match self {
            Connection::Quic(quic) => quic.close(code, reason),
            Connection::Local(local) => local.close(code, reason),
        }
    }

    pub async fn closed(&self) -> ConnectionError {
        match self {
            Connection::Quic(quic) => quic.closed().await,
            Connection::Local(local) => local.closed().await,
        }
    }

    pub fn close_reason(&self) -> Option<ConnectionError> {
        match self {
            Connection::Quic(quic) => quic.close_reason(),
            Connection::Local(local) => local.close_reason(),
        }
    }

    /// Returns the peer's address; over a local socket, the loopback address without a port.
    pub fn remote_address(&self) -> SocketAddr {
        match self {
            Connection::Quic(quic) => quic.remote_address(),
            Connection::Local(_) => (Ipv4Addr::LOCALHOST, 0).into(),
        }
    }

    pub fn rtt(&self) -> Duration {
        match self {
            Connection::Quic(quic) => quic.rtt(),
            Connection::Local(_) => Duration::ZERO,
        }
    }

    /// Sets the limits of the peer. A local connection has only a few small buffers in the kernel, from the beginning.
    pub fn allow(&self, allowance: &Allowance) {
        match self {
            Connection::Quic(quic) => {
                quic.set_max_concurrent_bi_streams(allowance.channels);
                quic.set_receive_window(allowance.window);
                quic.set_send_window(allowance.unacknowledged);
            }
            Connection::Local(_) => {}
        }
    }
}

impl SendStream {
    pub async fn write_all(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        match self {
            SendStream::Quic(quic) => quic.write_all(bytes).await,
            SendStream::Local(local) => local.write_all(bytes).await,
        }
    }

    /// Finishes the stream; the peer may have stopped it already.
    pub fn finish(&mut self) {
        match self {
            SendStream::Quic(quic) => drop(quic.finish()),
            SendStream::Local(local) => local.finish(),
        }
    }

    /// Aborts the stream; it may have ended just now.
    pub fn reset(&mut self, code: VarInt) {
        match self {
            SendStream::Quic(quic) => drop(quic.reset(code)),
            SendStream::Local(local) => local.finish(),
        }
    }

    /// Waits until the peer has received everything, or has stopped the stream.
    pub async fn delivered(&mut self) {
        match self {
            SendStream::Quic(quic) => drop(quic.stopped().await),
            // The kernel keeps the data for the peer.
            SendStream::Local(_) => {}
        }
    }

    /// Waits until the peer reads no more, before the stream is finished; for ever on a local connection. Cancel safe.
    pub async fn stopped(&self) {
        match self {
            SendStream::Quic(quic) => drop(quic.stopped().await),
            SendStream::Local(_) => std::future::pending().await,
        }
    }
}

impl RecvStream {
    /// Reads some bytes into `into`; returns 0 at the end. Cancel safe.
    pub async fn read(&mut self, into: &mut [u8]) -> Result<usize, ReadError> {
        match self {
            RecvStream::Quic(quic) => quic.read(into).await.map(|n_read| n_read.unwrap_or(0)),
            RecvStream::Local(local) => local.read(into).await,
        }
    }

    /// Appends at most `at_most` bytes; returns 0 at the end. Cancel safe.
    pub async fn read_more(&mut self, at_most: usize, into: &mut Vec<u8>) -> Result<usize, ReadError> {
        match self {
            RecvStream::Quic(quic) => {
                let Some(chunk) = quic.read_chunk(at_most, true).await? else { return Ok(0) };
                into.extend_from_slice(&chunk.bytes);
                Ok(chunk.bytes.len())
            }
            RecvStream::Local(local) => local.read_more(at_most, into).await,
        }
    }

    /// Aborts the stream; it may have ended just now.
    pub fn stop(&mut self, code: VarInt) {
        match self {
            RecvStream::Quic(quic) => drop(quic.stop(code)),
            RecvStream::Local(local) => local.stop(),
        }
    }

    /// Returns whether an end may also mean that the peer has reset the stream.
    pub fn has_ambiguous_end(&self) -> bool {
        matches!(self, RecvStream::Local(_))
    }
}

fn of_quic((send, receive): (quinn::SendStream, quinn::RecvStream)) -> Streams {
    (SendStream::Quic(send), RecvStream::Quic(receive))
}

fn of_local((send, receive): (local::SendStream, local::RecvStream)) -> Streams {
    (SendStream::Local(send), RecvStream::Local(receive))
}
