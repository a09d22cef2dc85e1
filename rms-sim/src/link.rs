//! The link between an agent and the server: two lanes that keep their order and lose either everything or nothing.
//!
//! A QUIC stream does not lose single messages: packets are sent again. What is lost is the link, with all messages in
//! flight. Each end notices that at its own time, so either may keep a link that is dead.

use std::collections::VecDeque;

use rms_api::desired::{Desired, NodeReport};
use rms_model::{JobId, Run, Span, Time};

#[derive(Clone, Debug)]
pub(crate) enum ToServer {
    /// With the reason why no job can start there, if any.
    Hello(NodeReport, Option<String>),
    Report(NodeReport),
    /// The reason why no job can start there; `None` if one can.
    Trouble(Option<String>),
}

#[derive(Clone, Debug)]
pub(crate) enum ToAgent {
    Desire(Desired),
    Signal { job: JobId, run: Run, signal: i32 },
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Up,
    Down,
}

#[derive(Debug)]
pub(crate) struct Link {
    /// The number of this link, which increases with each connection.
    pub(crate) epoch: u64,
    /// Whether packets of this link still arrive.
    pub(crate) is_alive: bool,
    /// The link that the agent considers up.
    pub(crate) agent_side: Option<u64>,
    /// Whether the network is cut. The partitions are counted, so that an old time-out does not end a new one.
    pub(crate) is_cut: bool,
    pub(crate) n_cuts: u64,
    pub(crate) delay: Span,
    up: VecDeque<(Time, ToServer)>,
    down: VecDeque<(Time, ToAgent)>,
}

impl Link {
    pub(crate) fn new(delay: Span) -> Link {
        Link {
            epoch: 0,
            is_alive: false,
            agent_side: None,
            is_cut: false,
            n_cuts: 0,
            delay,
            up: VecDeque::new(),
            down: VecDeque::new(),
        }
    }

    /// Establishes a new connection; the agent uses it at once, the server when it receives the hello.
    pub(crate) fn connect(&mut self) {
        self.epoch += 1;
        self.is_alive = true;
        self.agent_side = Some(self.epoch);
        self.up.clear();
        self.down.clear();
    }

    /// Kills the link: all messages in flight are lost.
    pub(crate) fn die(&mut self) {
        self.is_alive = false;
        self.up.clear();
        self.down.clear();
    }

    /// Sends a message to the server and returns when it will arrive; `None` if the agent has no link, or the link is
    /// dead.
    pub(crate) fn send_up(&mut self, now: Time, message: ToServer) -> Option<Time> {
        let is_open = self.is_alive && self.agent_side == Some(self.epoch);
        is_open.then(|| queue(&mut self.up, now + self.delay, message))
    }

    /// Sends a message over the link that the server considers up.
    pub(crate) fn send_down(&mut self, now: Time, epoch: u64, message: ToAgent) -> Option<Time> {
        let is_open = self.is_alive && epoch == self.epoch;
        is_open.then(|| queue(&mut self.down, now + self.delay, message))
    }

    pub(crate) fn receive_up(&mut self, now: Time) -> Option<ToServer> {
        if self.is_cut { None } else { take(&mut self.up, now) }
    }

    pub(crate) fn receive_down(&mut self, now: Time) -> Option<ToAgent> {
        if self.is_cut { None } else { take(&mut self.down, now) }
    }
}

/// Queues a message. It never overtakes the one before it, even when the link has become faster.
fn queue<M>(lane: &mut VecDeque<(Time, M)>, at: Time, message: M) -> Time {
    let at = lane.back().map_or(at, |(before, _)| at.max(*before));
    lane.push_back((at, message));
    at
}

fn take<M>(lane: &mut VecDeque<(Time, M)>, now: Time) -> Option<M> {
    let has_arrived = lane.front().is_some_and(|(at, _)| *at <= now);
    if has_arrived { lane.pop_front().map(|(_, message)| message) } else { None }
}
