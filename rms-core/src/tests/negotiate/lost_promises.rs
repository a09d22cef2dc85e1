//! Nodes that an application has promised to give back, and that are lost before it has left them.

use negotiation::{Action, Direction, Ending, Item, NegotiationId, Phase, Quantity, Reason, Resource};
use rms_api::Call;
use rms_api::negotiate::{AskOutcome, Manner};
use rms_model::{ClusterId, JobId, NodeId, OnResize, Span};

use super::{Scene, malleable, nodes};

const HOUR: Span = Span::from_hours(1);

impl Scene {
    /// Starts an application that can go on without lost nodes.
    fn survivor(&mut self, n_nodes: u32, least: u32) -> JobId {
        let job = self.submit(n_nodes, HOUR, Some(malleable(least, n_nodes, OnResize::Negotiates)));
        self.attach_as(job, Manner { survives_loss: true, ..Manner::default() }).expect("it may");
        job
    }

    /// Lets the application promise to give back `n_nodes` nodes, by its own proposal.
    fn promises(&mut self, job: JobId, n_nodes: u64) -> NegotiationId {
        let held = self.held(job).len() as u64;
        let id = self.app_opens(job, Direction::Shrink, Item::up_to(Resource::Nodes(ClusterId(0)), held, n_nodes));
        assert_eq!(self.app_phase(job, id), Phase::Accepted);
        id
    }

    fn why(&mut self, job: JobId, id: NegotiationId) -> Option<Reason> {
        self.app(job).dialogues.get(id).and_then(|dialogue| dialogue.reason())
    }
}

/// Returns an application on all nodes that has promised to give some of them back.
fn promised(n_nodes: u32, least: u32, n_given: u64, grace: &str) -> (Scene, JobId, NegotiationId) {
    let mut scene = Scene::new(n_nodes);
    scene.set("release_grace", grace);
    let job = scene.survivor(n_nodes, least);
    let id = scene.promises(job, n_given);
    (scene, job, id)
}

fn set(nodes: &[u32]) -> std::collections::BTreeSet<NodeId> {
    nodes.iter().map(|node| NodeId(*node)).collect()
}

#[test]
fn a_lost_node_that_was_promised_fulfils_the_promise() {
    let mut scene = Scene::new(4);
    scene.set("release_grace", "120s");
    let job = scene.survivor(3, 1);
    let id = scene.promises(job, 1);
    scene.loses("n3");
    assert_eq!(scene.app_phase(job, id), Phase::Applied, "nothing is left to be given back");
    scene.has_survived(job, &[1, 2]);
    // A release that was on its way comes too late, and no other node is taken for it.
    let dialogue = scene.app(job).dialogues.get(id).expect("it is known");
    assert_eq!(dialogue.nodes(), Some(&set(&[3])), "it is told which");
    scene.after(Span::from_mins(10));
    scene.has_survived(job, &[1, 2]);
}

#[test]
fn the_same_holds_for_what_the_server_has_asked_for() {
    let mut scene = Scene::new(4);
    scene.set("release_grace", "120s");
    let job = scene.survivor(4, 1);
    let id = scene.wants_back(job, 1);
    scene.app_acts(job, id, Action::Accept);
    scene.loses("n4");
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    scene.after(Span::from_mins(10));
    scene.has_survived(job, &[1, 2, 3]);
}

/// Of two nodes one is lost: the application releases both, as it was told, and no third one.
#[test]
fn a_part_that_is_lost_counts() {
    let (mut scene, job, id) = promised(5, 1, 2, "120s");
    scene.loses("n4");
    assert_eq!(scene.app_phase(job, id), Phase::Accepted, "one node is still to be left");
    scene.is_durable();
    scene.app_acts(job, id, Action::Commit(set(&[4, 5])));
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    scene.has_survived(job, &[1, 2, 3]);
    assert_eq!(scene.n_free(), 1);
}

#[test]
fn who_then_breaks_the_promise_loses_the_rest_of_it_and_no_more() {
    let (mut scene, job, id) = promised(5, 1, 2, "90s");
    scene.loses("n5");
    // The server is killed between the loss and the warning.
    scene.power_cut();
    scene.attach_as(job, Manner { survives_loss: true, ..Manner::default() }).expect("it may");
    scene.after(Span::from_secs(60));
    let doomed: Vec<u32> = {
        let holding = scene.app(job).holding.as_ref().expect("it was told");
        holding.nodes.iter().filter(|node| node.is_departing).map(|node| node.node.0).collect()
    };
    assert_eq!(doomed, [4], "it is warned");
    scene.after(Span::from_secs(90));
    assert_eq!(scene.why(job, id), Some(Reason::BrokenPromise));
    scene.has_survived(job, &[1, 2, 3]);
}

#[test]
fn one_after_the_other_is_lost() {
    let (mut scene, job, id) = promised(5, 1, 2, "5m");
    scene.loses("n5");
    scene.loses("n4");
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    scene.has_survived(job, &[1, 2, 3]);
}

