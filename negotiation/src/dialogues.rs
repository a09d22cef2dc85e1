//! All negotiations between the RMS and one execution of an application, as kept by one of the two ends.

use std::collections::BTreeSet;

use rms_model::{JobId, Run, Span, Time};
use serde::{Deserialize, Serialize};

use crate::dialogue::{Dialogue, Reminder};
use crate::error::{ActError, Forgery, Rejected};
use crate::message::{Message, Reason, Statement};
use crate::owner::{Action, Output, Rules};
use crate::subject::{Direction, NegotiationId, Parties, SetRule, Side};
use crate::table::Ending;
use crate::template::{Item, Template, TemplateError};

/// One open negotiation for each direction, and the last ones that ended, so that repeated messages get the same
/// answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialogues {
    end: Side,
    job: JobId,
    run: Run,
    rules: Rules,
    /// The number of the last negotiation that this end opened.
    n_opened: u32,
    /// The latest numbers under which the other end has opened negotiations; openings may arrive out of order.
    heard: BTreeSet<u32>,
    /// All numbers up to this one count as heard.
    heard_up_to: u32,
    /// In the order in which they became known.
    dialogues: Vec<Dialogue>,
}

/// Why no negotiation was opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The proposal is not a valid template.
    #[error("this cannot be negotiated")]
    Template(#[from] TemplateError),
    /// The dialogue does not allow the proposal.
    #[error("the negotiation cannot be opened")]
    Act(#[from] ActError),
}

impl Dialogues {
    /// Creates an end without negotiations.
    pub fn new(end: Side, job: JobId, run: Run, rules: Rules) -> Dialogues {
        Dialogues { end, job, run, rules, n_opened: 0, heard: BTreeSet::new(), heard_up_to: 0, dialogues: Vec::new() }
    }

    /// Restores an end from storage: it knows the numbers that were opened and heard, so no number is used twice.
    pub fn restore(
        end: Side,
        (job, run): (JobId, Run),
        rules: Rules,
        (n_opened, heard_up_to): (u32, u32),
        dialogues: Vec<Dialogue>,
    ) -> Dialogues {
        Dialogues { end, job, run, rules, n_opened, heard: BTreeSet::new(), heard_up_to, dialogues }
    }

    /// Makes an end that has lost its state continue after the last number that the other end has heard, because no
    /// number may be used twice.
    pub fn go_on_from(&mut self, n_opened: u32) {
        self.n_opened = self.n_opened.max(n_opened);
    }

    /// Skips numbers up to this one, which are in use: the RMS tells an application's negotiator, because it knows what
    /// others have requested for the application.
    pub fn skip_to(&mut self, n_opened: u32) {
        self.n_opened = self.n_opened.max(n_opened);
    }

    /// Returns the negotiation with this id, if it is still known.
    pub fn get(&self, id: NegotiationId) -> Option<&Dialogue> {
        self.dialogues.iter().find(|dialogue| dialogue.id() == id)
    }

    /// Returns all known negotiations, the oldest first.
    pub fn all(&self) -> &[Dialogue] {
        &self.dialogues
    }

    /// Returns the open negotiation of a direction. The application may briefly know of two, if both ends opened one:
    /// then it returns the RMS's.
    pub fn open_for(&self, direction: Direction) -> Option<&Dialogue> {
        let is_open = |dialogue: &&Dialogue| !dialogue.phase().is_over() && dialogue.direction() == Some(direction);
        self.dialogues.iter().filter(is_open).min_by_key(|dialogue| dialogue.id().initiator)
    }

    /// Returns the highest number under which the other end has opened or mentioned a negotiation.
    pub fn last_heard(&self) -> u32 {
        self.heard.last().copied().unwrap_or(self.heard_up_to)
    }

    /// Returns when [`Dialogues::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        self.dialogues.iter().filter_map(Dialogue::next_deadline).min()
    }

    /// Opens a negotiation with a first offer.
    ///
    /// # Errors
    /// The items are not a valid template, or a negotiation is open for the same direction.
    pub fn open(
        &mut self,
        now: Time,
        direction: Direction,
        sets: Vec<SetRule>,
        items: Vec<Item>,
        valid_for: Span,
    ) -> Result<(NegotiationId, Output), OpenError> {
        let parties = self.parties(self.end);
        let template = Template::new(parties, direction, sets, items)?;
        let last = NegotiationId { initiator: self.end, number: self.n_opened };
        if let Some(open) = self.open_for(direction) {
            return Err(ActError::AlreadyOpen(open.id()).into());
        }
        let id = last.next().ok_or(ActError::NoSuch(last))?;
        let mut dialogue = Dialogue::new(self.end, id, parties, self.rules);
        let output = dialogue.act(now, Action::Propose { template, valid_for })?;
        self.n_opened = id.number;
        self.keep(dialogue);
        Ok((id, output))
    }

    /// Performs an action of the owner of this end in one negotiation.
    ///
    /// # Errors
    /// The action is not possible; nothing has changed then.
    pub fn act(&mut self, now: Time, id: NegotiationId, action: Action) -> Result<Output, ActError> {
        let dialogue = self.dialogues.iter_mut().find(|dialogue| dialogue.id() == id);
        dialogue.ok_or(ActError::NoSuch(id))?.act(now, action)
    }

    /// Handles a message of the other end.
    pub fn receive(&mut self, now: Time, message: &Message) -> Output {
        if let Some(dialogue) = self.dialogues.iter_mut().find(|dialogue| dialogue.id() == message.id) {
            return dialogue.receive(now, message);
        }
        let opening = match &message.statement {
            // An end that has received an answer to its opening is repeating a negotiation that was forgotten here.
            Some(Statement::Propose { round: 1, .. }) if message.ack_seq > 0 => None,
            Some(Statement::Propose { round: 1, template, .. }) => Some(template.direction()),
            Some(Statement::Propose { .. } | Statement::Accept { .. } | Statement::Commit { .. }) => None,
            Some(Statement::Ready { .. } | Statement::End { .. }) | None => None,
        };
        match opening {
            Some(direction) if self.is_new(message.id) => self.answer_opening(now, message, direction),
            Some(_) | None => self.disown(message),
        }
    }

    /// Handles that the other end has received `seen` statements, which is more than this end knows of. A restored end
    /// may have lost its latest statements: it gives up what was not agreed, with a statement that is new to the other
    /// end.
    pub fn give_up_lost_negotiation(&mut self, now: Time, id: NegotiationId, seen: u32) -> Output {
        let dialogue = self.dialogues.iter_mut().find(|dialogue| dialogue.id() == id);
        dialogue.map(|dialogue| dialogue.give_up_lost_negotiation(now, seen)).unwrap_or_default()
    }

    /// Handles the passing of time until `now`.
    pub fn tick(&mut self, now: Time) -> Output {
        let mut output = Output::default();
        for dialogue in &mut self.dialogues {
            output.merge(dialogue.tick(now));
        }
        output
    }

    /// Restores a negotiation that the application does not remember, and returns whether it was restored. What the
    /// application itself remembers is right; statements that it has not received are repeated to it.
    ///
    /// # Errors
    /// No such negotiation can exist; nothing has changed then.
    pub fn recall(&mut self, now: Time, reminder: &Reminder) -> Result<bool, Forgery> {
        if self.get(reminder.id).is_some() {
            return Ok(false);
        }
        let parties = self.parties(reminder.id.initiator);
        let dialogue = Dialogue::recalled(now, parties, self.rules, reminder)?;
        match reminder.id.initiator {
            Side::Rms => self.remember(reminder.id),
            Side::Application => self.n_opened = self.n_opened.max(reminder.id.number),
        }
        self.keep(dialogue);
        Ok(true)
    }

    /// Repeats what the other end may not have received: after a reconnection, or after the negotiations were restored.
    pub fn resume(&mut self, now: Time) -> Output {
        let mut output = Output::default();
        for dialogue in &mut self.dialogues {
            output.merge(dialogue.resume(now));
        }
        output
    }

    fn parties(&self, initiator: Side) -> Parties {
        Parties { job: self.job, run: self.run, initiator }
    }

    fn answer_opening(&mut self, now: Time, message: &Message, direction: Direction) -> Output {
        let open = self.open_for(direction).map(Dialogue::id);
        let mut dialogue = Dialogue::new(self.end, message.id, self.parties(message.id.initiator), self.rules);
        let mut output = dialogue.receive(now, message);
        // Of crossing offers, the RMS's continues. The application keeps its own until the RMS has ended it: it may
        // have been accepted already.
        if let (Side::Rms, Some(open)) = (self.end, open) {
            let reason = match open.initiator {
                Side::Rms => Reason::Crossed,
                Side::Application => Reason::AlreadyOpen,
            };
            // It is already over if the opening broke a rule.
            if let Ok(rejection) = dialogue.act(now, Action::Reject(reason)) {
                output.messages.clear();
                output.merge(rejection);
                output.refused = Some(Rejected::AlreadyOpen(open));
            }
        }
        self.remember(message.id);
        self.keep(dialogue);
        output
    }

    /// Answers a message about a negotiation that is not known here: it was never opened, or forgotten because it ended
    /// long ago. Or it belongs to another end and must not be discussed over this channel.
    pub fn disown(&mut self, message: &Message) -> Output {
        let mut output = Output { refused: Some(Rejected::Unknown(message.id)), ..Output::default() };
        if self.is_new(message.id) {
            // If its opening arrives later, it must not open the negotiation.
            self.remember(message.id);
        }
        // Two ends that both know nothing must not disown each other forever: the application only acknowledges an end,
        // and an acknowledgement is never answered.
        let unknown = Statement::End { ending: Ending::Failed, reason: Reason::Unknown };
        let statement = match (self.end, &message.statement) {
            (Side::Rms | Side::Application, None) => return output,
            // It was given up before its opening arrived, so this is how it ended.
            (Side::Rms, Some(end @ Statement::End { .. })) => Some(end.clone()),
            (Side::Application, Some(Statement::End { .. })) => None,
            (Side::Rms | Side::Application, Some(_)) => Some(unknown),
        };
        let number = message.ack_seq.saturating_add(u32::from(statement.is_some()));
        output.messages.push(Message::new(message.id, number, message.seq, statement));
        output
    }

    /// Rejects an opening under a number that another end has used for the same application at the same time: the
    /// sender may open the negotiation again under another number.
    pub fn turn_away(&self, opening: &Message) -> Output {
        let crossed = Statement::End { ending: Ending::Rejected, reason: Reason::Crossed };
        let message = Message::new(opening.id, 1, opening.seq, Some(crossed));
        Output { messages: vec![message], ..Output::default() }
    }

    /// Returns whether the other end has not opened this negotiation before.
    fn is_new(&self, id: NegotiationId) -> bool {
        id.initiator != self.end && id.number > self.heard_up_to && !self.heard.contains(&id.number)
    }

    fn remember(&mut self, id: NegotiationId) {
        self.heard.insert(id.number);
        if self.heard.len() > MOST_HEARD {
            self.heard_up_to = self.heard.pop_first().unwrap_or(self.heard_up_to);
        }
    }

    /// Stores a new dialogue, and drops the oldest finished ones if there are too many.
    fn keep(&mut self, dialogue: Dialogue) {
        self.dialogues.push(dialogue);
        while self.dialogues.len() > MOST_KEPT {
            let settled = self.dialogues.iter().position(Dialogue::is_settled);
            let over = || self.dialogues.iter().position(|dialogue| dialogue.phase().is_over());
            let Some(idx) = settled.or_else(over) else { return };
            self.dialogues.remove(idx);
        }
    }
}

/// How many later openings may overtake one.
const MOST_HEARD: usize = 64;

/// How many negotiations are kept; of these at most one is open for each direction and initiator.
const MOST_KEPT: usize = 16;

#[cfg(test)]
#[path = "dialogues/tests.rs"]
mod tests;
