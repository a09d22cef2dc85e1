//! What nodes cost an application, and what its user can pay.

use std::collections::BTreeSet;

use negotiation::{Direction, Item, NegotiationId, Price, Quantity, Reason, Resource, Rules, Side, Template};
use rms_api::negotiate::{BudgetLine, BudgetShortage, Said};
use rms_model::{ClusterId, Identity, JobId, Role, Span, Time};

use super::Negotiations;
use super::answer::Granted;
use super::grow::time_of;
use super::policy::{Balance, Pricing, Reply, affordable};
use crate::state::State;
use crate::state::job::Job;
use crate::state::negotiations::Negotiation;

impl Negotiations<'_> {
    /// Returns what a gained node of a cluster costs for an hour.
    pub(super) fn list_price(&self, cluster: ClusterId) -> Price {
        let name = self.context.state().clusters().get(&cluster).map_or("", String::as_str);
        Price(self.context.state().settings().price_in(name))
    }

    /// Returns the least for which the server gives a node of a cluster for an hour.
    pub(super) fn floor_price(&self, cluster: ClusterId) -> Price {
        let floor = self.context.state().settings().price_floor;
        Pricing::new(self.list_price(cluster).0, floor, Side::Application, &Rules::default()).floor()
    }

    /// Returns what the server asks for a node and hour in reply to a bid: no more than the bid if that is enough.
    /// `None` if the bid is too low and no round is left.
    fn asked_price(&self, job: JobId, id: NegotiationId, (cluster, bid): (ClusterId, Price)) -> Option<Price> {
        let list = self.list_price(cluster);
        let negotiation = self.negotiation(job, id)?;
        let floor = self.context.state().settings().price_floor;
        let pricing = Pricing::new(list.0, floor, id.initiator, &Rules::default());
        match pricing.reply(bid, n_proposals(negotiation)) {
            Reply::Accept => Some(bid),
            Reply::Counter(price) => Some(price),
            Reply::Reject => None,
        }
    }

    /// Returns how many more nodes of a cluster the user's limit and budget allow an application with this bid, beside
    /// what it is given on other clusters, and the reason for not giving more.
    pub(super) fn most_more_nodes(
        &self,
        now: Time,
        job: JobId,
        id: NegotiationId,
        (cluster, item): (ClusterId, &Item),
        given: &Granted,
    ) -> (u64, Reason) {
        let by_limit = self.most_by_limit(job, id).map_or(u64::MAX, |nodes| {
            let n_given: u64 = given.items.iter().map(|item| item.quantity.0).sum();
            nodes.saturating_sub(n_given)
        });
        let affordable = |price: Price| {
            let mut priced = item.clone();
            priced.terms.price = price.max(item.terms.price);
            self.affordable_nodes(now, job, &priced, Some((id, given)))
        };
        let is_enough = |nodes: &u64| item.greatest(Direction::Grow, Quantity(item.quantity.0.min(*nodes))).is_some();
        let at_list_price = Some(affordable(self.list_price(cluster))).filter(is_enough);
        let by_budget = at_list_price.unwrap_or_else(|| affordable(self.floor_price(cluster)));
        if by_budget < by_limit { (by_budget, Reason::Price) } else { (by_limit, Reason::Policy) }
    }

    /// Returns how many more nodes the user's growth limit allows an application; those up to the number that it started
    /// with are its own. `None`: any number.
    fn most_by_limit(&self, job: JobId, id: NegotiationId) -> Option<u64> {
        let entry = &self.context.state().jobs()[&job];
        let left = self.may_still_gain(&entry.spec.owner.0, Some(job))?;
        let started = entry.started()?;
        // What is held for this negotiation is part of what it may get.
        let held = self.negotiation(job, id).map_or(0, |negotiation| negotiation.held.len());
        let n_others = (started.nodes.len() + entry.promised_nodes().count()).saturating_sub(held) as u64;
        Some((u64::from(started.began_with()) + u64::from(left)).saturating_sub(n_others))
    }

    /// Returns what the server asks for a node and hour of an item that it would grant; less than usual, but not less
    /// than its floor, if the user cannot pay more. `None` if the bid is too low and no round is left.
    pub(super) fn payable_price(
        &self,
        now: Time,
        (job, id): (JobId, NegotiationId),
        (cluster, item): (ClusterId, &Item),
        given: &Granted,
    ) -> Option<Price> {
        let mut asked = item.clone();
        asked.terms.price = self.asked_price(job, id, (cluster, item.terms.price))?;
        match self.affordable_nodes(now, job, &asked, Some((id, given))) >= item.quantity.0 {
            true => Some(asked.terms.price),
            false => Some(item.terms.price.max(self.floor_price(cluster))),
        }
    }

    /// Returns how many more nodes the application can be offered at the list price.
    pub(super) fn most_offered(&self, now: Time, job: JobId, cluster: ClusterId) -> u64 {
        let price = self.list_price(cluster);
        // An application without a negotiator has not agreed to pay.
        let may_pay = price == Price(0) || self.negotiates_prices(job);
        let mut item = Item::up_to(Resource::Nodes(cluster), 0, 1);
        item.terms.price = price;
        if may_pay { self.affordable_nodes(now, job, &item, None) } else { 0 }
    }

    /// Returns for how many more nodes the user can pay at the terms of an item: for its time, or until the application
    /// ends. The negotiation about them counts with what it is given already, not with what was promised before.
    fn affordable_nodes(&self, now: Time, job: JobId, item: &Item, own: Option<(NegotiationId, &Granted)>) -> u64 {
        let price = item.terms.price;
        let Some(budget) = self.budget_of_owner(job).filter(|_| price > Price(0)) else { return u64::MAX };
        let owner = self.context.state().jobs()[&job].spec.owner.0.as_str();
        let but = own.map(|(id, _)| (job, id));
        let longer = own.map_or(Span::ZERO, |(_, given)| given.longer);
        let mut balance = balance(self.context.state(), now, owner, but);
        balance.reserved = balance.reserved.saturating_add(self.cost_of_longer(now, job, own, longer));
        let Some(until) = self.end_if_longer(job, own.map(|(id, _)| id), longer) else { return 0 };
        affordable(balance.left(Some(budget)), price, time_held(item, now, until)).map_or(u64::MAX, u64::from)
    }

    /// Returns by how many of the asked milliseconds the user can pay to keep the priced nodes of the application
    /// longer, and those that the negotiation gives it.
    pub(super) fn payable_extension(
        &self,
        now: Time,
        (job, id): (JobId, NegotiationId),
        asked: u64,
        given: &Granted,
    ) -> u64 {
        let Some(budget) = self.budget_of_owner(job) else { return asked };
        let owner = self.context.state().jobs()[&job].spec.owner.0.as_str();
        let left = balance(self.context.state(), now, owner, Some((job, id))).left(Some(budget)).unwrap_or(0);
        let cost = |millis: u64| self.cost_of_longer(now, job, Some((id, given)), millis_span(millis));
        // A user who has spent too much may still have what costs no more than it does.
        let left = left.max(cost(0));
        if cost(asked) <= left {
            return asked;
        }
        let (mut payable, mut too_much) = (0, asked);
        while payable + 1 < too_much {
            let middle = payable.midpoint(too_much);
            match cost(middle) <= left {
                true => payable = middle,
                false => too_much = middle,
            }
        }
        payable
    }

    /// Returns what a running job costs more if it runs `longer`, for the nodes that it has or is promised, and all of
    /// what a negotiation gives it.
    fn cost_of_longer(&self, now: Time, job: JobId, own: Option<(NegotiationId, &Granted)>, longer: Span) -> u64 {
        let entry = &self.context.state().jobs()[&job];
        let but = own.map(|(id, _)| id);
        let more = due(entry, now, longer, but).saturating_sub(due(entry, now, Span::ZERO, but));
        let until = self.end_if_longer(job, but, longer).unwrap_or(now);
        let given = own.into_iter().flat_map(|(_, given)| &given.items).map(|item| cost_of(item, now, until));
        given.fold(more, u64::saturating_add)
    }

    pub(super) fn end_if_longer(&self, job: JobId, but: Option<NegotiationId>, longer: Span) -> Option<Time> {
        Some(promised_end(&self.context.state().jobs()[&job], but)? + longer)
    }

    /// Returns what is left of a user's budget for nodes that are not promised yet.
    pub(super) fn may_still_spend(&self, now: Time, user: &str) -> Option<u64> {
        let state = self.context.state();
        balance(state, now, user, None).left(state.settings().budget_of(user))
    }

    fn budget_of_owner(&self, job: JobId) -> Option<u64> {
        let state = self.context.state();
        state.settings().budget_of(&state.jobs()[&job].spec.owner.0)
    }

    /// Returns what a proposal to grow costs at least, and what is left of the owner's budget for it, if that is too
    /// little.
    pub(super) fn shortage(&self, now: Time, job: JobId, negotiation: &Negotiation) -> Option<BudgetShortage> {
        let budget = self.budget_of_owner(job)?;
        let proposal = negotiation.dialogue.proposal().filter(|proposal| proposal.direction() == Direction::Grow)?;
        let mut given = Granted::default();
        let mut least = proposal.items().to_vec();
        for item in &mut least {
            item.quantity = item.terms.least;
            if let Resource::Nodes(cluster) = item.resource {
                item.terms.price = self.floor_price(cluster).max(item.terms.price);
            }
        }
        given.longer = time_of(&least);
        given.items = least;
        let owner = self.context.state().jobs()[&job].spec.owner.0.as_str();
        let id = negotiation.id();
        let left = balance(self.context.state(), now, owner, Some((job, id))).left(Some(budget))?;
        let needed = self.cost_of_longer(now, job, Some((id, &given)), given.longer);
        (needed > left).then_some(BudgetShortage { needed, left })
    }
}

