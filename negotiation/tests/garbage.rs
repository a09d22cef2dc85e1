//! Sends messages that no honest peer sends, at any time: nothing panics, nothing finished changes, the RMS still ends.

mod common;

use common::{nodes, priced, template};
use negotiation::{
    Action, Dialogue, Dialogues, Direction, Draft, Ending, Item, ItemStatus, Message, NegotiationId, Phase, Reason,
    Rules, SetRule, Side, Statement, Template,
};
use rms_model::{JobId, NodeId, Run, Span, Time};
use test_kit::{Dice, for_seeds};

const MINUTE: Span = Span::from_mins(1);

/// Returns a number that is small, at a limit, or arbitrary.
fn wild(dice: &mut Dice) -> u64 {
    match dice.below(4) {
        0 => dice.one_of(&[0, u64::MAX, i64::MAX as u64, u64::from(u32::MAX), u64::from(u16::MAX)]),
        1 => dice.roll(),
        _ => dice.below(8),
    }
}

fn side(dice: &mut Dice) -> Side {
    dice.one_of(&[Side::Rms, Side::Application])
}

fn wild_template(dice: &mut Dice) -> Template {
    let direction = dice.one_of(&[Direction::Grow, Direction::Shrink]);
    let item = priced(8, 1 + dice.below(8), dice.below(100));
    let initiator = side(dice);
    match dice.below(3) {
        0 => template(initiator, direction, item),
        1 => {
            let parties = common::parties(initiator);
            let other = Item { status: ItemStatus::Refused, ..nodes(8, 3) };
            Template::new(parties, direction, vec![SetRule::OneOf], vec![item, other]).expect("it is right")
        }
        _ => {
            let parties = negotiation::Parties { run: Run(dice.below(3) as u32), ..common::parties(initiator) };
            Template::of_one(parties, direction, item).expect("it is right")
        }
    }
}

fn wild_message(dice: &mut Dice, id: NegotiationId) -> Message {
    let round = if dice.chance(80) { dice.below(5) as u16 } else { wild(dice) as u16 };
    let nodes = |dice: &mut Dice| (0..dice.below(9) as u32).map(NodeId).collect();
    let statement = match dice.below(7) {
        0 => None,
        1 | 2 => {
            let valid_for = Span::from_millis(if dice.chance(50) { 60_000 } else { wild(dice) as i64 });
            Some(Statement::Propose { round, template: wild_template(dice), valid_for })
        }
        3 => Some(Statement::Accept { round }),
        4 => Some(Statement::Commit { round, nodes: nodes(dice) }),
        5 => Some(Statement::Ready { round, nodes: nodes(dice) }),
        _ => {
            let ending = dice.one_of(&[Ending::Rejected, Ending::Expired, Ending::Withdrawn, Ending::Failed]);
            Some(Statement::End { ending, reason: dice.one_of(&[Reason::Declined, Reason::Unknown]) })
        }
    };
    let id = if dice.chance(90) { id } else { NegotiationId { initiator: side(dice), number: wild(dice) as u32 } };
    Message::new(id, wild(dice) as u32, wild(dice) as u32, statement)
}

/// Returns a random action of an owner; most of them are not possible.
fn wild_action(dice: &mut Dice, end: &Dialogue) -> Action {
    let n_nodes = end.proposal().map_or(0, Template::n_nodes) as u32;
    match dice.below(9) {
        0 => Action::Propose { template: wild_template(dice), valid_for: MINUTE },
        1 | 2 => Action::Accept,
        3 => Action::Reject(Reason::Declined),
        4 => Action::Withdraw(Reason::Declined),
        5 => Action::Commit((0..n_nodes).map(NodeId).collect()),
        6 => Action::Ready,
        7 => Action::Gone((0..n_nodes).map(NodeId).collect()),
        _ => Action::Fail(Reason::Lost),
    }
}

/// Returns the state that must never change once the negotiation is over.
fn result(end: &Dialogue) -> impl PartialEq + std::fmt::Debug + use<> {
    (end.phase(), end.round(), end.proposal().cloned(), end.nodes().cloned(), end.reason())
}

