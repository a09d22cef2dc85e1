//! What of an end must outlive its process, and how one goes on that has forgotten the last of the talk.

use rms_model::Time;

use super::Dialogue;
use crate::message::Reason;
use crate::owner::{Action, Output};
use crate::subject::Side;
use crate::template::Template;

impl Dialogue {
    /// Itself without what only a running process needs: how often the latest statement was said, and whether it was
    /// heard. One that is read back says it again, which does no harm.
    pub fn durable(&self) -> Dialogue {
        Dialogue { voice: self.voice.durable(), ..self.clone() }
    }

    /// The number of the latest statement of this end.
    pub fn said(&self) -> u32 {
        self.voice.seq()
    }

    /// The number of the latest statement of the other end that was taken in.
    pub fn heard(&self) -> u32 {
        self.voice.ack_seq()
    }

    /// The last proposal of each end, by round.
    pub fn proposals(&self) -> impl Iterator<Item = (Side, u16, &Template)> {
        let mut proposals: Vec<_> = Vec::new();
        proposals.extend(self.mine.iter().map(|proposal| (self.end, proposal.round, &proposal.template)));
        proposals.extend(self.theirs.iter().map(|proposal| (self.end.other(), proposal.round, &proposal.template)));
        proposals.sort_by_key(|(_, round, _)| *round);
        proposals.into_iter()
    }

    /// The other end has heard more than this one remembers having said: the last of the talk was lost with a process
    /// that wrote it down too late. What was agreed is never lost so; the rest is given up.
    pub(crate) fn give_up_lost_negotiation(&mut self, now: Time, seen: u32) -> Output {
        if self.phase.proposer().is_none() {
            return Output::default();
        }
        self.voice.skip_to(seen);
        self.act(now, Action::Withdraw(Reason::Unknown)).unwrap_or_default()
    }
}
