//! The application's end where the server runs it: for asks, and for applications that are told of their size.

use negotiation::{
    Action, Direction, Ending, Item, Message, NegotiationId, Price, Quantity, Reason, Resource, Statement, Template,
};
use rms_model::{JobId, Sizes, Time};

use super::Negotiations;
use crate::state::talks::Asking;
use crate::step::Step;

impl Negotiations<'_> {
    /// The server's proposal stands, and the server answers it for the application.
    pub(super) fn answer_in_house(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId) {
        if !self.is_in_house(job, id) {
            return;
        }
        let Some(case) = self.case(job, id) else { return };
        let Some(proposal) = case.dialogue.proposal() else { return };
        let round = case.dialogue.round();
        let statement = match &case.asking {
            Some(asking) => answer_by(asking, proposal, round),
            None => self.answer_by_limits(job, proposal, round),
        };
        self.say_for(now, step, job, id, statement);
    }

    /// What an application that only has limits says to an offer, or to the wish that it gives something back.
    fn answer_by_limits(&self, job: JobId, proposal: &Template, round: u16) -> Statement {
        let declared = self.limits(job);
        let declined = Statement::End { ending: Ending::Rejected, reason: Reason::Declined };
        let [item] = proposal.items() else { return declined };
        let Resource::Hosts(_) = item.resource else { return declined };
        let direction = proposal.direction();
        let fits = |total: u64| {
            u64::from(declared.least) <= total && total <= u64::from(declared.most) && declared.sizes.fits(total)
        };
        // Its limits are those of all of its hosts, the item is about those of one cluster.
        let elsewhere = u64::from(self.n_hosts(job)).saturating_sub(item.held.0);
        let total_after = |quantity: u64| item.total(direction, Quantity(quantity))?.checked_add(elsewhere);
        // Nobody has said that it may pay.
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
            counter.hosts = item.hosts.iter().take(quantity as usize).copied().collect();
            counter.terms.sizes = Sizes::Any;
            proposal.with_items(vec![counter]).ok()
        });
        match counter {
            Some(template) => Statement::Propose { round: round + 1, template, valid_for: self.offer_valid() },
            None => declined,
        }
    }

    /// The application says something through the server, as if a message of it had come.
    pub(super) fn say_for(&mut self, now: Time, step: &mut Step, job: JobId, id: NegotiationId, statement: Statement) {
        self.say_first(now, step, job, id, statement, None);
    }

    /// The same, for the first word of it: `asking` says on whose behalf.
    pub(super) fn say_first(
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
        let message = Message { id, seq: heard + 1, ack_seq: seen, statement: Some(statement) };
        let output = dialogues.receive(now, &message);
        self.note_talk(now, step, job, id, asking);
        self.say(step, job, output);
        // What is against the rules of a dialogue cannot be said again otherwise: it is given up.
        if self.case(job, id).is_some_and(|case| !case.phase().is_over() && case.dialogue.heard() == heard) {
            let _ = self.act(now, step, job, id, Action::Withdraw(Reason::Declined));
        }
    }
}

/// What who asked says to a counter of the server.
fn answer_by(Asking { ask, .. }: &Asking, proposal: &Template, round: u16) -> Statement {
    let withdrawn = |reason| Statement::End { ending: Ending::Withdrawn, reason };
    let [item] = proposal.items() else { return withdrawn(Reason::Declined) };
    let is_enough = item.is_live() && item.quantity.0 >= ask.least && is_of_use(item, proposal.direction(), &ask.sizes);
    let is_fair = match proposal.direction() {
        Direction::Grow => item.terms.price <= ask.price,
        Direction::Shrink => item.terms.price >= ask.price,
    };
    match (is_enough, is_fair) {
        (true, true) => Statement::Accept { round },
        (true, false) => withdrawn(Reason::Price),
        (false, _) => withdrawn(Reason::NoResources),
    }
}

fn is_of_use(item: &Item, direction: Direction, sizes: &Sizes) -> bool {
    let total = match direction {
        Direction::Grow => item.held.0.checked_add(item.quantity.0),
        Direction::Shrink => item.held.0.checked_sub(item.quantity.0),
    };
    total.is_some_and(|total| sizes.fits(total))
}
