//! Messages that are late, duplicated, out of order or from elsewhere, one case at a time.

mod common;

use common::{nodes, parties, priced, template};
use negotiation::{
    ActError, Action, Breach, Dialogue, Direction, Ending, Item, ItemStatus, Message, NegotiationId, Output, Phase,
    Reason, Rejected, Resource, Rules, SetRule, Side, Statement, Template, Which, Worse,
};
use rms_model::{ClusterId, JobId, NodeId, Span, Time};

const MINUTE: Span = Span::from_mins(1);
const ID: NegotiationId = NegotiationId { initiator: Side::Rms, number: 1 };

fn secs(secs: i64) -> Time {
    Time::from_secs(secs)
}

fn ends() -> (Dialogue, Dialogue) {
    let end = |end| Dialogue::new(end, ID, parties(Side::Rms), Rules::default());
    (end(Side::Rms), end(Side::Application))
}

fn only(output: Output) -> Message {
    let [message] = output.messages.try_into().expect("one message");
    message
}

fn offer(item: Item) -> Action {
    Action::Propose { template: template(Side::Rms, Direction::Grow, item), valid_for: MINUTE }
}

/// Returns both ends after the application has received an offer of four nodes.
fn offered() -> (Dialogue, Dialogue, Message) {
    let (mut rms, mut application) = ends();
    let opening = only(rms.act(secs(0), offer(nodes(4, 4))).expect("it opens"));
    let ack = only(application.receive(secs(0), &opening));
    let _ = rms.receive(secs(0), &ack);
    (rms, application, opening)
}

#[test]
fn an_answer_after_expiry_is_refused_and_hears_why() {
    let (mut rms, mut application, _) = offered();
    let pledge = only(application.act(secs(59), Action::Accept).expect("it stands"));
    assert_eq!(application.phase(), Phase::Pledged);
    // The RMS was not ticked in between.
    let output = rms.receive(secs(60), &pledge);
    assert_eq!(output.refused, Some(Rejected::TooLate(Phase::Ended(Ending::Expired))));
    assert_eq!((rms.phase(), rms.reason()), (Phase::Ended(Ending::Expired), Some(Reason::Lapsed)));
    for message in &output.messages {
        let _ = application.receive(secs(60), message);
    }
    assert_eq!(application.phase(), Phase::Ended(Ending::Expired));
}

#[test]
fn an_answer_just_in_time_counts() {
    let (mut rms, mut application, _) = offered();
    let pledge = only(application.act(secs(59), Action::Accept).expect("it stands"));
    let word = only(rms.receive(secs(60) - Span::from_millis(1), &pledge));
    assert_eq!(word.statement, Some(Statement::Accept { round: 1 }));
    let _ = application.receive(secs(70), &word);
    assert_eq!([rms.phase(), application.phase()], [Phase::Accepted; 2]);
}

#[test]
fn a_replayed_round_changes_nothing_and_is_confirmed() {
    let (mut rms, mut application, opening) = offered();
    let bid = application.act(secs(1), offer(nodes(4, 2))).expect("it counters");
    let bid = only(bid);
    let _ = rms.receive(secs(1), &bid);
    let before = (rms.phase(), rms.proposal().cloned());
    for _ in 0..3 {
        let output = rms.receive(secs(2), &bid);
        assert_eq!(output.refused, Some(Rejected::Stale { number: 1, seen: 1 }));
        assert_eq!(only(output).ack_seq, 1);
        let output = application.receive(secs(2), &opening);
        assert_eq!(output.refused, Some(Rejected::Stale { number: 1, seen: 1 }));
    }
    assert_eq!(before, (rms.phase(), rms.proposal().cloned()));

    // The same round under a new number is no repetition but a forgery: it is not the application's turn.
    let forged = Message { seq: 2, ..bid };
    assert_eq!(rms.receive(secs(2), &forged).refused, Some(Rejected::OutOfTurn(rms.phase())));
    assert_eq!(before, (rms.phase(), rms.proposal().cloned()));
}

