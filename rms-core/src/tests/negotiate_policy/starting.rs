//! Waiting malleable jobs: with how many nodes they start, and which limits are refused.

use rms_api::call::{Nodes, Shape};
use rms_model::{Evolving, ExpandLimit, Expansion, JobId, Malleable, OnResize, Sizes, Span, Speedup, Time};

use crate::tests::World;

pub(super) fn limits(least: u32, most: u32, sizes: Sizes) -> Malleable {
    Malleable { least, most, sizes, on_resize: OnResize::Negotiates, speedup: Speedup::default(), survives_loss: None }
}

impl World {
    fn nodes_of(&mut self, n_nodes: u32) {
        for number in 1..=n_nodes {
            self.node(&format!("n{number}"), &[]);
        }
    }

    /// Submits a malleable job that leaves its size open.
    fn malleable_job(&mut self, malleable: Malleable, wall_secs: i64) -> JobId {
        self.submit_with(|submission| {
            submission.malleable = Some(malleable);
            submission.shapes = vec![Shape { nodes: Nodes::FromTasks, wall: Some(Span::from_secs(wall_secs)) }];
        })
    }

    fn n_held(&self, job: JobId) -> usize {
        self.rms.state().jobs()[&job].nodes().len()
    }
}

#[test]
fn a_malleable_job_starts_with_as_many_nodes_as_are_free() {
    let mut world = World::new();
    world.nodes_of(8);
    let first = world.malleable_job(limits(2, 5, Sizes::Any), 100);
    let second = world.malleable_job(limits(2, 5, Sizes::Any), 100);
    assert_eq!((world.n_held(first), world.n_held(second)), (5, 3));
}

#[test]
fn it_starts_small_rather_than_wait() {
    let mut world = World::new();
    world.nodes_of(8);
    world.submit(5, 100, &[]);
    let twos = world.malleable_job(limits(1, 8, Sizes::PowerOfTwo), 100);
    assert_eq!(world.n_held(twos), 2, "3 are free, and 3 is no power of two");
    let waits = world.malleable_job(limits(2, 8, Sizes::Any), 100);
    assert_eq!(world.n_held(waits), 0, "1 is too few");
    assert_eq!(world.line(waits).estimate, Some(world.now + Span::from_secs(100)));
}

#[test]
fn a_size_that_was_named_is_the_size_to_start_with() {
    let mut world = World::new();
    world.nodes_of(8);
    let job = world.submit_with(|submission| {
        submission.malleable = Some(limits(2, 8, Sizes::Any));
        submission.shapes = vec![Shape { nodes: Nodes::Count(3), wall: None }];
    });
    assert_eq!(world.n_held(job), 3);
}

#[test]
fn nothing_but_negotiable_starts_like_any_other() {
    let mut world = World::new();
    world.nodes_of(8);
    let job = world.submit_with(|submission| {
        submission.malleable = Some(limits(0, 0, Sizes::Any));
        submission.shapes = vec![Shape { nodes: Nodes::Count(3), wall: None }];
    });
    assert_eq!(world.n_held(job), 3);
    let spec = &world.rms.state().jobs()[&job].spec;
    assert_eq!(spec.malleable.as_ref().map(|limits| limits.range(3)), Some((3, 3)));
}

#[test]
fn limits_that_are_not_possible_here_are_refused_and_told_what_is() {
    let mut world = World::new();
    world.nodes_of(4);
    let refused = |world: &mut World, change: &dyn Fn(&mut rms_api::call::Submission)| {
        world.refused(|submission| {
            submission.malleable = Some(limits(2, 4, Sizes::Any));
            change(submission);
        })
    };
    let beyond = refused(&mut world, &|submission| submission.malleable = Some(limits(5, 6, Sizes::Any)));
    assert!(beyond.contains("cluster c has 4"), "{beyond}");
    let empty = refused(&mut world, &|submission| submission.malleable = Some(limits(3, 2, Sizes::Any)));
    assert!(empty.contains("the least is not above the most"), "{empty}");
    let outside = refused(&mut world, &|submission| {
        submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: None }];
    });
    assert!(outside.contains("1 node is not a size of this job, which may have from 2 to 4"), "{outside}");
    let both = refused(&mut world, &|submission| {
        let stages = "1x10s,2x10s".parse().expect("a profile");
        let expansion = Expansion { limit: ExpandLimit::NONE, compacting: false };
        submission.evolving = Some(Evolving { stages, expansion, open: false });
    });
    assert!(both.contains("not both"), "{both}");
    assert_eq!(world.now, Time::from_secs(1_000_000));
}
