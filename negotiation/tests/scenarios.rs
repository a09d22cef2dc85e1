//! The six scenarios of 002 that must work, with simple policies at both ends.

mod common;

use std::collections::BTreeSet;

use common::{nodes, priced, template};
use negotiation::{
    Action, Dialogue, Direction, Ending, Item, Message, NegotiationId, Output, Phase, Price, Quantity, Reason, Rules,
    Side, Sizes, Status, Template,
};
use rms_model::{NodeId, Span, Time};

const NOW: Time = Time::EPOCH;
const MINUTE: Span = Span::from_mins(1);

/// An owner's reaction to a proposal of the other end.
type Policy<'a> = &'a mut dyn FnMut(&Template, Option<&Template>) -> Action;

/// Two ends with a lossless channel, and their proposals.
struct Negotiation {
    rms: Dialogue,
    application: Dialogue,
    said: Vec<String>,
}

impl Negotiation {
    fn new(initiator: Side) -> Negotiation {
        let id = NegotiationId { initiator, number: 1 };
        let end = |end| Dialogue::new(end, id, common::parties(initiator), Rules::default());
        Negotiation { rms: end(Side::Rms), application: end(Side::Application), said: Vec::new() }
    }

    fn end(&mut self, side: Side) -> &mut Dialogue {
        match side {
            Side::Rms => &mut self.rms,
            Side::Application => &mut self.application,
        }
    }

    fn act(&mut self, side: Side, action: Action) {
        let output = self.end(side).act(NOW, action).expect("it is possible");
        self.deliver(side, output);
    }

    fn deliver(&mut self, from: Side, output: Output) {
        assert_eq!(output.refused, None);
        for message in output.messages {
            self.note(from, &message);
            let answer = self.end(from.other()).receive(NOW, &message);
            self.deliver(from.other(), answer);
        }
    }

    fn note(&mut self, from: Side, message: &Message) {
        if let Some(statement) = &message.statement {
            self.said.push(format!("{from}: {}", statement.kind()));
        }
    }

    /// Opens with an offer; then each end answers by its policy until no proposal is open.
    fn negotiate(&mut self, offer: Template, rms: Policy, application: Policy) {
        self.act(offer.parties().initiator, Action::Propose { template: offer, valid_for: MINUTE });
        while let Some(by) = self.rms.phase().proposer() {
            let answering = by.other();
            let dialogue = self.end(answering);
            let theirs = dialogue.theirs().expect("it stands").clone();
            let action = match answering {
                Side::Rms => rms(&theirs, dialogue.mine()),
                Side::Application => application(&theirs, dialogue.mine()),
            };
            self.act(answering, action);
        }
    }

    /// Hands over the agreed nodes.
    fn hand_over(&mut self, nodes: impl IntoIterator<Item = u32>) {
        let nodes: BTreeSet<NodeId> = nodes.into_iter().map(NodeId).collect();
        let giver = self.rms.direction().expect("it was agreed").giver();
        assert_eq!([self.rms.phase(), self.application.phase()], [Phase::Accepted; 2]);
        self.act(giver, Action::Commit(nodes.clone()));
        assert_eq!([self.rms.phase(), self.application.phase()], [Phase::Committing; 2]);
        self.act(Side::Rms, Action::Ready);
        assert_eq!([self.rms.phase(), self.application.phase()], [Phase::Applied; 2]);
        assert_eq!(self.application.nodes(), Some(&nodes));
        assert_eq!(self.application.record().map(|template| template.status()), Some(Status::Ready));
    }

    /// Returns what the application holds afterwards.
    fn total(&self) -> u64 {
        let template = self.application.proposal().expect("something was agreed");
        let item = &template.items()[0];
        item.total(template.direction(), item.quantity).expect("it is possible")
    }
}

fn item(template: &Template) -> &Item {
    &template.items()[0]
}

fn counter(to: &Template, item: Item) -> Action {
    let template = to.with_items(vec![item]).expect("the tests make right templates");
    Action::Propose { template, valid_for: MINUTE }
}

/// Returns a policy of the RMS that gives what is requested, or offers all it has.
fn gives_up_to(free: u64) -> impl FnMut(&Template, Option<&Template>) -> Action {
    move |asked, _| {
        let Item { quantity, held, .. } = *item(asked);
        match quantity.0 {
            0..=u64::MAX if free == 0 => Action::Reject(Reason::NoResources),
            quantity if quantity <= free => Action::Accept,
            _ => counter(asked, nodes(held.0, free)),
        }
    }
}

fn never(_: &Template, _: Option<&Template>) -> Action {
    panic!("nobody asked")
}

