//! What the queue policies decide where sizes may be chosen.

use rms_api::answer::JobState;
use rms_api::call::{Nodes, Shape};
use rms_model::Span;

use super::World;

/// Behind the head of the queue a job keeps its better, later size. That others are only guessed to be before it there
/// does not let it start in its worse one: whoever asks for estimates must not change what a pass decides.
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
