//! What the server knows of the negotiations of a running job, and must know after a restart.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{Dialogue, Direction, Item, NegotiationId, Phase, Price, Reason, Side, Sizes, Template};
use rms_api::negotiate::{Ask, Declared, NegotiationRecord, RoundRecord, Said};
use rms_model::{ClusterId, NodeId, Settings, Span, Time};
use serde::{Deserialize, Serialize};

/// All negotiations of one execution of a job. It comes with the first word, and goes with the execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNegotiations {
    /// The limits that the application has declared itself; before, those of its submission count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Declared>,
    /// As a process of it has said last: it can go on without nodes that are lost.
    #[serde(default, skip_serializing_if = "is_unsaid")]
    pub survives_loss: bool,
    /// The number of the last negotiation that the server has opened; none is used twice.
    pub n_opened: u32,
    /// The highest number under which the application has opened one.
    pub heard_up_to: u32,
    /// Those that go on and the last ones that ended, in the order in which they were opened.
    pub all: Vec<Negotiation>,
    /// Of those before them the records, the newest [`MAX_PAST`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<NegotiationRecord>,
    /// Nodes that it has for a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loans: Vec<Loan>,
    /// What was agreed at a price.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<Charge>,
    /// What nodes have cost that were given back, in thousandths.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub settled: u64,
}

/// One negotiation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiation {
    /// The server's end, without its timers of repetition.
    pub dialogue: Dialogue,
    pub opened: Time,
    /// Somebody has asked, and the server runs the application's end by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<Asking>,
    /// Nodes that are kept free for it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub held: BTreeSet<NodeId>,
    /// The nodes that were agreed have come, or are leaving.
    #[serde(default)]
    pub is_handed_over: bool,
    /// It was warned that it has not given what it promised.
    #[serde(default)]
    pub is_warned: bool,
    pub rounds: Vec<RoundRecord>,
    /// Names of the nodes that come or go, once known.
    pub nodes: Vec<String>,
}

/// Who has asked for what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    pub by: String,
    pub ask: Ask,
}

/// Nodes that are to be given back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan {
    pub id: NegotiationId,
    pub cluster: ClusterId,
    pub nodes: u64,
    pub until: Time,
    /// The shrink by which they are asked back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<NegotiationId>,
}

/// What was agreed at a price: who takes pays who gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    pub id: NegotiationId,
    pub cluster: ClusterId,
    pub direction: Direction,
    pub nodes: u64,
    /// For each node and hour.
    pub price: Price,
    pub since: Time,
    /// Absent: until the application ends.
    pub until: Option<Time>,
}

impl JobNegotiations {
    pub fn get(&self, id: NegotiationId) -> Option<&Negotiation> {
        self.all.iter().find(|negotiation| negotiation.dialogue.id() == id)
    }

    pub(crate) fn get_mut(&mut self, id: NegotiationId) -> Option<&mut Negotiation> {
        self.all.iter_mut().find(|negotiation| negotiation.dialogue.id() == id)
    }

    /// Those that are not over.
    pub fn open(&self) -> impl Iterator<Item = &Negotiation> {
        self.all.iter().filter(|negotiation| !negotiation.phase().is_over())
    }

    /// All that is remembered, the oldest first.
    pub fn records(&self) -> Vec<NegotiationRecord> {
        self.past.iter().cloned().chain(self.all.iter().map(Negotiation::record)).collect()
    }

    /// Remembers that something was said or has run out. `names` are those of the nodes that the dialogue has.
    pub(crate) fn record_dialogue(
        &mut self,
        at: Time,
        dialogue: &Dialogue,
        asking: Option<&Asking>,
        names: Vec<String>,
    ) {
        let id = dialogue.id();
        match id.initiator {
            Side::Rms => self.n_opened = self.n_opened.max(id.number),
            Side::Application => self.heard_up_to = self.heard_up_to.max(id.number),
        }
        if self.get(id).is_none() {
            self.archive_ended();
            self.all.push(Negotiation::new(at, dialogue, asking));
        }
        let mut done = None;
        if let Some(negotiation) = self.get_mut(id) {
            let was = negotiation.phase();
            negotiation.update(at, dialogue, names);
            if was != Phase::Applied && negotiation.phase() == Phase::Applied {
                done = Some(negotiation.clone());
            }
        }
        if let Some(negotiation) = done {
            self.apply_terms(at, &negotiation);
        }
    }

    /// The oldest of those that are over goes to the records once there are many.
    fn archive_ended(&mut self) {
        while self.all.len() >= MAX_NEGOTIATIONS {
            let Some(idx) = self.all.iter().position(|negotiation| negotiation.phase().is_over()) else { return };
            let negotiation = self.all.remove(idx);
            self.past.push(negotiation.record());
        }
        // The newest ones are kept that have room together.
        let mut size = 0;
        let is_kept = |record: &&NegotiationRecord| {
            size += 1 + size_of(&record.rounds);
            size <= MAX_ROUNDS_SIZE
        };
        let n_kept = self.past.iter().rev().take(MAX_PAST).take_while(is_kept).count();
        self.past.drain(..self.past.len() - n_kept);
    }

