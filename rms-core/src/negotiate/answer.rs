//! The server's answers: to an application that wants to grow, as much as is available now; and as proxy of an
//! application that is only told of its size.

use std::collections::BTreeSet;

use negotiation::{
    Action, Direction, Ending, Item, ItemStatus, Message, NegotiationId, Price, Quantity, Reason, Resource, Rules,
    SetRule, Statement, Template,
};
use rms_api::negotiate::Ask;
use rms_model::{ClusterId, JobId, NodeId, Sizes, Span, Time};

use super::Negotiations;
use super::ask::MIN_WAIT;
use crate::plan;
use crate::state::negotiations::{Asking, Negotiation};
use crate::step::Step;

/// What can be given for one proposal.
struct Offer {
    items: Vec<Item>,
    /// Nodes to hold for the negotiation.
    nodes: Vec<NodeId>,
}

/// What is granted of a proposal so far, while the rest of it is examined.
#[derive(Default)]
pub(super) struct Granted {
    pub(super) nodes: Vec<NodeId>,
    /// The same nodes by cluster, at the price that is asked for them.
    pub(super) items: Vec<Item>,
    /// How much longer the application will keep its nodes, and all that is granted.
    pub(super) longer: Span,
}

/// What can be given of one item.
pub(super) enum Availability {
    /// Available now, perhaps less than was asked for.
    Now(Quantity),
    /// Nothing now, but perhaps later.
    Later,
    Never(Reason),
}

