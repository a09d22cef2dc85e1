//! The application's end of all its negotiations, without clock and network: each event gives messages and events.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{
    ActError, Action, Breach, Dialogue, Dialogues, Direction, Item, Message, NegotiationId, Phase, Reason, Reminder,
    Resource, Side, Template,
};
use rms_api::negotiate::{Attached, HeldNode, Holding};
use rms_model::{ClusterId, JobId, NodeId, Span, Time};

use super::error::NegotiatorError;
use super::event::{Agreed, Event, Offer, Ready, StageEnds, Warning};
use super::policy::{Decision, Policy};
use super::want::{Resolved, Want, node};

/// The dialogues, with further state of the application.
#[derive(Debug)]
pub(super) struct Negotiations {
    dialogues: Dialogues,
    job: JobId,
    holding: Holding,
    /// All clusters, as the server listed them at the last attachment.
    clusters: BTreeMap<ClusterId, String>,
    /// Nodes as they were when they were last held, so that a node that has gone still has a name.
    known: BTreeMap<NodeId, HeldNode>,
    policy: Option<Policy>,
    longest_valid: Span,
    /// How long nodes may be kept after it was agreed to give them back.
    release_within: Span,
    /// Ready negotiations whose nodes the server has not reported yet, and how long to wait for the report.
    awaiting_holding: Vec<(NegotiationId, Time)>,
    /// The rounds of proposals that were reported to the application: each is reported once.
    told_rounds: BTreeMap<NegotiationId, u16>,
    /// The nodes that the application was told to leave, for each agreed shrink: they stay the same, whatever it loses or
    /// gets meanwhile.
    told_leaving: BTreeMap<NegotiationId, BTreeSet<NodeId>>,
    /// The end of a stage that was reported last, and the generation of nodes at that time.
    told_stage_end: Option<(u32, StageEnds)>,
}

/// Messages to send, and events for the application.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub messages: Vec<Message>,
    pub events: Vec<Event>,
}

/// What the application wants to do in a negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Accept,
    Counter(Vec<Item>),
    Reject(Reason),
    Withdraw(Reason),
    /// These nodes, by name; `None`: the default ones.
    Release(Option<Vec<String>>),
    /// The agreed change cannot be carried out.
    Fail(Reason),
}

impl Negotiations {
    pub fn new(attached: &Attached) -> Negotiations {
        let Attached { job, run, rules, n_opened, declared: _, holding, release_within, open: _, clusters } = attached;
        let mut dialogues = Dialogues::new(Side::Application, *job, *run, *rules);
        dialogues.go_on_from(*n_opened);
        let mut negotiations = Negotiations {
            dialogues,
            job: *job,
            holding: holding.clone(),
            clusters: clusters.clone(),
            known: BTreeMap::new(),
            policy: None,
            longest_valid: rules.longest_valid,
            release_within: *release_within,
            awaiting_holding: Vec::new(),
            told_rounds: BTreeMap::new(),
            told_leaving: BTreeMap::new(),
            told_stage_end: None,
        };
        negotiations.remember_nodes();
        negotiations
    }