    /// What its nodes have cost until then, in thousandths.
    pub fn spent(&self, at: Time) -> u64 {
        let running = self.charges.iter().map(|charge| charge.cost(charge.nodes, at));
        running.fold(self.settled, u64::saturating_add)
    }

    /// Nodes leave the application: of those of their cluster that it pays for, the last ones that came go first. What
    /// came for a growth that failed was never paid for.
    pub(crate) fn give_back(&mut self, at: Time, nodes: &[(NodeId, ClusterId)]) {
        let was_paid = |node: &NodeId| {
            let mut came = self.all.iter().rev().filter(|negotiation| {
                let is_growth = negotiation.direction() == Direction::Grow && negotiation.is_handed_over;
                is_growth && negotiation.dialogue.nodes().is_some_and(|nodes| nodes.contains(node))
            });
            came.next().is_none_or(|negotiation| negotiation.phase() == Phase::Applied)
        };
        let mut left: BTreeMap<ClusterId, u64> = BTreeMap::new();
        for (_, cluster) in nodes.iter().filter(|(node, _)| was_paid(node)) {
            *left.entry(*cluster).or_default() += 1;
        }
        for charge in self.charges.iter_mut().rev().filter(|charge| charge.direction == Direction::Grow) {
            let Some(left) = left.get_mut(&charge.cluster) else { continue };
            let n_back = charge.nodes.min(*left);
            self.settled = self.settled.saturating_add(charge.cost(n_back, at));
            charge.nodes -= n_back;
            *left -= n_back;
        }
        self.charges.retain(|charge| charge.nodes > 0);
    }

    /// Something was agreed and is done: what follows from its terms.
    fn apply_terms(&mut self, at: Time, negotiation: &Negotiation) {
        let Some(template) = negotiation.dialogue.proposal() else { return };
        for item in template.items().iter().filter(|item| item.is_live()) {
            let after = item.terms.duration.map(|duration| at + duration);
            let until = after.into_iter().chain(item.terms.give_back_by).min();
            let negotiation::Resource::Nodes(cluster) = item.resource else { continue };
            let (id, nodes, direction) = (negotiation.dialogue.id(), item.quantity.0, template.direction());
            if let (Direction::Grow, Some(until)) = (direction, until) {
                self.loans.push(Loan { id, cluster, nodes, until, called: None });
            }
            if direction == Direction::Shrink {
                self.repay(cluster, nodes);
            }
            if item.terms.price != Price(0) {
                let charge = Charge { id, cluster, direction, nodes, price: item.terms.price, since: at, until };
                self.charges.push(charge);
            }
        }
        // What is remembered of one job is bounded, whatever it does.
        while self.loans.len() > MAX_PAST {
            // Nothing that was lent is forgotten: the two oldest of a cluster are one now, due with the earlier of them.
            let has_later =
                |idx: &usize| self.loans[idx + 1..].iter().any(|loan| loan.cluster == self.loans[*idx].cluster);
            let Some(oldest) = (0..self.loans.len()).find(has_later) else { break };
            let oldest = self.loans.remove(oldest);
            for next in self.loans.iter_mut().filter(|loan| loan.cluster == oldest.cluster).take(1) {
                next.nodes += oldest.nodes;
                next.until = next.until.min(oldest.until);
            }
        }
        while self.charges.len() > MAX_CHARGES {
            let oldest = self.charges.remove(0);
            self.settled = self.settled.saturating_add(oldest.cost(oldest.nodes, at));
        }
    }

    /// Nodes of a cluster that are given back are first those that were lent last.
    fn repay(&mut self, cluster: ClusterId, nodes: u64) {
        let mut left = nodes;
        for loan in self.loans.iter_mut().rev().filter(|loan| loan.cluster == cluster) {
            let repaid = loan.nodes.min(left);
            loan.nodes -= repaid;
            left -= repaid;
        }
        self.loans.retain(|loan| loan.nodes > 0);
    }
}

impl Loan {
    /// Was it lent by this negotiation, and on this cluster? Journals that are older than nodes of several name none.
    pub(crate) fn is_of(&self, id: NegotiationId, cluster: Option<ClusterId>) -> bool {
        self.id == id && cluster.is_none_or(|cluster| self.cluster == cluster)
    }
}

impl Charge {
    /// What so many of its nodes have cost until then; who gives nodes back is paid nothing for it.
    fn cost(&self, nodes: u64, at: Time) -> u64 {
        match self.direction {
            Direction::Grow => {
                let until = self.until.map_or(at, |until| until.min(at));
                self.price.cost(u32::try_from(nodes).unwrap_or(u32::MAX), until.since(self.since))
            }
            Direction::Shrink => 0,
        }
    }
}

fn is_unsaid(survives: &bool) -> bool {
    !survives
}

fn is_nothing(settled: &u64) -> bool {
    *settled == 0
}

