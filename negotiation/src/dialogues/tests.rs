//! Tests of several negotiations between the same two ends: crossing, reordered, forgotten, flooding.

use rms_model::ClusterId;

use super::*;
use crate::subject::Resource;
use crate::table::Phase;

const NOW: Time = Time::EPOCH;
const MINUTE: Span = Span::from_mins(1);

fn dialogues() -> (Dialogues, Dialogues) {
    let dialogues = |end| Dialogues::new(end, JobId(7), Run(1), Rules::default());
    (dialogues(Side::Rms), dialogues(Side::Application))
}

fn open(dialogues: &mut Dialogues, direction: Direction) -> (NegotiationId, Output) {
    let item = Item::up_to(Resource::Nodes(ClusterId(0)), 8, 4);
    dialogues.open(NOW, direction, vec![SetRule::All], vec![item], MINUTE).expect("nothing is open")
}

/// Delivers all messages until neither end has anything to send.
fn exchange(rms: &mut Dialogues, application: &mut Dialogues, to_rms: Output, to_application: Output) {
    let (mut up, mut down) = (to_rms.messages, to_application.messages);
    let mut n_messages = 0;
    while !up.is_empty() || !down.is_empty() {
        n_messages += up.len() + down.len();
        assert!(n_messages < 100, "they never stop");
        let answers: Vec<Message> = up.iter().flat_map(|message| rms.receive(NOW, message).messages).collect();
        up = down.iter().flat_map(|message| application.receive(NOW, message).messages).collect();
        down = answers;
    }
}

fn phase(dialogues: &Dialogues, id: NegotiationId) -> Phase {
    dialogues.get(id).expect("it is known").phase()
}

#[test]
fn crossing_offers_resolve_to_the_one_of_the_rms() {
    let (mut rms, mut application) = dialogues();
    let (asked, up) = open(&mut application, Direction::Grow);
    let (offered, down) = open(&mut rms, Direction::Grow);
    exchange(&mut rms, &mut application, up, down);
    for dialogues in [&rms, &application] {
        assert_eq!(phase(dialogues, asked), Phase::Ended(Ending::Rejected));
        assert_eq!(dialogues.get(asked).and_then(Dialogue::reason), Some(Reason::Crossed));
        assert_eq!(phase(dialogues, offered), Phase::Offered(Side::Rms));
        assert_eq!(dialogues.open_for(Direction::Grow).map(Dialogue::id), Some(offered));
    }
    let pledge = application.act(NOW, offered, Action::Accept).expect("it stands");
    exchange(&mut rms, &mut application, pledge, Output::default());
    assert_eq!(phase(&application, offered), Phase::Accepted);
}

#[test]
fn each_direction_has_its_own_and_may_overtake_the_other() {
    let (mut rms, mut application) = dialogues();
    let (first, early) = open(&mut application, Direction::Grow);
    let (second, late) = open(&mut application, Direction::Shrink);
    let again = Item::up_to(Resource::Time, 0, 4);
    let refused = application.open(NOW, Direction::Grow, vec![SetRule::All], vec![again], MINUTE);
    assert_eq!(refused, Err(OpenError::Act(ActError::AlreadyOpen(first))));
    exchange(&mut rms, &mut application, late, Output::default());
    exchange(&mut rms, &mut application, early, Output::default());
    assert_eq!(phase(&rms, first), Phase::Offered(Side::Application));
    assert_eq!(phase(&rms, second), Phase::Offered(Side::Application));
}

#[test]
fn an_offer_that_arrives_after_its_withdrawal_does_not_come_to_life() {
    let (mut rms, mut application) = dialogues();
    let (id, opening) = open(&mut application, Direction::Grow);
    let withdrawal = application.act(NOW, id, Action::Withdraw(Reason::Changed)).expect("it stands");
    exchange(&mut rms, &mut application, withdrawal, Output::default());
    assert_eq!(phase(&application, id), Phase::Ended(Ending::Withdrawn));
    exchange(&mut rms, &mut application, opening, Output::default());
    assert!(rms.get(id).is_none());
    assert_eq!(phase(&application, id), Phase::Ended(Ending::Withdrawn));
}

#[test]
fn who_asks_about_a_negotiation_that_nobody_knows_hears_that_it_failed() {
    let (mut rms, mut application) = dialogues();
    let (id, down) = open(&mut rms, Direction::Grow);
    exchange(&mut rms, &mut application, Output::default(), down);
    let (mut new_rms, mut new_application) = dialogues();
    let pledge = application.act(NOW, id, Action::Accept).expect("it stands");
    exchange(&mut new_rms, &mut application, pledge, Output::default());
    assert_eq!(phase(&application, id), Phase::Ended(Ending::Failed));
    assert_eq!(application.get(id).and_then(Dialogue::reason), Some(Reason::Unknown));

    let statement = Some(Statement::Accept { round: 2 });
    let down = Output { messages: vec![Message::new(id, 1, 0, statement)], ..Output::default() };
    exchange(&mut rms, &mut new_application, Output::default(), down);
    assert_eq!(phase(&rms, id), Phase::Ended(Ending::Failed));

    let (mut new_rms, mut new_application) = dialogues();
    for statement in [None, Some(Statement::Accept { round: 1 })] {
        let both = || Output { messages: vec![Message::new(id, 3, 2, statement.clone())], ..Output::default() };
        exchange(&mut new_rms, &mut new_application, both(), both());
    }
}

#[test]
fn a_flood_of_openings_is_turned_down_and_forgotten() {
    let (mut rms, mut application) = dialogues();
    let (held, down) = open(&mut rms, Direction::Grow);
    exchange(&mut rms, &mut application, Output::default(), down);
    let item = Item::up_to(Resource::Nodes(ClusterId(0)), 8, 4);
    for number in 1..1000 {
        let parties = Parties { job: JobId(7), run: Run(1), initiator: Side::Application };
        let template = Template::of_one(parties, Direction::Grow, item.clone()).expect("it is right");
        let statement = Some(Statement::Propose { round: 1, template, valid_for: MINUTE });
        let id = NegotiationId { initiator: Side::Application, number };
        let output = rms.receive(NOW, &Message::new(id, 1, 0, statement));
        assert_eq!(output.refused, Some(Rejected::AlreadyOpen(held)));
        assert_eq!(output.messages.len(), 1);
    }
    assert!(rms.all().len() <= MOST_KEPT && rms.heard.len() <= MOST_HEARD);
    assert_eq!(phase(&rms, held), Phase::Offered(Side::Rms), "the others are unaffected");
}

#[test]
fn dialogues_are_read_back_as_they_were() {
    let (mut rms, mut application) = dialogues();
    let (_, up) = open(&mut application, Direction::Grow);
    exchange(&mut rms, &mut application, up, Output::default());
    let text = serde_json::to_string(&rms).expect("it can be written");
    assert_eq!(serde_json::from_str::<Dialogues>(&text).expect("it can be read"), rms);
}

#[test]
fn another_execution_of_the_job_is_no_party() {
    let (mut rms, _) = dialogues();
    let mut earlier = Dialogues::new(Side::Application, JobId(7), Run(2), Rules::default());
    let (id, output) = open(&mut earlier, Direction::Grow);
    let answer = rms.receive(NOW, &output.messages[0]);
    assert!(matches!(answer.refused, Some(Rejected::Breach(_))), "{answer:?}");
    assert_eq!(phase(&rms, id), Phase::Ended(Ending::Rejected));
}
