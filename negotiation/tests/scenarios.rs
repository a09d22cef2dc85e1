//! The six stories of 002 that must run, told with small policies at both ends.

mod common;

use std::collections::BTreeSet;

use common::{hosts, priced, template};
use negotiation::{
    Action, Dialogue, Direction, Ending, Item, Message, NegotiationId, Output, Phase, Price, Quantity, Reason, Rules,
    Side, Sizes, Status, Template,
};
use rms_model::{NodeId, Span, Time};

const NOW: Time = Time::EPOCH;
const MINUTE: Span = Span::from_mins(1);

/// What an owner does about a proposal of the other end.
type Policy<'a> = &'a mut dyn FnMut(&Template, Option<&Template>) -> Action;

/// Two ends with a channel that loses nothing, and what they said.
struct Talk {
    rms: Dialogue,
    application: Dialogue,
    said: Vec<String>,
}

impl Talk {
    fn new(initiator: Side) -> Talk {
        let id = NegotiationId { initiator, number: 1 };
        let end = |end| Dialogue::new(end, id, common::parties(initiator), Rules::default());
        Talk { rms: end(Side::Rms), application: end(Side::Application), said: Vec::new() }
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

    /// Opens with an offer; then each end answers by its policy until nothing stands.
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

    /// Hands over what was agreed.
    fn hand_over(&mut self, hosts: impl IntoIterator<Item = u32>) {
        let hosts: BTreeSet<NodeId> = hosts.into_iter().map(NodeId).collect();
        let giver = self.rms.direction().expect("it was agreed").giver();
        assert_eq!([self.rms.phase(), self.application.phase()], [Phase::Accepted; 2]);
        self.act(giver, Action::Commit(hosts.clone()));
        assert_eq!([self.rms.phase(), self.application.phase()], [Phase::Committing; 2]);
        self.act(Side::Rms, Action::Ready);
        assert_eq!([self.rms.phase(), self.application.phase()], [Phase::Applied; 2]);
        assert_eq!(self.application.hosts(), Some(&hosts));
        assert_eq!(self.application.record().map(|template| template.status()), Some(Status::Ready));
    }

    /// What the application holds afterwards.
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

/// The RMS gives what is asked for, or offers all it has.
fn gives_up_to(free: u64) -> impl FnMut(&Template, Option<&Template>) -> Action {
    move |asked, _| {
        let Item { quantity, held, .. } = *item(asked);
        match quantity.0 {
            0..=u64::MAX if free == 0 => Action::Reject(Reason::NoResources),
            quantity if quantity <= free => Action::Accept,
            _ => counter(asked, hosts(held.0, free)),
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
    let mut talk = Talk::new(Side::Application);
    let asked = template(Side::Application, Direction::Grow, hosts(2, 2));
    talk.negotiate(asked, &mut gives_up_to(6), &mut never);
    talk.hand_over([2, 3]);
    assert_eq!(talk.total(), 4);
    assert_eq!(talk.said, ["application: Propose", "RMS: Accept", "RMS: Commit", "RMS: Ready"]);
}

#[test]
fn b_it_asks_for_14_is_offered_6_accepts_and_has_8() {
    let mut talk = Talk::new(Side::Application);
    let asked = template(Side::Application, Direction::Grow, hosts(2, 14));
    talk.negotiate(asked, &mut gives_up_to(6), &mut takes_it);
    talk.hand_over(2..8);
    assert_eq!(talk.total(), 8);
    assert_eq!(talk.rms.round(), 2);
}

#[test]
fn c_a_malleable_application_on_4_is_offered_4_when_a_rigid_one_ends() {
    let mut talk = Talk::new(Side::Rms);
    let offer = template(Side::Rms, Direction::Grow, hosts(4, 4));
    let mut powers_of_two = |offer: &Template, _: Option<&Template>| {
        let mut own = item(offer).clone();
        own.terms.sizes = Sizes::PowerOfTwo;
        if own.fits(Direction::Grow, own.quantity) { Action::Accept } else { Action::Reject(Reason::Declined) }
    };
    talk.negotiate(offer, &mut never, &mut powers_of_two);
    talk.hand_over(4..8);
    assert_eq!(talk.total(), 8);

    let mut talk = Talk::new(Side::Rms);
    let offer = template(Side::Rms, Direction::Grow, hosts(4, 3));
    talk.negotiate(offer, &mut never, &mut powers_of_two);
    assert_eq!([talk.rms.phase(), talk.application.phase()], [Phase::Ended(Ending::Rejected); 2]);
}

#[test]
fn d_on_8_it_asks_for_24_is_offered_15_and_takes_8() {
    let mut talk = Talk::new(Side::Application);
    let mut asked = hosts(8, 24);
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
    talk.negotiate(template(Side::Application, Direction::Grow, asked), &mut gives_up_to(15), &mut as_much_as_fits);
    talk.hand_over(8..16);
    assert_eq!(talk.total(), 16);
    assert_eq!(
        talk.said[..4],
        ["application: Propose", "RMS: Propose", "application: Propose", "RMS: Accept"],
        "asked, offered, asked for less, granted"
    );
}

/// The RMS comes down by `step` from where it was, but not below `floor`; the application goes up to `ceiling`.
fn haggle(floor: u64, ceiling: u64) -> Talk {
    let mut talk = Talk::new(Side::Rms);
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
    talk.negotiate(template(Side::Rms, Direction::Grow, priced(4, 4, 100)), &mut seller, &mut buyer);
    talk
}

#[test]
fn e_a_priced_offer_is_haggled_over() {
    let mut talk = haggle(40, 60);
    assert_eq!(
        talk.rms.proposal().map(|agreed| item(agreed).terms.price),
        Some(Price(45)),
        "which is more than the next ask"
    );
    talk.hand_over(4..8);
    assert!(talk.rms.round() > 3, "{:?}", talk.said);

    let talk = haggle(80, 30);
    assert_eq!([talk.rms.phase(), talk.application.phase()], [Phase::Ended(Ending::Rejected); 2]);
    assert_eq!([talk.rms.reason(), talk.application.reason()], [Some(Reason::Price); 2]);
}

#[test]
fn f_a_malleable_application_shrinks_for_one_of_higher_priority() {
    let mut talk = Talk::new(Side::Rms);
    let mut wanted = hosts(8, 3);
    wanted.terms.priority = 10;
    let mut keeps_a_power_of_two = |asked: &Template, _: Option<&Template>| {
        let mut own = hosts(8, 7);
        own.terms.sizes = Sizes::PowerOfTwo;
        let quantity = own.least(Direction::Shrink, item(asked).quantity).expect("it can shrink");
        own.quantity = quantity;
        if quantity == item(asked).quantity { Action::Accept } else { counter(asked, own) }
    };
    let mut takes_enough = |given: &Template, _: Option<&Template>| match item(given).quantity {
        Quantity(0..3) => Action::Reject(Reason::NoResources),
        Quantity(_) => Action::Accept,
    };
    talk.negotiate(template(Side::Rms, Direction::Shrink, wanted), &mut takes_enough, &mut keeps_a_power_of_two);
    // It lets go at its next breakpoint; they count as free only when the RMS says Ready.
    talk.hand_over(4..8);
    assert_eq!(talk.total(), 4);
    assert_eq!(talk.said, ["RMS: Propose", "application: Propose", "RMS: Accept", "application: Commit", "RMS: Ready"]);
}

#[test]
fn what_the_rms_offers_it_holds_until_it_is_handed_over_or_refused() {
    let held = |talk: &Talk| talk.rms.promised().map(|template| template.n_hosts());
    let mut talk = Talk::new(Side::Application);
    let asked = template(Side::Application, Direction::Grow, hosts(8, 24));
    let propose = |template: &Template| Action::Propose { template: template.clone(), valid_for: MINUTE };
    talk.act(Side::Application, propose(&asked));
    assert_eq!(held(&talk), None, "it has promised nothing yet");
    talk.act(Side::Rms, counter(&asked, hosts(8, 15)));
    assert_eq!(held(&talk), Some(15));
    talk.act(Side::Application, counter(&asked, hosts(8, 8)));
    assert_eq!(held(&talk), Some(15), "it may not offer less any more");
    talk.act(Side::Rms, Action::Accept);
    assert_eq!(held(&talk), Some(8));
    talk.hand_over(8..16);
    assert_eq!(held(&talk), None, "they are the application's");
    assert_eq!(talk.application.promised(), None, "who takes promises nothing");
}

#[test]
fn accepted_is_not_ready_it_may_fail_and_is_rolled_back() {
    let asked = || template(Side::Application, Direction::Grow, hosts(2, 2));
    let mut talk = Talk::new(Side::Application);
    talk.negotiate(asked(), &mut gives_up_to(6), &mut never);
    talk.act(Side::Rms, Action::Fail(Reason::Lost));
    assert_eq!([talk.rms.phase(), talk.application.phase()], [Phase::Ended(Ending::Failed); 2]);
    assert_eq!(talk.application.record().map(|template| template.status()), Some(Status::Failed));

    let mut talk = Talk::new(Side::Application);
    talk.negotiate(asked(), &mut gives_up_to(6), &mut never);
    talk.act(Side::Application, Action::Fail(Reason::Stopping));
    assert_eq!([talk.rms.phase(), talk.application.phase()], [Phase::Ended(Ending::Failed); 2]);

    let mut talk = Talk::new(Side::Application);
    talk.negotiate(asked(), &mut gives_up_to(6), &mut never);
    let due = talk.rms.next_deadline().expect("it must be ready in time");
    let overdue = talk.rms.tick(due);
    talk.deliver(Side::Rms, overdue);
    assert_eq!([talk.rms.reason(), talk.application.reason()], [Some(Reason::Overdue); 2]);
}
