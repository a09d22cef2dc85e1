//! Knocks: an endpoint that was restarted makes those it had links with look at their links at once.
//!
//! A knock is one small datagram from the port that the links went to. It proves nothing and orders nothing: who gets
//! one from an address that it has dialled sends a ping over its own link, and an endpoint that has lost that link
//! answers with QUIC's stateless reset, which nobody else can make. So a forged knock costs one packet, and not often.

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

/// What was heard on one socket. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub(super) struct Knocks(Arc<Mutex<HashMap<SocketAddr, Dialled>>>);

/// An address that somebody here waits for, or has a link with.
#[derive(Debug)]
struct Dialled {
    heard: watch::Sender<u64>,
    last: Option<Instant>,
}

/// Waits for knocks from one address.
#[derive(Debug)]
pub(super) struct Expecting {
    knocks: Knocks,
    address: SocketAddr,
    heard: watch::Receiver<u64>,
}

impl Knocks {
    pub fn expect(&self, address: SocketAddr) -> Expecting {
        let address = canonical(address);
        let mut dialled = self.dialled();
        let entry = dialled.entry(address).or_insert_with(|| Dialled { heard: watch::Sender::new(0), last: None });
        Expecting { knocks: self.clone(), address, heard: entry.heard.subscribe() }
    }

    fn hear(&self, from: SocketAddr) {
        let mut dialled = self.dialled();
        let Some(entry) = dialled.get_mut(&canonical(from)) else { return };
        let now = Instant::now();
        if entry.last.is_none_or(|last| now.duration_since(last) >= LEAST_PAUSE) {
            entry.last = Some(now);
            entry.heard.send_modify(|n| *n += 1);
        }
    }

    fn dialled(&self) -> MutexGuard<'_, HashMap<SocketAddr, Dialled>> {
        // No change of it can panic half-way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Expecting {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next knock after the last one that was told here.
    pub async fn knock(&mut self) {
        if self.heard.changed().await.is_err() {
            // The sender is in the table as long as this is.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Expecting {
    fn drop(&mut self) {
        let mut dialled = self.knocks.dialled();
        let is_last = dialled.get(&self.address).is_some_and(|entry| entry.heard.receiver_count() == 1);
        if is_last {
            dialled.remove(&self.address);
        }
    }
}

/// A socket that hears knocks among the datagrams for QUIC, which takes no notice of them.
pub(super) struct Doorway {
    socket: Arc<dyn AsyncUdpSocket>,
    knocks: Knocks,
}

impl Doorway {
    pub fn new(socket: Arc<dyn AsyncUdpSocket>, knocks: Knocks) -> Doorway {
        Doorway { socket, knocks }
    }

    /// Knocks at `remote`, from `local` if that is known.
    ///
    /// # Errors
    /// As the socket says; a full one takes more in a moment.
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

impl fmt::Debug for Doorway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

impl AsyncUdpSocket for Doorway {
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
                // The kernel may hand over several datagrams of one sender as one.
                let mut datagrams = buffer[..meta.len].chunks(meta.stride.max(1));
                if datagrams.any(|datagram| datagram == KNOCK) {
                    self.knocks.hear(meta.addr);
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

/// The bit 0x40 of the first byte is not set, so no endpoint of QUIC takes it for a packet (RFC 9000, §17.2).
const KNOCK: &[u8] = b"\x06limber knock 1";

/// Knocks from one address count so often at most.
const LEAST_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[tokio::test]
    async fn a_knock_counts_from_the_address_that_was_dialled_and_not_too_often() {
        let knocks = Knocks::default();
        let mut expecting = knocks.expect(address("[::ffff:10.0.0.1]:7117"));
        for from in ["10.0.0.1:7118", "10.0.0.2:7117"] {
            knocks.hear(address(from));
        }
        assert!(!expecting.heard.has_changed().expect("it is there"));
        knocks.hear(address("10.0.0.1:7117"));
        expecting.knock().await;
        knocks.hear(address("10.0.0.1:7117"));
        assert!(!expecting.heard.has_changed().expect("it is there"), "at most one in {LEAST_PAUSE:?}");
        drop(expecting);
        assert!(knocks.dialled().is_empty(), "nothing is kept for an address that nobody waits for");
    }
}
