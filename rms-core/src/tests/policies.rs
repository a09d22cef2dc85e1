//! Decisions of the queue policies where sizes may be chosen.

use rms_api::answer::JobState;
use rms_api::call::{Nodes, Shape};
use rms_model::{ExpandLimit, Inventory, JobId, Outcome, Span, Time};
use test_kit::for_seeds;

use super::{NullJournal, World};
use crate::Event;
use crate::plan::{Scope, plan};
use crate::state::job::Job;

/// Behind the head of the queue a job keeps its better, later size. That others are only assumed to be before it there
/// does not let it start in its worse one: a query for estimates must not change what a pass decides.
#[test]
fn under_easy_an_estimate_starts_nobody_whom_the_pass_does_not() {
    let mut world = World::new();
    (1..=5).for_each(|number| {
        world.node(&format!("n{number}"), &[]);
    });
    world.set("policy", "easy");
    world.submit(2, 600, &[]);
    let head = world.submit(4, 300, &[]);
    let long = world.submit(4, 3600, &[]);
    let moldable = world.submit_with(|submission| {
        let shape = |nodes, mins| Shape { nodes: Nodes::Count(nodes), wall: Some(Span::from_mins(mins)) };
        submission.shapes = vec![shape(4, 1), shape(1, 20)];
    });
    let estimates = [head, long, moldable].map(|job| world.line(job));
    assert_eq!(estimates.map(|line| line.state), [JobState::Waiting; 3]);
    let estimate = world.line(moldable).estimate.expect("it fits");
    assert!(estimate >= world.now + Span::from_mins(15), "its four nodes come after those of the head: {estimate:?}");
}

/// A job that is killed at its limit stays a moment longer than planned. The job to which its nodes were promised gets
/// them as soon as it is gone, and does not fall behind later jobs.
#[test]
fn under_conservative_who_waits_for_a_late_job_keeps_its_turn() {
    for allocation in ["nodes", "cores"] {
        let mut world = World::new();
        (1..=2).for_each(|number| {
            world.node(&format!("n{number}"), &[]);
        });
        world.set("policy", "conservative");
        world.set("allocation", allocation);
        let late = world.submit(2, 100, &[]);
        let next = world.submit(2, 100, &[]);
        let last = world.submit(2, 100, &[]);
        world.event(Event::Tick);
        let limit = world.now + Span::from_secs(100);
        let estimate = |world: &mut World, job| world.line(job).estimate.expect("it is planned");
        assert_eq!(estimate(&mut world, next), limit);
        world.now = limit;
        world.event(Event::Tick);
        assert!(estimate(&mut world, next) < estimate(&mut world, last), "{allocation}");
        world.now += Span::from_millis(100);
        world.ends(late);
        world.event(Event::Tick);
        assert_eq!(world.line(next).state, JobState::Started, "{allocation}");
        assert_eq!(estimate(&mut world, last), limit + Span::from_secs(100), "{allocation}: as it was promised");
    }
}

/// A job that is not gone a second after its wall time is over may stay until it is killed: so long others may use what
/// is free beside it, and nothing else need happen for that. Before, they would delay who waits for it.
#[test]
fn who_would_have_delayed_the_next_job_starts_while_a_late_one_stays() {
    for (policy, allocation) in [("views", "nodes"), ("easy", "nodes"), ("conservative", "nodes"), ("easy", "cores")] {
        let mut world = World::new();
        (1..=2).for_each(|number| {
            world.node(&format!("n{number}"), &[]);
        });
        world.set("policy", policy);
        world.set("allocation", allocation);
        let [done, _late] = [(); 2].map(|()| world.submit(1, 10, &[]));
        let next = world.submit(2, 100, &[]);
        let short = world.submit(1, 8, &[]);
        world.event(Event::Tick);
        let limit = world.now + Span::from_secs(10);
        let is_started = |world: &mut World, job| world.line(job).state == JobState::Started;
        world.now += Span::from_secs(5);
        world.ends(done);
        world.event(Event::Tick);
        world.now = limit + Span::from_millis(15);
        let shorter = world.submit(1, 2, &[]);
        world.event(Event::Tick);
        assert!(!is_started(&mut world, short) && !is_started(&mut world, shorter), "{policy}, {allocation}");

        for (late, starts) in [(Span::from_millis(100), false), (Span::from_secs(1), true)] {
            assert_eq!(world.rms.next_timer(), Some(limit + late), "{policy}, {allocation}");
            world.now = limit + late;
            world.event(Event::Tick);
            assert_eq!(is_started(&mut world, short), starts, "{policy}, {allocation}, {late:?}");
        }
        for _ in 0..2 {
            let estimate = world.line(next).estimate;
            assert_eq!(estimate, Some(limit + Span::from_secs(10)), "{policy}, {allocation}: it is killed then");
            world.now += Span::from_secs(5);
        }
    }
}

