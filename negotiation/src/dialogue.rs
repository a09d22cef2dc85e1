//! One negotiation as a state machine that both ends run. Inputs are the end's own actions, messages and time; outputs
//! are messages and changes.

mod durable;
mod reminder;

use std::collections::BTreeSet;

use rms_model::{NodeId, Span, Time};
use serde::{Deserialize, Serialize};

use crate::concession;
use crate::error::{ActError, Breach, Rejected};
use crate::message::{Message, Reason, Statement};
use crate::owner::{Action, Change, Output, Rules};
use crate::subject::{Direction, NegotiationId, Parties, Side};
use crate::table::{self, Ending, Input, Next, Phase, StatementKind};
use crate::template::{ItemStatus, Template};
use crate::voice::{Patience, Voice};

pub use reminder::{Reminded, Reminder};

/// One end of one negotiation. It can be saved and restored at any time, and continues with [`Dialogue::resume`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dialogue {
    id: NegotiationId,
    end: Side,
    parties: Parties,
    rules: Rules,
    phase: Phase,
    mine: Option<Proposal>,
    theirs: Option<Proposal>,
    /// The nodes that the application gets or gives back, once the giving end has named them.
    nodes: Option<BTreeSet<NodeId>>,
    /// Why the negotiation ended without a result, or why the application wants it to end.
    reason: Option<Reason>,
    /// The deadline for the negotiation to become ready; after it the RMS has failed.
    due: Option<Time>,
    voice: Voice,
}

/// A proposal, as an end has sent or received it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Proposal {
    round: u16,
    template: Template,
    lapses: Time,
}

impl Dialogue {
    /// Creates an end that has neither sent nor received anything.
    pub fn new(end: Side, id: NegotiationId, parties: Parties, rules: Rules) -> Dialogue {
        Dialogue {
            id,
            end,
            parties,
            rules,
            phase: Phase::Idle,
            mine: None,
            theirs: None,
            nodes: None,
            reason: None,
            due: None,
            voice: Voice::default(),
        }
    }

    /// Returns the id of the negotiation.
    pub fn id(&self) -> NegotiationId {
        self.id
    }

    /// Returns the side of this end.
    pub fn end(&self) -> Side {
        self.end
    }

    /// Returns the phase of the negotiation, as this end knows it.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns the round of the standing or agreed proposal; 0 before the first.
    pub fn round(&self) -> u16 {
        self.standing().map_or(0, |proposal| proposal.round)
    }

    /// Returns the standing or agreed proposal, as its sender sent it.
    pub fn proposal(&self) -> Option<&Template> {
        self.standing().map(|proposal| &proposal.template)
    }

    /// Returns the last proposal of the other end.
    pub fn theirs(&self) -> Option<&Template> {
        self.theirs.as_ref().map(|proposal| &proposal.template)
    }

    /// Returns the last proposal of this end.
    pub fn mine(&self) -> Option<&Template> {
        self.mine.as_ref().map(|proposal| &proposal.template)
    }

    /// Returns the whole template with the current status of every item (002's three sections).
    pub fn record(&self) -> Option<Template> {
        let status = match self.phase {
            Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged => ItemStatus::Proposed,
            Phase::Leaving => ItemStatus::Refused,
            Phase::Accepted | Phase::Committing | Phase::Failing => ItemStatus::Accepted,
            Phase::Applied => ItemStatus::Ready,
            Phase::Ended(Ending::Rejected | Ending::Expired | Ending::Withdrawn) => ItemStatus::Refused,
            Phase::Ended(Ending::Failed) => ItemStatus::Failed,
        };
        self.proposal().map(|template| template.at(status))
    }

    /// Returns whether the application wants to grow or shrink.
    pub fn direction(&self) -> Option<Direction> {
        self.proposal().map(Template::direction)
    }

    /// Returns the nodes that the application gets or gives back, once they are known.
    pub fn nodes(&self) -> Option<&BTreeSet<NodeId>> {
        self.nodes.as_ref()
    }

    /// Returns why the negotiation ended without a result, or is to end.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// Returns the time by which the standing proposal must be answered, by the clock of this end.
    pub fn lapses(&self) -> Option<Time> {
        self.phase.proposer().and_then(|_| self.standing()).map(|proposal| proposal.lapses)
    }

