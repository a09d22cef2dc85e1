//! What must be stored of an end, and how an end that has lost its latest statements continues.

use rms_model::Time;

use super::Dialogue;
use crate::message::Reason;
use crate::owner::{Action, Output};
use crate::subject::Side;
use crate::template::Template;

impl Dialogue {
    /// Returns the dialogue without the state that only a running process needs: how often the latest statement was
    /// sent, and whether it was confirmed. A restored dialogue sends it again, which does no harm.
    pub fn durable(&self) -> Dialogue {
        Dialogue { voice: self.voice.durable(), ..self.clone() }
    }

    /// Returns the number of the latest statement of this end.
    pub fn said(&self) -> u32 {
        self.voice.seq()
    }

    /// Returns the number of the latest statement of the other end that was handled.
    pub fn heard(&self) -> u32 {
        self.voice.ack_seq()
    }

    /// Returns the last proposal of each end, by round.
    pub fn proposals(&self) -> impl Iterator<Item = (Side, u16, &Template)> {
        let mut proposals: Vec<_> = Vec::new();
        proposals.extend(self.mine.iter().map(|proposal| (self.end, proposal.round, &proposal.template)));
        proposals.extend(self.theirs.iter().map(|proposal| (self.end.other(), proposal.round, &proposal.template)));
        proposals.sort_by_key(|(_, round, _)| *round);
        proposals.into_iter()
    }

    /// Handles that the other end has received more statements than this end remembers: the process ended before it
    /// stored them. What was agreed is never lost in this way; anything else is given up.
    pub(crate) fn give_up_lost_negotiation(&mut self, now: Time, seen: u32) -> Output {
        if self.phase.proposer().is_none() {
            return Output::default();
        }
        self.voice.skip_to(seen);
        self.act(now, Action::Withdraw(Reason::Unknown)).unwrap_or_default()
    }
}
