//! Two owners act at random over a channel that loses, delays, reorders and duplicates, with restarts in between.
//!
//! `LIMBER_SEED=7` replays one seed and prints the events; `LIMBER_SEEDS=100000` runs that many.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::channel::Channel;
use common::{nodes, template};
use negotiation::{
    ActError, Action, Breach, Change, Dialogue, Direction, Ending, Item, Message, NegotiationId, Output, Phase,
    Quantity, Reason, Rejected, Rules, Side, Statement, Template,
};
use rms_model::{NodeId, Span, Time};
use test_kit::{Dice, for_seeds};

/// Two ends, their clocks, and the channel between them.
struct World {
    dice: Dice,
    now: Time,
    rms: Dialogue,
    application: Dialogue,
    /// The error of the application's clock.
    skew: Span,
    channel: Channel,
    n_steps: u64,
    /// The proposals of each end.
    proposals: Vec<(Side, u16, Template)>,
    trace: Vec<String>,
}

const MAX_ROUNDS: u16 = 6;

impl World {
    fn new(mut dice: Dice) -> World {
        let initiator = dice.one_of(&[Side::Rms, Side::Application]);
        let rules = Rules {
            max_rounds: MAX_ROUNDS,
            longest_valid: Span::from_secs(90),
            apply_within: Span::from_mins(3),
            ..Rules::default()
        };
        let id = NegotiationId { initiator, number: 1 };
        let end = |end| Dialogue::new(end, id, common::parties(initiator), rules);
        World {
            now: Time::from_secs(1_000_000),
            rms: end(Side::Rms),
            application: end(Side::Application),
            skew: Span::from_millis(dice.below(20_000_000) as i64 - 10_000_000),
            channel: Channel::new(
                dice.one_of(&[0, 10, 50, 90]),
                dice.one_of(&[0, 20, 60]),
                dice.one_of(&[1, 2_000, 90_000]),
            ),
            n_steps: 0,
            proposals: Vec::new(),
            trace: Vec::new(),
            dice,
        }
    }

    fn end(&mut self, side: Side) -> &mut Dialogue {
        match side {
            Side::Rms => &mut self.rms,
            Side::Application => &mut self.application,
        }
    }

    fn clock(&self, side: Side) -> Time {
        match side {
            Side::Rms => self.now,
            Side::Application => self.now + self.skew,
        }
    }

    fn send(&mut self, from: Side, output: Output) {
        for Change { from: before, to, .. } in &output.changes {
            self.trace.push(format!("{} {from}: {before} -> {to}", self.now.as_millis()));
        }
        for message in &output.messages {
            self.channel.send(&mut self.dice, self.now, from.other(), message);
        }
    }

    /// Lets an owner try a random action.
    fn act(&mut self, side: Side) {
        let Some(action) = self.choose(side) else { return };
        let clock = self.clock(side);
        let proposed = match &action {
            Action::Propose { template, .. } => Some(template.clone()),
            Action::Accept | Action::Reject(_) | Action::Withdraw(_) | Action::Commit(_) | Action::Ready => None,
            Action::Gone(_) | Action::Fail(_) => None,
        };
        let before = self.end(side).clone();
        match self.end(side).act(clock, action) {
            Ok(output) => {
                let round = self.end(side).round();
                self.proposals.extend(proposed.map(|template| (side, round, template)));
                self.send(side, output);
            }
            Err(error) => {
                let usual = matches!(
                    error,
                    ActError::Lapsed
                        | ActError::NotNow(_)
                        | ActError::Breach(Breach::Worsens { .. } | Breach::TooManyRounds { .. })
                );
                assert!(usual, "{error:?}");
                assert_eq!(before, *self.end(side), "what is refused changes nothing");
            }
        }
    }

    fn choose(&mut self, side: Side) -> Option<Action> {
        let end = self.end(side).clone();
        let reason = self.dice.one_of(&[Reason::Declined, Reason::Policy, Reason::Changed]);
        match end.phase() {
            Phase::Idle => {
                let is_opener = end.id().initiator == side;
                is_opener.then(|| self.propose(&end))
            }
            Phase::Offered(by) | Phase::Countered(by) if by == side => {
                self.dice.chance(5).then_some(Action::Withdraw(reason))
            }
            Phase::Offered(_) | Phase::Countered(_) => Some(match self.dice.below(10) {
                0 => Action::Reject(reason),
                1 => Action::Withdraw(reason),
                2..4 => Action::Accept,
                _ => self.propose(&end),
            }),
            Phase::Accepted | Phase::Committing => match self.dice.below(20) {
                0 => Some(Action::Fail(Reason::Lost)),
                1..10 if side == Side::Rms && end.phase() == Phase::Committing => Some(Action::Ready),
                _ => {
                    let n_nodes = end.proposal().map_or(0, Template::n_nodes) as u32;
                    Some(Action::Commit((100..100 + n_nodes).map(NodeId).collect()))
                }
            },
            Phase::Pledged | Phase::Leaving | Phase::Failing | Phase::Applied | Phase::Ended(_) => None,
        }
    }