/// Who starts gives up a place within the depth of the queue to the next one, which may start as well.
#[test]
fn who_comes_within_the_depth_of_the_queue_starts_at_the_same_instant() {
    for policy in ["views", "easy", "conservative"] {
        let mut world = World::new();
        (1..=3).for_each(|number| {
            world.node(&format!("n{number}"), &[]);
        });
        world.set("policy", policy);
        world.set("queue_depth", "1");
        let first = world.submit(3, 100, &[]);
        let others = [(); 3].map(|()| world.submit(1, 100, &[]));
        world.event(Event::Tick);
        world.now += Span::from_secs(10);
        world.ends(first);
        while world.rms.next_timer().is_some_and(|at| at <= world.now) {
            world.event(Event::Tick);
        }
        assert_eq!(others.map(|job| world.line(job).state), [JobState::Started; 3], "{policy}");
    }
}

/// Its first stage fits now, and its second one when the other job has left: it starts so that it has both in time.
#[test]
fn an_evolving_application_starts_when_that_was_planned() {
    let mut world = World::new();
    (1..=3).for_each(|number| {
        world.node(&format!("n{number}"), &[]);
    });
    world.submit(1, 100, &[]);
    let evolves = world.evolving("1x20s,3x30s", ExpandLimit::NONE);
    world.event(Event::Tick);
    let at = world.now + Span::from_secs(80);
    assert_eq!(world.line(evolves).estimate, Some(at));
    assert_eq!(world.rms.next_timer(), Some(at));
    world.now = at;
    world.event(Event::Tick);
    assert_eq!(world.line(evolves).state, JobState::Started);
}

/// After each pass a search of all jobs moves nobody: whom the pass has skipped could not have started earlier.
#[test]
fn long_whom_a_conservative_pass_skips_could_not_start_earlier() {
    for_seeds("long_whom_a_conservative_pass_skips_could_not_start_earlier", 15, |dice| {
        let mut world = World::new();
        for (key, value) in
            [("policy", "conservative"), ("allocation", "cores"), ("fair_start", "0s"), ("resched_timer", "0s")]
        {
            world.set(key, value);
        }
        for node in 0..12 {
            world.joins(&format!("n{node}"), Inventory { cores: 8, cpus: 8, ..Inventory::default() }, Vec::new());
        }
        for turn in 0..60 {
            for _ in 0..if turn == 0 { 40 } else { dice.number(0, 2) } {
                let (nodes, cpus, wall) = (dice.number(1, 3), dice.number(1, 8), dice.number(10, 900).into());
                world.submit_with(|submission| {
                    submission.shapes = vec![Shape { nodes: Nodes::Count(nodes), wall: Some(Span::from_secs(wall)) }];
                    (submission.n_tasks, submission.cpus_per_task) = (Some(nodes), cpus);
                });
            }
            let ends = |(job, entry): (&JobId, &Job)| Some((entry.started()?.at + entry.started()?.request.wall, *job));
            let mut ends: Vec<(Time, JobId)> = world.rms.state().jobs().iter().filter_map(ends).collect();
            ends.sort_unstable();
            let Some((first, at_its_wall)) = ends.first().copied() else { break };
            let early = dice.number(0, 1) == 0;
            let job = if early { ends[dice.below(ends.len() as u64) as usize].1 } else { at_its_wall };
            world.now = if early { first.min(world.now + Span::from_secs(dice.number(1, 20).into())) } else { first };
            for (_, job) in ends.into_iter().filter(|(end, due)| *end <= world.now || *due == job) {
                let (run, outcome) = (world.rms.state().jobs()[&job].run, Outcome::Completed);
                let done = world.rms.handle(world.now, Event::ApplicationDone { job, run, outcome });
                let Ok(_) = done.commit(&mut NullJournal);
            }
            world.event(Event::Tick);
            let state = world.rms.state();
            for placement in plan(state, world.now, Scope::Starts).placements {
                let promised = state.demand(placement.job).and_then(|(_, demand)| demand.promised);
                assert_eq!(placement.outcome.later(), promised, "turn {turn}, job {}", placement.job);
            }
        }
    });
}
