//! The negotiations of a running job, as kept across restarts.

use std::collections::{BTreeMap, BTreeSet};

use negotiation::{Dialogue, Direction, Item, NegotiationId, Phase, Price, Reason, Resource, Side, Sizes, Template};
use rms_api::negotiate::{Ask, Declared, NegotiationRecord, RoundRecord, Said};
use rms_model::{ClusterId, NodeId, Settings, Span, Time};
use serde::{Deserialize, Serialize};

/// All negotiations of one execution of a job, from its first message to the end of the execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNegotiations {
    /// The limits that the application declared; until then, those of its submission apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Declared>,
    /// Whether the application can continue without lost nodes, as it last declared.
    #[serde(default, skip_serializing_if = "is_unsaid")]
    pub survives_loss: bool,
    /// The number of the last negotiation that the server opened. Numbers are never reused.
    pub n_opened: u32,
    /// The highest number under which the application has opened one.
    pub heard_up_to: u32,
    /// Open negotiations and the last ones that ended, in the order in which they were opened.
    pub all: Vec<Negotiation>,
    /// Records of earlier negotiations, the newest [`MAX_PAST`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past: Vec<NegotiationRecord>,
    /// Nodes that the application has for a limited time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loans: Vec<Loan>,
    /// Nodes that were agreed at a price.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<Charge>,
    /// The cost of nodes that were given back, in thousandths.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub settled: u64,
}

/// One negotiation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Negotiation {
    /// The server's end, without its timers of repetition.
    pub dialogue: Dialogue,
    pub opened: Time,
    /// The request of a user, for whom the server runs the application's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking: Option<Asking>,
    /// Nodes that are kept free for this negotiation.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub held: BTreeSet<NodeId>,
    /// The nodes that were agreed have come, or are leaving.
    #[serde(default)]
    pub is_handed_over: bool,
    /// The application was warned that it has not given what it promised.
    #[serde(default)]
    pub is_warned: bool,
    /// Nodes, with their clusters, that the application had promised and that are lost: they count as given back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost: BTreeMap<NodeId, ClusterId>,
    pub rounds: Vec<RoundRecord>,
    /// Names of the nodes that come or go, once known.
    pub nodes: Vec<String>,
}

/// A user's request for a change, and who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asking {
    pub by: String,
    pub ask: Ask,
}

/// Nodes that the application must give back at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan {
    pub id: NegotiationId,
    pub cluster: ClusterId,
    pub nodes: u64,
    pub until: Time,
    /// The shrink that asks for them back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub called: Option<NegotiationId>,
}

/// Nodes of a cluster that an application will give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeReturn {
    pub(crate) cluster: ClusterId,
    pub(crate) nodes: u64,
    /// By when they are free at the latest.
    pub(crate) at: Time,
}

/// Nodes agreed at a price: the side that takes them pays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    pub id: NegotiationId,
    pub cluster: ClusterId,
    pub direction: Direction,
    pub nodes: u64,
    /// The price for a node and hour.
    pub price: Price,
    pub since: Time,
    /// When the nodes are to be given back; absent: not before the application ends. They cost until they are given
    /// back, however late.
    pub until: Option<Time>,
}

impl JobNegotiations {
    pub fn get(&self, id: NegotiationId) -> Option<&Negotiation> {
        self.all.iter().find(|negotiation| negotiation.dialogue.id() == id)
    }

    pub(crate) fn get_mut(&mut self, id: NegotiationId) -> Option<&mut Negotiation> {
        self.all.iter_mut().find(|negotiation| negotiation.dialogue.id() == id)
    }

    /// Returns the negotiations that have not ended.
    pub fn open(&self) -> impl Iterator<Item = &Negotiation> {
        self.all.iter().filter(|negotiation| !negotiation.phase().is_over())
    }

    /// Records of all remembered negotiations, the oldest first.
    pub fn records(&self) -> Vec<NegotiationRecord> {
        self.past.iter().cloned().chain(self.all.iter().map(Negotiation::record)).collect()
    }