    /// Returns the deadline for the negotiation to become ready, while that is awaited. After it the RMS has failed.
    pub fn due(&self) -> Option<Time> {
        match self.phase {
            Phase::Accepted | Phase::Committing => self.due,
            Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving => None,
            Phase::Failing | Phase::Applied | Phase::Ended(_) => None,
        }
    }

    /// Returns what this end, if it is the giver, must keep available until the dialogue moves on: while proposals are
    /// exchanged, its own last proposal, which it can take back only by ending the negotiation; then what was agreed.
    /// So an accept never fails.
    pub fn promised(&self) -> Option<&Template> {
        let promised = match self.phase {
            Phase::Offered(_) | Phase::Countered(_) | Phase::Leaving => self.mine(),
            Phase::Pledged | Phase::Accepted | Phase::Committing | Phase::Failing => self.proposal(),
            Phase::Idle | Phase::Applied | Phase::Ended(_) => None,
        };
        promised.filter(|template| template.direction().giver() == self.end)
    }

    /// Returns whether a proposal of this end would take back what it has conceded.
    pub fn takes_back(&self, template: &Template) -> bool {
        let earlier = self.mine().zip(self.proposal());
        earlier.is_some_and(|(mine, answered)| concession::worsening(self.end, mine, answered, template).is_some())
    }

    /// Returns whether the negotiation is over and the other end knows it.
    pub fn is_settled(&self) -> bool {
        let is_known = match self.end {
            Side::Rms => !self.voice.is_unheard(),
            Side::Application => true,
        };
        self.phase.is_over() && is_known
    }

