//! An end that is stored and restored, and one that has lost the latest statements.

mod common;

use common::nodes;
use negotiation::{
    Action, Dialogues, Direction, Ending, Message, NegotiationId, Phase, Quantity, Reason, Rejected, Rules, SetRule,
    Side, Statement,
};
use rms_model::{JobId, Run, Span, Time};

const MINUTE: Span = Span::from_mins(1);

fn at(secs: i64) -> Time {
    Time::from_secs(secs)
}

fn dialogues(end: Side) -> Dialogues {
    Dialogues::new(end, JobId(1), Run(1), Rules::default())
}

/// Returns the dialogues of the RMS as stored and restored.
fn read_back(dialogues: &Dialogues, heard_up_to: u32) -> Dialogues {
    let dialogues = dialogues.all().iter().map(|dialogue| dialogue.durable()).collect();
    Dialogues::restore(Side::Rms, (JobId(1), Run(1)), Rules::default(), (0, heard_up_to), dialogues)
}

/// Delivers all messages until neither end has anything to send.
fn exchange(now: Time, rms: &mut Dialogues, application: &mut Dialogues, mut to_rms: Vec<Message>) {
    for _ in 0..20 {
        let to_application: Vec<Message> =
            to_rms.iter().flat_map(|message| rms.receive(now, message).messages).collect();
        to_rms = to_application.iter().flat_map(|message| application.receive(now, message).messages).collect();
    }
    assert!(to_rms.is_empty(), "they come to rest");
}

fn opened(application: &mut Dialogues) -> (NegotiationId, Vec<Message>) {
    let items = vec![nodes(4, 8)];
    let opened = application.open(at(0), Direction::Grow, vec![SetRule::All], items, MINUTE);
    let (id, output) = opened.expect("it may");
    (id, output.messages)
}

/// Lets the RMS counter with half of it; the resulting messages are returned, not delivered.
fn countered(rms: &mut Dialogues, id: NegotiationId) -> Vec<Message> {
    let asked = rms.get(id).and_then(|dialogue| dialogue.proposal()).cloned().expect("it stands");
    let mut items = asked.items().to_vec();
    items[0].quantity = Quantity(4);
    let template = asked.with_items(items).expect("a template");
    rms.act(at(1), id, Action::Propose { template, valid_for: MINUTE }).expect("it may").messages
}

fn ending(dialogues: &Dialogues, id: NegotiationId) -> (Phase, Option<Reason>) {
    let dialogue = dialogues.get(id).expect("it is known");
    (dialogue.phase(), dialogue.reason())
}

#[test]
fn an_end_that_is_read_back_goes_on() {
    let (mut rms, mut application) = (dialogues(Side::Rms), dialogues(Side::Application));
    let (id, messages) = opened(&mut application);
    exchange(at(0), &mut rms, &mut application, messages);
    let _lost = countered(&mut rms, id);
    let mut rms = read_back(&rms, 1);
    let again = rms.resume(at(2)).messages;
    let heard: Vec<Message> = again.iter().flat_map(|message| application.receive(at(2), message).messages).collect();
    exchange(at(2), &mut rms, &mut application, heard);
    let pledge = application.act(at(3), id, Action::Accept).expect("it may").messages;
    exchange(at(3), &mut rms, &mut application, pledge);
    assert_eq!((ending(&rms, id).0, ending(&application, id).0), (Phase::Accepted, Phase::Accepted));
}

#[test]
fn talk_that_was_lost_is_given_up_at_both_ends() {
    let (mut rms, mut application) = (dialogues(Side::Rms), dialogues(Side::Application));
    let (id, messages) = opened(&mut application);
    exchange(at(0), &mut rms, &mut application, messages);
    // Stored before the counter, which the application receives.
    let mut after = read_back(&rms, 1);
    for message in countered(&mut rms, id) {
        let _ = application.receive(at(1), &message);
    }
    let pledge = application.act(at(2), id, Action::Accept).expect("it may").messages;
    let output = after.receive(at(2), &pledge[0]);
    assert_eq!(output.refused, Some(Rejected::NeverSaid { seen: 1, said: 0 }));
    let word = after.give_up_lost_negotiation(at(2), id, 1).messages;
    assert_eq!((word[0].seq, word[0].ack_seq), (2, 1), "a number that is new to the application");
    let heard: Vec<Message> = word.iter().flat_map(|message| application.receive(at(2), message).messages).collect();
    exchange(at(2), &mut after, &mut application, heard);
    let given_up = (Phase::Ended(Ending::Withdrawn), Some(Reason::Unknown));
    assert_eq!((ending(&after, id), ending(&application, id)), (given_up, given_up));
}

/// An agreement is stored before it is sent: a message that claims more changes nothing.
#[test]
fn what_is_agreed_is_never_given_up() {
    let (mut rms, mut application) = (dialogues(Side::Rms), dialogues(Side::Application));
    let (id, messages) = opened(&mut application);
    exchange(at(0), &mut rms, &mut application, messages);
    let accept = rms.act(at(1), id, Action::Accept).expect("it may").messages;
    let heard = accept.iter().flat_map(|message| application.receive(at(1), message).messages).collect();
    exchange(at(1), &mut rms, &mut application, heard);
    let output = rms.give_up_lost_negotiation(at(2), id, 9);
    assert!(output.messages.is_empty() && output.changes.is_empty());
    assert_eq!(ending(&rms, id).0, Phase::Accepted);
}

/// Its opening was answered and forgotten. It must not be opened again, or the two ends would wait for each other.
#[test]
fn an_opening_that_was_answered_before_is_not_opened_again() {
    let (mut rms, mut application) = (dialogues(Side::Rms), dialogues(Side::Application));
    let (id, messages) = opened(&mut application);
    exchange(at(0), &mut rms, &mut application, messages);
    for message in countered(&mut rms, id) {
        let _ = application.receive(at(1), &message);
    }
    let mut forgetful = dialogues(Side::Rms);
    let again = application.resume(at(2)).messages;
    assert!(matches!(again[0].statement, Some(Statement::Propose { round: 1, .. })));
    exchange(at(2), &mut forgetful, &mut application, again);
    assert_eq!(ending(&application, id), (Phase::Ended(Ending::Failed), Some(Reason::Unknown)));
    assert!(forgetful.get(id).is_none());
}

#[test]
fn numbers_that_others_have_used_are_not_used_again() {
    let mut application = dialogues(Side::Application);
    application.skip_to(7);
    application.skip_to(3);
    assert_eq!(opened(&mut application).0.number, 8);
}
