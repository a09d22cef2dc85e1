//! Every interleaving of two ends over a channel that may deliver any message ever sent, in any order, any number of
//! times, or never. `LIMBER_MODEL_ROUNDS=5` searches deeper.
//!
//! The model leaves out two things that only decide when something is repeated, because in the model anything may be
//! repeated at any time: acknowledgements, and the effect of a message that the receiver has already handled.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{nodes, template};
use negotiation::{
    Action, Dialogue, Direction, Ending, Message, NegotiationId, Output, Phase, Reason, Rules, Side, Template,
};
use rms_model::{NodeId, Span, Time};

const NOW: Time = Time::EPOCH;
const VALID: Span = Span::from_mins(1);

/// Both ends, and all messages that can still change something.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    rms: Dialogue,
    application: Dialogue,
    up: BTreeSet<Message>,
    down: BTreeSet<Message>,
    /// The number of the latest statement that each end has handled.
    heard: [u32; 2],
}

impl World {
    fn new(initiator: Side, max_rounds: u16) -> World {
        // Repetitions are steps of the model, not of time: only lapses and deadlines are left on the clock.
        let rules = Rules { max_rounds, repeat_first: Span::MAX_WALL, repeat_most: Span::MAX_WALL, ..Rules::default() };
        let id = NegotiationId { initiator, number: 1 };
        let end = |end| Dialogue::new(end, id, common::parties(initiator), rules);
        let (up, down) = (BTreeSet::new(), BTreeSet::new());
        World { rms: end(Side::Rms), application: end(Side::Application), up, down, heard: [0; 2] }
    }

    fn end(&mut self, side: Side) -> &mut Dialogue {
        match side {
            Side::Rms => &mut self.rms,
            Side::Application => &mut self.application,
        }
    }

    /// Returns the world after one end has taken a step.
    fn after(&self, side: Side, step: impl FnOnce(&mut Dialogue) -> Option<Output>) -> Option<World> {
        let mut world = self.clone();
        let output = step(world.end(side))?;
        world.heard[side as usize] = forget_repetitions(world.end(side));
        let said = output.messages.into_iter().filter(|message| message.statement.is_some());
        let said = said.map(|message| Message { ack_seq: 0, ..message });
        match side {
            Side::Rms => world.down.extend(said),
            Side::Application => world.up.extend(said),
        }
        let [by_rms, by_application] = world.heard;
        world.up.retain(|message| message.seq > by_rms);
        world.down.retain(|message| message.seq > by_application);
        Some(world)
    }

    fn successors(&self, actions: &[Action]) -> Vec<World> {
        let mut worlds = Vec::new();
        for side in [Side::Rms, Side::Application] {
            let act = |action: &Action| self.after(side, |end| end.act(NOW, action.clone()).ok());
            worlds.extend(actions.iter().filter_map(act));
            worlds.extend(self.after(side, |end| Some(end.resume(NOW))));
            worlds.extend(self.after(side, ticked));
            let heard = if side == Side::Rms { &self.up } else { &self.down };
            worlds.extend(heard.iter().filter_map(|message| self.after(side, |end| Some(end.receive(NOW, message)))));
        }
        worlds
    }

    fn check(&self) {
        self.rms.check().expect("the RMS's end");
        self.application.check().expect("the application's end");
        if self.application.phase().is_over() {
            assert_eq!(self.rms.phase(), self.application.phase(), "the RMS has the word");
            assert_eq!(self.rms.reason(), self.application.reason());
        }
        if self.application.phase() == Phase::Applied {
            assert_eq!(self.rms.proposal(), self.application.proposal(), "both agree on the terms");
            assert_eq!(self.rms.nodes(), self.application.nodes(), "and on the nodes");
        }
    }

    /// Checks liveness: from every state, if messages get through in the end, both ends finish without any act of an
    /// owner.
    fn finish(&self) -> Phase {
        let mut world = self.clone();
        for _ in 0..8 {
            if world.rms.phase().is_over() && world.application.phase().is_over() {
                break;
            }
            for side in [Side::Application, Side::Rms] {
                let _ = ticked(world.end(side));
                let mut messages = world.end(side).resume(NOW).messages;
                while !messages.is_empty() {
                    // Answers go back and forth until neither end has one.
                    let answers =
                        messages.iter().flat_map(|message| world.end(side.other()).receive(NOW, message).messages);
                    let answers: Vec<Message> = answers.collect();
                    messages =
                        answers.iter().flat_map(|message| world.end(side).receive(NOW, message).messages).collect();
                }
            }
            world.check();
        }
        assert!(world.rms.phase().is_over(), "the RMS is stuck: {}", world.rms.phase());
        assert!(world.application.phase().is_over(), "the application is stuck: {}", world.application.phase());
        world.rms.phase()
    }
}