/// Other nodes than those that were promised instead of those that are lost: nothing is taken, since more would go than
/// was agreed.
#[test]
fn who_releases_other_nodes_instead_keeps_them() {
    let (mut scene, job, id) = promised(5, 1, 2, "120s");
    scene.loses("n5");
    scene.app_acts(job, id, Action::Commit(set(&[2, 3])));
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Failed));
    assert_eq!(scene.why(job, id), Some(Reason::Changed));
    scene.has_survived(job, &[1, 2, 3, 4]);
}

#[test]
fn a_promise_stands_if_another_node_is_lost() {
    let (mut scene, job, id) = promised(4, 1, 1, "120s");
    scene.loses("n2");
    assert_eq!(scene.app_phase(job, id), Phase::Accepted);
    scene.app_acts(job, id, Action::Commit(set(&[4])));
    scene.has_survived(job, &[1, 3]);

    // Unless too few would be left.
    let (mut scene, job, id) = promised(4, 3, 1, "120s");
    scene.loses("n2");
    assert_eq!(scene.why(job, id), Some(Reason::Changed));
    scene.has_survived(job, &[1, 3, 4]);
}

#[test]
fn what_is_promised_below_the_least_is_kept_if_it_is_lost_itself() {
    let (mut scene, job, id) = promised(4, 3, 1, "120s");
    scene.loses("n4");
    assert_eq!(scene.app_phase(job, id), Phase::Applied, "it has its least still");
    scene.has_survived(job, &[1, 2, 3]);
}

/// Setting a node down ends what runs there: the shrink is ready when that is over.
#[test]
fn a_promised_node_that_is_taken_down_is_a_lost_one() {
    let mut scene = Scene::new(4);
    let job = scene.survivor(4, 1);
    let id = scene.promises(job, 1);
    let call = Call::Down { nodes: vec!["n4".to_owned()], reason: "disk".to_owned() };
    scene.call(call).expect("it is an admin");
    scene.after(Span::from_secs(1));
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    scene.after(Span::from_mins(10));
    scene.has_survived(job, &[1, 2, 3]);
}

/// A job that is told by a signal is leaving two nodes, and one of them is lost: it leaves the other.
#[test]
fn a_node_that_is_lost_while_a_job_leaves_it_is_left() {
    let mut scene = Scene::new(4);
    scene.set("release_grace", "5m");
    let survives = rms_model::Malleable { survives_loss: Some(true), ..malleable(1, 4, OnResize::Signal(10)) };
    let job = scene.submit(4, HOUR, Some(survives));
    let ticket = scene.ask(job, nodes(Direction::Shrink, 2, 2));
    assert_eq!(scene.departing(job), [3, 4]);
    scene.loses("n4");
    scene.has_survived(job, &[1, 2, 3]);
    assert_eq!(scene.departing(job), [3], "it goes on leaving");
    let generation = scene.generation(job);
    scene.call(Call::ResizeDone { job, generation }).expect("it may");
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 2, .. })));
    scene.has_survived(job, &[1, 2]);
}

/// A waiting job needs two nodes. One of those that were promised for it is lost: the server asks for another one, and
/// counts the one that is still to come.
#[test]
fn what_is_lost_for_a_waiting_job_is_asked_for_again() {
    let mut scene = Scene::new(5);
    scene.set("shrink_for", "queue");
    scene.set("release_grace", "5m");
    let job = scene.survivor(5, 1);
    let waiting = scene.submit(2, HOUR, None);
    scene.after(Span::from_secs(1));
    let first = NegotiationId { initiator: negotiation::Side::Rms, number: 1 };
    scene.app_acts(job, first, Action::Accept);
    scene.loses("n5");
    scene.app_acts(job, first, Action::Commit(set(&[4, 5])));
    assert_eq!(scene.app_phase(job, first), Phase::Applied);
    scene.after(Span::from_secs(1));
    let second = NegotiationId { number: 2, ..first };
    let asked = scene.app(job).dialogues.get(second).and_then(|dialogue| dialogue.proposal()).cloned();
    assert_eq!(asked.map(|asked| asked.items()[0].quantity), Some(Quantity(1)), "one is free already");
    scene.app_acts(job, second, Action::Accept);
    scene.app_acts(job, second, Action::Commit(set(&[3])));
    assert!(scene.is_started(waiting));
    scene.has_survived(job, &[1, 2]);
}

/// Cores are given back on nodes, and one of the nodes is lost before its agent has confirmed it.
#[test]
fn cores_that_are_given_back_on_a_lost_node_are_gone() {
    let mut scene = Scene::new(3);
    let job = scene.survivor(3, 1);
    scene.disconnect(&["n3"]);
    let mut item = Item::up_to(Resource::Cores(ClusterId(0)), 4, 2);
    item.terms.least = Quantity(2);
    let id = scene.app_opens(job, Direction::Shrink, item);
    scene.loses("n3");
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    scene.has_survived(job, &[1, 2]);
}