#[test]
fn later_statements_make_earlier_ones_needless() {
    let (mut rms, mut application, _) = offered();
    let bid = only(application.act(secs(1), offer(nodes(4, 2))).expect("it counters"));
    let _ = rms.receive(secs(1), &bid);
    let accept = only(rms.act(secs(1), Action::Accept).expect("it stands"));
    let commit = only(rms.act(secs(2), Action::Commit([NodeId(8), NodeId(9)].into())).expect("it gives"));
    let ready = only(rms.act(secs(3), Action::Ready).expect("it is ready"));
    let _ = application.receive(secs(4), &ready);
    assert_eq!(application.phase(), Phase::Applied);
    assert_eq!(application.nodes().map(|nodes| nodes.len()), Some(2));
    for late in [&accept, &commit] {
        assert!(matches!(application.receive(secs(4), late).refused, Some(Rejected::Stale { .. })));
    }
    assert_eq!(application.phase(), Phase::Applied);
}

#[test]
fn a_wish_to_leave_that_comes_too_late_is_overruled() {
    let (mut rms, mut application, _) = offered();
    let bid = only(application.act(secs(1), offer(nodes(4, 2))).expect("it counters"));
    let _ = rms.receive(secs(1), &bid);
    let accept = only(rms.act(secs(1), Action::Accept).expect("it stands"));
    let wish = only(application.act(secs(1), Action::Withdraw(Reason::Changed)).expect("it may ask"));
    assert_eq!(application.phase(), Phase::Leaving);
    assert_eq!(rms.receive(secs(2), &wish).refused, Some(Rejected::TooLate(Phase::Accepted)));
    let _ = application.receive(secs(2), &accept);
    assert_eq!([rms.phase(), application.phase()], [Phase::Accepted; 2]);
    assert_eq!(application.reason(), None);
}

#[test]
fn what_is_not_heard_is_said_again_with_growing_patience_and_the_last_word_ten_times() {
    let (mut rms, _) = ends();
    let opening = only(rms.act(secs(0), offer(nodes(4, 4))).expect("it opens"));
    let mut times = Vec::new();
    while rms.phase() == Phase::Offered(Side::Rms) {
        let now = rms.next_deadline().expect("it waits");
        times.push(now.as_millis());
        let output = rms.tick(now);
        assert!(output.messages.iter().all(|message| *message == opening || now == secs(60)));
    }
    assert_eq!(times, [500, 1500, 3500, 7500, 15_500, 31_500, 60_000]);
    let mut n_words = 1;
    while let Some(now) = rms.next_deadline() {
        n_words += rms.tick(now).messages.len();
    }
    assert_eq!(n_words, 10);
    // A peer that asks later gets the same answer.
    let ask = Message::new(ID, 0, 1, None);
    let word = only(rms.receive(secs(9999), &ask));
    assert_eq!(word.statement, Some(Statement::End { ending: Ending::Expired, reason: Reason::Lapsed }));
    let _ = rms.receive(secs(9999), &Message { ack_seq: 2, ..ask });
    assert!(rms.is_settled() && rms.next_deadline().is_none());
}

#[test]
fn a_counter_must_not_worsen_and_must_be_about_the_same() {
    let haggle = |first: Item, later: Item| {
        let (mut rms, mut application) = ends();
        let opening = only(rms.act(secs(0), offer(priced(8, 6, 50))).expect("it opens"));
        let _ = application.receive(secs(0), &opening);
        let bid = only(application.act(secs(0), offer(first)).expect("it counters"));
        let _ = rms.receive(secs(0), &bid);
        let ask = only(rms.act(secs(0), offer(priced(8, 6, 50))).expect("it insists"));
        let _ = application.receive(secs(0), &ask);
        application.act(secs(0), offer(later)).err()
    };
    let bid = |change: fn(&mut Item)| {
        let mut item = priced(8, 4, 20);
        item.terms.duration = Some(Span::from_hours(1));
        item.terms.give_back_by = Some(secs(9000));
        item.terms.deadline = Some(secs(300));
        change(&mut item);
        item
    };
    let check = |change: fn(&mut Item), expected: Option<Worse>| {
        let item = Which::Only(bid(|_| ()).resource);
        let worsens = expected.map(|worse| ActError::Breach(Breach::Worsens { item, worse }));
        assert_eq!(haggle(bid(|_| ()), bid(change)), worsens);
    };
    check(|_| (), None);
    check(|item| item.quantity.0 = 3, None);
    check(|item| (item.quantity.0, item.terms.most.0) = (5, 5), Some(Worse::Quantity));
    check(|item| item.terms.price.0 = 21, None);
    check(|item| item.terms.price.0 = 19, Some(Worse::Price));
    check(|item| item.terms.duration = None, Some(Worse::Duration));
    check(|item| item.terms.give_back_by = Some(secs(9001)), Some(Worse::GiveBack));
    check(|item| item.terms.deadline = Some(secs(299)), Some(Worse::Deadline));
    check(|item| item.terms.deadline = None, None);
    check(|item| item.terms.least.0 = 2, Some(Worse::Range));
    check(|item| item.terms.sizes = negotiation::Sizes::MultipleOf(4), Some(Worse::Sizes));

    let other = |change: fn(&mut Item)| haggle(bid(|_| ()), bid(change));
    let same = Some(ActError::Breach(Breach::OtherSubject));
    assert_eq!(other(|item| item.held.0 = 9), same);
    assert_eq!(other(|item| item.resource = Resource::Nodes(ClusterId(1))), same);
}

