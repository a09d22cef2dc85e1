//! Keeps the input of a followed job until its node has taken it, and sends it again after a link broke.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rms_model::Run;
use rms_wire::{Input, InputAt, LinkError, Sender};
use tokio::sync::{self, Notify, mpsc, watch};

/// How input is sent on a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// With offsets, from where the server asks for it.
    Repeated,
    /// To an older server: in order. What was on its way when a link broke has arrived or not, and is not sent again.
    Once,
}

#[derive(Debug)]
pub struct Inputs {
    queue: sync::Mutex<mpsc::Receiver<Input>>,
    kept: Mutex<Kept>,
    /// Wakes the sender after an acknowledgement.
    changed: Notify,
}

impl Inputs {
    pub fn new(queue: mpsc::Receiver<Input>) -> Inputs {
        Inputs { queue: sync::Mutex::new(queue), kept: Mutex::default(), changed: Notify::new() }
    }

    /// Begins another channel; returns how much of its input this run has taken.
    pub fn reopen(&self, run: Option<Run>) -> u64 {
        let mut kept = self.kept();
        kept.is_end_sent = false;
        if kept.run == run { kept.start } else { 0 }
    }

    /// Applies an acknowledgement.
    pub fn taken(&self, run: Run, n_bytes: u64, again: bool) {
        self.kept().taken(run, n_bytes, again);
        self.changed.notify_one();
    }

    /// Sends input over one channel, once it is known how, until the follower aborts it.
    pub async fn feed(self: Arc<Self>, mut sender: Sender, mut protocol: watch::Receiver<Option<Protocol>>) {
        let Ok(Some(protocol)) = protocol.wait_for(Option::is_some).await.map(|agreed| *agreed) else { return };
        let mut queue = self.queue.lock().await;
        loop {
            let (next, has_room) = {
                let mut kept = self.kept();
                (kept.next(), kept.has_room())
            };
            if let Some(next) = next {
                if self.send(&mut sender, next, protocol).await.is_err() {
                    return;
                }
                continue;
            }
            tokio::select! {
                Some(input) = queue.recv(), if has_room => self.kept().add(input),
                () = self.changed.notified() => {}
            }
        }
    }

    async fn send(&self, sender: &mut Sender, next: InputAt, protocol: Protocol) -> Result<(), LinkError> {
        match protocol {
            Protocol::Repeated => sender.send(&next).await,
            Protocol::Once => {
                let InputAt { offset: _, bytes, eof } = next;
                self.kept().forget_sent();
                sender.send(&Input { bytes, eof }).await
            }
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Input that the run has not taken.
#[derive(Debug, Default)]
struct Kept {
    /// The run to which the offsets refer.
    run: Option<Run>,
    /// The offset of the first byte that is kept.
    start: u64,
    bytes: VecDeque<u8>,
    /// How many of these bytes were sent.
    n_sent: usize,
    has_ended: bool,
    is_end_sent: bool,
}

impl Kept {
    fn has_room(&self) -> bool {
        !self.has_ended && self.bytes.len() < MOST_KEPT
    }

    fn add(&mut self, input: Input) {
        self.bytes.extend(input.bytes);
        self.has_ended |= input.eof;
    }

    /// Returns what is to be sent next, which counts as sent.
    fn next(&mut self) -> Option<InputAt> {
        let offset = self.start + self.n_sent as u64;
        let bytes: Vec<u8> = self.bytes.range(self.n_sent..).take(MOST_BYTES).copied().collect();
        let eof = bytes.is_empty() && self.has_ended && !self.is_end_sent;
        if bytes.is_empty() && !eof {
            return None;
        }
        self.n_sent += bytes.len();
        self.is_end_sent |= eof;
        Some(InputAt { offset, bytes, eof })
    }

    /// Drops what the run has taken. Another run takes what the one before it has not.
    fn taken(&mut self, run: Run, n_bytes: u64, again: bool) {
        if self.run != Some(run) {
            if !again || self.run > Some(run) {
                return;
            }
            // Nothing of this input was taken, but another follower may have sent some before.
            (self.run, self.start) = (Some(run), n_bytes);
        }
        if n_bytes < self.start && !again {
            return;
        }
        let n_new = usize::try_from(n_bytes.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let n_taken = n_new.min(self.bytes.len());
        self.bytes.drain(..n_taken);
        self.start = n_bytes;
        self.n_sent = self.n_sent.saturating_sub(n_taken);
        if again {
            (self.n_sent, self.is_end_sent) = (0, false);
        }
    }

    fn forget_sent(&mut self) {
        self.bytes.drain(..self.n_sent);
        self.start += self.n_sent as u64;
        self.n_sent = 0;
    }
}

/// When so much was not taken, no more is accepted, and its producer waits.
const MOST_KEPT: usize = 1 << 20;
/// Well below the capacity of a frame.
const MOST_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes: &[u8]) -> Kept {
        let mut kept = Kept::default();
        kept.add(Input { bytes: bytes.to_vec(), eof: false });
        kept
    }

    fn next(kept: &mut Kept) -> Option<(u64, String)> {
        kept.next().map(|input| {
            (input.offset, String::from_utf8(input.bytes).expect("text") + if input.eof { "$" } else { "" })
        })
    }

    #[test]
    fn what_was_not_taken_is_sent_again_and_nothing_else() {
        let mut kept = kept(b"abcdef");
        kept.taken(Run(1), 0, true);
        assert_eq!(next(&mut kept), Some((0, "abcdef".to_owned())));
        assert_eq!(next(&mut kept), None);
        kept.taken(Run(1), 2, false);
        kept.add(Input { bytes: b"gh".to_vec(), eof: false });
        assert_eq!(next(&mut kept), Some((6, "gh".to_owned())), "an acknowledgement repeats nothing");
        kept.add(Input::END);
        assert_eq!(next(&mut kept), Some((8, "$".to_owned())));
        kept.taken(Run(1), 5, true);
        assert_eq!(next(&mut kept), Some((5, "fgh".to_owned())));
        assert_eq!(next(&mut kept), Some((8, "$".to_owned())));
        assert_eq!((next(&mut kept), kept.has_room()), (None, false));
    }

    #[test]
    fn another_run_takes_what_the_one_before_has_not() {
        let mut kept = kept(b"abcdef");
        kept.taken(Run(1), 0, true);
        kept.next();
        kept.taken(Run(1), 4, false);
        kept.taken(Run(2), 9, false);
        kept.taken(Run(2), 0, true);
        assert_eq!(next(&mut kept), Some((0, "ef".to_owned())));
        kept.taken(Run(1), 4, true);
        assert_eq!(next(&mut kept), None, "it is late");
    }

    #[test]
    fn a_follower_that_came_later_begins_where_the_job_is() {
        let mut kept = kept(b"abc");
        kept.taken(Run(1), 1000, true);
        assert_eq!(next(&mut kept), Some((1000, "abc".to_owned())));
        kept.taken(Run(1), 5000, false);
        kept.add(Input { bytes: b"d".to_vec(), eof: false });
        assert_eq!(next(&mut kept), Some((5000, "d".to_owned())));
    }

    #[test]
    fn what_a_job_does_not_read_is_not_kept_without_limit() {
        let mut kept = kept(&vec![0; MOST_KEPT]);
        kept.taken(Run(1), 0, true);
        assert!(!kept.has_room());
        while kept.next().is_some() {}
        assert!(!kept.has_room(), "it was sent, but not taken");
        kept.taken(Run(1), 1, false);
        assert!(kept.has_room());
    }
}
