//! Decisions of the queue policies where sizes may be chosen.

use rms_api::answer::JobState;
use rms_api::call::{Nodes, Shape};
use rms_model::Span;

use super::World;
use crate::Event;

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
        assert_eq!(estimate(&mut world, last), world.now + Span::from_secs(100), "{allocation}");
    }
}
