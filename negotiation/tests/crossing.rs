//! Two ends open negotiations at random over a bad channel: for each direction one continues, and both ends agree how
//! every one of them ended.

mod common;

use std::collections::BTreeMap;

use common::channel::Channel;
use common::nodes;
use negotiation::{
    Action, Change, Dialogue, Dialogues, Direction, NegotiationId, Output, Phase, Reason, Rules, SetRule, Side,
    Template,
};
use rms_model::{JobId, NodeId, Run, Span, Time};
use test_kit::{Dice, for_seeds};

struct World {
    dice: Dice,
    now: Time,
    dialogues: [Dialogues; 2],
    channel: Channel,
    n_opened: u64,
    n_crossed: u64,
    /// How each negotiation ended, as known to each end.
    ended: [BTreeMap<NegotiationId, Phase>; 2],
}

const SIDES: [Side; 2] = [Side::Rms, Side::Application];
const OPENINGS: u64 = 40;

impl World {
    fn new(mut dice: Dice) -> World {
        let rules = Rules { apply_within: Span::from_mins(2), ..Rules::default() };
        World {
            now: Time::EPOCH,
            dialogues: SIDES.map(|side| Dialogues::new(side, JobId(7), Run(1), rules)),
            channel: Channel::new(dice.one_of(&[0, 20, 70]), 30, dice.one_of(&[1, 3_000, 40_000])),
            n_opened: 0,
            n_crossed: 0,
            ended: [BTreeMap::new(), BTreeMap::new()],
            dice,
        }
    }

    fn send(&mut self, from: Side, output: Output) {
        for Change { id, to, .. } in output.changes.iter().filter(|change| change.to.is_over()) {
            let before = self.ended[from as usize].insert(*id, *to);
            assert_eq!(before, None, "{id} ended twice for the {from}");
        }
        for message in &output.messages {
            self.channel.send(&mut self.dice, self.now, from.other(), message);
        }
    }

    fn act(&mut self, side: Side) {
        let (now, dialogues) = (self.now, &mut self.dialogues[side as usize]);
        let direction = self.dice.one_of(&[Direction::Grow, Direction::Shrink]);
        let output = match dialogues.open_for(direction).cloned() {
            None if self.n_opened < OPENINGS => {
                let item = nodes(8, 1 + self.dice.below(4));
                let valid_for = Span::from_secs(5 + self.dice.below(60) as i64);
                let opened = dialogues.open(now, direction, vec![SetRule::All], vec![item], valid_for);
                self.n_opened += 1;
                opened.expect("nothing is open").1
            }
            None => return,
            Some(open) => {
                let action = choose(&mut self.dice, &open);
                match dialogues.act(now, open.id(), action) {
                    Ok(output) => output,
                    Err(_) => return,
                }
            }
        };
        self.send(side, output);
    }

    fn step(&mut self) -> bool {
        let arrival = self.channel.next_arrival();
        let deadlines = self.dialogues.iter().filter_map(Dialogues::next_deadline).min();
        let is_open = self.dialogues.iter().any(|dialogues| dialogues.all().iter().any(|end| !end.phase().is_over()));
        let wants = self.n_opened < OPENINGS || is_open;
        let acts = wants.then(|| self.now + Span::from_millis(self.dice.below(9_000) as i64));
        let Some(next) = [arrival, deadlines, acts].into_iter().flatten().min() else {
            return false;
        };
        self.now = next.max(self.now);
        if let Some((side, message)) = self.channel.receive(self.now) {
            let output = self.dialogues[side as usize].receive(self.now, &message);
            self.n_crossed += u64::from(matches!(output.refused, Some(negotiation::Rejected::AlreadyOpen(_))));
            self.send(side, output);
        } else if acts == Some(next) {
            let side = self.dice.one_of(&SIDES);
            self.act(side);
        } else {
            for side in SIDES {
                let output = self.dialogues[side as usize].tick(self.now);
                self.send(side, output);
            }
        }
        true
    }

    fn check(&self) {
        for direction in [Direction::Grow, Direction::Shrink] {
            let is_open = |end: &&Dialogue| !end.phase().is_over() && end.direction() == Some(direction);
            let n_open = self.dialogues[0].all().iter().filter(is_open).count();
            assert!(n_open <= 1, "the RMS has {n_open} open to {direction:?}");
        }
        let [by_rms, by_application] = &self.ended;
        for (id, phase) in by_application {
            assert!(by_rms.get(id).is_none_or(|word| word == phase), "{id} is {phase} for the application");
        }
    }
}

fn choose(dice: &mut Dice, end: &Dialogue) -> Action {
    match end.phase() {
        Phase::Accepted => {
            let n_nodes = end.proposal().map_or(0, Template::n_nodes) as u32;
            Action::Commit((0..n_nodes).map(NodeId).collect())
        }
        Phase::Committing => Action::Ready,
        Phase::Idle | Phase::Offered(_) | Phase::Countered(_) | Phase::Pledged | Phase::Leaving => dice.one_of(&[
            Action::Accept,
            Action::Accept,
            Action::Reject(Reason::Declined),
            Action::Withdraw(Reason::Changed),
        ]),
        Phase::Failing | Phase::Applied | Phase::Ended(_) => Action::Fail(Reason::Lost),
    }
}

#[test]
fn long_both_ends_agree_how_every_negotiation_ended() {
    let (mut n_ended, mut n_crossed, mut n_applied) = (0, 0, 0);
    for_seeds("both_ends_agree", 100, |dice| {
        let mut world = World::new(dice.clone());
        let mut n_steps = 0;
        while world.step() {
            world.check();
            n_steps += 1;
            assert!(n_steps < 100_000, "it never ends");
        }
        for dialogues in &world.dialogues {
            assert!(dialogues.all().iter().all(|end| end.phase().is_over()), "something is open for ever");
        }
        let [by_rms, by_application] = &world.ended;
        n_ended += by_application.len();
        n_crossed += world.n_crossed;
        n_applied += by_rms.values().filter(|phase| **phase == Phase::Applied).count();
        // A negotiation that only one end knows was never received by the other, or arrived after the other's end.
        for id in by_rms.keys().filter(|id| !by_application.contains_key(id)) {
            assert!(id.initiator == Side::Rms && by_rms[id] != Phase::Applied, "{id} is {}", by_rms[id]);
        }
        for id in by_application.keys().filter(|id| !by_rms.contains_key(id)) {
            assert!(by_application[id] != Phase::Applied, "{id} is {}", by_application[id]);
        }
    });
    println!("{n_ended} ended, {n_applied} of them applied, {n_crossed} openings crossed another");
    assert!(n_crossed > 0 && n_applied > 0);
}
