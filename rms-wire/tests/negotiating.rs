//! Checks that messages about sizes of running applications arrive unchanged, and that invalid ones are refused.

mod common;

use common::negotiating;
use negotiation::{Direction, Draft, DraftItem, Message as Said, Template, TemplateError, Which};
use rms_api::negotiate::{Ask, Declared, NegotiatorCall};
use rms_model::{Sizes, Span, Speedup};
use rms_wire::codec::{decode_frame, encode};
use rms_wire::{Message, NegotiatorSays, NegotiatorTold, ToServer};

/// Encodes and decodes a message.
fn carried<M: Message>(message: &M) -> M {
    decode_frame(&encode(message).expect("within the limit")).expect("what was encoded can be decoded")
}

#[test]
fn every_call_of_a_negotiator_arrives_as_it_was_made() {
    for call in negotiating::calls() {
        let says = NegotiatorSays { seq: 300, call };
        assert_eq!(carried(&says), says);
    }
}

#[test]
fn every_answer_and_notice_arrives_as_it_was_given() {
    for answer in negotiating::answers() {
        let told = NegotiatorTold::Answer { seq: 4, answer };
        assert_eq!(carried(&told), told);
    }
    for notice in negotiating::notices() {
        let told = NegotiatorTold::Notice(notice);
        assert_eq!(carried(&told), told);
    }
}

#[test]
fn a_round_is_a_short_frame() {
    // A round about one resource is the most frequent message: even with field names it fits into one packet.
    let parties = negotiation::Parties {
        job: negotiating::JOB,
        run: negotiating::RUN,
        initiator: negotiation::Side::Application,
    };
    let item = negotiation::Item::up_to(negotiation::Resource::Nodes(rms_model::ClusterId(0)), 2, 2);
    let template = negotiation::Template::of_one(parties, Direction::Grow, item).expect("it is one");
    let statement = negotiation::Statement::Propose { round: 1, template, valid_for: Span::from_secs(30) };
    let id = negotiating::id(negotiation::Side::Application, 1);
    let message = Said::new(id, 1, 0, Some(statement));
    let says = NegotiatorSays { seq: 1, call: NegotiatorCall::Say(Box::new(message)) };
    let n_bytes = encode(&says).expect("short").len();
    assert!(n_bytes <= 512, "{n_bytes} bytes");
}

/// Returns the result of decoding a proposal with one change to its first item.
fn template_but(change: impl FnOnce(&mut DraftItem)) -> Result<Template, TemplateError> {
    let mut draft = Draft::from(negotiating::template(Direction::Grow));
    change(&mut draft.items[0]);
    Template::try_from(draft)
}

#[test]
fn a_template_that_is_none_says_what_is_wrong_with_it() {
    assert_eq!(template_but(|_| {}), Ok(negotiating::template(Direction::Grow)));
    let check = |change: fn(&mut DraftItem), expected: TemplateError| {
        assert_eq!(template_but(change), Err(expected));
    };
    check(|item| item.kind = 9, TemplateError::UnknownKind { item: 0, kind: 9 });
    check(|item| item.set = 3, TemplateError::NoSuchSet { item: 0, set: 3 });
    check(|item| item.quantity = 0, TemplateError::NoQuantity { item: Which::Item(0) });
    check(|item| item.shape = 7, TemplateError::UnknownShape { item: 0, shape: 7, n_numbers: 2 });
    check(|item| item.sizes.reverse(), TemplateError::SizesUnsorted { item: Which::Item(0) });
    check(|item| item.price = u64::MAX, TemplateError::PriceTooHigh { item: Which::Item(0) });
    check(|item| item.duration = Some(i64::MIN), TemplateError::Duration { item: Which::Item(0) });
    check(|item| item.nodes[1] = item.nodes[0], TemplateError::NodeTwice { item: 0, node: rms_model::NodeId(3) });
    // Quantities at the limits of the numbers overflow nothing.
    for quantity in [1 << 20, u64::MAX - 4, u64::MAX] {
        let refused = template_but(|item| item.quantity = quantity);
        assert!(matches!(refused, Err(TemplateError::TooMuch { .. })), "{refused:?}");
        let refused = template_but(|item| item.held = quantity.max((1 << 20) + 1));
        assert!(matches!(refused, Err(TemplateError::TooMuch { .. })), "{refused:?}");
    }
}

#[test]
fn sizes_speedups_and_spans_without_sense_are_refused() {
    let refused = |change: fn(&mut Ask)| {
        let mut ask = negotiating::asks().remove(0);
        change(&mut ask);
        let frame =
            encode(&ToServer::Ask { seq: 1, job: negotiating::JOB, run: negotiating::RUN, ask }).expect("short");
        decode_frame::<ToServer>(&frame).expect_err("it has no sense");
    };
    refused(|ask| ask.wait = Span::from_millis(-1));
    refused(|ask| ask.duration = Some(Span::from_millis(-1)));
    refused(|ask| ask.sizes = Sizes::MultipleOf(0));
    refused(|ask| ask.sizes = Sizes::Listed(vec![2, 2]));
    refused(|ask| ask.sizes = Sizes::Listed(Vec::new()));
    let refused = |points: Vec<(u32, u32)>| {
        let declared = Declared { speedup: Speedup(points), ..negotiating::declared() };
        let frame = encode(&NegotiatorSays { seq: 1, call: NegotiatorCall::Declare(declared) }).expect("short");
        decode_frame::<NegotiatorSays>(&frame).expect_err("it has no sense");
    };
    refused(vec![(2, 1900), (1, 1000)]);
    refused(vec![(1, 1000), (1, 1900)]);
    refused((1..=257).map(|nodes| (nodes, nodes * 1000)).collect());
}