fn takes_it(_: &Template, _: Option<&Template>) -> Action {
    Action::Accept
}

#[test]
fn a_on_2_processors_it_asks_for_2_more_and_has_4() {
    let mut negotiation = Negotiation::new(Side::Application);
    let asked = template(Side::Application, Direction::Grow, nodes(2, 2));
    negotiation.negotiate(asked, &mut gives_up_to(6), &mut never);
    negotiation.hand_over([2, 3]);
    assert_eq!(negotiation.total(), 4);
    assert_eq!(negotiation.said, ["application: Propose", "RMS: Accept", "RMS: Commit", "RMS: Ready"]);
}

#[test]
fn b_it_asks_for_14_is_offered_6_accepts_and_has_8() {
    let mut negotiation = Negotiation::new(Side::Application);
    let asked = template(Side::Application, Direction::Grow, nodes(2, 14));
    negotiation.negotiate(asked, &mut gives_up_to(6), &mut takes_it);
    negotiation.hand_over(2..8);
    assert_eq!(negotiation.total(), 8);
    assert_eq!(negotiation.rms.round(), 2);
}

#[test]
fn c_a_malleable_application_on_4_is_offered_4_when_a_rigid_one_ends() {
    let mut negotiation = Negotiation::new(Side::Rms);
    let offer = template(Side::Rms, Direction::Grow, nodes(4, 4));
    let mut powers_of_two = |offer: &Template, _: Option<&Template>| {
        let mut own = item(offer).clone();
        own.terms.sizes = Sizes::PowerOfTwo;
        if own.fits(Direction::Grow, own.quantity) { Action::Accept } else { Action::Reject(Reason::Declined) }
    };
    negotiation.negotiate(offer, &mut never, &mut powers_of_two);
    negotiation.hand_over(4..8);
    assert_eq!(negotiation.total(), 8);

    let mut negotiation = Negotiation::new(Side::Rms);
    let offer = template(Side::Rms, Direction::Grow, nodes(4, 3));
    negotiation.negotiate(offer, &mut never, &mut powers_of_two);
    assert_eq!([negotiation.rms.phase(), negotiation.application.phase()], [Phase::Ended(Ending::Rejected); 2]);
}

#[test]
fn d_on_8_it_asks_for_24_is_offered_15_and_takes_8() {
    let mut negotiation = Negotiation::new(Side::Application);
    let mut asked = nodes(8, 24);
    asked.terms.sizes = Sizes::PowerOfTwo;
    let mut as_much_as_fits = |offer: &Template, mine: Option<&Template>| {
        let mut own = item(mine.expect("it has asked")).clone();
        match own.greatest(Direction::Grow, item(offer).quantity) {
            Some(quantity) if quantity == item(offer).quantity => Action::Accept,
            Some(quantity) => {
                own.quantity = quantity;
                counter(offer, own)
            }
            None => Action::Reject(Reason::NoResources),
        }
    };
    negotiation.negotiate(
        template(Side::Application, Direction::Grow, asked),
        &mut gives_up_to(15),
        &mut as_much_as_fits,
    );
    negotiation.hand_over(8..16);
    assert_eq!(negotiation.total(), 16);
    assert_eq!(
        negotiation.said[..4],
        ["application: Propose", "RMS: Propose", "application: Propose", "RMS: Accept"],
        "asked, offered, asked for less, granted"
    );
}

/// Negotiates a price: the RMS lowers its price by steps down to `floor`; the application raises its bid to `ceiling`.
fn haggle(floor: u64, ceiling: u64) -> Negotiation {
    let mut negotiation = Negotiation::new(Side::Rms);
    let mut seller = move |bid: &Template, mine: Option<&Template>| {
        let (asked, bid_price) = (item(mine.expect("it has offered")).terms.price.0, item(bid).terms.price.0);
        let next = asked.saturating_sub(20).max(floor);
        match bid_price {
            bid_price if bid_price >= next => Action::Accept,
            _ if next == asked => Action::Reject(Reason::Price),
            _ => counter(bid, priced(4, 4, next)),
        }
    };
    let mut buyer = move |offer: &Template, mine: Option<&Template>| {
        let (asked, last_bid) = (item(offer).terms.price.0, mine.map_or(0, |mine| item(mine).terms.price.0));
        let next = (last_bid + 15).min(ceiling);
        match asked {
            asked if asked <= next => Action::Accept,
            _ if next == last_bid => Action::Reject(Reason::Price),
            _ => counter(offer, priced(4, 4, next)),
        }
    };
    negotiation.negotiate(template(Side::Rms, Direction::Grow, priced(4, 4, 100)), &mut seller, &mut buyer);
    negotiation
}