    /// Returns when [`Dialogue::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        let sends = self.has_reason_to_send().then(|| self.voice.send_at());
        [self.lapses(), self.due(), sends].into_iter().flatten().min()
    }

    /// Performs an action of the owner of this end.
    ///
    /// # Errors
    /// The action is not possible; nothing has changed then.
    pub fn act(&mut self, now: Time, action: Action) -> Result<Output, ActError> {
        let to = match table::next(self.end, self.known_direction(), self.phase, Input::Say(action.kind())) {
            Next::To(phase) => phase,
            Next::Late | Next::Never => return Err(ActError::NotNow(self.phase)),
        };
        if self.lapses().is_some_and(|lapses| lapses <= now) {
            return Err(ActError::Lapsed);
        }
        let statement = self.statement_of(now, action)?;
        let mut output = Output::default();
        self.enter(now, to, &mut output);
        self.say(now, statement, &mut output);
        Ok(output)
    }

    /// Handles a message of the other end. No message can make this end invalid; errors in the message are in the
    /// output.
    pub fn receive(&mut self, now: Time, message: &Message) -> Output {
        // A proposal lapses before a message that arrives at the same time is handled.
        let mut output = self.tick(now);
        let n_before = output.messages.len();
        let heard = self.hear(now, message, &mut output);
        let answers = match &heard {
            Ok(())
            | Err(Rejected::Stale { .. } | Rejected::OutOfTurn(_) | Rejected::TooLate(_) | Rejected::Breach(_)) => true,
            Err(Rejected::ForeignId(_) | Rejected::NeverSaid { .. }) => false,
            Err(Rejected::Unknown(_) | Rejected::AlreadyOpen(_)) => false,
        };
        let has_answered = output.messages.len() > n_before;
        // A statement is confirmed, so that it is not repeated; if the other end has not received our latest one, it
        // gets that again.
        if answers && !has_answered {
            if self.voice.is_unheard() {
                output.messages.push(self.voice.send(self.id, now, self.patience()));
            } else if message.statement.is_some() {
                output.messages.push(self.voice.ack(self.id));
            }
        }
        output.refused = heard.err();
        output
    }

    /// Handles the passing of time until `now`.
    pub fn tick(&mut self, now: Time) -> Output {
        let mut output = Output::default();
        let has_come = |time: Option<Time>| time.is_some_and(|time| time <= now);
        if has_come(self.lapses()) {
            self.run_out(now, Input::Lapse, Ending::Expired, Reason::Lapsed, &mut output);
        } else if has_come(self.due()) {
            self.run_out(now, Input::Overdue, Ending::Failed, Reason::Overdue, &mut output);
        } else if self.has_reason_to_send() && self.voice.send_at() <= now {
            output.messages.push(self.voice.send(self.id, now, self.patience()));
        }
        output
    }

    /// Repeats what the other end may not have received: after a reconnection, or after the dialogue was restored.
    pub fn resume(&mut self, now: Time) -> Output {
        let mut output = self.tick(now);
        if output.messages.is_empty() && (self.voice.is_unheard() || self.has_reason_to_send()) {
            output.messages.push(self.voice.send(self.id, now, self.patience()));
        }
        output
    }

    /// Checks the invariants of a dialogue, which hold after every step.
    ///
    /// # Errors
    /// The invariant that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let holds = |condition: bool, sentence: &'static str| if condition { Ok(()) } else { Err(sentence) };
        let agreed = agrees(self.phase);
        let proposer = self.phase.proposer();
        let by_me = self.standing().is_some_and(|standing| self.mine.as_ref() == Some(standing));
        holds(table::phases(self.end).contains(&self.phase), "the phase is one of this end")?;
        holds(self.round() <= self.rules.max_rounds, "there are not more rounds than allowed")?;
        holds(!agreed || self.proposal().is_some_and(Template::is_definite), "what is agreed is definite")?;
        holds(proposer.is_none_or(|by| by_me == (by == self.end)), "the standing proposal is the phase's")?;
        holds(self.phase != Phase::Pledged || !by_me, "nobody pledges to the own proposal")?;
        holds(self.phase != Phase::Committing || self.nodes.is_some(), "who commits names nodes")?;
        let met = |nodes: &BTreeSet<NodeId>| self.proposal().is_some_and(|template| template.is_met_by(nodes));
        holds(self.nodes.as_ref().is_none_or(met), "the nodes are those that were agreed")?;
        let has_due = self.due.is_some() || self.end == Side::Application;
        holds(self.phase != Phase::Accepted || has_due, "what the RMS has agreed to is due")
    }

    /// Returns the proposal of the highest round, which is the standing or agreed one.
    fn standing(&self) -> Option<&Proposal> {
        self.mine.iter().chain(&self.theirs).max_by_key(|proposal| proposal.round)
    }

    /// Returns whether the other end can have agreed, either to this end's proposal or after this end's pledge to the
    /// other's.
    fn may_be_agreed(&self) -> bool {
        let is_mine = self.mine.as_ref() == self.standing();
        is_mine || self.phase != Phase::Leaving
    }

    /// Returns the direction. Before there is a proposal, the table does not depend on it.
    fn known_direction(&self) -> Direction {
        self.direction().unwrap_or(Direction::Grow)
    }

    fn has_reason_to_send(&self) -> bool {
        match self.end {
            // The RMS repeats its last statement only a limited number of times; after that the application asks for
            // it.
            Side::Rms => {
                let gave_up = self.phase.is_over() && self.voice.n_times() >= LAST_WORDS;
                self.voice.is_unheard() && !gave_up
            }
            Side::Application => self.phase != Phase::Idle && !self.phase.is_over(),
        }
    }

    fn patience(&self) -> Patience {
        Patience { first: self.rules.repeat_first, most: self.rules.repeat_most }
    }

    /// Validates an action of this end and stores what belongs to it.
    fn statement_of(&mut self, now: Time, action: Action) -> Result<Statement, Breach> {
        let round = self.round();
        Ok(match action {
            Action::Propose { template, valid_for } => {
                let round = round.saturating_add(1);
                self.check_proposal(self.end, round, &template, valid_for)?;
                self.mine = Some(self.proposal_of(now, round, &template, valid_for));
                Statement::Propose { round, template, valid_for }
            }
            Action::Accept => {
                self.check_agreeable(round)?;
                Statement::Accept { round }
            }
            Action::Commit(nodes) => {
                self.check_nodes(&nodes)?;
                self.nodes = Some(nodes.clone());
                Statement::Commit { round, nodes }
            }
            Action::Ready => self.ready(round, self.nodes.clone().unwrap_or_default())?,
            Action::Gone(nodes) => self.ready(round, nodes)?,
            Action::Reject(reason) => self.ending(Ending::Rejected, reason),
            Action::Withdraw(reason) => self.ending(Ending::Withdrawn, reason),
            Action::Fail(reason) => self.ending(Ending::Failed, reason),
        })
    }

    fn ready(&mut self, round: u16, nodes: BTreeSet<NodeId>) -> Result<Statement, Breach> {
        self.check_nodes(&nodes)?;
        self.nodes = Some(nodes.clone());
        Ok(Statement::Ready { round, nodes })
    }

    fn hear(&mut self, now: Time, message: &Message, output: &mut Output) -> Result<(), Rejected> {
        if message.id != self.id {
            return Err(Rejected::ForeignId(message.id));
        }
        if message.ack_seq > self.voice.seq() {
            return Err(Rejected::NeverSaid { seen: message.ack_seq, said: self.voice.seq() });
        }
        self.voice.confirm(message.ack_seq);
        let Some(statement) = &message.statement else { return Ok(()) };
        if message.seq <= self.voice.ack_seq() {
            return Err(Rejected::Stale { number: message.seq, seen: self.voice.ack_seq() });
        }
        match table::next(self.end, self.known_direction(), self.phase, Input::Hear(statement.kind())) {
            Next::Never => Err(Rejected::OutOfTurn(self.phase)),
            Next::To(to) if agrees(to) && !self.may_be_agreed() => Err(Rejected::OutOfTurn(self.phase)),
            Next::Late => {
                self.voice.take_in(message.seq);
                Err(Rejected::TooLate(self.phase))
            }
            Next::To(to) => self.follow(now, to, message.seq, statement, output),
        }
    }

    /// Handles a statement of the other end that is possible in the current phase.
    fn follow(
        &mut self,
        now: Time,
        to: Phase,
        number: u32,
        statement: &Statement,
        output: &mut Output,
    ) -> Result<(), Rejected> {
        match statement {
            Statement::Propose { round, template, valid_for } => {
                self.voice.take_in(number);
                if let Err(breach) = self.check_proposal(self.end.other(), *round, template, *valid_for) {
                    self.turn_down(now, to, &breach, output);
                    return Err(breach.into());
                }
                self.theirs = Some(self.proposal_of(now, *round, template, *valid_for));
                self.enter(now, to, output);
            }
            Statement::Accept { round } => {
                self.check_agreeable(*round)?;
                self.voice.take_in(number);
                self.enter(now, to, output);
                // The application's accept is only a wish; this makes it binding.
                if self.end == Side::Rms {
                    self.say(now, Statement::Accept { round: *round }, output);
                }
            }
            Statement::Commit { round, nodes } | Statement::Ready { round, nodes } => {
                self.check_agreeable(*round)?;
                self.check_nodes(nodes)?;
                self.voice.take_in(number);
                self.nodes = Some(nodes.clone());
                self.enter(now, to, output);
            }
            Statement::End { ending, reason } => {
                self.voice.take_in(number);
                self.enter(now, to, output);
                let word = self.ending(*ending, *reason);
                if self.end == Side::Rms {
                    self.say(now, word, output);
                }
            }
        }
        Ok(())
    }

    /// Answers a proposal that breaks a rule as if it had been received and rejected; it is not stored.
    fn turn_down(&mut self, now: Time, heard: Phase, breach: &Breach, output: &mut Output) {
        let reason = match breach {
            Breach::TooManyRounds { .. } => Reason::TooManyRounds,
            Breach::Round { .. } | Breach::OtherSubject | Breach::Worsens { .. } => Reason::BadProposal,
            Breach::Indefinite | Breach::Validity(_) | Breach::Nodes { .. } => Reason::BadProposal,
        };
        let input = Input::Say(StatementKind::End(Ending::Rejected));
        match table::next(self.end, self.known_direction(), heard, input) {
            Next::To(to) => {
                self.enter(now, to, output);
                let word = self.ending(Ending::Rejected, reason);
                self.say(now, word, output);
            }
            Next::Late | Next::Never => unreachable!("a proposal that was heard can be rejected"),
        }
    }

    fn run_out(&mut self, now: Time, input: Input, ending: Ending, reason: Reason, output: &mut Output) {
        match table::next(self.end, self.known_direction(), self.phase, input) {
            Next::To(to) => {
                self.enter(now, to, output);
                let word = self.ending(ending, reason);
                self.say(now, word, output);
            }
            Next::Late | Next::Never => unreachable!("only what can run out has a deadline"),
        }
    }

    fn ending(&mut self, ending: Ending, reason: Reason) -> Statement {
        self.reason = Some(reason);
        Statement::End { ending, reason }
    }

    fn enter(&mut self, now: Time, to: Phase, output: &mut Output) {
        if to == Phase::Accepted {
            let deadline = self.proposal().map_or(Time::NEVER, Template::deadline);
            self.due = (self.end == Side::Rms).then(|| deadline.min(now + self.rules.apply_within));
            // The application wanted to leave, but too late.
            self.reason = None;
        }
        if to == Phase::Committing || to == Phase::Applied {
            self.reason = None;
        }
        if to != self.phase {
            output.changes.push(Change { id: self.id, from: self.phase, to });
        }
        self.phase = to;
    }

    fn say(&mut self, now: Time, statement: Statement, output: &mut Output) {
        self.voice.say(statement);
        output.messages.push(self.voice.send(self.id, now, self.patience()));
    }

    fn proposal_of(&self, now: Time, round: u16, template: &Template, valid_for: Span) -> Proposal {
        let lapses = now + valid_for.min(self.rules.longest_valid);
        // Deadlines are in the RMS's time, so only the RMS's clock is compared with them.
        let deadline = if self.end == Side::Rms { template.deadline() } else { Time::NEVER };
        Proposal { round, template: template.clone(), lapses: lapses.min(deadline) }
    }

    fn check_proposal(&self, by: Side, round: u16, template: &Template, valid_for: Span) -> Result<(), Breach> {
        let expected = self.round().saturating_add(1);
        if round != expected {
            return Err(Breach::Round { said: round, expected });
        }
        if round > self.rules.max_rounds {
            return Err(Breach::TooManyRounds { most: self.rules.max_rounds });
        }
        if valid_for <= Span::ZERO || valid_for > Span::MAX_WALL {
            return Err(Breach::Validity(valid_for));
        }
        if template.parties() != self.parties {
            return Err(Breach::OtherSubject);
        }
        let Some(answered) = self.proposal() else { return Ok(()) };
        if !template.has_subject_of(answered) {
            return Err(Breach::OtherSubject);
        }
        let earlier = if by == self.end { self.mine() } else { self.theirs() };
        match earlier.and_then(|earlier| concession::worsening(by, earlier, answered, template)) {
            Some(breach) => Err(breach),
            None => Ok(()),
        }
    }

    /// Checks that the round is the standing one, and that its proposal has no open alternatives.
    fn check_agreeable(&self, round: u16) -> Result<(), Breach> {
        let Some(standing) = self.standing().filter(|standing| standing.round == round) else {
            return Err(Breach::Round { said: round, expected: self.round() });
        };
        if standing.template.is_definite() { Ok(()) } else { Err(Breach::Indefinite) }
    }

    /// Checks that there are as many nodes as agreed, that all named nodes are among them, and that they do not differ
    /// from those named earlier.
    fn check_nodes(&self, nodes: &BTreeSet<NodeId>) -> Result<(), Breach> {
        let is_met = self.proposal().is_some_and(|template| template.is_met_by(nodes));
        let are_same = self.nodes.as_ref().is_none_or(|before| before == nodes);
        if is_met && are_same {
            return Ok(());
        }
        Err(Breach::Nodes { n_nodes: nodes.len(), agreed: self.proposal().map_or(0, Template::n_nodes) })
    }
}

/// Returns whether both ends agree in this phase.
fn agrees(phase: Phase) -> bool {
    match phase {
        Phase::Accepted | Phase::Committing | Phase::Failing | Phase::Applied => true,
        Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving => false,
        Phase::Ended(_) => false,
    }
}

/// How often the RMS repeats the outcome before it waits to be asked.
const LAST_WORDS: u32 = 10;