    fn propose(&mut self, end: &Dialogue) -> Action {
        // Most owners concede something; a few try to break the rules.
        let gives = end.direction().is_some_and(|direction| direction.giver() == end.end());
        let concedes = self.dice.chance(85);
        let change = |dice: &mut Dice, item: &Item, last: Option<&Item>| {
            let mut item = Item { nodes: BTreeSet::new(), ..item.clone() };
            let (n, by) = (dice.below(3), dice.below(20));
            (item.quantity.0, item.terms.price.0) = match last.filter(|_| concedes) {
                Some(last) if gives => ((last.quantity.0 + n).min(8), last.terms.price.0.saturating_sub(by)),
                Some(last) => (last.quantity.0.saturating_sub(n).max(1), last.terms.price.0 + by),
                None => (1 + dice.below(8), dice.below(100)),
            };
            item.terms.most = Quantity(8);
            item
        };
        let template = match end.theirs() {
            Some(theirs) => {
                let last = end.mine().map(|mine| &mine.items()[0]);
                let item = change(&mut self.dice, &theirs.items()[0], last);
                theirs.with_items(vec![item]).expect("it is right")
            }
            None => {
                let direction = self.dice.one_of(&[Direction::Grow, Direction::Shrink]);
                let item = change(&mut self.dice, &nodes(8, 8), None);
                template(end.id().initiator, direction, item)
            }
        };
        Action::Propose { template, valid_for: Span::from_millis(1 + self.dice.below(120_000) as i64) }
    }

    /// Kills and restarts a process: messages on their way to and from it are lost.
    fn restart(&mut self, side: Side) {
        let text = serde_json::to_string(self.end(side)).expect("it can be written");
        let back: Dialogue = serde_json::from_str(&text).expect("it can be read back");
        assert_eq!(&back, self.end(side));
        self.channel.clear();
        let clock = self.clock(side);
        let output = self.end(side).resume(clock);
        self.send(side, output);
    }

    /// Executes the next event; returns false if there will never be one.
    fn step(&mut self) -> bool {
        self.n_steps += 1;
        // In the end there are no restarts and no owners any more, and the negotiation must end on its own.
        let is_late = self.n_steps > 200;
        if !is_late {
            self.disturb();
        }
        let arrival = self.channel.next_arrival();
        let of_rms = self.rms.next_deadline();
        let of_application = self.application.next_deadline().map(|time| time - self.skew);
        // Owners think for a while before they act.
        let thought = self.now + Span::from_millis(self.dice.below(6_000) as i64);
        let awaits = |end: &Dialogue| !end.phase().is_over();
        let acts = (!is_late && (awaits(&self.rms) || awaits(&self.application))).then_some(thought);
        let Some(next) = [arrival, of_rms, of_application, acts].into_iter().flatten().min() else { return false };
        self.now = next.max(self.now);
        if let Some((side, message)) = self.channel.receive(self.now) {
            self.receive(side, &message);
        } else if acts == Some(next) {
            let side = self.dice.one_of(&[Side::Rms, Side::Application]);
            self.act(side);
        } else {
            for side in [Side::Rms, Side::Application] {
                let clock = self.clock(side);
                let output = self.end(side).tick(clock);
                self.send(side, output);
            }
        }
        true
    }

    fn receive(&mut self, side: Side, message: &Message) {
        let clock = self.clock(side);
        let lapsed = self.end(side).lapses().is_some_and(|lapses| lapses <= clock);
        let output = self.end(side).receive(clock, message);
        let agreed = output.changes.iter().any(|change| change.to == Phase::Accepted);
        assert!(!(side == Side::Rms && lapsed && agreed), "it was accepted after it had expired");
        let is_breach = matches!(output.refused, Some(Rejected::Breach(_)));
        assert!(!is_breach, "an honest end was taken for a liar: {:?}", output.refused);
        self.send(side, output);
    }

    fn disturb(&mut self) {
        if self.dice.chance(2) {
            let side = self.dice.one_of(&[Side::Rms, Side::Application]);
            self.restart(side);
        }
        if self.dice.chance(1) && self.channel.cut_until == Time::EPOCH {
            self.channel.cut_until = self.now + Span::from_millis(self.dice.below(600_000) as i64);
        }
    }

    fn check(&self) {
        for end in [&self.rms, &self.application] {
            end.check().unwrap_or_else(|broken| panic!("{broken}\n{}", self.trace.join("\n")));
        }
        if self.application.phase().is_over() {
            assert_eq!(self.rms.phase(), self.application.phase(), "\n{}", self.trace.join("\n"));
        }
    }

