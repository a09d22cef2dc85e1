//! A model application: the process of a running job that negotiates for it. It runs the same end of a dialogue as real
//! applications, and behaves as its manner says, mostly at its own breakpoints.

mod answer;
mod liar;
mod manner;
mod opening;

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{
    Action, Change, Dialogue, Dialogues, Direction, Message, NegotiationId, Output, Phase, Reason, Resource, Side,
};
use rms_api::Refusal;
use rms_api::negotiate as contract;
use rms_api::negotiate::{Attached, Declared, Holding, Keeps, NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use rms_model::{JobId, NodeId, Run, Span, Speedup, Time};

use crate::dice::Dice;

pub use manner::{Absence, Answers, Manner, Promises, Want, Wanted, Weather};

/// A message of the server to the application.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Answer(Result<NegotiatorAnswer, Refusal>),
    /// The disk fails: calls get no answer, and the application connects again later.
    Failing,
    Notice(NegotiatorNotice),
}

/// What the application does after an event.
#[derive(Debug, Default)]
pub(crate) struct Reaction {
    pub(crate) says: Vec<NegotiatorCall>,
    pub(crate) changes: Vec<Change>,
    pub(crate) wakes_at: Option<Time>,
    /// The nodes on which it ends its processes.
    pub(crate) clears: BTreeSet<NodeId>,
    /// Its process has exited.
    pub(crate) vanishes: Option<Absence>,
}

#[derive(Debug)]
pub(crate) struct ModelApplication {
    pub(crate) job: JobId,
    pub(crate) run: Run,
    pub(crate) manner: Manner,
    dice: Dice,
    began: Time,
    /// `None` before it was first attached.
    dialogues: Option<Dialogues>,
    pub(crate) holding: Option<Holding>,
    link: Link,
    /// When it answers which round of a negotiation.
    answers_at: BTreeMap<NegotiationId, (u16, Time)>,
    /// The last breakpoint that it has reached.
    breakpoint: Time,
    n_wanted: usize,
    has_been_absent: bool,
    said: Vec<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    Away,
    Attaching,
    Attached,
    /// It may not negotiate any more.
    Over,
}

impl ModelApplication {
    pub(crate) fn new(seed: u64, (job, run): (JobId, Run), manner: Manner, now: Time) -> ModelApplication {
        ModelApplication {
            job,
            run,
            manner,
            // Each execution of each job has its own random numbers, whatever others do.
            dice: Dice::new(seed ^ job.0.wrapping_mul(0x9e37_79b9) ^ u64::from(run.0) << 48, STREAM),
            began: now,
            dialogues: None,
            holding: None,
            link: Link::Away,
            answers_at: BTreeMap::new(),
            breakpoint: now,
            n_wanted: 0,
            has_been_absent: false,
            said: Vec::new(),
        }
    }

    /// Returns its end of all dialogues.
    pub(crate) fn dialogues(&self) -> &[Dialogue] {
        self.dialogues.as_ref().map_or(&[], Dialogues::all)
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.link == Link::Attached
    }

    /// Returns whether it will send nothing more.
    pub(crate) fn is_over(&self) -> bool {
        self.link == Link::Over
    }

    /// Handles a new connection.
    pub(crate) fn connects(&mut self) -> NegotiatorCall {
        self.link = Link::Attaching;
        let keeps = Keeps::Nothing;
        NegotiatorCall::Attach(contract::Manner { keeps, survives_loss: self.manner.survives_loss })
    }

    pub(crate) fn loses_connection(&mut self) {
        if self.link != Link::Over {
            self.link = Link::Away;
        }
    }

    /// Replaces the process: what the old one knew is lost.
    pub(crate) fn forgets(&mut self) {
        self.dialogues = None;
        self.holding = None;
        self.answers_at.clear();
        self.said.clear();
    }

    pub(crate) fn hears(&mut self, now: Time, told: Told) -> Reaction {
        let mut reaction = Reaction::default();
        match told {
            Told::Answer(Ok(NegotiatorAnswer::Attached(attached))) => self.attached(now, &attached, &mut reaction),
            Told::Answer(Ok(NegotiatorAnswer::Done)) | Told::Failing => {}
            Told::Answer(Err(_)) => {
                // An application that may not attach may not negotiate; other refusals have no consequences.
                if self.link == Link::Attaching {
                    self.link = Link::Over;
                }
            }
            Told::Notice(NegotiatorNotice::Said(message)) => {
                let clock = self.clock(now);
                if let Some(dialogues) = &mut self.dialogues {
                    let output = dialogues.receive(clock, &message);
                    self.take(output, &mut reaction);
                    self.considers(now, message.id);
                }
            }
            Told::Notice(NegotiatorNotice::Refused { .. }) => {}
            Told::Notice(NegotiatorNotice::Holding(holding)) => self.holding = Some(*holding),
            Told::Notice(NegotiatorNotice::Ended { outcome: _ }) => self.link = Link::Over,
            Told::Notice(NegotiatorNotice::Replaced) => self.loses_connection(),
            // The holding contains the same.
            Told::Notice(NegotiatorNotice::NodesLost { nodes: _ }) => {}
            Told::Notice(NegotiatorNotice::Counted { n_opened }) => {
                self.dialogues.iter_mut().for_each(|dialogues| dialogues.skip_to(n_opened));
            }
        }
        self.settles(now, reaction)
    }

