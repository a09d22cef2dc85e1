//! Random events: an offer delays no waiting job beyond the tolerance.

use std::collections::BTreeMap;

use negotiation::{Direction, Phase, Side};
use rms_api::desired::NodeExit;
use rms_model::{JobId, Settings, Sizes, Span, Time};

use super::{Scene, speaking, told};
use crate::Fact;
use crate::plan::{self, Scope};
use crate::state::{Replay, State};
use test_kit::{Dice, for_seeds};

impl Scene {
    fn running(&self) -> Vec<JobId> {
        let jobs = self.world.rms.state().jobs();
        jobs.iter().filter(|(_, entry)| entry.started().is_some()).map(|(job, _)| *job).collect()
    }

    fn finishes(&mut self, job: JobId) {
        let state = self.world.rms.state();
        let names = state.node_names(state.jobs()[&job].nodes());
        for name in names {
            let is_there = |held: &rms_model::NodeId| self.world.rms.state().nodes()[held].name == name;
            let jobs = self.world.rms.state().jobs();
            if jobs.get(&job).is_some_and(|entry| entry.nodes().iter().any(is_there)) {
                self.ended(&name, job, NodeExit::Exited { code: 0 });
            }
        }
    }
}

fn sizes(dice: &mut Dice) -> Sizes {
    match dice.number(0, 2) {
        0 => Sizes::Any,
        1 => Sizes::PowerOfTwo,
        _ => Sizes::MultipleOf(2),
    }
}

fn wall(dice: &mut Dice) -> Span {
    Span::from_secs(i64::from(dice.number(40, 900)))
}

/// Lets jobs come and go, and applications answer at random.
fn live(scene: &mut Scene, dice: &mut Dice, n_nodes: u32) {
    let mut speakers: Vec<JobId> = Vec::new();
    for _ in 0..dice.number(10, 40) {
        match dice.number(0, 9) {
            0..=2 => {
                scene.rigid(dice.number(1, n_nodes), wall(dice));
            }
            3 | 4 => {
                let least = dice.number(1, 2);
                let limits = told(least, n_nodes.max(2), Sizes::Any);
                scene.submit(dice.number(least, n_nodes.max(2)), wall(dice), Some(limits));
            }
            5 => {
                let limits = speaking(1, 16, sizes(dice));
                let nodes = u32::try_from(limits.sizes.greatest(dice.number(2, n_nodes.max(2)).into()).unwrap_or(2));
                let job = scene.submit(nodes.unwrap_or(2), wall(dice), Some(limits));
                speakers.push(job);
            }
            6 => {
                let running = scene.running();
                if !running.is_empty() {
                    scene.finishes(running[dice.number(0, running.len() as u32 - 1) as usize]);
                }
            }
            _ => scene.after(Span::from_secs(i64::from(dice.number(0, 200)))),
        }
        speakers.retain(|job| !scene.has_left(*job));
        for job in speakers.clone() {
            if scene.is_started(job) && scene.attach(job).is_ok() {
                let open = [Direction::Grow, Direction::Shrink].map(|direction| scene.app_hears(job, direction));
                for id in open.into_iter().flatten() {
                    let is_asked = matches!(scene.app_phase(job, id), Phase::Offered(Side::Rms));
                    match dice.number(0, 3) {
                        0 | 1 if is_asked => scene.accepts(job, id),
                        2 if is_asked => scene.declines(job, id),
                        _ => {}
                    }
                }
            }
        }
    }
}

/// Returns when each waiting job would start.
fn estimates(state: &State, now: Time) -> BTreeMap<JobId, Option<Time>> {
    let plan = plan::plan(state, now, Scope::Estimates);
    plan.placements.iter().map(|placement| (placement.job, placement.outcome.estimate(now))).collect()
}

/// Replays the facts one by one: at each offer, compares the plan with its nodes to the plan without.
fn check(facts: &[Fact], tolerance: Span) -> usize {
    let mut replay = Replay::of(State::new(Settings::default()));
    let mut n_offers = 0;
    let mut before = None;
    for fact in facts {
        if let Fact::DialogueChanged { job, at, dialogue, asking: _ } = fact
            && dialogue.phase() == Phase::Offered(Side::Rms)
            && dialogue.direction() == Some(Direction::Grow)
        {
            before = Some((*job, *at, estimates(replay.state(), *at)));
        }
        replay.follow(fact).expect("they fit");
        let Fact::NodesHeld { job, .. } = fact else { continue };
        let Some((_, at, before)) = before.take().filter(|(offered, ..)| offered == job) else { continue };
        n_offers += 1;
        for (job, after) in estimates(replay.state(), at) {
            let Some(Some(before)) = before.get(&job) else { continue };
            let is_in_time = after.is_some_and(|after| after <= *before + tolerance);
            assert!(is_in_time, "job {job} is delayed from {before:?} to {after:?}");
        }
    }
    n_offers
}

fn run(test: &'static str, n_seeds: u64, tolerance: Span) {
    let mut n_offers = 0;
    for_seeds(test, n_seeds, |dice| {
        let n_nodes = dice.number(2, 10);
        let mut scene = Scene::offering(n_nodes);
        let policy = rms_model::Policy::ALL[dice.number(0, 3) as usize];
        scene.set("policy", policy.name());
        scene.set("delay_tolerance", &tolerance.to_string());
        let rule = rms_model::OfferRule::ALL[dice.number(1, 3) as usize];
        scene.set("offer_idle", rule.name());
        live(&mut scene, dice, n_nodes);
        scene.is_durable();
        n_offers += check(&scene.facts(), tolerance);
    });
    println!("{n_offers} offers");
    assert!(n_offers > 0 || Settings::default().offer_idle == rms_model::OfferRule::Never);
}

#[test]
fn no_offer_moves_an_estimate() {
    run("no_offer_moves_an_estimate", 20, Span::ZERO);
}

#[test]
fn long_no_offer_moves_an_estimate() {
    run("no_offer_moves_an_estimate", 200, Span::ZERO);
}

#[test]
fn no_offer_moves_an_estimate_by_more_than_the_tolerance() {
    run("no_offer_moves_an_estimate_by_more", 12, Span::from_secs(100));
}

#[test]
fn long_no_offer_moves_an_estimate_by_more_than_the_tolerance() {
    run("no_offer_moves_an_estimate_by_more", 120, Span::from_secs(100));
}