#[test]
fn a_dialogue_stays_right_and_a_finished_one_unchanged() {
    let mut n_over = 0;
    for_seeds("a_dialogue_stays_right", 3000, |dice| {
        let (whose, initiator) = (side(dice), side(dice));
        let id = NegotiationId { initiator, number: 1 };
        let mut end = Dialogue::new(whose, id, common::parties(initiator), Rules::default());
        let mut now = Time::EPOCH;
        for _ in 0..60 {
            let before = end.phase().is_over().then(|| result(&end));
            if dice.chance(30) {
                let action = wild_action(dice, &end);
                let _ = end.act(now, action);
            } else {
                let message = wild_message(dice, id);
                let output = end.receive(now, &message);
                assert!(output.messages.len() <= 2, "one message is never answered by a flood");
            }
            end.check().expect("it stays right");
            if let Some(before) = before {
                assert_eq!(before, result(&end));
                n_over += 1;
            }
            now += Span::from_millis(dice.below(2_000) as i64);
        }
        let is_quiet = |end: &Dialogue| whose == Side::Application || end.next_deadline().is_none();
        for _ in 0..100 {
            if let Some(deadline) = end.next_deadline() {
                let _ = end.tick(deadline.max(now));
            }
        }
        assert!(is_quiet(&end), "the RMS holds something for ever: {}", end.phase());
        assert!(end.phase().is_over() || end.phase() == Phase::Idle || whose == Side::Application);
    });
    println!("{n_over} inputs into finished dialogues");
    assert!(n_over > 0);
}

#[test]
fn dialogues_bear_a_flood() {
    for_seeds("dialogues_bear_a_flood", 300, |dice| {
        let whose = side(dice);
        let mut dialogues = Dialogues::new(whose, JobId(7), Run(1), Rules::default());
        for idx in 0..300 {
            let id = NegotiationId { initiator: side(dice), number: 1 + dice.below(40) as u32 };
            let message = wild_message(dice, id);
            let now = Time::from_secs(idx);
            let output = dialogues.receive(now, &message);
            assert!(output.messages.len() <= 2);
            if dice.chance(20)
                && let Some(end) = dialogues.get(id).cloned()
            {
                let _ = dialogues.act(now, id, wild_action(dice, &end));
            }
            let _ = dialogues.tick(now);
            assert!(dialogues.all().len() <= 40, "{} are kept", dialogues.all().len());
            for end in dialogues.all() {
                end.check().expect("it stays right");
            }
        }
        if whose == Side::Rms {
            for direction in [Direction::Grow, Direction::Shrink] {
                let is_open = |end: &&Dialogue| !end.phase().is_over() && end.direction() == Some(direction);
                assert!(dialogues.all().iter().filter(is_open).count() <= 1, "one at a time for {direction:?}");
            }
        }
    });
}

#[test]
fn any_numbers_make_a_right_template_or_none() {
    let mut n_right = 0;
    for_seeds("any_numbers_make", 20_000, |dice| {
        let mut draft = Draft::from(wild_template(dice));
        for item in &mut draft.items {
            for _ in 0..=dice.below(3) {
                match dice.below(14) {
                    0 => item.set = wild(dice) as u16,
                    1 => item.kind = wild(dice) as u16,
                    2 => item.cluster = wild(dice) as u16,
                    3 => item.quantity = wild(dice),
                    4 => item.held = wild(dice),
                    5 => item.nodes = (0..dice.below(4)).map(|_| wild(dice) as u32).collect(),
                    6 => item.refused = !item.refused,
                    7 => item.least = wild(dice),
                    8 => item.most = wild(dice),
                    9 => {
                        item.shape = wild(dice) as u16;
                        item.sizes = (0..dice.below(3)).map(|_| wild(dice)).collect();
                    }
                    10 => item.duration = Some(wild(dice) as i64),
                    11 => item.price = wild(dice),
                    12 => item.deadline = Some(wild(dice) as i64),
                    _ => item.give_back_by = Some(wild(dice) as i64),
                }
            }
        }
        let Ok(template) = Template::try_from(draft.clone()) else { return };
        n_right += 1;
        assert_eq!(Draft::from(template.clone()).items.len(), draft.items.len());
        for item in template.items() {
            let direction = template.direction();
            assert!(item.fits(direction, item.quantity));
            assert!(item.greatest(direction, item.quantity) == Some(item.quantity));
            assert!(item.quantities(direction).take(100).all(|quantity| item.fits(direction, quantity)));
        }
    });
    println!("{n_right} were right");
}