    fn attached(&mut self, now: Time, attached: &Attached, reaction: &mut Reaction) {
        self.link = Link::Attached;
        self.holding = Some(attached.holding.clone());
        if self.manner.declares {
            reaction.says.push(NegotiatorCall::Declare(Declared {
                least: self.manner.least,
                most: self.manner.most,
                sizes: self.manner.sizes.clone(),
                speedup: Speedup::default(),
            }));
        }
        let clock = self.clock(now);
        let dialogues = self.dialogues.get_or_insert_with(|| {
            let counted = (attached.n_opened, 0);
            Dialogues::restore(Side::Application, (self.job, self.run), attached.rules, counted, Vec::new())
        });
        let reminded: Vec<NegotiationId> = attached
            .open
            .iter()
            .filter(|reminder| dialogues.recall(clock, reminder).is_ok_and(|is_news| is_news))
            .map(|reminder| reminder.id)
            .collect();
        let output = dialogues.resume(clock);
        self.take(output, reaction);
        for id in reminded {
            self.considers(now, id);
        }
    }

    /// Handles the passing of time, whether it asked to be woken now or not.
    pub(crate) fn wakes(&mut self, now: Time) -> Reaction {
        let mut reaction = Reaction::default();
        if let Some(absence) = self.manner.absence
            && !self.has_been_absent
            && now >= self.began + absence.after
        {
            self.has_been_absent = true;
            self.loses_connection();
            reaction.vanishes = Some(absence);
            return reaction;
        }
        let clock = self.clock(now);
        let output = self.dialogues.as_mut().map(|dialogues| dialogues.tick(clock)).unwrap_or_default();
        self.take(output, &mut reaction);
        for (id, (round, at)) in self.answers_at.clone() {
            if at <= now {
                self.answers_at.remove(&id);
                self.answers(now, id, round, &mut reaction);
            }
        }
        if now >= self.breakpoint + self.manner.breakpoint {
            self.breakpoint = now;
            self.reaches_breakpoint(now, &mut reaction);
        }
        self.settles(now, reaction)
    }

    /// Handles a statement of the server in this negotiation: an answer may be due after some time.
    fn considers(&mut self, now: Time, id: NegotiationId) {
        let Some(dialogue) = self.dialogues.as_ref().and_then(|dialogues| dialogues.get(id)) else { return };
        let waits_for_us = dialogue.phase().proposer() == Some(Side::Rms);
        let round = dialogue.round();
        let is_considered = self.answers_at.get(&id).is_some_and(|(considered, _)| *considered == round);
        if waits_for_us && !is_considered {
            let at = match dialogue.lapses().filter(|_| self.manner.last_minute) {
                Some(lapses) => lapses - self.manner.skew - LAST_MINUTE + self.dice.span(Span::ZERO, LAST_MINUTE),
                None => now + self.manner.thinks,
            };
            self.answers_at.insert(id, (round, at));
        }
    }

    fn answers(&mut self, now: Time, id: NegotiationId, round: u16, reaction: &mut Reaction) {
        let Some(dialogue) = self.dialogues.as_ref().and_then(|dialogues| dialogues.get(id)) else { return };
        if dialogue.phase().proposer() != Some(Side::Rms) || dialogue.round() != round {
            return;
        }
        let action = if self.dice.chance(self.manner.whims) {
            self.dice
                .pick(&[
                    Some(Action::Accept),
                    Some(Action::Reject(Reason::Policy)),
                    Some(Action::Withdraw(Reason::Changed)),
                    None,
                ])
                .cloned()
                .flatten()
        } else {
            answer::answer(&self.manner, dialogue)
        };
        if let Some(action) = action {
            self.acts(now, id, action, reaction);
        }
    }

    /// Handles a breakpoint, where the application may change its size and decides what it wants.
    fn reaches_breakpoint(&mut self, now: Time, reaction: &mut Reaction) {
        let Some(dialogues) = &self.dialogues else { return };
        let promised: Vec<NegotiationId> = dialogues.all().iter().filter(gives).map(Dialogue::id).collect();
        let own: Vec<NegotiationId> = dialogues
            .all()
            .iter()
            .filter(|dialogue| dialogue.phase().proposer() == Some(Side::Application))
            .map(Dialogue::id)
            .collect();
        for id in promised {
            match self.manner.promises {
                Promises::Keeps => self.lets_go(now, id, reaction),
                Promises::Breaks => {}
                Promises::Fails => self.acts(now, id, Action::Fail(Reason::Changed), reaction),
            }
        }
        for id in own {
            if self.dice.chance(self.manner.whims) {
                self.acts(now, id, Action::Withdraw(Reason::Changed), reaction);
            }
        }
        self.opens(now, reaction);
        if self.dice.chance(self.manner.lies) {
            let opened = self.dialogues.as_ref().map_or(0, |dialogues| dialogues.all().len() as u32);
            let message = liar::lie(&mut self.dice, (self.job, self.run), &self.said, opened);
            if self.is_attached() {
                reaction.says.push(NegotiatorCall::Say(Box::new(message)));
            }
        }
    }

