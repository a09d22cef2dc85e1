//! What is said about the sizes of running applications arrives as it was said; nonsense is refused.

mod common;

use common::negotiating;
use negotiation::{Direction, Message as Said, TemplateError};
use rms_api::negotiate::{Ask, Attached, Holding, NegotiatorAnswer, NegotiatorCall, NegotiatorNotice};
use rms_model::{Malleable, OnResize};
use rms_wire::codec::{decode_frame, encode};
use rms_wire::convert::{Malformed, negotiator_answer, parse_negotiator_answer};
use rms_wire::negotiate as wire;
use rms_wire::{Message, NegotiatorSays, NegotiatorTold};

/// Through bytes and back.
fn carried<M: Message>(message: &M) -> M {
    decode_frame(&encode(message).expect("within the limit")).expect("what was encoded can be decoded")
}

#[test]
fn every_call_of_a_negotiator_arrives_as_it_was_made() {
    for call in negotiating::calls() {
        let received = carried(&NegotiatorSays { seq: 300, call: (&call).into() });
        assert_eq!(received.seq, 300);
        assert_eq!(NegotiatorCall::try_from(received.call), Ok(call));
    }
}

#[test]
fn every_answer_and_notice_arrives_as_it_was_given() {
    for answer in negotiating::answers() {
        let NegotiatorTold::Answer { seq: 4, answer: received } = carried(&negotiator_answer(4, &answer)) else {
            panic!("not the answer")
        };
        assert_eq!(parse_negotiator_answer(received), Ok(answer));
    }
    for notice in negotiating::notices() {
        assert_eq!(received(carried(&NegotiatorTold::from(&notice))), notice);
    }
}

fn received(told: NegotiatorTold) -> NegotiatorNotice {
    match told {
        NegotiatorTold::Answer { .. } => panic!("no answer was asked for"),
        NegotiatorTold::Said(message) => NegotiatorNotice::Said(Box::new(Said::try_from(*message).expect("it parses"))),
        NegotiatorTold::Refused { negotiation, number, reason } => {
            NegotiatorNotice::Refused { negotiation: negotiation.into(), number, reason }
        }
        NegotiatorTold::Holding(holding) => NegotiatorNotice::Holding(Box::new(Holding::from(*holding))),
        NegotiatorTold::Ended { outcome } => NegotiatorNotice::Ended { outcome: outcome.into() },
        NegotiatorTold::Replaced => NegotiatorNotice::Replaced,
        NegotiatorTold::Counted { n_opened } => NegotiatorNotice::Counted { n_opened },
        NegotiatorTold::HostsLost { hosts } => {
            NegotiatorNotice::HostsLost { hosts: hosts.into_iter().map(rms_model::NodeId).collect() }
        }
    }
}

#[test]
fn a_round_is_a_short_frame() {
    // A round of one resource is what is said most often: it must cost little more than what it says.
    let parties = negotiation::Parties {
        job: negotiating::JOB,
        run: negotiating::RUN,
        initiator: negotiation::Side::Application,
    };
    let item = negotiation::Item::up_to(negotiation::Resource::Hosts(rms_model::ClusterId(0)), 2, 2);
    let template = negotiation::Template::of_one(parties, Direction::Grow, item).expect("it is one");
    let statement = negotiation::Statement::Propose { round: 1, template, valid_for: rms_model::Span::from_secs(30) };
    let id = negotiating::id(negotiation::Side::Application, 1);
    let message = Said { id, number: 1, seen: 0, statement: Some(statement) };
    let says = NegotiatorSays { seq: 1, call: wire::NegotiatorCall::Say(Box::new((&message).into())) };
    let n_bytes = encode(&says).expect("short").len();
    assert!(n_bytes <= 64, "{n_bytes} bytes");
}

/// A proposal as it travels, with one thing changed about its first item.
fn template_but(change: impl FnOnce(&mut wire::Item)) -> Result<negotiation::Template, Malformed> {
    let mut template = wire::Template::from(&negotiating::template(Direction::Grow));
    change(&mut template.items[0]);
    template.try_into()
}