/// Returns what all that a running job has or is promised costs more if it runs `longer`, and what is left of its owner's
/// budget, if that is too little.
pub(crate) fn shortage_for_longer(state: &State, now: Time, job: JobId, longer: Span) -> Option<BudgetShortage> {
    let entry = &state.jobs()[&job];
    let owner = entry.spec.owner.0.as_str();
    let left = balance(state, now, owner, None).left(state.settings().budget_of(owner))?;
    let needed = due(entry, now, longer, None).saturating_sub(due(entry, now, Span::ZERO, None));
    (needed > left).then_some(BudgetShortage { needed, left })
}

/// Returns what nodes have cost, user by user: the caller, and for an admin all users who have a budget, pay or have
/// paid.
pub(crate) fn budgets(state: &State, now: Time, who: &Identity) -> Vec<BudgetLine> {
    let settings = state.settings();
    let users: BTreeSet<&str> = match who.role {
        Role::Admin => {
            let pays = state.negotiating().map(|(_, entry)| entry.spec.owner.0.as_str());
            state.users_with_spending().chain(pays).chain(settings.budget_of.names()).collect()
        }
        Role::Server | Role::Agent | Role::User | Role::Job => BTreeSet::from([who.name.as_str()]),
    };
    let line = |user: &str| {
        let Balance { spent, reserved } = balance(state, now, user, None);
        BudgetLine { user: user.to_owned(), budget: settings.budget_of(user), spent, reserved }
    };
    users.into_iter().map(line).collect()
}

