//! Carries lines between the ranks' sockets and the process-management logic, and its frames to other hosts.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::order::Order;
use crate::pmi::hub::{Down, Hub, HubFrame, Up};
use crate::pmi::ranks::{Out, Ranks};
use crate::sys::End;

/// The ranks of one share.
#[derive(Debug)]
pub struct Desk {
    host_idx: u32,
    ranks: Ranks,
    /// On host 0 only.
    hub: Option<Hub>,
    lines: Vec<Option<RankLine>>,
}

#[derive(Debug)]
struct RankLine {
    socket: UnixStream,
    /// A rank gets one line for each line it sends, so this grows only if it does not read.
    outgoing: VecDeque<u8>,
}

/// What the supervisor is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Errand {
    Send { host_idx: u32, frame: HubFrame },
    Abort { code: i32, reason: String },
}

/// A rank that does not read its answers has lost its mind.
const MAX_OUTGOING: usize = 1 << 20;

impl Desk {
    pub fn new(order: &Order, sockets: Vec<OwnedFd>) -> Desk {
        let ranks_per_host: Vec<u32> = order.hosts.iter().map(|host| host.n_tasks).collect();
        let line = |socket: OwnedFd| {
            let socket = UnixStream::from(socket);
            socket.set_nonblocking(true).ok()?;
            Some(RankLine { socket, outgoing: VecDeque::new() })
        };
        Desk {
            host_idx: order.host_idx,
            ranks: Ranks::new(format!("kvs_{}_{}", order.job, order.run), &ranks_per_host, order.host_idx),
            hub: (order.host_idx == 0).then(|| Hub::new(&ranks_per_host)),
            lines: sockets.into_iter().map(line).collect(),
        }
    }

    /// The sockets to be watched: which rank, and whether something waits to be written.
    pub fn sockets(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>, bool)> {
        let open = self.lines.iter().enumerate().filter_map(|(local, line)| Some((local, line.as_ref()?)));
        open.map(|(local, line)| (local, line.socket.as_fd(), !line.outgoing.is_empty()))
    }

    /// A rank's socket is ready.
    pub fn ready(&mut self, local: usize, errands: &mut Vec<Errand>) {
        self.flush(local);
        let mut bytes = [0; 8 << 10];
        // Bounded, so that a rank that never stops sending does not keep the supervisor from its clock.
        for _ in 0..8 {
            let Some(line) = self.lines.get_mut(local).and_then(Option::as_mut) else { return };
            match line.socket.read(&mut bytes) {
                Ok(0) => return self.close(local),
                Ok(n) => {
                    let outs = self.ranks.bytes(local, &bytes[..n]);
                    self.carry(outs, errands);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close(local),
            }
        }
    }

    /// The process of a rank has ended.
    pub fn left(&mut self, local: usize, end: End, errands: &mut Vec<Errand>) {
        // Its last words may still be in the socket, `finalize` among them.
        self.ready(local, errands);
        let outs = self.ranks.left(local, end);
        self.carry(outs, errands);
        self.close(local);
    }

    /// A frame from another host.
    pub fn hear(&mut self, host_idx: u32, frame: HubFrame, errands: &mut Vec<Errand>) {
        match frame {
            HubFrame::Up(up) => self.hub_hears(host_idx, up, errands),
            HubFrame::Down(down) => {
                let outs = self.ranks.hear(down);
                self.carry(outs, errands);
            }
        }
    }

    /// Do ranks on other hosts still need what is here?
    pub fn is_needed(&self) -> bool {
        self.hub.as_ref().is_some_and(Hub::is_needed)
    }

    /// The way to the hub is there again.
    pub fn relinked(&mut self, errands: &mut Vec<Errand>) {
        for up in self.ranks.relinked() {
            errands.push(Errand::Send { host_idx: 0, frame: HubFrame::Up(up) });
        }
    }

    fn carry(&mut self, outs: Vec<Out>, errands: &mut Vec<Errand>) {
        for out in outs {
            match out {
                Out::Line { local, line } => self.say(local, &line, errands),
                Out::Abort { code, reason } => errands.push(Errand::Abort { code, reason }),
                Out::Hub(up) if self.hub.is_some() => self.hub_hears(self.host_idx, up, errands),
                Out::Hub(up) => errands.push(Errand::Send { host_idx: 0, frame: HubFrame::Up(up) }),
            }
        }
    }

    fn hub_hears(&mut self, host_idx: u32, up: Up, errands: &mut Vec<Errand>) {
        let abort = match &up {
            Up::Abort { code, .. } if host_idx != self.host_idx => Some(*code),
            _none => None,
        };
        let downs: Vec<(u32, Down)> = self.hub.as_mut().map(|hub| hub.hear(host_idx, up)).unwrap_or_default();
        for (to, down) in downs {
            if to == self.host_idx {
                let outs = self.ranks.hear(down);
                self.carry(outs, errands);
            } else {
                errands.push(Errand::Send { host_idx: to, frame: HubFrame::Down(down) });
            }
        }
        if let Some(code) = abort {
            let outs = self.ranks.hear(Down::Aborted { code });
            self.carry(outs, errands);
        }
    }

    fn say(&mut self, local: usize, text: &str, errands: &mut Vec<Errand>) {
        let Some(line) = self.lines.get_mut(local).and_then(Option::as_mut) else { return };
        line.outgoing.extend(text.as_bytes());
        if line.outgoing.len() > MAX_OUTGOING {
            self.close(local);
            errands.push(Errand::Abort { code: 1, reason: "a rank does not read from its process manager".to_owned() });
            return;
        }
        self.flush(local);
    }

    fn flush(&mut self, local: usize) {
        let Some(line) = self.lines.get_mut(local).and_then(Option::as_mut) else { return };
        while !line.outgoing.is_empty() {
            match line.socket.write(line.outgoing.as_slices().0) {
                Ok(n) => drop(line.outgoing.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close(local),
            }
        }
    }

    fn close(&mut self, local: usize) {
        if let Some(line) = self.lines.get_mut(local) {
            *line = None;
        }
    }
}