    /// Returns what the application has agreed to give back and has not begun to leave, and the nodes that it has for a
    /// limited time, in order of time.
    pub(crate) fn returns(&self, settings: &Settings) -> Vec<NodeReturn> {
        let mut loans = self.loans.clone();
        let mut returns = Vec::new();
        for negotiation in self.open().filter(|negotiation| negotiation.direction() == Direction::Shrink) {
            let agreed = match negotiation.phase() {
                Phase::Accepted | Phase::Committing => negotiation.not_lost(),
                Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged => continue,
                Phase::Leaving | Phase::Failing | Phase::Applied | Phase::Ended(_) => continue,
            };
            for (cluster, nodes) in agreed {
                repay(&mut loans, negotiation.id(), cluster, nodes);
                if !negotiation.is_handed_over {
                    returns.push(NodeReturn { cluster, nodes, at: promise_end(settings, negotiation.since()) });
                }
            }
        }
        let of_loan =
            |Loan { cluster, nodes, until, .. }: Loan| NodeReturn { cluster, nodes, at: loan_end(settings, until) };
        returns.extend(loans.into_iter().map(of_loan));
        returns.sort_by_key(|back| back.at);
        returns
    }

    /// Records a change of a dialogue. `names` are the names of the nodes in the dialogue.
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

    /// Moves the oldest ended negotiations to the records once there are many.
    fn archive_ended(&mut self) {
        while self.all.len() >= MAX_NEGOTIATIONS {
            let Some(idx) = self.all.iter().position(|negotiation| negotiation.phase().is_over()) else { return };
            let negotiation = self.all.remove(idx);
            self.past.push(negotiation.record());
        }
        // The newest records that fit together are kept.
        let mut size = 0;
        let is_kept = |record: &&NegotiationRecord| {
            size += 1 + size_of(&record.rounds);
            size <= MAX_ROUNDS_SIZE
        };
        let n_kept = self.past.iter().rev().take(MAX_PAST).take_while(is_kept).count();
        self.past.drain(..self.past.len() - n_kept);
    }

    /// Returns the cost of the job's nodes until `at`, in thousandths.
    pub fn spent(&self, at: Time) -> u64 {
        let running = self.charges.iter().map(|charge| charge.cost(charge.nodes, at));
        running.fold(self.settled, u64::saturating_add)
    }

    /// Returns what the job's nodes cost from `now` on if it ends at `end` and gives back in time.
    pub(crate) fn due(&self, now: Time, end: Time) -> u64 {
        let due = self.charges.iter().map(|charge| {
            let until = charge.until.map_or(end, |until| until.min(end)).max(now);
            charge.cost(charge.nodes, until).saturating_sub(charge.cost(charge.nodes, now))
        });
        due.fold(0, u64::saturating_add)
    }