    /// Gives back now what it has agreed to give.
    fn lets_go(&mut self, now: Time, id: NegotiationId, reaction: &mut Reaction) {
        let (Some(dialogue), Some(holding)) =
            (self.dialogues.as_ref().and_then(|dialogues| dialogues.get(id)), &self.holding)
        else {
            return;
        };
        let Some(template) = dialogue.proposal() else { return };
        let n_nodes = template.n_nodes() as usize;
        let mut nodes = BTreeSet::new();
        for item in template.items().iter().filter(|item| item.is_live()) {
            let Resource::Nodes(cluster) = item.resource else { continue };
            // It keeps its first node, where its process runs; the last nodes to come are the first to go, but before
            // them those that it was asked to leave.
            let mut others: Vec<_> =
                holding.nodes.iter().skip(1).rev().filter(|node| node.cluster == cluster).collect();
            others.sort_by_key(|node| !node.is_departing);
            let others = others.into_iter().map(|node| node.node).filter(|node| !item.nodes.contains(node));
            let n_more = item.quantity.0.saturating_sub(item.nodes.len() as u64);
            nodes.extend(item.nodes.iter().copied().chain(others.take(n_more as usize)));
        }
        if nodes.len() == n_nodes {
            reaction.clears.extend(nodes.iter().copied());
            self.acts(now, id, Action::Commit(nodes), reaction);
        } else {
            self.acts(now, id, Action::Fail(Reason::Changed), reaction);
        }
    }

    fn opens(&mut self, now: Time, reaction: &mut Reaction) {
        let Some(want) = self.manner.wants.get(self.n_wanted).filter(|want| now >= self.began + want.after) else {
            return;
        };
        let (Some(dialogues), Some(holding)) = (&mut self.dialogues, &self.holding) else { return };
        if dialogues.open_for(want.direction).is_some() {
            return;
        }
        self.n_wanted += 1;
        let Some((sets, items)) = opening::opening(&self.manner, want, holding, now) else { return };
        let clock = now + self.manner.skew;
        // An error in the request is detected at once: the request is not sent.
        if let Ok((_, output)) = dialogues.open(clock, want.direction, sets, items, want.valid_for) {
            self.take(output, reaction);
        }
    }

    fn acts(&mut self, now: Time, id: NegotiationId, action: Action, reaction: &mut Reaction) {
        let clock = self.clock(now);
        // An action that is no longer possible, because another one was faster, is dropped.
        if let Some(Ok(output)) = self.dialogues.as_mut().map(|dialogues| dialogues.act(clock, id, action)) {
            self.take(output, reaction);
        }
    }

    fn take(&mut self, output: Output, reaction: &mut Reaction) {
        reaction.changes.extend(output.changes);
        for message in output.messages {
            if self.said.len() < MOST_SAID {
                self.said.push(message.clone());
            }
            // Without a channel nothing is sent; what was not received is sent again.
            if self.is_attached() {
                reaction.says.push(NegotiatorCall::Say(Box::new(message)));
            }
        }
    }

    /// Sets when it wants to be woken next.
    fn settles(&self, now: Time, reaction: Reaction) -> Reaction {
        if self.is_over() {
            return Reaction { wakes_at: None, ..reaction };
        }
        let next_breakpoint = self.breakpoint + self.manner.breakpoint;
        let dialogues = self.dialogues();
        let has_to_give = dialogues.iter().any(|dialogue| gives(&dialogue));
        let is_whimsical = self.manner.whims > 0 && dialogues.iter().any(|dialogue| !dialogue.phase().is_over());
        let want = self.manner.wants.get(self.n_wanted).map(|want| next_breakpoint.max(self.began + want.after));
        let deadline = self.dialogues.as_ref().and_then(Dialogues::next_deadline).map(|at| at - self.manner.skew);
        let times = [
            deadline,
            self.answers_at.values().map(|(_, at)| *at).min(),
            want.filter(|_| self.is_attached()),
            (has_to_give || is_whimsical || self.manner.lies > 0).then_some(next_breakpoint),
            self.manner.absence.filter(|_| !self.has_been_absent).map(|absence| self.began + absence.after),
        ];
        let wakes_at = times.into_iter().flatten().min().map(|at| at.max(now + Span::from_millis(1)));
        Reaction { wakes_at, ..reaction }
    }

    fn clock(&self, now: Time) -> Time {
        now + self.manner.skew
    }
}

/// Returns whether it has agreed to give something in this negotiation.
fn gives(dialogue: &&Dialogue) -> bool {
    dialogue.phase() == Phase::Accepted && dialogue.direction() == Some(Direction::Shrink)
}

/// The longest time before a proposal lapses at which a last-minute answer is sent; it takes half of it to arrive.
const LAST_MINUTE: Span = Span::from_millis(2);
/// How many of its messages a liar may repeat.
const MOST_SAID: usize = 32;
/// The random stream of applications.
const STREAM: u64 = 7;