    /// Adopts the state of open negotiations from the server. Known ones were reported already; of those that an
    /// earlier process of the application led, the application learns what it needs to continue them.
    pub fn recall(&mut self, now: Time, open: &[Reminder]) -> Outcome {
        let mut outcome = Outcome::default();
        for reminder in open {
            let id = reminder.id;
            match self.dialogues.recall(now, reminder) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(forgery) => {
                    let warning = Warning::Refused { negotiation: id, reason: forgery.to_string() };
                    outcome.events.push(Event::Warned(warning));
                    continue;
                }
            }
            let direction = self.dialogues.get(id).and_then(Dialogue::direction);
            match (reminder.phase, direction) {
                (Phase::Offered(Side::Rms) | Phase::Countered(Side::Rms), _) => self.decide(now, id, &mut outcome),
                (Phase::Accepted, _) | (Phase::Committing, Some(Direction::Grow)) => {
                    outcome.events.extend(self.agreed(id, reminder.left.map(|left| now + left)).map(Event::Accepted));
                }
                // The nodes are already released: the application only waits until they are gone.
                (Phase::Committing, Some(Direction::Shrink) | None) => {}
                (Phase::Offered(Side::Application) | Phase::Countered(Side::Application), _) => {}
                (Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Failing, _) => {}
                (Phase::Applied | Phase::Ended(_), _) => {}
            }
        }
        outcome
    }

    /// Returns what the application holds. The nodes of an agreed shrink are departing: those that the application has
    /// released, and before that those that it was told to leave.
    pub fn holding(&self) -> Holding {
        let mut holding = self.holding.clone();
        for dialogue in self.dialogues().iter().filter(|dialogue| dialogue.direction() == Some(Direction::Shrink)) {
            let leaving = match dialogue.phase() {
                Phase::Accepted => self.told_leaving.get(&dialogue.id()),
                Phase::Committing => dialogue.nodes(),
                Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged => None,
                Phase::Leaving | Phase::Failing | Phase::Applied | Phase::Ended(_) => None,
            };
            for node in &mut holding.nodes {
                node.is_departing |= leaving.is_some_and(|leaving| leaving.contains(&node.node));
            }
        }
        holding
    }

    /// Returns these nodes as they were when they were last held.
    pub fn known_nodes(&self, nodes: impl IntoIterator<Item = NodeId>) -> Vec<HeldNode> {
        nodes.into_iter().filter_map(|node| self.known.get(&node).cloned()).collect()
    }

    pub fn clusters(&self) -> &BTreeMap<ClusterId, String> {
        &self.clusters
    }

    /// Sets the clusters, which may have changed since the last attachment.
    pub fn set_clusters(&mut self, clusters: BTreeMap<ClusterId, String>) {
        self.clusters = clusters;
    }

    pub fn dialogues(&self) -> &[Dialogue] {
        self.dialogues.all()
    }

    /// Returns when [`Negotiations::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<Time> {
        let shown = self.awaiting_holding.iter().map(|(_, until)| *until).min();
        let stage = self.stage_ends().map(|(told_at, _)| told_at);
        [self.dialogues.next_deadline(), shown, stage].into_iter().flatten().min()
    }

    /// Sets the policy, which answers proposals from now on unless it leaves them to the application.
    pub fn answer_with(&mut self, now: Time, policy: Option<Policy>) -> Outcome {
        self.policy = policy;
        let mut outcome = Outcome::default();
        let waiting = |dialogue: &&Dialogue| awaits_our_answer(dialogue.phase());
        let ids: Vec<NegotiationId> = self.dialogues().iter().filter(waiting).map(Dialogue::id).collect();
        for id in ids {
            self.decide(now, id, &mut outcome);
        }
        outcome
    }

    /// Skips negotiation numbers that others have used on behalf of the application.
    pub fn skip_to(&mut self, n_opened: u32) {
        self.dialogues.skip_to(n_opened);
    }

    pub fn request(&mut self, now: Time, want: Want) -> Result<(NegotiationId, Outcome), NegotiatorError> {
        if self.holding.stages.is_some() {
            return Err(NegotiatorError::HasProfile(self.job));
        }
        let Resolved { direction, sets, items, valid_for } = want.resolve(now, &self.holding, &self.clusters)?;
        // The server would let it lapse, and the application would be told that no answer came.
        let deadlines = items.iter().filter(|item| item.is_live()).filter_map(|item| item.terms.deadline);
        if let Some(deadline) = deadlines.min().filter(|deadline| *deadline <= now) {
            return Err(NegotiatorError::DeadlineOver(now.since(deadline)));
        }
        let valid_for = valid_for.min(self.longest_valid);
        let (id, output) = self.dialogues.open(now, direction, sets, items, valid_for)?;
        Ok((id, self.outcome_of(now, output)))
    }

    pub fn act(&mut self, now: Time, id: NegotiationId, act: Act) -> Result<Outcome, NegotiatorError> {
        if let Act::Release(names) = &act
            && self.are_gone(id, names.as_deref())
        {
            return Ok(Outcome::default());
        }
        let action = match act {
            Act::Accept => Action::Accept,
            Act::Counter(items) => self.counter(id, items)?,
            Act::Reject(reason) => Action::Reject(reason),
            Act::Withdraw(reason) => Action::Withdraw(reason),
            Act::Release(names) => Action::Commit(self.leaving(id, names)?),
            Act::Fail(reason) => Action::Fail(reason),
        };
        let output = self.dialogues.act(now, id, action).map_err(|error| self.with_node_names(id, error))?;
        Ok(self.outcome_of(now, output))
    }

    pub fn receive(&mut self, now: Time, message: &Message) -> Outcome {
        // An admin may have changed it since this process attached.
        self.release_within = message.release_within.unwrap_or(self.release_within);
        let output = self.dialogues.receive(now, message);
        let mut outcome = self.outcome_of(now, output);
        for event in &mut outcome.events {
            if let Event::Ended { negotiation, why, .. } = event
                && *negotiation == message.id
            {
                why.clone_from(&message.why);
            }
        }
        outcome
    }

    pub fn set_holding(&mut self, now: Time, holding: Holding) -> Outcome {
        let mut outcome = Outcome::default();
        if holding != self.holding {
            self.holding = holding;
            self.remember_nodes();
            outcome.events.push(Event::Holding(self.holding()));
        }
        self.announce_ready(now, true, &mut outcome);
        self.tell_stage_end(now, &mut outcome);
        outcome
    }

    pub fn tick(&mut self, now: Time) -> Outcome {
        let output = self.dialogues.tick(now);
        let mut outcome = self.outcome_of(now, output);
        self.announce_ready(now, false, &mut outcome);
        self.tell_stage_end(now, &mut outcome);
        outcome
    }

    /// Returns when to report the end of the current stage, and the report; `None` if it was reported, or if no node
    /// goes.
    fn stage_ends(&self) -> Option<(Time, StageEnds)> {
        let stages = self.holding.stages.as_deref()?;
        let [current, next, ..] = stages.legs.as_slice() else { return None };
        let (at, surplus) = (next.start?, current.nodes.saturating_sub(next.nodes) as usize);
        if surplus == 0 {
            return None;
        }
        let (chosen, others): (Vec<_>, Vec<_>) =
            self.holding.nodes.iter().skip(1).rev().partition(|node| node.is_departing);
        let leaving = chosen.into_iter().chain(others).take(surplus).cloned().collect();
        let ahead = Span::from_millis(current.span.as_millis() / 10).min(LONGEST_NOTICE);
        let stage_ends = StageEnds { next: stages.number + 1, at, leaving };
        let is_told = self.told_stage_end.as_ref().is_some_and(|(generation, told)| {
            let is_same = (told.next, told.at, told.leaving.len()) == (stages.number + 1, at, surplus);
            is_same && *generation == self.holding.generation
        });
        (!is_told).then_some((at - ahead, stage_ends))
    }

    /// Reports the end of the stage if it is due: a breakpoint or two before the next, smaller stage, early enough to
    /// move away.
    fn tell_stage_end(&mut self, now: Time, outcome: &mut Outcome) {
        let Some((_, stage_ends)) = self.stage_ends().filter(|(told_at, _)| *told_at <= now) else { return };
        self.told_stage_end = Some((self.holding.generation, stage_ends.clone()));
        outcome.events.push(Event::StageEnds(stage_ends));
    }

    /// Resumes the dialogues on a new connection: either end may have missed messages of the other.
    pub fn resume(&mut self, now: Time) -> Outcome {
        let output = self.dialogues.resume(now);
        self.outcome_of(now, output)
    }

    /// Reports that the server has refused a message.
    pub fn refused(&self, negotiation: NegotiationId, reason: String) -> Outcome {
        let events = vec![Event::Warned(Warning::Refused { negotiation, reason })];
        Outcome { messages: Vec::new(), events }
    }

    fn counter(&self, id: NegotiationId, items: Vec<Item>) -> Result<Action, NegotiatorError> {
        let dialogue = self.dialogues.get(id).ok_or(ActError::NoSuch(id))?;
        let theirs = dialogue.theirs().ok_or(ActError::NotNow(dialogue.phase()))?;
        Ok(Action::Propose { template: theirs.with_items(items)?, valid_for: self.longest_valid.min(VALID_FOR) })
    }

    /// Turns changes of negotiations into events, and answers proposals if there is a policy.
    fn outcome_of(&mut self, now: Time, output: negotiation::Output) -> Outcome {
        let mut outcome = Outcome { messages: output.messages, events: Vec::new() };
        for change in output.changes {
            match change.to {
                Phase::Offered(Side::Rms) | Phase::Countered(Side::Rms) => self.decide(now, change.id, &mut outcome),
                Phase::Accepted | Phase::Committing => {
                    let was_agreed = matches!(change.from, Phase::Accepted | Phase::Committing);
                    if !was_agreed {
                        let until = now + self.release_within;
                        outcome.events.extend(self.agreed(change.id, Some(until)).map(Event::Accepted));
                    }
                }
                Phase::Applied => {
                    self.awaiting_holding.push((change.id, now + HOLDING_WITHIN));
                    self.announce_ready(now, false, &mut outcome);
                }
                Phase::Ended(ending) => {
                    let dialogue = self.dialogues.get(change.id);
                    let reason = dialogue.and_then(Dialogue::reason).unwrap_or(Reason::Unknown);
                    let template = dialogue.and_then(Dialogue::proposal).cloned();
                    outcome.events.push(Event::Ended { negotiation: change.id, template, ending, reason, why: None });
                }
                // Our own statements, and phases in which we wait for the server.
                Phase::Offered(Side::Application) | Phase::Countered(Side::Application) => {}
                Phase::Idle | Phase::Pledged | Phase::Leaving | Phase::Failing => {}
            }
        }
        keep_newest(&mut outcome.messages);
        outcome
    }

    /// Answers the server's proposal by the policy, or reports it to the application.
    fn decide(&mut self, now: Time, id: NegotiationId, outcome: &mut Outcome) {
        let Some(offer) = self.offer(id) else { return };
        let answer = match &mut self.policy {
            Some(policy) => policy.decide(&offer, &self.holding),
            None => Some(Decision::Ask),
        };
        let answer = answer.unwrap_or_else(|| {
            self.policy = None;
            Decision::Ask
        });
        let act = match answer {
            Decision::Accept => Act::Accept,
            Decision::Counter(items) => Act::Counter(items),
            Decision::Reject(reason) => Act::Reject(reason),
            Decision::Ask => {
                let known: BTreeSet<NegotiationId> = self.dialogues().iter().map(Dialogue::id).collect();
                self.told_rounds.retain(|id, _| known.contains(id));
                if self.told_rounds.insert(id, offer.round) != Some(offer.round) {
                    outcome.events.push(offer_event(self.dialogues.get(id), offer));
                }
                return;
            }
        };
        let is_counter = matches!(act, Act::Counter(_));
        let done = match self.act(now, id, act) {
            // The policy's counter-proposal contradicts the previous ones, so there is no agreement.
            Err(_) if is_counter => self.act(now, id, Act::Reject(Reason::Declined)),
            done => done,
        };
        // If it failed, the proposal has just expired: the application need not know about it.
        if let Ok(done) = done {
            outcome.merge(done);
        }
    }

    fn offer(&self, id: NegotiationId) -> Option<Offer> {
        let dialogue = self.dialogues.get(id).filter(|dialogue| awaits_our_answer(dialogue.phase()))?;
        let template = dialogue.proposal()?.clone();
        Some(Offer {
            negotiation: id,
            direction: template.direction(),
            round: dialogue.round(),
            template,
            mine: dialogue.mine().cloned(),
            until: dialogue.lapses()?,
        })
    }

    /// Returns what was agreed, and for a shrink, until when the leaving nodes may be kept.
    fn agreed(&mut self, id: NegotiationId, kept_until: Option<Time>) -> Option<Agreed> {
        let template = self.dialogues.get(id)?.proposal()?.clone();
        let direction = template.direction();
        let (leaving, until) = match direction {
            Direction::Grow => (Vec::new(), None),
            Direction::Shrink => {
                let leaving = default_leaving(&template, &self.holding);
                let known: BTreeSet<NegotiationId> = self.dialogues().iter().map(Dialogue::id).collect();
                self.told_leaving.retain(|id, _| known.contains(id));
                self.told_leaving.insert(id, leaving.clone());
                let leaving = self.named(&leaving);
                let until = kept_until.filter(|_| !leaving.is_empty());
                (leaving, until)
            }
        };
        Some(Agreed { negotiation: id, direction, template, leaving, until })
    }

    /// Replaces node numbers in an error by their names.
    fn with_node_names(&self, id: NegotiationId, error: ActError) -> NegotiatorError {
        let ActError::Breach(Breach::Nodes { n_nodes: _, agreed }) = error else { return error.into() };
        let items = self.dialogues.get(id).and_then(Dialogue::proposal).map_or(&[][..], Template::items);
        let nodes = items.iter().filter(|item| item.is_live()).flat_map(|item| item.nodes.iter().copied());
        let named = self.known_nodes(nodes).into_iter().map(|node| node.name).collect();
        NegotiatorError::OtherNodes { id, agreed, named }
    }

    fn leaving(&self, id: NegotiationId, names: Option<Vec<String>>) -> Result<BTreeSet<NodeId>, NegotiatorError> {
        let dialogue = self.dialogues.get(id).ok_or(ActError::NoSuch(id))?;
        let told = self.told_leaving.get(&id);
        match names {
            Some(names) => {
                let held = |node: &NodeId| self.holding.nodes.iter().any(|held| held.node == *node);
                let lost: BTreeSet<NodeId> = told.into_iter().flatten().copied().filter(|node| !held(node)).collect();
                let lost_as = |name: &str| lost.iter().copied().find(|node| self.is_called(*node, name));
                let named = names.iter().map(|name| lost_as(name).map_or_else(|| node(&self.holding, name), Ok));
                let mut leaving: BTreeSet<NodeId> = named.collect::<Result<_, _>>()?;
                // The server counts a lost node as given back, whether the application still names it or not.
                let n_agreed = dialogue.proposal().map_or(0, Template::n_nodes) as usize;
                let n_missing = n_agreed.saturating_sub(leaving.len());
                let others: Vec<NodeId> = lost.iter().copied().filter(|node| !leaving.contains(node)).collect();
                leaving.extend(others.into_iter().take(n_missing));
                // Sent to the server, either would end the whole negotiation.
                if let Some(first) = self.holding.nodes.first().filter(|first| leaving.contains(&first.node)) {
                    return Err(NegotiatorError::FirstNode(first.name.clone()));
                }
                let agreed = dialogue.proposal().map_or(&[][..], Template::items);
                let is_agreed =
                    |cluster| agreed.iter().any(|item| item.is_live() && item.resource == Resource::Nodes(cluster));
                let other =
                    leaving.iter().filter_map(|node| self.known.get(node)).find(|node| !is_agreed(node.cluster));
                match other {
                    Some(other) => Err(NegotiatorError::OtherCluster {
                        node: other.name.clone(),
                        cluster: other.cluster_name.clone(),
                    }),
                    None => Ok(leaving),
                }
            }
            None => {
                let agreed = dialogue.proposal().ok_or(ActError::NotNow(dialogue.phase()))?;
                Ok(told.cloned().unwrap_or_else(|| default_leaving(agreed, &self.holding)))
            }
        }
    }

    /// Returns whether a shrink is ready by which these nodes have gone, or without names, any: they may have been lost
    /// while the application left them, so that its release comes too late and has nothing to do.
    fn are_gone(&self, id: NegotiationId, names: Option<&[String]>) -> bool {
        let dialogue = self.dialogues.get(id).filter(|dialogue| dialogue.phase() == Phase::Applied);
        let dialogue = dialogue.filter(|dialogue| dialogue.direction() == Some(Direction::Shrink));
        let Some(gone) = dialogue.and_then(Dialogue::nodes) else { return false };
        names.into_iter().flatten().all(|name| gone.iter().any(|node| self.is_called(*node, name)))
    }

    fn is_called(&self, node: NodeId, name: &str) -> bool {
        self.known.get(&node).is_some_and(|known| known.name == name)
    }

    /// Reports ready negotiations once their change shows in the holding; with `holding_came`, or when that takes too
    /// long, in any case.
    fn announce_ready(&mut self, now: Time, holding_came: bool, outcome: &mut Outcome) {
        let awaiting_holding = std::mem::take(&mut self.awaiting_holding);
        for (id, until) in awaiting_holding {
            let Some(ready) = self.ready(id) else { continue };
            let held = |node: &HeldNode| self.holding.nodes.iter().any(|held| held.node == node.node);
            let usable =
                |node: &HeldNode| self.holding.nodes.iter().any(|held| held.node == node.node && !held.is_coming);
            let shows = match ready.direction {
                Direction::Grow => {
                    ready.nodes.iter().all(usable) && ready.nodes.len() as u64 == ready.template.n_nodes()
                }
                Direction::Shrink => !ready.nodes.iter().any(held),
            };
            if shows || holding_came || until <= now {
                outcome.events.push(Event::Ready(ready));
            } else {
                self.awaiting_holding.push((id, until));
            }
        }
    }

    fn ready(&self, id: NegotiationId) -> Option<Ready> {
        let dialogue = self.dialogues.get(id)?;
        let template = dialogue.proposal()?.clone();
        let nodes = dialogue.nodes().map(|nodes| self.named(nodes)).unwrap_or_default();
        let direction = template.direction();
        Some(Ready { negotiation: id, direction, template, nodes, holding: self.holding.clone() })
    }

    fn named(&self, nodes: &BTreeSet<NodeId>) -> Vec<HeldNode> {
        nodes.iter().filter_map(|node| self.known.get(node).cloned()).collect()
    }

    fn remember_nodes(&mut self) {
        // Nodes that left before the last change are no longer needed.
        let still = |node: &NodeId| {
            let is_negotiated_about = |dialogue: &Dialogue| dialogue.nodes().is_some_and(|nodes| nodes.contains(node));
            let is_told = self.told_leaving.values().any(|nodes| nodes.contains(node));
            is_told || self.dialogues.all().iter().any(is_negotiated_about)
        };
        let mut known = std::mem::take(&mut self.known);
        known.retain(|node, _| still(node));
        known.extend(self.holding.nodes.iter().map(|node| (node.node, node.clone())));
        self.known = known;
    }
}