impl Negotiation {
    fn new(at: Time, dialogue: &Dialogue, asking: Option<&Asking>) -> Negotiation {
        Negotiation {
            dialogue: dialogue.clone(),
            opened: at,
            asking: asking.cloned(),
            held: BTreeSet::new(),
            is_handed_over: false,
            is_warned: false,
            rounds: Vec::new(),
            nodes: Vec::new(),
        }
    }

    pub fn id(&self) -> NegotiationId {
        self.dialogue.id()
    }

    pub fn phase(&self) -> Phase {
        self.dialogue.phase()
    }

    /// Who gives and who takes is known from the first proposal on, and a case begins with one.
    pub fn direction(&self) -> Direction {
        self.dialogue.direction().unwrap_or(Direction::Grow)
    }

    /// How many nodes of which clusters the application has agreed to give back and has not begun to leave, and when it
    /// agreed.
    pub fn agreed_to_leave(&self) -> Option<(Time, BTreeMap<ClusterId, u64>)> {
        let is_agreed = match self.phase() {
            Phase::Accepted | Phase::Committing => self.direction() == Direction::Shrink && !self.is_handed_over,
            Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving => false,
            Phase::Failing | Phase::Applied | Phase::Ended(_) => false,
        };
        let nodes = self.dialogue.proposal().filter(|_| is_agreed).map(Template::nodes_by_cluster)?;
        (!nodes.is_empty()).then(|| (self.since(), nodes))
    }

    pub fn record(&self) -> NegotiationRecord {
        NegotiationRecord {
            id: self.id(),
            direction: self.direction(),
            by: self.asking.as_ref().map(|asking| asking.by.clone()),
            opened: self.opened,
            rounds: self.rounds.clone(),
            nodes: self.nodes.clone(),
        }
    }

    /// When it came into the phase that it is in, if it was agreed.
    pub fn since(&self) -> Time {
        let came = self.rounds.iter().rev().find(|round| match &round.said {
            Said::Phase { phase, reason } => *phase == self.phase() && *reason == self.dialogue.reason(),
            Said::Proposed { .. } => false,
        });
        came.map_or(self.opened, |round| round.at)
    }

    /// It has not given what it promised; the record tells that it was warned.
    pub(crate) fn warn(&mut self, at: Time) {
        self.is_warned = true;
        let said = Said::Phase { phase: self.phase(), reason: Some(Reason::BrokenPromise) };
        self.rounds.push(RoundRecord { at, said });
    }

    fn update(&mut self, at: Time, dialogue: &Dialogue, names: Vec<String>) {
        let is_new = self.rounds.is_empty();
        let was = (self.phase(), self.dialogue.round());
        self.dialogue = dialogue.clone();
        if !names.is_empty() {
            self.nodes = names;
        }
        let last = if is_new { 0 } else { was.1 };
        for (by, round, template) in dialogue.proposals().filter(|(_, round, _)| *round > last) {
            self.rounds.push(RoundRecord { at, said: Said::Proposed { by, round, template: template.clone() } });
        }
        // Of talk about very much, the last words are kept.
        while self.rounds.len() > 1 && size_of(&self.rounds) > MAX_ROUNDS_SIZE {
            self.rounds.remove(0);
        }
        let phase = dialogue.phase();
        if phase.proposer().is_none() && (is_new || phase != was.0) {
            self.rounds.push(RoundRecord { at, said: Said::Phase { phase, reason: dialogue.reason() } });
        }
    }
}

/// How much these say, in numbers.
fn size_of(rounds: &[RoundRecord]) -> usize {
    let size = |round: &RoundRecord| match &round.said {
        Said::Proposed { template, .. } => template.items().iter().map(size_of_item).sum(),
        Said::Phase { .. } => 1,
    };
    rounds.iter().map(size).sum()
}

fn size_of_item(item: &Item) -> usize {
    let n_sizes = match &item.terms.sizes {
        Sizes::Any | Sizes::MultipleOf(_) | Sizes::PowerOfTwo => 0,
        Sizes::Listed(sizes) => sizes.len(),
    };
    16 + n_sizes + item.nodes.len()
}

/// More than a hundred rounds of ordinary size; an application that says very much at once has fewer remembered.
const MAX_ROUNDS_SIZE: usize = 16_384;
/// As many as the dialogues remember.
const MAX_NEGOTIATIONS: usize = 16;
/// What is paid for at once; of an application that bargains more often, the oldest is settled before its end.
const MAX_CHARGES: usize = 1024;
/// Records of one execution that are kept beside those.
pub const MAX_PAST: usize = 64;

/// When nodes are free at the latest that an application has agreed to give back: who does not keep to it is made to.
pub(crate) fn promise_end(settings: &Settings, agreed: Time) -> Time {
    agreed + promise_span(settings) + promise_span(settings) + settings.exit_grace + settings.kill_grace
}

/// How long an application may take to give what it has promised, before it is warned.
pub(crate) fn promise_span(settings: &Settings) -> Span {
    if settings.release_grace.is_zero() { DEFAULT_PROMISE_SPAN } else { settings.release_grace }
}

/// An application reaches its next breakpoint within that, unless an admin knows better.
const DEFAULT_PROMISE_SPAN: Span = Span::from_secs(60);