    /// Ends the charges of nodes that leave the application: in each cluster, nodes that are overdue are given back
    /// first, then those that came last. Nodes of a growth that failed were never paid for.
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
        let gained = self.charges.iter_mut().filter(|charge| charge.direction == Direction::Grow);
        let is_overdue = |charge: &&mut Charge| charge.until.is_some_and(|until| until <= at);
        let (overdue, others): (Vec<_>, Vec<_>) = gained.partition(is_overdue);
        for charge in overdue.into_iter().chain(others.into_iter().rev()) {
            let Some(left) = left.get_mut(&charge.cluster) else { continue };
            let n_back = charge.nodes.min(*left);
            self.settled = self.settled.saturating_add(charge.cost(n_back, at));
            charge.nodes -= n_back;
            *left -= n_back;
        }
        self.charges.retain(|charge| charge.nodes > 0);
    }

    /// Applies the terms of a negotiation that was carried out: loans, repayments and charges.
    fn apply_terms(&mut self, at: Time, negotiation: &Negotiation) {
        let Some(template) = negotiation.dialogue.proposal() else { return };
        for item in template.items().iter().filter(|item| item.is_live()) {
            let until = item.terms.ends(at);
            let Resource::Nodes(cluster) = item.resource else { continue };
            let (id, nodes, direction) = (negotiation.dialogue.id(), item.quantity.0, template.direction());
            if let (Direction::Grow, Some(until)) = (direction, until) {
                self.loans.push(Loan { id, cluster, nodes, until, called: None });
            }
            if direction == Direction::Shrink {
                repay(&mut self.loans, id, cluster, nodes);
            }
            if item.terms.price != Price(0) {
                let charge = Charge { id, cluster, direction, nodes, price: item.terms.price, since: at, until };
                self.charges.push(charge);
            }
        }
        // The memory for one job is bounded, whatever it does.
        while self.loans.len() > MAX_PAST {
            // No loan is forgotten: the two oldest of a cluster are merged, due at the earlier time.
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
}

/// Reduces the loans of a cluster by what a shrink gives back: the one that it was opened for first, then the newest.
fn repay(loans: &mut Vec<Loan>, by: NegotiationId, cluster: ClusterId, nodes: u64) {
    let mut left = nodes;
    let (called, others): (Vec<&mut Loan>, Vec<&mut Loan>) =
        loans.iter_mut().rev().filter(|loan| loan.cluster == cluster).partition(|loan| loan.called == Some(by));
    for loan in called.into_iter().chain(others) {
        let repaid = loan.nodes.min(left);
        loan.nodes -= repaid;
        left -= repaid;
    }
    loans.retain(|loan| loan.nodes > 0);
}

impl Loan {
    /// Returns whether the loan belongs to this negotiation and cluster. Journals older than negotiations over several
    /// clusters name no cluster.
    pub(crate) fn is_of(&self, id: NegotiationId, cluster: Option<ClusterId>) -> bool {
        self.id == id && cluster.is_none_or(|cluster| self.cluster == cluster)
    }
}

impl Charge {
    /// Returns the cost of `nodes` of its nodes until `at`; giving nodes back earns nothing.
    fn cost(&self, nodes: u64, at: Time) -> u64 {
        match self.direction {
            Direction::Grow => self.price.cost(u32::try_from(nodes).unwrap_or(u32::MAX), at.since(self.since)),
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
            lost: BTreeMap::new(),
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

    /// Returns the direction, which is known from the first proposal on; each negotiation begins with one.
    pub fn direction(&self) -> Direction {
        self.dialogue.direction().unwrap_or(Direction::Grow)
    }

    /// Returns the number of nodes by cluster that the application agreed to give back and has not begun to leave, and
    /// when it agreed.
    pub fn agreed_to_leave(&self) -> Option<(Time, BTreeMap<ClusterId, u64>)> {
        let is_agreed = match self.phase() {
            Phase::Accepted | Phase::Committing => self.direction() == Direction::Shrink && !self.is_handed_over,
            Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving => false,
            Phase::Failing | Phase::Applied | Phase::Ended(_) => false,
        };
        let nodes = is_agreed.then(|| self.not_lost())?;
        (!nodes.is_empty()).then(|| (self.since(), nodes))
    }

    /// Returns by when the nodes of a growth are free again at the latest, if all of them come at `at` for a limited time.
    pub(crate) fn free_again(&self, settings: &Settings, at: Time) -> Option<Time> {
        self.asked_back(at).map(|until| loan_end(settings, until))
    }

    /// Returns when the application is asked for the nodes of a growth, if all of them come at `at` for a limited time.
    pub(crate) fn asked_back(&self, at: Time) -> Option<Time> {
        let items = self.dialogue.proposal()?.items().iter().filter(|item| item.is_live());
        let until = |item: &Item| match item.resource {
            Resource::Nodes(_) => item.terms.ends(at),
            _ => None,
        };
        let ends: Option<Vec<Time>> = items.map(until).collect();
        ends?.into_iter().max()
    }

    /// Returns the number of nodes by cluster that are proposed or agreed, without those that are lost.
    pub fn not_lost(&self) -> BTreeMap<ClusterId, u64> {
        let mut nodes = self.dialogue.proposal().map(Template::nodes_by_cluster).unwrap_or_default();
        for cluster in self.lost.values() {
            nodes.entry(*cluster).and_modify(|n_nodes| *n_nodes = n_nodes.saturating_sub(1));
        }
        nodes.retain(|_, n_nodes| *n_nodes > 0);
        nodes
    }

    /// Returns whether all nodes that were promised are lost: nothing is left to be given back.
    pub fn are_all_lost(&self) -> bool {
        !self.lost.is_empty() && self.not_lost().is_empty()
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

    /// Returns when the nodes of an agreed shrink are taken, unless the application has released them by then.
    pub(crate) fn taken_at(&self, settings: &Settings) -> Option<Time> {
        let awaits_release =
            self.phase() == Phase::Accepted && self.direction() == Direction::Shrink && !self.is_handed_over;
        awaits_release.then(|| self.since() + promise_span(settings) + promise_span(settings))
    }

    /// Returns when the negotiation entered its current phase; when it was opened, if that is not recorded.
    pub fn since(&self) -> Time {
        let came = self.rounds.iter().rev().find(|round| match &round.said {
            Said::Phase { phase, reason } => *phase == self.phase() && *reason == self.dialogue.reason(),
            Said::Proposed { .. } => false,
        });
        came.map_or(self.opened, |round| round.at)
    }

    /// Records a warning that the application has not given what it promised.
    pub(crate) fn warn(&mut self, at: Time) {
        self.is_warned = true;
        let said = Said::Phase { phase: self.phase(), reason: Some(Reason::BrokenPromise) };
        self.rounds.push(RoundRecord { at, said });
    }

    /// Records that promised nodes are lost.
    pub(crate) fn lose(&mut self, nodes: impl IntoIterator<Item = (NodeId, ClusterId)>) {
        self.lost.extend(nodes);
        self.is_handed_over |= self.are_all_lost();
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
        // The last rounds are kept if all of them are too large.
        while self.rounds.len() > 1 && size_of(&self.rounds) > MAX_ROUNDS_SIZE {
            self.rounds.remove(0);
        }
        let phase = dialogue.phase();
        if phase.proposer().is_none() && (is_new || phase != was.0) {
            self.rounds.push(RoundRecord { at, said: Said::Phase { phase, reason: dialogue.reason() } });
        }
    }
}

/// Returns the size of these rounds, counted in numbers.
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

/// More than a hundred rounds of ordinary size; fewer are kept if the proposals are larger.
const MAX_ROUNDS_SIZE: usize = 16_384;
/// The most negotiations kept in full; as many as there are dialogues kept by the crate `negotiation`.
const MAX_NEGOTIATIONS: usize = 16;
/// The most charges at a time; beyond that, the oldest is settled early.
const MAX_CHARGES: usize = 1024;
/// The most records of earlier negotiations of one execution.
pub const MAX_PAST: usize = 64;

/// Returns the latest time at which nodes are free that an application agreed to give back. After it, the server takes
/// them.
pub(crate) fn promise_end(settings: &Settings, agreed: Time) -> Time {
    agreed + promise_span(settings) + promise_span(settings) + settings.exit_grace + settings.kill_grace
}

/// Returns the latest time at which nodes are free that an application has until a time: it is asked for them then, and
/// may take as long to answer as an offer is valid.
fn loan_end(settings: &Settings, until: Time) -> Time {
    promise_end(settings, until + settings.offer_valid)
}

/// Returns how long an application may take to give what it promised before it is warned.
pub(crate) fn promise_span(settings: &Settings) -> Span {
    if settings.release_grace.is_zero() { DEFAULT_PROMISE_SPAN } else { settings.release_grace }
}

/// The time within which an application is assumed to reach its next breakpoint, unless an admin sets one.
const DEFAULT_PROMISE_SPAN: Span = Span::from_secs(60);
