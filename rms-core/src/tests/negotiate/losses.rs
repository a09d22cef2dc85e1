//! Hosts of farms are lost: they shrink by force, as long as enough are left.

use rms_model::{Malleable, OnResize, Sizes, Span};

use super::*;

const HOUR: Span = Span::from_hours(1);

impl Scene {
    /// The node is silent until it is given up.
    fn loses(&mut self, node: &str) {
        self.event(Event::AgentGone { name: node.to_owned() });
        self.after(Span::from_secs(61));
    }

    fn has_survived(&self, job: JobId, nodes: &[u32]) {
        assert!(self.is_started(job));
        assert_eq!(self.held(job), nodes);
        self.is_durable();
    }
}

fn farm(least: u32, most: u32) -> Malleable {
    malleable(least, most, OnResize::Workers)
}

#[test]
fn a_farm_goes_on_without_a_lost_node_whichever_it_is() {
    let mut scene = Scene::new(4);
    let job = scene.submit(4, HOUR, Some(farm(1, 4)));
    let nodes = scene.held(job);
    scene.loses("n3");
    scene.has_survived(job, &[nodes[0], nodes[1], nodes[3]]);
    assert_eq!(scene.generation(job), 2);
    scene.loses("n1");
    scene.has_survived(job, &[nodes[1], nodes[3]]);
    assert_eq!(scene.generation(job), 3, "its first node is as any other");
    scene.restart();
    scene.has_survived(job, &[nodes[1], nodes[3]]);
    for node in ["n2", "n4"] {
        scene.ended(node, job, NodeExit::Exited { code: 0 });
    }
    assert!(scene.has_left(job), "it ends with its last worker");
}

#[test]
fn below_its_least_or_without_its_size_it_is_lost_with_its_node() {
    let mut scene = Scene::new(4);
    let small = scene.submit(2, HOUR, Some(farm(2, 4)));
    scene.loses("n2");
    assert_eq!(scene.world.rms.state().jobs()[&small].run, Run(2), "it was executed anew, as jobs are that may be");
    let mut scene = Scene::new(4);
    let powers = Malleable { sizes: Sizes::PowerOfTwo, ..farm(1, 4) };
    let job = scene.submit(4, HOUR, Some(powers));
    scene.loses("n2");
    assert_eq!(scene.held(job).len(), 2, "three workers are of no use to it");
    scene.is_durable();
}

#[test]
fn a_node_that_comes_back_is_cleared_and_may_be_had_again() {
    let mut scene = Scene::new(2);
    let job = scene.submit(2, HOUR, Some(farm(1, 2)));
    let nodes = scene.held(job);
    scene.loses("n2");
    scene.has_survived(job, &nodes[..1]);
    scene.set("offer_idle", "equal_share");
    scene.node_joins("n2");
    scene.after(Span::from_secs(120));
    assert_eq!(scene.held(job), nodes, "it has it again");
    scene.is_durable();
}