impl Negotiations<'_> {
    /// Answers the application's proposal to grow: accepts, counters or rejects it, or lets it wait for nodes.
    pub(super) fn answer_growth(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let Some(proposal) = negotiation.dialogue.proposal().cloned() else { return };
        let place = (negotiation.opened, job, id);
        let negotiation_lapses = negotiation.dialogue.lapses();
        let is_patient = Negotiations::decision_deadline(negotiation).is_some_and(|at| at > now);
        let action = match self.offer(now, job, id, &proposal) {
            // After a restart, nodes may be about to connect.
            Ok(Offer { items, .. }) if self.more_may_connect(&proposal, &items, negotiation_lapses) => {
                self.negotiators.waiting.insert(place);
                return;
            }
            Ok(Offer { items, .. }) if is_patient && self.more_is_coming(&proposal, &items) => {
                self.negotiators.waiting.insert(place);
                return;
            }
            Ok(Offer { items, nodes }) => {
                let action = self.offer_action(&proposal, items);
                let again = self.repeated_offer(job, id, &action);
                if again.is_none() {
                    self.set_held(step, job, id, nodes);
                }
                again.unwrap_or(action)
            }
            // Nodes may become free before the proposal lapses.
            Err(Reason::NoResources) if is_patient && !self.exceeds_cluster(&proposal) => {
                // Other applications may have nodes to give.
                self.context.passes.wanted |= self.negotiators.waiting.insert(place);
                return;
            }
            Err(reason) => Action::Reject(reason),
        };
        self.negotiators.waiting.remove(&place);
        if self.act(now, step, job, id, action).is_err() {
            // What can be given now is no valid answer to what was said before.
            let _ = self.act(now, step, job, id, Action::Reject(Reason::NoResources));
        }
    }

    /// Returns whether fewer nodes are granted than asked for on a cluster where applications are leaving some.
    fn more_is_coming(&self, proposal: &Template, items: &[Item]) -> bool {
        items.iter().zip(proposal.items()).any(|(given, asked)| match asked.resource {
            Resource::Nodes(cluster) => {
                let is_less = !given.is_live() || given.quantity < asked.quantity;
                asked.is_live() && is_less && self.coming(cluster).next().is_some()
            }
            Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => false,
            Resource::Licences(..) | Resource::Time => false,
        })
    }

    /// Returns whether fewer nodes are granted than asked for on a cluster where agents are expected back before the
    /// proposal lapses.
    fn more_may_connect(&self, proposal: &Template, items: &[Item], lapses: Option<Time>) -> bool {
        let Some((since, _)) = self.context.state().longest_expected() else { return false };
        let until = since + self.context.state().settings().restart_grace;
        let is_less = |(given, asked): (&Item, &Item)| match asked.resource {
            Resource::Nodes(cluster) => {
                let is_short = given.quantity < asked.quantity || given.status != asked.status;
                is_short && self.context.state().n_expected(cluster) > 0
            }
            Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => false,
            Resource::Licences(..) | Resource::Time => false,
        };
        let is_patient = lapses.is_some_and(|lapses| lapses > until + DECISION_MARGIN);
        is_patient && items.iter().zip(proposal.items()).any(is_less)
    }

    /// Returns whether a cluster has too few nodes for the proposal, whatever their state: waiting is useless then.
    fn exceeds_cluster(&self, proposal: &Template) -> bool {
        let is_needed = |item: &&Item| proposal.rules().get(usize::from(item.set)) == Some(&SetRule::All);
        proposal.items().iter().filter(is_needed).any(|item| match item.resource {
            Resource::Nodes(cluster) => {
                let n_nodes: u64 = self.context.state().kinds(cluster).map(|(_, n_alike)| u64::from(n_alike)).sum();
                item.held.0.saturating_add(item.terms.least.0) > n_nodes
            }
            Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) | Resource::Licences(..) => {
                self.exceeds_nodes(proposal.parties().job, item)
            }
            Resource::Time => false,
        })
    }

    /// Returns what the server has offered before, for which it holds the nodes, at the price of this action; `None`
    /// unless the action is a counter that takes some of it back, because the application asks for less.
    fn repeated_offer(&self, job: JobId, id: NegotiationId, action: &Action) -> Option<Action> {
        let Action::Propose { template, valid_for } = action else { return None };
        let dialogue = &self.negotiation(job, id)?.dialogue;
        let offered = dialogue.mine().filter(|_| dialogue.takes_back(template))?;
        let items = offered.items().iter().zip(template.items()).map(|(before, now)| {
            let mut item = before.clone();
            item.terms.price = before.terms.price.min(now.terms.price);
            item
        });
        Some(Action::Propose { template: template.with_items(items.collect()).ok()?, valid_for: *valid_for })
    }

    /// Returns an acceptance if all that was asked for is granted, else a counter.
    fn offer_action(&self, proposal: &Template, items: Vec<Item>) -> Action {
        let is_all = proposal.is_definite()
            && items.iter().zip(proposal.items()).all(|(offered, asked)| {
                let price_is_right = offered.terms.price <= asked.terms.price;
                offered.status == asked.status && offered.quantity == asked.quantity && price_is_right
            });
        if is_all {
            return Action::Accept;
        }
        match proposal.with_items(items) {
            Ok(template) => Action::Propose { template, valid_for: self.offer_valid() },
            Err(_) => Action::Reject(Reason::NoResources),
        }
    }

    /// Returns the best that can be given now for a proposal, set by set.
    ///
    /// # Errors
    /// The reason why nothing can be given.
    fn offer(&mut self, now: Time, job: JobId, id: NegotiationId, proposal: &Template) -> Result<Offer, Reason> {
        // Not while it shares CPUs: the proposal is examined again afterwards.
        if self.is_sharing(job) {
            return Err(Reason::NoResources);
        }
        if self.is_overdue(now, job) {
            return Err(Reason::Stopping);
        }
        let mut items = proposal.items().to_vec();
        let mut given = Granted::default();
        // Time is granted first: whether the rest is available depends on how long the job runs.
        let is_time = |idx: &usize| proposal.items()[*idx].resource == Resource::Time;
        let members_of =
            |set: usize| (0..proposal.items().len()).filter(move |idx| usize::from(proposal.items()[*idx].set) == set);
        let mut sets: Vec<(usize, &SetRule)> = proposal.rules().iter().enumerate().collect();
        sets.sort_by_key(|(set, _)| !members_of(*set).any(|idx| is_time(&idx)));
        for (set, rule) in sets {
            let mut members: Vec<usize> = members_of(set).collect();
            match rule {
                SetRule::All | SetRule::AnyOf => members.sort_by_key(|idx| !is_time(idx)),
                // The alternative that is named first is preferred.
                SetRule::OneOf => {}
            }
            let mut refusal = Reason::NoResources;
            let mut n_given = 0;
            for idx in members {
                let is_live = items[idx].is_live();
                // Of alternatives, only the first available one is given.
                let is_chosen = n_given > 0 && *rule == SetRule::OneOf;
                let grant = match is_live && !is_chosen {
                    true => self.grant_item(now, job, id, &items[idx], &mut given),
                    false => Availability::Later,
                };
                match grant {
                    Availability::Now(quantity) => {
                        items[idx] = offered(&items[idx], quantity);
                        if let Resource::Nodes(cluster) = items[idx].resource {
                            let price = self.payable_price(now, (job, id), (cluster, &items[idx]), &given);
                            items[idx].terms.price = price.ok_or(Reason::Price)?;
                            given.items.push(items[idx].clone());
                        }
                        n_given += 1;
                    }
                    Availability::Later if *rule == SetRule::All => return Err(Reason::NoResources),
                    Availability::Never(reason) if *rule == SetRule::All => return Err(reason),
                    Availability::Later => items[idx].status = ItemStatus::Refused,
                    Availability::Never(reason) => {
                        items[idx].status = ItemStatus::Refused;
                        refusal = reason;
                    }
                }
            }
            if n_given == 0 {
                return Err(refusal);
            }
        }
        Ok(Offer { items, nodes: given.nodes })
    }

    fn grant_item(
        &mut self,
        now: Time,
        job: JobId,
        id: NegotiationId,
        item: &Item,
        given: &mut Granted,
    ) -> Availability {
        // What is to be given back before it is there would cost nothing, and be in nobody's way.
        if item.terms.ends(now).is_some_and(|end| end <= now) {
            return Availability::Never(Reason::Policy);
        }
        match &item.resource {
            Resource::Nodes(cluster) => {
                let cluster = *cluster;
                if !self.context.state().clusters().contains_key(&cluster) {
                    return Availability::Never(Reason::Policy);
                }
                if item.held.0 != u64::from(self.n_nodes_on(job, cluster)) {
                    return Availability::Never(Reason::Changed);
                }
                self.grant_nodes(now, job, id, (cluster, item), given)
            }
            Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => {
                self.grant_inside(now, job, item, given.longer)
            }
            Resource::Licences(..) => self.grant_licences(now, job, item, given.longer),
            Resource::Time => {
                let grant = self.grant_time(now, (job, id), item, given);
                if let Availability::Now(Quantity(millis)) = grant {
                    given.longer = Span::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
                }
                grant
            }
        }
    }

    fn grant_nodes(
        &mut self,
        now: Time,
        job: JobId,
        id: NegotiationId,
        (cluster, item): (ClusterId, &Item),
        given: &mut Granted,
    ) -> Availability {
        let (most, bound) = self.most_more_nodes(now, job, id, (cluster, item), given);
        let most = item.quantity.0.min(most);
        if item.greatest(negotiation::Direction::Grow, Quantity(most)).is_none() {
            return Availability::Never(bound);
        }
        let candidates = match item.nodes.is_empty() {
            true => self.grantable(job, id, cluster, most as usize),
            false => match self.named(job, id, cluster, &item.nodes) {
                Some(named) => named,
                None => return Availability::Later,
            },
        };
        let n_without_delay = self.n_without_delay(now, (job, id), cluster, given, &candidates) as u64;
        match item.greatest(negotiation::Direction::Grow, Quantity(n_without_delay.min(most))) {
            Some(quantity) if item.nodes.is_empty() || quantity == item.quantity => {
                given.nodes.extend(candidates.into_iter().take(quantity.0 as usize));
                Availability::Now(quantity)
            }
            Some(_) | None => Availability::Later,
        }
    }

    /// Returns exactly these nodes of a cluster, if each is free or held for this negotiation.
    fn named(
        &self,
        job: JobId,
        id: NegotiationId,
        cluster: ClusterId,
        names: &BTreeSet<NodeId>,
    ) -> Option<Vec<NodeId>> {
        let held = self.held_on(job, id, cluster);
        let mut can_be_had = names
            .iter()
            .filter(|node| held.contains(node) || plan::is_free_for(self.context.state(), job, cluster, **node));
        (can_be_had.by_ref().count() == names.len()).then(|| names.iter().copied().collect())
    }

    /// Grants more wall time, within the maximum, without delaying any waiting job, and as far as the user can pay for
    /// the priced nodes that are kept longer.
    fn grant_time(
        &mut self,
        now: Time,
        (job, id): (JobId, NegotiationId),
        item: &Item,
        given: &Granted,
    ) -> Availability {
        let Some(started) = self.context.state().jobs()[&job].started() else {
            return Availability::Never(Reason::Stopping);
        };
        // Its supervisor there would end it at the old limit.
        if self.context.state().out_of_reach(started).is_some() {
            return Availability::Later;
        }
        let left =
            self.context.state().settings().max_wall.as_millis().saturating_sub(started.request.wall.as_millis());
        let most = item.quantity.0.min(u64::try_from(left).unwrap_or(0));
        let Some(most) = item.greatest(negotiation::Direction::Grow, Quantity(most)) else {
            return Availability::Never(Reason::Policy);
        };
        let payable = self.payable_extension(now, (job, id), most.0, given);
        let Some(most) = item.greatest(negotiation::Direction::Grow, Quantity(payable)) else {
            return Availability::Never(Reason::Price);
        };
        let some = self.longest_extension(now, job, most.0);
        let Some(quantity) = item.greatest(negotiation::Direction::Grow, Quantity(some)) else {
            return Availability::Later;
        };
        self.note_extension(now, job, Span::from_millis(quantity.0 as i64));
        Availability::Now(quantity)
    }

    /// Returns when waiting growth is told that no nodes came.
    pub(super) fn decision_deadline(negotiation: &Negotiation) -> Option<Time> {
        let lapses = negotiation.dialogue.lapses()?;
        let longest = lapses.since(negotiation.since()).as_millis() / MARGIN_PART;
        Some(lapses - Span::from_millis(longest.clamp(1, DECISION_MARGIN.as_millis())))
    }

    /// Answers the server's own proposal as proxy for the application.
    pub(super) fn answer_as_proxy(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        if !self.is_proxied(job, id) {
            return;
        }
        let Some(negotiation) = self.negotiation(job, id) else { return };
        let Some(proposal) = negotiation.dialogue.proposal() else { return };
        let round = negotiation.dialogue.round();
        let statement = match &negotiation.asking {
            Some(asking) => self.answer_for_asker(asking, proposal, round),
            None => self.answer_by_limits(job, proposal, round),
        };
        self.say_as_proxy(now, step, job, id, statement);
    }

    /// Answers a counter of the server for the caller that asked.
    fn answer_for_asker(&self, Asking { ask, .. }: &Asking, proposal: &Template, round: u16) -> Statement {
        let withdrawn = |reason| Statement::End { ending: Ending::Withdrawn, reason };
        let [item] = proposal.items() else { return withdrawn(Reason::Declined) };
        let is_enough =
            item.is_live() && item.quantity.0 >= ask.least && is_of_use(item, proposal.direction(), &ask.sizes);
        let is_fair = match proposal.direction() {
            Direction::Grow => item.terms.price <= ask.price,
            Direction::Shrink => item.terms.price >= ask.price,
        };
        match (is_enough, is_fair) {
            (true, true) => Statement::Accept { round },
            (true, false) => self.bid_again(ask, item, proposal, round).unwrap_or_else(|| withdrawn(Reason::Price)),
            (false, _) => withdrawn(Reason::NoResources),
        }
    }

    /// Returns the same bid once more, if the server will come down to it.
    fn bid_again(&self, ask: &Ask, item: &Item, proposal: &Template, round: u16) -> Option<Statement> {
        let Resource::Nodes(cluster) = item.resource else { return None };
        let is_growth = proposal.direction() == Direction::Grow;
        let is_in_reach = is_growth && ask.price >= self.floor_price(cluster) && round < Rules::default().max_rounds;
        let mut bid = item.clone();
        bid.terms.price = ask.price;
        let template = is_in_reach.then(|| proposal.with_items(vec![bid]).ok())??;
        Some(Statement::Propose { round: round + 1, template, valid_for: MIN_WAIT })
    }

    /// Answers, for an application that only has limits, an offer or a request to shrink.
    fn answer_by_limits(&self, job: JobId, proposal: &Template, round: u16) -> Statement {
        let declared = self.limits(job);
        let declined = Statement::End { ending: Ending::Rejected, reason: Reason::Declined };
        let [item] = proposal.items() else { return declined };
        let Resource::Nodes(_) = item.resource else { return declined };
        let direction = proposal.direction();
        let fits = |total: u64| {
            u64::from(declared.least) <= total && total <= u64::from(declared.most) && declared.sizes.fits(total)
        };
        // The limits are for all of its nodes, the item is about those of one cluster.
        let elsewhere = u64::from(self.n_nodes(job)).saturating_sub(item.held.0);
        let total_after = |quantity: u64| item.total(direction, Quantity(quantity))?.checked_add(elsewhere);
        // An application without a negotiator has not agreed to pay.
        let is_fair = direction == Direction::Shrink || item.terms.price == Price(0);
        let is_right = |quantity: &u64| total_after(*quantity).is_some_and(fits);
        if !is_fair {
            return Statement::End { ending: Ending::Rejected, reason: Reason::Price };
        }
        if is_right(&item.quantity.0) {
            return Statement::Accept { round };
        }
        let less = (item.terms.least.0..item.quantity.0).rev().find(is_right);
        let counter = less.and_then(|quantity| {
            let mut counter = item.clone();
            counter.quantity = Quantity(quantity);
            counter.nodes = item.nodes.iter().take(quantity as usize).copied().collect();
            counter.terms.sizes = Sizes::Any;
            proposal.with_items(vec![counter]).ok()
        });
        match counter {
            Some(template) => Statement::Propose { round: round + 1, template, valid_for: self.offer_valid() },
            None => declined,
        }
    }

    /// Handles a statement that the server makes as proxy, as if the application had sent it.
    pub(super) fn say_as_proxy(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        id: NegotiationId,
        statement: Statement,
    ) {
        self.say_on_behalf(now, step, job, id, statement, None);
    }

    /// As [`Negotiations::say_as_proxy`], for the first statement: `asking` names the caller on whose behalf it is
    /// made.
    pub(super) fn say_on_behalf(
        &mut self,
        now: Time,
        step: &mut Step,
        job: JobId,
        id: NegotiationId,
        statement: Statement,
        asking: Option<Asking>,
    ) {
        let dialogues = self.dialogues(job);
        let (heard, seen) = dialogues.get(id).map_or((0, 0), |dialogue| (dialogue.heard(), dialogue.said()));
        let message = Message::new(id, heard + 1, seen, Some(statement));
        let output = dialogues.receive(now, &message);
        self.record_dialogue(now, step, job, id, asking);
        self.send(step, job, output);
        // A statement that breaks the rules of the dialogue cannot be corrected: the negotiation is withdrawn.
        if self
            .negotiation(job, id)
            .is_some_and(|negotiation| !negotiation.phase().is_over() && negotiation.dialogue.heard() == heard)
        {
            let _ = self.act(now, step, job, id, Action::Withdraw(Reason::Declined));
        }
    }
}

/// Returns an item as the server offers it.
fn offered(asked: &Item, quantity: Quantity) -> Item {
    let mut item = asked.clone();
    if quantity < asked.quantity {
        item.quantity = quantity;
        item.terms.least = asked.terms.least.min(quantity);
        item.terms.most = asked.terms.most.max(quantity);
    }
    item
}

fn is_of_use(item: &Item, direction: Direction, sizes: &Sizes) -> bool {
    let total = match direction {
        Direction::Grow => item.held.0.checked_add(item.quantity.0),
        Direction::Shrink => item.held.0.checked_sub(item.quantity.0),
    };
    total.is_some_and(|total| sizes.fits(total))
}

/// How long before the proposal lapses a waiting caller is told that no nodes came: a late answer is better than none.
/// The caller's end of the dialogue started its timer before the server's, by the time that a message takes, and both
/// notice their timers late.
const DECISION_MARGIN: Span = Span::from_secs(1);
/// The fraction of a short wait that is used instead.
const MARGIN_PART: i64 = 4;
