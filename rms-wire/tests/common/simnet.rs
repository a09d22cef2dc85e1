//! A network in memory that loses, delays, reorders and cuts, in the same way for the same seed.
//!
//! Time is tokio's paused clock, so minutes of silence take no real time.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};
use test_kit::Dice;
use tokio::time::{Instant, Sleep, sleep_until};

/// The network; clones are the same one.
#[derive(Clone, Debug)]
pub struct Network(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    dice: Dice,
    start: Instant,
    loss: f64,
    delay: RangeInclusive<Duration>,
    /// Addresses that are cut off in both directions.
    cut_off: BTreeSet<SocketAddr>,
    /// Those to which nothing gets through, while what they send does.
    deaf: BTreeSet<SocketAddr>,
    inboxes: BTreeMap<SocketAddr, Inbox>,
    n_sockets: u64,
    trace: Vec<Sent>,
}

/// One datagram and its fate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub at: Duration,
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub n_bytes: usize,
    /// Absent if it was lost.
    pub arrives: Option<Duration>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// The earliest first.
    arriving: BinaryHeap<std::cmp::Reverse<Arriving>>,
    /// The socket to which the inbox belongs. An older socket at the same address is dead, as after a crash.
    owner: u64,
    waker: Option<Waker>,
}

/// Ordered by the time of arrival, then by the order of sending.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arriving {
    at: Instant,
    nth: usize,
    from: SocketAddr,
    bytes: Vec<u8>,
}

impl Network {
    pub fn new(seed: u64) -> Network {
        println!("the network's seed is {seed}");
        Network(Arc::new(Mutex::new(State {
            dice: Dice::new(seed),
            start: Instant::now(),
            loss: 0.0,
            delay: Duration::from_millis(1)..=Duration::from_millis(1),
            cut_off: BTreeSet::new(),
            deaf: BTreeSet::new(),
            inboxes: BTreeMap::new(),
            n_sockets: 0,
            trace: Vec::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics while holding it")
    }

    /// From now on, loses this fraction of all datagrams and delays the others; a range reorders them.
    pub fn disturb(&self, loss: f64, delay: RangeInclusive<Duration>) {
        let mut state = self.state();
        (state.loss, state.delay) = (loss, delay);
    }

    pub fn cut_off(&self, address: SocketAddr) {
        self.state().cut_off.insert(address);
    }

    pub fn deafen(&self, address: SocketAddr) {
        self.state().deaf.insert(address);
    }

    pub fn heal(&self, address: SocketAddr) {
        self.state().cut_off.remove(&address);
        self.state().deaf.remove(&address);
    }

    /// Returns the socket of node `n`. An earlier socket of the same node falls silent.
    pub fn socket(&self, n: u8) -> Arc<SimSocket> {
        let address = SocketAddr::from((Ipv4Addr::new(10, 0, 0, n), 6818));
        let mut state = self.state();
        state.n_sockets += 1;
        let owner = state.n_sockets;
        state.inboxes.insert(address, Inbox { owner, ..Inbox::default() });
        Arc::new(SimSocket { network: self.clone(), address, owner, alarm: Mutex::new(None) })
    }

    pub fn trace(&self) -> Vec<Sent> {
        self.state().trace.clone()
    }
}

impl State {
    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let at = Instant::now();
        // Always drawn, so that a cut does not change the random numbers of the others.
        let is_lost = self.dice.fraction() < self.loss;
        let delay = *self.delay.start() + (*self.delay.end() - *self.delay.start()).mul_f64(self.dice.fraction());
        let is_cut = self.cut_off.contains(&from) || self.cut_off.contains(&to) || self.deaf.contains(&to);
        let nth = self.trace.len();
        let inbox = self.inboxes.get_mut(&to).filter(|_| !is_lost && !is_cut);
        let arrives = inbox.map(|inbox| {
            let arriving = Arriving { at: at + delay, nth, from, bytes: bytes.to_vec() };
            inbox.arriving.push(std::cmp::Reverse(arriving));
            if let Some(waker) = inbox.waker.take() {
                waker.wake();
            }
            at + delay - self.start
        });
        self.trace.push(Sent { at: at - self.start, from, to, n_bytes: bytes.len(), arrives });
    }
}

/// One node's UDP socket.
#[derive(Debug)]
pub struct SimSocket {
    network: Network,
    address: SocketAddr,
    owner: u64,
    /// Fires when the next datagram arrives.
    alarm: Mutex<Option<Pin<Box<Sleep>>>>,
}

impl AsyncUdpSocket for SimSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        assert_eq!(transmit.segment_size, None, "one datagram at a time");
        let mut state = self.network.state();
        if state.inboxes[&self.address].owner == self.owner {
            state.send(self.address, transmit.destination, transmit.contents);
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut alarm = self.alarm.lock().expect("nobody panics while holding it");
        loop {
            let mut state = self.network.state();
            let inbox = state.inboxes.get_mut(&self.address).expect("it was made with the socket");
            if inbox.owner != self.owner {
                return Poll::Pending;
            }
            let now = Instant::now();
            let next = inbox.arriving.peek().map(|next| next.0.at);
            match next {
                Some(at) if at <= now => {
                    let std::cmp::Reverse(datagram) = inbox.arriving.pop().expect("it was there");
                    let n_bytes = datagram.bytes.len();
                    buffers[0][..n_bytes].copy_from_slice(&datagram.bytes);
                    let mut meta = RecvMeta::default();
                    (meta.addr, meta.len, meta.stride) = (datagram.from, n_bytes, n_bytes);
                    metas[0] = meta;
                    return Poll::Ready(Ok(1));
                }
                Some(at) => {
                    inbox.waker = Some(cx.waker().clone());
                    drop(state);
                    let alarm = alarm.insert(Box::pin(sleep_until(at)));
                    if alarm.as_mut().poll(cx).is_pending() {
                        return Poll::Pending;
                    }
                }
                None => {
                    inbox.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
