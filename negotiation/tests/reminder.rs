//! An application that has lost its state is told the state of its negotiations, and continues them.

mod common;

use common::nodes;
use negotiation::{
    Action, Dialogues, Direction, Message, NegotiationId, Output, Phase, Reason, Reminder, Rules, SetRule, Side,
};
use rms_model::{JobId, NodeId, Run, Span, Time};

const MINUTE: Span = Span::from_mins(1);

fn at(secs: i64) -> Time {
    Time::from_secs(secs)
}

fn dialogues(end: Side) -> Dialogues {
    Dialogues::new(end, JobId(1), Run(1), Rules::default())
}

/// Delivers all messages until neither end has anything to send.
fn exchange(
    rms: &mut Dialogues,
    application: &mut Dialogues,
    mut to_rms: Vec<Message>,
    mut to_application: Vec<Message>,
) {
    while !to_rms.is_empty() || !to_application.is_empty() {
        let answers = |dialogues: &mut Dialogues, heard: Vec<Message>| -> Vec<Message> {
            heard.iter().flat_map(|message| dialogues.receive(at(2), message).messages).collect()
        };
        let (from_application, from_rms) = (answers(application, to_application), answers(rms, to_rms));
        (to_rms, to_application) = (from_application, from_rms);
    }
}

fn opens(dialogues: &mut Dialogues, direction: Direction) -> (NegotiationId, Vec<Message>) {
    let opened = dialogues.open(at(0), direction, vec![SetRule::All], vec![nodes(4, 2)], MINUTE);
    let (id, Output { messages, .. }) = opened.expect("it may");
    (id, messages)
}

/// Returns the server's reminders for an attaching process, and the dialogues that the new process makes of them.
fn restarted(rms: &mut Dialogues) -> (Dialogues, Vec<Reminder>) {
    let reminders: Vec<Reminder> = rms.all().iter().filter_map(|dialogue| dialogue.reminder(at(2))).collect();
    let mut application = dialogues(Side::Application);
    for reminder in &reminders {
        assert_eq!(application.recall(at(2), reminder), Ok(true));
        assert_eq!(application.recall(at(2), reminder), Ok(false), "it is known now");
    }
    let again = rms.resume(at(2)).messages;
    exchange(rms, &mut application, Vec::new(), again);
    (application, reminders)
}

fn phases(rms: &Dialogues, application: &Dialogues, id: NegotiationId) -> [Phase; 2] {
    [rms, application].map(|dialogues| dialogues.get(id).expect("it is known").phase())
}

#[test]
fn who_has_forgotten_that_it_agreed_to_shrink_lets_go_all_the_same() {
    let (mut rms, mut before) = (dialogues(Side::Rms), dialogues(Side::Application));
    let (id, messages) = opens(&mut rms, Direction::Shrink);
    exchange(&mut rms, &mut before, Vec::new(), messages);
    let pledge = before.act(at(1), id, Action::Accept).expect("it may").messages;
    exchange(&mut rms, &mut before, pledge, Vec::new());

    let (mut application, reminders) = restarted(&mut rms);
    assert_eq!(phases(&rms, &application, id), [Phase::Accepted; 2]);
    assert!(reminders[0].left.is_some_and(|left| left > Span::ZERO), "it is told by when it has to be done");
    let leaving = [NodeId(3), NodeId(4)].into();
    let said = application.act(at(3), id, Action::Commit(leaving)).expect("it may").messages;
    exchange(&mut rms, &mut application, said, Vec::new());
    assert_eq!(phases(&rms, &application, id), [Phase::Committing; 2]);
    let ready = rms.act(at(4), id, Action::Ready).expect("they are gone").messages;
    exchange(&mut rms, &mut application, Vec::new(), ready);
    assert_eq!(phases(&rms, &application, id), [Phase::Applied; 2]);
}

#[test]
fn what_somebody_else_of_it_has_asked_for_is_its_own_again() {
    let (mut rms, mut before) = (dialogues(Side::Rms), dialogues(Side::Application));
    let (id, messages) = opens(&mut before, Direction::Grow);
    // The server waits for nodes.
    exchange(&mut rms, &mut before, messages, Vec::new());
    let (mut application, _) = restarted(&mut rms);
    assert_eq!(phases(&rms, &application, id), [Phase::Offered(Side::Application); 2]);
    assert_eq!(application.open_for(Direction::Grow).map(|dialogue| dialogue.id()), Some(id));
    let accepted = rms.act(at(3), id, Action::Accept).expect("nodes came").messages;
    exchange(&mut rms, &mut application, Vec::new(), accepted);
    assert_eq!(phases(&rms, &application, id), [Phase::Accepted; 2]);
    assert!(opens(&mut application, Direction::Shrink).0.number > id.number, "no number is used twice");
}

#[test]
fn an_offer_that_was_heard_and_forgotten_can_be_answered() {
    let (mut rms, mut before) = (dialogues(Side::Rms), dialogues(Side::Application));
    let (id, messages) = opens(&mut rms, Direction::Grow);
    exchange(&mut rms, &mut before, Vec::new(), messages);
    let (mut application, _) = restarted(&mut rms);
    let lapses = application.get(id).and_then(|dialogue| dialogue.lapses());
    assert_eq!(lapses, Some(at(60)), "it stands no longer than it would have");
    let no = application.act(at(3), id, Action::Reject(Reason::Declined)).expect("it may").messages;
    exchange(&mut rms, &mut application, no, Vec::new());
    assert!(phases(&rms, &application, id).iter().all(|phase| phase.is_over()));
}

#[test]
fn what_cannot_be_is_not_believed() {
    let mut rms = dialogues(Side::Rms);
    let (id, _lost) = opens(&mut rms, Direction::Shrink);
    let right = rms.get(id).and_then(|dialogue| dialogue.reminder(at(1))).expect("it is open");
    let check = |wrong: Reminder| {
        let mut application = dialogues(Side::Application);
        let empty = application.clone();
        assert!(application.recall(at(1), &wrong).is_err(), "{wrong:?}");
        assert_eq!(application, empty, "nothing has changed");
    };
    check(Reminder { phase: Phase::Applied, ..right.clone() });
    check(Reminder { phase: Phase::Committing, ..right.clone() });
    check(Reminder { phase: Phase::Countered(Side::Application), ..right.clone() });
    check(Reminder { proposals: Vec::new(), ..right.clone() });
    check(Reminder { nodes: Some([NodeId(1)].into()), ..right.clone() });
    check(Reminder { id: NegotiationId { initiator: Side::Application, number: 1 }, ..right });
}
