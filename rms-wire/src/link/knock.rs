//! Knocks: a restarted endpoint makes its previous peers check their links at once.
//!
//! A knock is one small datagram from the port that the links went to. It proves nothing and orders nothing: a peer
//! that receives one from an address that it has dialled sends a ping over its own link, and an endpoint that has lost
//! that link answers with QUIC's stateless reset, which nobody else can make. So a forged knock costs one packet, at a
//! limited rate.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use tokio::sync::watch;

/// The addresses from which knocks are expected on one socket. Clones share the table.
#[derive(Clone, Debug, Default)]
pub(super) struct KnockTable(Arc<Mutex<HashMap<SocketAddr, KnockSender>>>);

/// The sender for the waiting tasks and links of one address.
#[derive(Debug)]
struct KnockSender {
    count: watch::Sender<u64>,
    last_at: Option<Instant>,
}

/// Waits for knocks from one address.
#[derive(Debug)]
pub(super) struct KnockReceiver {
    knocks: KnockTable,
    address: SocketAddr,
    count: watch::Receiver<u64>,
}

impl KnockTable {
    pub fn expect(&self, address: SocketAddr) -> KnockReceiver {
        let address = canonical(address);
        let mut senders = self.senders();
        let entry =
            senders.entry(address).or_insert_with(|| KnockSender { count: watch::Sender::new(0), last_at: None });
        KnockReceiver { knocks: self.clone(), address, count: entry.count.subscribe() }
    }

    fn record(&self, from: SocketAddr) {
        let mut senders = self.senders();
        let Some(entry) = senders.get_mut(&canonical(from)) else { return };
        let now = Instant::now();
        if entry.last_at.is_none_or(|last_at| now.duration_since(last_at) >= MIN_INTERVAL) {
            entry.last_at = Some(now);
            entry.count.send_modify(|n| *n += 1);
        }
    }

    fn senders(&self) -> MutexGuard<'_, HashMap<SocketAddr, KnockSender>> {
        // No change of the table can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KnockReceiver {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for the next knock.
    pub async fn knock(&mut self) {
        if self.count.changed().await.is_err() {
            // Cannot happen: the sender is in the table as long as this receiver exists.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for KnockReceiver {
    fn drop(&mut self) {
        let mut senders = self.knocks.senders();
        let is_last = senders.get(&self.address).is_some_and(|entry| entry.count.receiver_count() == 1);
        if is_last {
            senders.remove(&self.address);
        }
    }
}

/// A socket that detects knocks among the datagrams for QUIC, which ignores them.
pub(super) struct KnockSocket {
    socket: Arc<dyn AsyncUdpSocket>,
    knocks: KnockTable,
}

impl KnockSocket {
    pub fn new(socket: Arc<dyn AsyncUdpSocket>, knocks: KnockTable) -> KnockSocket {
        KnockSocket { socket, knocks }
    }

    /// Sends a knock to `remote`, from `local` if that is known.
    ///
    /// # Errors
    /// The error of the socket; a full socket accepts more after a moment.
    pub fn knock(&self, remote: SocketAddr, local: Option<IpAddr>) -> io::Result<()> {
        let is_ipv6 = self.socket.local_addr()?.is_ipv6();
        let destination = match (is_ipv6, remote.ip().to_canonical()) {
            (true, IpAddr::V4(ip)) => SocketAddr::new(ip.to_ipv6_mapped().into(), remote.port()),
            (_, ip) => SocketAddr::new(ip, remote.port()),
        };
        let src_ip =
            local.map(|ip| ip.to_canonical()).filter(|ip| ip.is_ipv6() == destination.ip().to_canonical().is_ipv6());
        self.socket.try_send(&Transmit { destination, ecn: None, contents: KNOCK, segment_size: None, src_ip })
    }
}

impl fmt::Debug for KnockSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

impl AsyncUdpSocket for KnockSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.socket.poll_recv(cx, buffers, metas);
        if let Poll::Ready(Ok(n_received)) = received {
            for (meta, buffer) in metas.iter().zip(buffers.iter()).take(n_received) {
                // The kernel may return several datagrams of one sender as one.
                let mut datagrams = buffer[..meta.len].chunks(meta.stride.max(1));
                if datagrams.any(|datagram| datagram == KNOCK) {
                    self.knocks.record(meta.addr);
                }
            }
        }
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.socket.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.socket.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The bit 0x40 of the first byte is not set, so no QUIC endpoint takes it for a packet (RFC 9000, §17.2).
const KNOCK: &[u8] = b"\x06limber knock 1";

/// Further knocks from one address within this time are ignored.
const MIN_INTERVAL: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[tokio::test]
    async fn a_knock_counts_from_the_address_that_was_dialled_and_not_too_often() {
        let knocks = KnockTable::default();
        let mut knock_receiver = knocks.expect(address("[::ffff:10.0.0.1]:7117"));
        for from in ["10.0.0.1:7118", "10.0.0.2:7117"] {
            knocks.record(address(from));
        }
        assert!(!knock_receiver.count.has_changed().expect("it is there"));
        knocks.record(address("10.0.0.1:7117"));
        knock_receiver.knock().await;
        knocks.record(address("10.0.0.1:7117"));
        assert!(!knock_receiver.count.has_changed().expect("it is there"), "at most one in {MIN_INTERVAL:?}");
        drop(knock_receiver);
        assert!(knocks.senders().is_empty(), "nothing is kept for an address that nobody waits for");
    }
}