    /// Checks that no end has taken back an offer, by an independent implementation of the rule.
    fn check_concessions(&self) {
        for side in [Side::Rms, Side::Application] {
            let own = self.proposals.iter().filter(|(by, _, _)| *by == side).map(|(_, _, template)| template);
            let own: Vec<&Template> = own.collect();
            for two in own.windows(2) {
                let [earlier, later] = [two[0], two[1]].map(|template| &template.items()[0]);
                let (quantity, price) =
                    (later.quantity.cmp(&earlier.quantity), later.terms.price.cmp(&earlier.terms.price));
                if two[0].direction().giver() == side {
                    assert!(quantity.is_ge() && price.is_le(), "less for more: {earlier:?} {later:?}");
                } else {
                    assert!(quantity.is_le() && price.is_ge(), "more for less: {earlier:?} {later:?}");
                }
            }
        }
        let rounds: Vec<u16> = self.proposals.iter().map(|(_, round, _)| *round).collect();
        assert!(rounds.iter().copied().eq(1..=rounds.len() as u16), "rounds without gaps: {rounds:?}");
        assert!(rounds.len() <= usize::from(MAX_ROUNDS), "bounded rounds");
    }
}

/// Runs until there are no more events.
fn run(dice: Dice) -> World {
    let mut world = World::new(dice.clone());
    // Start only once something was opened.
    while world.proposals.is_empty() {
        let side = world.rms.id().initiator;
        world.act(side);
    }
    while world.step() {
        world.check();
        assert!(world.n_steps < 20_000, "it never ends:\n{}", world.trace.join("\n"));
    }
    if test_kit::one_seed().is_some() {
        println!("{}", world.trace.join("\n"));
    }
    world
}

#[test]
fn long_they_always_end_and_agree_how() {
    let mut outcomes: BTreeMap<Phase, u64> = BTreeMap::new();
    let (mut n_messages, mut n_rounds, mut most_rounds, mut n_unheard) = (0, 0, 0, 0);
    for_seeds("they_always_end", 3000, |dice| {
        let world = run(dice.clone());
        let [rms, application] = [&world.rms, &world.application];
        assert!(rms.phase().is_over(), "the RMS is {}", rms.phase());
        if application.phase() == Phase::Idle {
            // The RMS took back, or let expire, an offer that the application never received.
            assert!(rms.phase() != Phase::Applied && rms.id().initiator == Side::Rms);
            n_unheard += 1;
            return;
        }
        assert_eq!(rms.phase(), application.phase());
        assert_eq!(rms.reason(), application.reason());
        if rms.phase() == Phase::Applied {
            assert_eq!((rms.proposal(), rms.nodes()), (application.proposal(), application.nodes()));
        }
        world.check_concessions();
        *outcomes.entry(rms.phase()).or_default() += 1;
        n_messages += world.channel.n_sent;
        n_rounds += world.proposals.len();
        most_rounds = most_rounds.max(world.proposals.len());
    });
    println!(
        "{outcomes:?}, {n_messages} messages, {n_rounds} rounds, at most {most_rounds} in one; {n_unheard} unheard"
    );
    if test_kit::one_seed().is_none() {
        assert_eq!(outcomes.len(), 5, "every outcome happens: {outcomes:?}");
        assert_eq!(most_rounds, usize::from(MAX_ROUNDS), "the bound is reached");
    }
}

#[test]
fn expiry_counts_from_the_proposal_and_by_the_clock_of_the_rms() {
    for_seeds("expiry_counts", 500, |dice| {
        let mut world = World::new(dice.clone());
        world.channel.loss = 100;
        while world.proposals.is_empty() {
            let side = world.rms.id().initiator;
            world.act(side);
        }
        let opener = world.rms.id().initiator;
        let lapses = world.end(opener).lapses().expect("it stands");
        // Before the deadline nothing ends; after it, the RMS has ended it and the application wants it to end.
        let _ = world.end(opener).tick(lapses - Span::from_millis(1));
        assert_eq!(world.end(opener).phase(), Phase::Offered(opener));
        let refused = world.end(opener).act(lapses, Action::Withdraw(Reason::Changed));
        assert_eq!(refused, Err(ActError::Lapsed));
        let output = world.end(opener).tick(lapses);
        let expected = match opener {
            Side::Rms => Phase::Ended(Ending::Expired),
            Side::Application => Phase::Leaving,
        };
        assert_eq!(world.end(opener).phase(), expected);
        let word = Statement::End { ending: Ending::Expired, reason: Reason::Lapsed };
        assert_eq!(output.messages[0].statement, Some(word));
    });
}
