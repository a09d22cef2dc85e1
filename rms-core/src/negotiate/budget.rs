//! What nodes cost an application, and what its user can pay.

use std::collections::BTreeSet;

use negotiation::{Direction, Item, NegotiationId, Price, Reason, Resource, Rules, Side};
use rms_api::negotiate::{BudgetLine, Said};
use rms_model::{ClusterId, Identity, JobId, Role, Span, Time};

use super::Negotiations;
use super::policy::{Account, Pricing, Reply, affordable};
use crate::state::State;
use crate::state::job::Job;
use crate::state::negotiations::Negotiation;

impl Negotiations<'_> {
    /// Returns what a gained node of a cluster costs for an hour.
    pub(super) fn list_price(&self, cluster: ClusterId) -> Price {
        let name = self.context.state().clusters().get(&cluster).map_or("", String::as_str);
        Price(self.context.state().settings().price_in(name))
    }

    /// Returns what the server asks for a node and hour in reply to a bid: no more than the bid if that is enough.
    /// `None` if the bid is too low and no round is left.
    pub(super) fn asked_price(
        &self,
        job: JobId,
        id: NegotiationId,
        (cluster, bid): (ClusterId, Price),
    ) -> Option<Price> {
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
        (cluster, bid): (ClusterId, Price),
        given: &[Item],
    ) -> (u64, Reason) {
        let held = self.negotiation(job, id).map_or(0, |negotiation| negotiation.held.len() as u64);
        let n_given: u64 = given.iter().map(|item| item.quantity.0).sum();
        let by_limit = self.may_still_gain(&self.context.state().jobs()[&job].spec.owner.0);
        // Nodes held for this negotiation already count as its user's.
        let by_limit = by_limit.map_or(u64::MAX, |nodes| u64::from(nodes).saturating_add(held).saturating_sub(n_given));
        let by_budget = self.affordable_nodes(now, job, self.list_price(cluster).max(bid), Some((id, given)));
        if by_budget < by_limit { (by_budget, Reason::Price) } else { (by_limit, Reason::Policy) }
    }

    /// Returns how many more nodes the application can be offered at the list price.
    pub(super) fn most_offered(&self, now: Time, job: JobId, cluster: ClusterId) -> u64 {
        let price = self.list_price(cluster);
        // An application without a negotiator has not agreed to pay.
        let may_pay = price == Price(0) || self.negotiates_prices(job);
        if may_pay { self.affordable_nodes(now, job, price, None) } else { 0 }
    }

    /// Returns for how many more nodes the user can pay until the application ends. The negotiation about them counts
    /// with what it is given already, not with what was promised before.
    fn affordable_nodes(&self, now: Time, job: JobId, price: Price, own: Option<(NegotiationId, &[Item])>) -> u64 {
        let entry = &self.context.state().jobs()[&job];
        let user = entry.spec.owner.0.as_str();
        let Some(budget) = self.context.state().settings().budget_of(user).filter(|_| price > Price(0)) else {
            return u64::MAX;
        };
        let Some(started) = entry.started() else { return 0 };
        let until = started.at + started.request.wall;
        let mut account = account(self.context.state(), now, user, own.map(|(id, _)| (job, id)));
        let given = own.into_iter().flat_map(|(_, given)| given).map(|item| cost_of(item, until.since(now)));
        account.reserved = given.fold(account.reserved, u64::saturating_add);
        let left = account.left(Some(budget));
        affordable(left, price, until.since(now)).map_or(u64::MAX, u64::from)
    }
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
        let Account { spent, reserved } = account(state, now, user, None);
        BudgetLine { user: user.to_owned(), budget: settings.budget_of(user), spent, reserved }
    };
    users.into_iter().map(line).collect()
}

/// Returns what a user has spent, and what may become due for nodes that are held or promised.
pub(crate) fn account(state: &State, now: Time, user: &str, but: Option<(JobId, NegotiationId)>) -> Account {
    let mut account = Account { spent: state.spent(user), reserved: 0 };
    for (job, entry) in state.negotiating() {
        if entry.spec.owner.0 != user {
            continue;
        }
        let (Some(negotiations), Some(until)) = (&entry.negotiations, end(entry)) else { continue };
        let spent = negotiations.spent(now);
        account.spent = account.spent.saturating_add(spent);
        account.reserved = account.reserved.saturating_add(negotiations.spent(until.max(now)).saturating_sub(spent));
        let open = negotiations.open().filter(|negotiation| but != Some((job, negotiation.id())));
        let promised = open.map(|negotiation| promised_cost(negotiation, until.since(now)));
        account.reserved = promised.fold(account.reserved, u64::saturating_add);
    }
    account
}

/// Counts the proposals that the server has made.
fn n_proposals(negotiation: &Negotiation) -> u16 {
    let by_server = negotiation.rounds.iter().filter(|round| match &round.said {
        Said::Proposed { by: Side::Rms, .. } => true,
        Said::Proposed { by: Side::Application, .. } | Said::Phase { .. } => false,
    });
    u16::try_from(by_server.count()).unwrap_or(u16::MAX)
}

/// Returns when the job ends at the latest.
fn end(entry: &Job) -> Option<Time> {
    entry.started().map(|started| started.at + started.request.wall)
}

/// Returns the most that a growth can cost that the server has offered or agreed to.
fn promised_cost(negotiation: &Negotiation, left: Span) -> u64 {
    if negotiation.direction() == Direction::Shrink {
        return 0;
    }
    let items = negotiation.dialogue.promised().into_iter().flat_map(|template| template.items());
    let costs = items.filter(|item| item.is_live()).map(|item| cost_of(item, left));
    costs.fold(0, u64::saturating_add)
}

/// Returns what an item costs if the application runs for `left` longer.
fn cost_of(item: &Item, left: Span) -> u64 {
    let held = item.terms.duration.map_or(left, |duration| duration.min(left));
    match item.resource {
        Resource::Nodes(_) => item.terms.price.cost(u32::try_from(item.quantity.0).unwrap_or(u32::MAX), held),
        Resource::Cores(_) | Resource::Memory(_) | Resource::Devices(..) => 0,
        Resource::Licences(..) | Resource::Time => 0,
    }
}
