//! Repeats the latest statement until the other end has acknowledged it, and tracks what was received.

use rms_model::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::message::{Message, Statement};
use crate::subject::NegotiationId;

/// One end's side of the exchange. Statements are numbered; only the latest is ever repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Voice {
    latest: Option<Statement>,
    seq: u32,
    /// The highest number of this end's statements that the other end has acknowledged.
    confirmed: u32,
    /// The number of the other end's latest statement that was handled.
    ack_seq: u32,
    n_times: u32,
    send_at: Time,
}

/// How long to wait for an acknowledgement: the first and the longest time, with doubling in between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub first: Span,
    pub most: Span,
}

impl Voice {
    /// Restores an end that has lost its statements, but knows that `seq` of them were received, and the number of the
    /// latest statement of the other end.
    pub fn recalled(seq: u32, ack_seq: u32) -> Voice {
        Voice { seq, confirmed: seq, ack_seq, ..Voice::default() }
    }

    pub fn ack_seq(&self) -> u32 {
        self.ack_seq
    }

    pub fn seq(&self) -> u32 {
        self.seq
    }

    /// Returns whether the other end may not have received the latest statement.
    pub fn is_unheard(&self) -> bool {
        self.confirmed < self.seq
    }

    /// Returns how often the latest statement was sent.
    pub fn n_times(&self) -> u32 {
        self.n_times
    }

    /// Returns when to send next, if there is a reason to send.
    pub fn send_at(&self) -> Time {
        self.send_at
    }

    /// Makes a new statement, which replaces the previous one.
    pub fn say(&mut self, statement: Statement) {
        self.latest = Some(statement);
        self.seq = self.seq.saturating_add(1);
        self.n_times = 0;
    }

    /// Returns a message with the latest statement, and schedules its repetition.
    pub fn send(&mut self, id: NegotiationId, now: Time, patience: Patience) -> Message {
        let doublings = if self.is_unheard() { self.n_times.min(MOST_DOUBLINGS) } else { MOST_DOUBLINGS };
        let wait = Span::from_millis(patience.first.as_millis().saturating_mul(1 << doublings));
        self.send_at = now + wait.min(patience.most);
        self.n_times = self.n_times.saturating_add(1);
        Message { statement: self.latest.clone(), ..self.ack(id) }
    }

    /// Returns a message that only acknowledges. It needs no answer, so two ends never acknowledge each other forever.
    pub fn ack(&self, id: NegotiationId) -> Message {
        Message::new(id, self.seq, self.ack_seq, None)
    }

    /// Records that the other end has received all statements up to `seq`.
    pub fn confirm(&mut self, seq: u32) {
        self.confirmed = self.confirmed.max(seq);
    }

    /// Returns the state to store, without what only the running process needs.
    pub fn durable(&self) -> Voice {
        Voice { confirmed: 0, n_times: 0, send_at: Time::EPOCH, ..self.clone() }
    }

    /// Records that the other end has received statements up to `seq`, whatever they were.
    pub fn skip_to(&mut self, seq: u32) {
        self.seq = self.seq.max(seq);
    }

    /// Records that a statement of the other end was handled.
    pub fn take_in(&mut self, seq: u32) {
        self.ack_seq = self.ack_seq.max(seq);
    }
}

/// Enough to get from a millisecond to more than a week.
const MOST_DOUBLINGS: u32 = 30;
