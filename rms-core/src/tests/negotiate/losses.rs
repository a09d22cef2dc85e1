//! Nodes of malleable applications are lost: those that can go on shrink by force, as long as enough nodes are left.

use rms_model::{Malleable, NodeId, OnResize, Sizes, Span};

use super::*;

const HOUR: Span = Span::from_hours(1);

impl Scene {
    /// Disconnects the node until it is lost.
    pub(super) fn loses(&mut self, node: &str) {
        self.event(Event::AgentGone { name: node.to_owned() });
        self.after(Span::from_secs(61));
    }

    pub(super) fn has_survived(&self, job: JobId, nodes: &[u32]) {
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

#[test]
fn whose_negotiator_can_go_on_does_and_is_told_what_it_lost() {
    let mut scene = Scene::new(4);
    let job = scene.submit(4, HOUR, Some(malleable(2, 4, OnResize::Negotiates)));
    scene.attach_as(job, Manner { survives_loss: true, ..Manner::default() }).expect("it may");
    scene.loses("n3");
    scene.has_survived(job, &[1, 2, 4]);
    assert_eq!(scene.app(job).lost, [NodeId(3)]);
    assert_eq!(scene.generation(job), 2, "its hostfile follows");
    // Between two connections the program is still the same.
    scene.hangs_up(job);
    scene.loses("n4");
    scene.has_survived(job, &[1, 2]);
    scene.loses("n2");
    assert!(!scene.is_started(job), "below its least the rule for lost nodes decides");
}

#[test]
fn who_has_not_said_that_it_can_go_on_ends_with_its_node() {
    for on_resize in [OnResize::Negotiates, OnResize::Signal(10), OnResize::Hook("adapt".to_owned())] {
        let mut scene = Scene::new(3);
        let job = scene.submit(3, HOUR, Some(malleable(1, 3, on_resize.clone())));
        if on_resize == OnResize::Negotiates {
            scene.attach(job).expect("it may");
        }
        scene.loses("n3");
        assert!(!scene.is_started(job), "{on_resize:?}");
    }
}

#[test]
fn what_was_submitted_counts_before_what_it_is_or_says() {
    let submitted = |on_resize, survives| Malleable { survives_loss: Some(survives), ..malleable(1, 3, on_resize) };
    let mut scene = Scene::new(3);
    let job = scene.submit(3, HOUR, Some(submitted(OnResize::Workers, false)));
    scene.loses("n3");
    assert!(!scene.is_started(job), "a farm that is not to go on");

    let mut scene = Scene::new(3);
    let job = scene.submit(3, HOUR, Some(submitted(OnResize::Negotiates, false)));
    scene.attach_as(job, Manner { survives_loss: true, ..Manner::default() }).expect("it may");
    scene.loses("n3");
    assert!(!scene.is_started(job), "whatever its process says");

    let mut scene = Scene::new(3);
    let job = scene.submit(3, HOUR, Some(submitted(OnResize::Signal(10), true)));
    scene.loses("n3");
    scene.has_survived(job, &[1, 2]);
    scene.loses("n1");
    assert!(!scene.is_started(job), "what leads it ran there");
}

/// An application that negotiates for itself loses no more than the lost node: it gives the rest back when it can.
#[test]
fn a_size_that_is_of_no_use_costs_an_application_no_other_node() {
    let mut scene = Scene::new(4);
    let powers = Malleable { sizes: Sizes::PowerOfTwo, ..malleable(1, 4, OnResize::Negotiates) };
    let job = scene.submit(4, HOUR, Some(powers));
    scene.attach_as(job, Manner { survives_loss: true, ..Manner::default() }).expect("it may");
    scene.loses("n2");
    scene.has_survived(job, &[1, 3, 4]);
}

/// Setting a node down ends what runs there: for an application that can go on that is the same as a loss.
#[test]
fn a_node_that_is_taken_down_is_a_lost_one_for_who_can_go_on() {
    let down = |scene: &mut Scene, node: &str| {
        let call = Call::Down { nodes: vec![node.to_owned()], reason: "disk".to_owned() };
        scene.call(call).expect("it is an admin");
        scene.after(Span::from_secs(1));
    };
    let mut scene = Scene::new(4);
    let job = scene.submit(4, HOUR, Some(farm(1, 4)));
    let nodes = scene.held(job);
    down(&mut scene, "n1");
    scene.has_survived(job, &nodes[1..]);
    let entry = &scene.world.rms.state().nodes()[&NodeId(1)];
    assert!(entry.holders.is_empty(), "its agent has ended what ran there");

    let mut scene = Scene::new(3);
    let job = scene.submit(3, HOUR, Some(malleable(1, 3, OnResize::Negotiates)));
    scene.attach_as(job, Manner { survives_loss: true, ..Manner::default() }).expect("it may");
    down(&mut scene, "n2");
    scene.has_survived(job, &[1, 3]);
    assert_eq!(scene.app(job).lost, [NodeId(2)]);

    let mut scene = Scene::new(3);
    let job = scene.submit(3, HOUR, Some(malleable(1, 3, OnResize::Signal(10))));
    down(&mut scene, "n2");
    assert!(!scene.is_started(job), "ranks that need each other end with it");
}

/// The server is killed between the declaration and the loss: the declaration counts, even before the negotiator is
/// back.
#[test]
fn what_a_process_has_said_of_losses_outlives_the_server() {
    let mut scene = Scene::new(4);
    let job = scene.submit(4, HOUR, Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach_as(job, Manner { survives_loss: true, ..Manner::default() }).expect("it may");
    scene.power_cut();
    scene.loses("n3");
    scene.has_survived(job, &[1, 2, 4]);
    // Another negotiator declares otherwise.
    scene.attach(job).expect("it may");
    scene.restart();
    scene.loses("n4");
    assert!(!scene.is_started(job), "the last word counts");
}