#[test]
fn e_a_priced_offer_is_haggled_over() {
    let mut negotiation = haggle(40, 60);
    assert_eq!(
        negotiation.rms.proposal().map(|agreed| item(agreed).terms.price),
        Some(Price(45)),
        "which is more than the next ask"
    );
    negotiation.hand_over(4..8);
    assert!(negotiation.rms.round() > 3, "{:?}", negotiation.said);

    let negotiation = haggle(80, 30);
    assert_eq!([negotiation.rms.phase(), negotiation.application.phase()], [Phase::Ended(Ending::Rejected); 2]);
    assert_eq!([negotiation.rms.reason(), negotiation.application.reason()], [Some(Reason::Price); 2]);
}

#[test]
fn f_a_malleable_application_shrinks_for_one_of_higher_priority() {
    let mut negotiation = Negotiation::new(Side::Rms);
    let mut wanted = nodes(8, 3);
    wanted.terms.priority = 10;
    let mut keeps_a_power_of_two = |asked: &Template, _: Option<&Template>| {
        let mut own = nodes(8, 7);
        own.terms.sizes = Sizes::PowerOfTwo;
        let quantity = own.least(Direction::Shrink, item(asked).quantity).expect("it can shrink");
        own.quantity = quantity;
        if quantity == item(asked).quantity { Action::Accept } else { counter(asked, own) }
    };
    let mut takes_enough = |given: &Template, _: Option<&Template>| match item(given).quantity {
        Quantity(0..3) => Action::Reject(Reason::NoResources),
        Quantity(_) => Action::Accept,
    };
    negotiation.negotiate(template(Side::Rms, Direction::Shrink, wanted), &mut takes_enough, &mut keeps_a_power_of_two);
    // The application releases them at its next breakpoint; they count as free only once the RMS says Ready.
    negotiation.hand_over(4..8);
    assert_eq!(negotiation.total(), 4);
    assert_eq!(
        negotiation.said,
        ["RMS: Propose", "application: Propose", "RMS: Accept", "application: Commit", "RMS: Ready"]
    );
}

#[test]
fn what_the_rms_offers_it_holds_until_it_is_handed_over_or_refused() {
    let held = |negotiation: &Negotiation| negotiation.rms.promised().map(|template| template.n_nodes());
    let mut negotiation = Negotiation::new(Side::Application);
    let asked = template(Side::Application, Direction::Grow, nodes(8, 24));
    let propose = |template: &Template| Action::Propose { template: template.clone(), valid_for: MINUTE };
    negotiation.act(Side::Application, propose(&asked));
    assert_eq!(held(&negotiation), None, "it has promised nothing yet");
    negotiation.act(Side::Rms, counter(&asked, nodes(8, 15)));
    assert_eq!(held(&negotiation), Some(15));
    negotiation.act(Side::Application, counter(&asked, nodes(8, 8)));
    assert_eq!(held(&negotiation), Some(15), "it may not offer less any more");
    negotiation.act(Side::Rms, Action::Accept);
    assert_eq!(held(&negotiation), Some(8));
    negotiation.hand_over(8..16);
    assert_eq!(held(&negotiation), None, "they are the application's");
    assert_eq!(negotiation.application.promised(), None, "who takes promises nothing");
}

#[test]
fn accepted_is_not_ready_it_may_fail_and_is_rolled_back() {
    let asked = || template(Side::Application, Direction::Grow, nodes(2, 2));
    let mut negotiation = Negotiation::new(Side::Application);
    negotiation.negotiate(asked(), &mut gives_up_to(6), &mut never);
    negotiation.act(Side::Rms, Action::Fail(Reason::Lost));
    assert_eq!([negotiation.rms.phase(), negotiation.application.phase()], [Phase::Ended(Ending::Failed); 2]);
    assert_eq!(negotiation.application.record().map(|template| template.status()), Some(Status::Failed));

    let mut negotiation = Negotiation::new(Side::Application);
    negotiation.negotiate(asked(), &mut gives_up_to(6), &mut never);
    negotiation.act(Side::Application, Action::Fail(Reason::Stopping));
    assert_eq!([negotiation.rms.phase(), negotiation.application.phase()], [Phase::Ended(Ending::Failed); 2]);

    let mut negotiation = Negotiation::new(Side::Application);
    negotiation.negotiate(asked(), &mut gives_up_to(6), &mut never);
    let due = negotiation.rms.next_deadline().expect("it must be ready in time");
    let overdue = negotiation.rms.tick(due);
    negotiation.deliver(Side::Rms, overdue);
    assert_eq!([negotiation.rms.reason(), negotiation.application.reason()], [Some(Reason::Overdue); 2]);
}
