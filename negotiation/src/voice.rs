//! Says the latest statement until the other end has heard it, and remembers what was heard.

use rms_model::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::message::{Message, Statement};
use crate::subject::NegotiationId;

/// One end's half of the conversation. Statements are numbered; only the latest is ever repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Voice {
    latest: Option<Statement>,
    number: u32,
    /// The greatest number of ours that the other end has confirmed.
    confirmed: u32,
    /// The number of theirs that we have taken in.
    seen: u32,
    n_times: u32,
    speak_at: Time,
}

/// How long to wait for a confirmation: first, and at most, with doubling between.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    pub first: Span,
    pub most: Span,
}

impl Voice {
    /// One that has lost what it said, but knows that so many statements of it were heard, and which was the latest of
    /// the other end.
    pub fn recalled(number: u32, seen: u32) -> Voice {
        Voice { number, confirmed: number, seen, ..Voice::default() }
    }

    pub fn seen(&self) -> u32 {
        self.seen
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether the other end may not know the latest statement.
    pub fn is_unheard(&self) -> bool {
        self.confirmed < self.number
    }

    /// How often the latest statement was said.
    pub fn n_times(&self) -> u32 {
        self.n_times
    }

    /// When to speak next, if there is a reason to.
    pub fn speak_at(&self) -> Time {
        self.speak_at
    }

    /// Makes a new statement, which takes the place of the one before it.
    pub fn say(&mut self, statement: Statement) {
        self.latest = Some(statement);
        self.number = self.number.saturating_add(1);
        self.n_times = 0;
    }

    /// The latest statement, once more.
    pub fn speak(&mut self, id: NegotiationId, now: Time, patience: Patience) -> Message {
        let doublings = if self.is_unheard() { self.n_times.min(MOST_DOUBLINGS) } else { MOST_DOUBLINGS };
        let wait = Span::from_millis(patience.first.as_millis().saturating_mul(1 << doublings));
        self.speak_at = now + wait.min(patience.most);
        self.n_times = self.n_times.saturating_add(1);
        Message { statement: self.latest.clone(), ..self.nod(id) }
    }

    /// Only what was heard. It asks for nothing, so two ends never nod at each other for ever.
    pub fn nod(&self, id: NegotiationId) -> Message {
        Message { id, number: self.number, seen: self.seen, statement: None }
    }

    /// The other end has heard everything up to there.
    pub fn confirm(&mut self, number: u32) {
        self.confirmed = self.confirmed.max(number);
    }

    /// Itself as it is written down: what only the running process knows is left out.
    pub fn durable(&self) -> Voice {
        Voice { confirmed: 0, n_times: 0, speak_at: Time::EPOCH, ..self.clone() }
    }

    /// The other end has heard statements up to this one, whatever they were.
    pub fn skip_to(&mut self, number: u32) {
        self.number = self.number.max(number);
    }

    /// A statement of the other end was taken in.
    pub fn take_in(&mut self, number: u32) {
        self.seen = self.seen.max(number);
    }
}

/// Enough to get from a millisecond to more than a week.
const MOST_DOUBLINGS: u32 = 30;
