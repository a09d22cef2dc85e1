//! A pass that goes on from what the last one kept decides as one that begins anew: each pass of these tests is checked
//! for that (`assert_same_plan`).

use rms_api::Call;
use rms_api::call::{Nodes, Select, Shape};
use rms_model::{JobId, Mebibytes, Span};
use test_kit::{Dice, for_seeds};

use super::World;
use super::sharing::shared;
use crate::Event;
use crate::state::job::Phase;

const NODES: [(u32, u32); 6] = [(8, 1), (8, 1), (8, 0), (8, 0), (4, 0), (4, 0)];

#[test]
fn what_a_pass_keeps_is_what_the_state_says() {
    keep_plans(3);
}

#[test]
fn long_what_a_pass_keeps_is_what_the_state_says() {
    let n_resumed = keep_plans(60);
    assert!(n_resumed > 5000, "{n_resumed} passes went on from another");
}

/// Returns how many passes went on from what the last one had kept.
fn keep_plans(n_seeds: u64) -> u64 {
    let mut n_resumed = 0;
    for_seeds("what_a_pass_keeps_is_what_the_state_says", n_seeds, |dice| {
        let mut world = shared(&NODES);
        world.set("policy", "conservative");
        world.set("fair_start", ["0s", "5s"][dice.number(0, 1) as usize]);
        // Several things happen between two passes, or one.
        world.set("resched_timer", ["0s", "20s"][dice.number(0, 1) as usize]);
        let mut away: Option<usize> = None;
        // Some queues live for minutes, others for days.
        let longest = [100, 2000, 50_000][dice.number(0, 2) as usize];
        for _ in 0..150 {
            let next_promise =
                world.rms.state().next_promise(world.now).filter(|at| *at > world.now && dice.chance(40));
            let later = world.now + Span::from_millis(i64::from(dice.number(0, 2 * longest)) * 100);
            world.now = next_promise.unwrap_or(later);
            world.event(Event::Tick);
            let keeps = world.rms.context.keeps_plan();
            happens(&mut world, dice, longest, &mut away);
            n_resumed += u64::from(keeps && world.rms.context.keeps_plan());
        }
    });
    n_resumed
}

fn happens(world: &mut World, dice: &mut Dice, longest: u32, away: &mut Option<usize>) {
    let state = world.rms.state();
    let running: Vec<JobId> =
        state.jobs().iter().filter(|(_, entry)| entry.started().is_some()).map(|(job, _)| *job).collect();
    let waiting: Vec<JobId> = state.queue().collect();
    let one = |dice: &mut Dice, jobs: &[JobId]| Select::Ids(vec![jobs[dice.below(jobs.len() as u64) as usize]]);
    match dice.number(0, 18) {
        0..9 => {
            let n_nodes = dice.number(1, 3);
            world.submit_with(|submission| {
                let wall = Some(Span::from_secs(dice.number(1, longest).into()));
                submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall }];
                submission.n_tasks = Some(n_nodes);
                submission.cpus_per_task = dice.number(1, 4);
                submission.constraint.memory = Mebibytes(u64::from(dice.number(0, 2)) * 1500);
                submission.resources.exclusive = dice.chance(5);
                let n_gpus = u32::from(n_nodes == 1 && dice.chance(10));
                submission.resources.devices = [("gpu".to_owned(), n_gpus)].into_iter().collect();
            });
        }
        9..14 if !running.is_empty() => {
            let job = running[dice.below(running.len() as u64) as usize];
            // A job that stays beyond its wall time is asked to end, and then ends.
            world.ends(job);
        }
        14 if !waiting.is_empty() => _ = world.ask(Call::Cancel { select: one(dice, &waiting) }),
        15 if !waiting.is_empty() => {
            let select = one(dice, &waiting);
            world.ask(Call::Hold { select: select.clone() });
            if dice.chance(50) {
                world.ask(Call::Release { select });
            }
        }
        16 => {
            let jobs = world.rms.state().jobs().iter();
            let held = jobs.filter(|(_, entry)| matches!(entry.phase, Phase::Submitted { hold: Some(_) }));
            let held: Vec<JobId> = held.map(|(job, _)| *job).collect();
            if !held.is_empty() {
                world.ask(Call::Release { select: one(dice, &held) });
            }
        }
        17 => match away.take() {
            Some(idx) => {
                let name = format!("n{}", idx + 1);
                let node = world.rms.state().node_named(&name).expect("it has joined");
                let inventory = world.rms.state().nodes()[&node].inventory.clone();
                world.joins(&name, inventory, Vec::new());
            }
            None => {
                let idx = dice.below(NODES.len() as u64) as usize;
                world.event(Event::AgentGone { name: format!("n{}", idx + 1) });
                *away = Some(idx);
            }
        },
        _ => {}
    }
}