impl Outcome {
    pub fn merge(&mut self, later: Outcome) {
        self.messages.extend(later.messages);
        self.events.extend(later.events);
    }
}

/// Returns whether a proposal of the server waits for our answer.
fn awaits_our_answer(phase: Phase) -> bool {
    matches!(phase, Phase::Offered(Side::Rms) | Phase::Countered(Side::Rms))
}

fn offer_event(dialogue: Option<&Dialogue>, offer: Offer) -> Event {
    let is_first = dialogue.is_some_and(|dialogue| dialogue.phase() == Phase::Offered(Side::Rms));
    if is_first { Event::Offered(offer) } else { Event::Countered(offer) }
}

/// Keeps the newest message of each negotiation: it implies the earlier ones, so a mere confirmation need not accompany
/// an answer.
fn keep_newest(messages: &mut Vec<Message>) {
    let mut later: BTreeSet<NegotiationId> = BTreeSet::new();
    messages.reverse();
    messages.retain(|message| later.insert(message.id));
    messages.reverse();
}

/// Returns the nodes to leave by default: those that were named, then those that the server has marked as departing, then
/// the last ones of each cluster, never the first node.
fn default_leaving(agreed: &Template, holding: &Holding) -> BTreeSet<NodeId> {
    let mut leaving: BTreeSet<NodeId> = BTreeSet::new();
    for item in agreed.items().iter().filter(|item| item.is_live()) {
        let Resource::Nodes(cluster) = item.resource else { continue };
        let mut of_item = item.nodes.clone();
        let others = holding.nodes.iter().skip(1).rev().filter(|node| node.cluster == cluster);
        let (departing, others): (Vec<_>, Vec<_>) = others.partition(|node| node.is_departing);
        for node in departing.into_iter().chain(others) {
            if of_item.len() as u64 >= item.quantity.0 {
                break;
            }
            of_item.insert(node.node);
        }
        leaving.extend(of_item);
    }
    leaving
}

/// How long a counter-offer of ours is valid: the server answers at once, unless the counter-offer waits for nodes.
const VALID_FOR: Span = Span::from_mins(1);

/// The longest notice before a smaller stage begins; for a short stage, the notice is the last tenth of the current
/// one.
const LONGEST_NOTICE: Span = Span::from_mins(1);

/// How long to wait for the holding: the holding and the ready message arrive separately.
const HOLDING_WITHIN: Span = Span::from_secs(1);