#[test]
fn a_bad_counter_ends_the_negotiation_with_its_reason() {
    let (mut rms, mut application, _) = offered();
    let bid = only(application.act(secs(1), offer(nodes(4, 2))).expect("it counters"));
    let foreign = negotiation::Parties { job: JobId(8), ..parties(Side::Rms) };
    let template = Template::of_one(foreign, Direction::Grow, nodes(4, 2)).expect("it is right");
    let statement = Some(Statement::Propose { round: 2, template, valid_for: MINUTE });
    let output = rms.receive(secs(1), &Message { statement, ..bid });
    assert_eq!(output.refused, Some(Rejected::Breach(Breach::OtherSubject)));
    assert_eq!((rms.phase(), rms.reason()), (Phase::Ended(Ending::Rejected), Some(Reason::BadProposal)));
    for message in &output.messages {
        let _ = application.receive(secs(1), message);
    }
    assert_eq!(application.phase(), rms.phase());
}

#[test]
fn alternatives_are_chosen_from_before_they_are_accepted() {
    let (mut rms, mut application) = ends();
    let elsewhere = Item::up_to(Resource::Nodes(ClusterId(1)), 0, 6);
    let both = vec![nodes(4, 4), elsewhere.clone()];
    let template = Template::new(parties(Side::Rms), Direction::Grow, vec![SetRule::OneOf], both).expect("it is right");
    let opening =
        only(rms.act(secs(0), Action::Propose { template: template.clone(), valid_for: MINUTE }).expect("it opens"));
    let _ = application.receive(secs(0), &opening);
    assert_eq!(application.act(secs(0), Action::Accept), Err(ActError::Breach(Breach::Indefinite)));

    let refused = Item { status: ItemStatus::Refused, ..nodes(4, 4) };
    let choice = template.with_items(vec![refused.clone(), elsewhere.clone()]).expect("one is left");
    let choice =
        only(application.act(secs(0), Action::Propose { template: choice, valid_for: MINUTE }).expect("it chooses"));
    let _ = rms.receive(secs(0), &choice);
    // What the application has refused need not be offered again; what it chose must be.
    let other = Item { status: ItemStatus::Refused, ..elsewhere };
    let takes_back = template.with_items(vec![nodes(4, 4), other]).expect("one is left");
    let worse = rms.clone().act(secs(0), Action::Propose { template: takes_back, valid_for: MINUTE });
    assert_eq!(worse, Err(ActError::Breach(Breach::Worsens { item: Which::Item(1), worse: Worse::Part })));
    let word = only(rms.act(secs(0), Action::Accept).expect("it is definite now"));
    let _ = application.receive(secs(0), &word);
    assert_eq!(application.proposal().map(Template::n_nodes), Some(6));
}

#[test]
fn other_nodes_than_agreed_are_not_taken() {
    let (mut rms, mut application, _) = offered();
    let pledge = only(application.act(secs(1), Action::Accept).expect("it stands"));
    let word = only(rms.receive(secs(1), &pledge));
    let _ = application.receive(secs(1), &word);
    let three = Action::Commit((0..3).map(NodeId).collect());
    let breach = Breach::Nodes { n_nodes: 3, agreed: 4 };
    assert_eq!(rms.act(secs(1), three), Err(ActError::Breach(breach.clone())));
    assert_eq!(rms.act(secs(1), Action::Ready), Err(ActError::Breach(Breach::Nodes { n_nodes: 0, agreed: 4 })));
    let forged = Statement::Ready { round: 1, nodes: (0..3).map(NodeId).collect() };
    let forged = Message::new(ID, 9, 1, Some(forged));
    assert_eq!(application.receive(secs(1), &forged).refused, Some(Rejected::Breach(breach)));
    assert_eq!(application.phase(), Phase::Accepted);
}