/// Lets the next deadline pass.
fn ticked(end: &mut Dialogue) -> Option<Output> {
    let when = [end.lapses(), end.due()].into_iter().flatten().min()?;
    Some(end.tick(when))
}

/// Removes how often statements were repeated, which does not affect later states. Returns the number handled.
fn forget_repetitions(end: &mut Dialogue) -> u32 {
    let mut value = serde_json::to_value(&*end).expect("it can be written");
    let voice = value.get_mut("voice").expect("it has a voice");
    voice["n_times"] = 0.into();
    voice["send_at"] = Span::MAX_WALL.as_millis().into();
    let heard = voice["ack_seq"].as_u64().expect("it is a number");
    *end = serde_json::from_value(value).expect("it can be read back");
    heard as u32
}

/// Returns the actions of owners in the model: proposals of two quantities, and everything else.
fn actions(initiator: Side, direction: Direction) -> Vec<Action> {
    let make = |quantity| template(initiator, direction, nodes(4, quantity));
    let propose = |template: Template| Action::Propose { template, valid_for: VALID };
    let commit = |n| Action::Commit((0..n).map(NodeId).collect());
    vec![
        propose(make(1)),
        propose(make(2)),
        Action::Accept,
        Action::Reject(Reason::Declined),
        Action::Withdraw(Reason::Changed),
        commit(1),
        commit(2),
        Action::Ready,
        Action::Gone([NodeId(0)].into()),
        Action::Fail(Reason::Lost),
    ]
}

fn explore(initiator: Side, direction: Direction, max_rounds: u16) {
    let actions = actions(initiator, direction);
    let first = World::new(initiator, max_rounds);
    let opened = first.successors(&actions[..2]);
    let is_opened = |world: &World| world.end_of(initiator).phase() == Phase::Offered(initiator);
    let mut todo: Vec<World> = opened.into_iter().filter(is_opened).collect();
    let mut seen: BTreeSet<World> = todo.iter().cloned().collect();
    let mut outcomes: BTreeMap<Phase, u64> = BTreeMap::new();
    while let Some(world) = todo.pop() {
        world.check();
        *outcomes.entry(world.finish()).or_default() += 1;
        for next in world.successors(&actions) {
            let (before, after) = (world.rms.phase(), next.rms.phase());
            assert!(!before.is_over() || before == after, "the RMS changed its word from {before} to {after}");
            let (before, after) = (world.application.phase(), next.application.phase());
            assert!(!before.is_over() || before == after, "the application changed from {before} to {after}");
            if seen.insert(next.clone()) {
                todo.push(next);
            }
        }
    }
    println!("{initiator} opens to {direction:?}, {max_rounds} rounds: {} states; they end {outcomes:?}", seen.len());
    let endings = negotiation::table::ENDINGS.map(Phase::Ended);
    for outcome in endings.into_iter().chain([Phase::Applied]) {
        assert!(outcomes.contains_key(&outcome), "{outcome} is never reached");
    }
}

impl World {
    fn end_of(&self, side: Side) -> &Dialogue {
        match side {
            Side::Rms => &self.rms,
            Side::Application => &self.application,
        }
    }
}

fn rounds() -> u16 {
    test_kit::variable("LIMBER_MODEL_ROUNDS").map_or(3, |rounds| rounds as u16)
}

#[test]
fn long_an_application_that_asks_for_more() {
    explore(Side::Application, Direction::Grow, rounds());
}

#[test]
fn an_application_that_gives_back() {
    explore(Side::Application, Direction::Shrink, rounds());
}

#[test]
fn an_rms_that_offers() {
    explore(Side::Rms, Direction::Grow, rounds());
}

#[test]
fn an_rms_that_wants_something_back() {
    explore(Side::Rms, Direction::Shrink, rounds());
}

#[test]
fn the_model_would_notice_two_ends_that_disagree() {
    let mut world = World::new(Side::Rms, 2);
    world.application.act(NOW, Action::Withdraw(Reason::Changed)).expect_err("nothing stands");
    let end = negotiation::Statement::End { ending: Ending::Rejected, reason: Reason::Declined };
    let forged = Message::new(world.rms.id(), 1, 0, Some(end));
    let _ = world.application.receive(NOW, &forged);
    assert!(std::panic::catch_unwind(|| world.check()).is_err());
}