#[test]
fn a_template_that_is_none_says_what_is_wrong_with_it() {
    assert_eq!(template_but(|_| {}), Ok(negotiating::template(Direction::Grow)));
    let check = |change: fn(&mut wire::Item), expected: TemplateError| {
        assert_eq!(template_but(change), Err(Malformed::Template { source: expected }));
    };
    check(|item| item.kind = 9, TemplateError::UnknownKind { item: 0, kind: 9 });
    check(|item| item.set = 3, TemplateError::NoSuchSet { item: 0, set: 3 });
    check(|item| item.quantity = 0, TemplateError::NoQuantity { item: 0 });
    check(|item| item.shape = 7, TemplateError::UnknownShape { item: 0, shape: 7, n_numbers: 2 });
    check(|item| item.sizes.reverse(), TemplateError::SizesUnsorted { item: 0 });
    check(|item| item.price = u64::MAX, TemplateError::PriceTooHigh { item: 0 });
    check(|item| item.duration = Some(i64::MIN), TemplateError::Duration { item: 0 });
    check(|item| item.hosts[1] = item.hosts[0], TemplateError::HostTwice { item: 0, host: rms_model::NodeId(3) });
    // Quantities at the ends of the numbers overflow nothing.
    for quantity in [1 << 20, u64::MAX - 4, u64::MAX] {
        let refused = template_but(|item| item.quantity = quantity);
        assert!(matches!(refused, Err(Malformed::Template { source: TemplateError::TooMuch { .. } })), "{refused:?}");
        let refused = template_but(|item| item.held = quantity.max((1 << 20) + 1));
        assert!(matches!(refused, Err(Malformed::Template { source: TemplateError::TooMuch { .. } })), "{refused:?}");
    }
}

#[test]
fn sizes_speedups_and_lists_without_sense_are_refused() {
    let malleable = || wire::Malleable::from(&negotiating::malleable(OnResize::Negotiates));
    let refused = |change: fn(&mut wire::Malleable)| {
        let mut malleable = malleable();
        change(&mut malleable);
        Malleable::try_from(malleable).expect_err("it has no sense")
    };
    assert_eq!(refused(|malleable| malleable.speedup.reverse()), Malformed::Speedup);
    assert_eq!(refused(|malleable| malleable.speedup[1].hosts = 1), Malformed::Speedup);
    let long = refused(|malleable| malleable.speedup = vec![malleable.speedup[0]; 257]);
    assert!(matches!(long, Malformed::TooMany { n: 257, .. }), "{long}");
    let zero = refused(|malleable| malleable.sizes = wire::Sizes { shape: 1, sizes: vec![0] });
    assert_eq!(zero, Malformed::Template { source: TemplateError::MultipleOfZero { item: 0 } });

    let mut ask = wire::Ask::from(&negotiating::asks()[0]);
    ask.hosts = vec![String::new(); (1 << 16) + 1];
    assert!(matches!(Ask::try_from(ask), Err(Malformed::TooMany { .. })));
    let mut ask = wire::Ask::from(&negotiating::asks()[0]);
    ask.wait = -1;
    assert!(Ask::try_from(ask).is_err());
}

#[test]
fn who_attaches_reads_the_rules_it_negotiates_under() {
    let attached = negotiating::answers().into_iter().find_map(|answer| match answer {
        Ok(NegotiatorAnswer::Attached(attached)) => Some(attached),
        Ok(NegotiatorAnswer::Done) | Err(_) => None,
    });
    let sent = wire::Attached::from(attached.as_ref().expect("one of them").as_ref());
    assert_eq!(Attached::try_from(sent.clone()).as_ref().ok(), attached.as_deref());
    let backwards = wire::Attached { rules: wire::Rules { longest_valid: -1, ..sent.rules }, ..sent };
    assert!(Attached::try_from(backwards).is_err(), "no proposal is valid for less than nothing");
}