/// Returns what a user has spent, and what may become due for nodes that are held or promised.
pub(crate) fn balance(state: &State, now: Time, user: &str, but: Option<(JobId, NegotiationId)>) -> Balance {
    let mut balance = Balance { spent: state.spent(user), reserved: 0 };
    for (job, entry) in state.negotiating() {
        if entry.spec.owner.0 != user {
            continue;
        }
        let Some(negotiations) = &entry.negotiations else { continue };
        balance.spent = balance.spent.saturating_add(negotiations.spent(now));
        let but = but.filter(|(own, _)| *own == job).map(|(_, id)| id);
        balance.reserved = balance.reserved.saturating_add(due(entry, now, Span::ZERO, but));
    }
    balance
}

/// Counts the proposals that the server has made.
fn n_proposals(negotiation: &Negotiation) -> u16 {
    let by_server = negotiation.rounds.iter().filter(|round| match &round.said {
        Said::Proposed { by: Side::Rms, .. } => true,
        Said::Proposed { by: Side::Application, .. } | Said::Phase { .. } => false,
    });
    u16::try_from(by_server.count()).unwrap_or(u16::MAX)
}

/// Returns the most that may become due if a job runs `longer`: for the nodes that it has, and for those that are
/// promised to it by other negotiations than `but`.
fn due(entry: &Job, now: Time, longer: Span, but: Option<NegotiationId>) -> u64 {
    let (Some(negotiations), Some(until)) = (&entry.negotiations, promised_end(entry, but)) else { return 0 };
    let until = until + longer;
    let promised = promised(entry, but).flat_map(promised_items);
    let promised = promised.map(|item| cost_of(item, now, until));
    promised.fold(negotiations.due(now, until), u64::saturating_add)
}

/// Returns when the job ends at the latest, with the time that is promised to it.
fn promised_end(entry: &Job, but: Option<NegotiationId>) -> Option<Time> {
    let started = entry.started()?;
    // Time that has been handed over is part of the wall time.
    let coming = promised(entry, but).filter(|negotiation| !negotiation.is_handed_over);
    let more = coming.map(|negotiation| time_of(negotiation.dialogue.promised().map_or(&[][..], Template::items)));
    Some(more.fold(started.at + started.request.wall, |end, more| end + more))
}

/// Returns the open growths of a job that the server has offered or agreed to, but one.
fn promised(entry: &Job, but: Option<NegotiationId>) -> impl Iterator<Item = &Negotiation> {
    let open = entry.negotiations.iter().flat_map(|negotiations| negotiations.open());
    open.filter(move |negotiation| negotiation.direction() == Direction::Grow && Some(negotiation.id()) != but)
}

fn promised_items(negotiation: &Negotiation) -> impl Iterator<Item = &Item> {
    let items = negotiation.dialogue.promised().into_iter().flat_map(|template| template.items());
    items.filter(|item| item.is_live())
}

/// Returns what an item costs at most if the application ends at `until`.
fn cost_of(item: &Item, now: Time, until: Time) -> u64 {
    match item.resource {
        Resource::Nodes(_) => {
            let nodes = u32::try_from(item.quantity.0).unwrap_or(u32::MAX);
            item.terms.price.cost(nodes, time_held(item, now, until))
        }
        Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => 0,
        Resource::Licences(..) | Resource::Time => 0,
    }
}

/// Returns how long an application that ends at `until` has what it gets now by an item.
fn time_held(item: &Item, now: Time, until: Time) -> Span {
    item.terms.ends(now).map_or(until, |back| back.min(until)).since(now)
}

fn millis_span(millis: u64) -> Span {
    Span::from_millis(i64::try_from(millis).unwrap_or(i64::MAX)).min(Span::MAX_WALL)
}
