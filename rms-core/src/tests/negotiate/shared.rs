//! Cores that running applications give back of shared nodes, and gain again after other jobs have had them.

use negotiation::{Direction, Reason};
use rms_api::answer::Answer;
use rms_api::masks::{JobMasks, MasksOf};
use rms_api::negotiate::{Ask, AskOutcome, Asked};
use rms_api::{Call, Query};
use rms_model::{JobId, NodeId, OnResize, Span};

use super::{Scene, malleable, nodes};

fn hour() -> Span {
    Span::from_hours(1)
}

/// Creates two nodes of four cores, and a job that has both.
fn scene_with_job() -> (Scene, JobId) {
    let mut scene = Scene::new(2);
    scene.set("allocation", "cores");
    let job = scene.submit(2, hour(), Some(malleable(1, 2, OnResize::Negotiates)));
    (scene, job)
}

impl Scene {
    fn shrinks(&mut self, job: JobId, cores: u64) -> Option<AskOutcome> {
        let ask = Ask { what: Asked::Cores { cluster: None }, ..nodes(Direction::Shrink, cores, cores) };
        let ticket = self.ask(job, ask);
        self.outcome(ticket)
    }

    fn grows(&mut self, job: JobId, cores: u64, wait: Span) -> crate::Ticket {
        let ask = Ask { what: Asked::Cores { cluster: None }, wait, ..nodes(Direction::Grow, cores, cores) };
        self.ask(job, ask)
    }

    /// Returns the job's cores on each node, which no other job may have.
    pub(super) fn parts(&self, job: JobId) -> Vec<String> {
        let state = self.world.rms.state();
        let part = |node: &NodeId| state.jobs()[&job].part_of(*node, &state.nodes()[node].inventory);
        let parts = state.jobs()[&job].nodes().iter();
        parts.map(|node| part(node).map_or("all".to_owned(), |part| part.cores.to_string())).collect()
    }

    /// Returns the cores that agents are told the job has.
    fn told(&mut self, job: JobId) -> Vec<String> {
        let desired = self.world.rms.context.desired(NodeId(1));
        let launch = &desired.jobs.iter().find(|wanted| wanted.job == job).expect("it runs there").launch;
        let part = |grant: &rms_model::Grant| grant.cores.to_string();
        launch.nodes.iter().map(|node| node.grant.as_ref().map_or("all".to_owned(), part)).collect()
    }
}

#[test]
fn cores_that_are_given_back_serve_others_at_once() {
    let (mut scene, job) = scene_with_job();
    let guest = scene.guest(2, 3, hour());
    assert!(!scene.is_started(guest));
    assert!(matches!(scene.shrinks(job, 3), Some(AskOutcome::Ready { quantity: 3, .. })));
    assert!(scene.is_started(guest));
    assert_eq!((scene.parts(job), scene.parts(guest)), (vec!["0".into(); 2], vec!["1-3".to_owned(); 2]));
    scene.is_durable();
    scene.cancel(guest);
    scene.cancel(job);
    let next = scene.submit(2, hour(), Some(malleable(1, 2, OnResize::Workers)));
    assert_eq!(scene.parts(next), ["all", "all"]);
}

#[test]
fn masks_of_jobs_on_a_node_are_apart_after_cores_were_given_back() {
    let (mut scene, job) = scene_with_job();
    let guest = scene.guest(2, 3, hour());
    scene.shrinks(job, 3);
    let masks = scene.world.ask(Call::Query(Query::Masks(MasksOf::Node("n1".to_owned()))));
    let Answer::Masks { nodes, .. } = masks else { panic!("{masks:?}") };
    let cores = |masked: &JobMasks| (masked.of.job, masked.of.cores.as_ref().map(ToString::to_string));
    let cores: Vec<_> = nodes[0].jobs.iter().map(cores).collect();
    assert_eq!(cores, [(job, Some("0".to_owned())), (guest, Some("1-3".to_owned()))]);
}

/// The processes of one node may still use them, and the negotiation may fail.
#[test]
fn cores_are_free_when_the_agents_of_all_nodes_have_said_so() {
    let (mut scene, job) = scene_with_job();
    scene.disconnect(&["n2"]);
    assert_eq!(scene.shrinks(job, 2), None);
    let guest = scene.guest(1, 2, hour());
    assert_eq!((scene.is_started(guest), scene.parts(job)), (false, vec!["all".into(); 2]));
    scene.reconnect(&["n2"]);
    assert_eq!((scene.is_started(guest), scene.parts(job)), (true, vec!["0-1".into(); 2]));
    scene.is_durable();
}

#[test]
fn cores_that_nobody_has_are_got_again_beside_those_of_others() {
    let (mut scene, job) = scene_with_job();
    scene.shrinks(job, 3);
    let guests = [scene.guest(2, 1, hour()), scene.guest(2, 1, hour())];
    assert_eq!(guests.map(|guest| scene.parts(guest).join(" ")), ["1 1", "2 2"]);
    scene.cancel(guests[0]);
    let ticket = scene.grows(job, 2, Span::ZERO);
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 2, .. })));
    assert_eq!((scene.parts(job), scene.told(job)), (vec!["0-1,3".into(); 2], vec!["0-1,3".into(); 2]));
    scene.is_durable();
    // Back to two of those that the job has now.
    scene.shrinks(job, 1);
    let next = scene.guest(2, 1, hour());
    assert_eq!((scene.parts(job), scene.parts(next)), (vec!["0-1".into(); 2], vec!["3".to_owned(); 2]));
}

#[test]
fn who_wants_cores_that_others_have_waits_for_them_and_nobody_is_made_late() {
    let (mut scene, job) = scene_with_job();
    scene.shrinks(job, 3);
    let guest = scene.guest(2, 3, Span::from_mins(5));
    let refused = scene.grows(job, 1, Span::ZERO);
    assert!(matches!(scene.outcome(refused), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
    let patient = scene.grows(job, 3, Span::from_mins(30));
    assert_eq!(scene.outcome(patient), None);
    // The next job is planned for those cores, and so gets them first.
    let next = scene.guest(2, 2, Span::from_mins(5));
    scene.cancel(guest);
    assert!(scene.is_started(next) && scene.outcome(patient).is_none());
    scene.cancel(next);
    assert!(matches!(scene.outcome(patient), Some(AskOutcome::Ready { quantity: 3, .. })), "{:?}", scene.parts(job));
}

/// What was given back of a node is not taken again when the job leaves the node, nor when it ends.
#[test]
fn a_node_that_is_left_while_others_share_it_is_left_in_part() {
    let (mut scene, job) = scene_with_job();
    scene.shrinks(job, 3);
    let guest = scene.guest(2, 3, hour());
    let ticket = scene.ask(job, nodes(Direction::Shrink, 1, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
    assert_eq!((scene.parts(job), scene.parts(guest)), (vec!["0".to_owned()], vec!["1-3".to_owned(); 2]));
    let ticket = scene.ask(job, nodes(Direction::Grow, 1, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
    scene.set("fair_start", "1m");
    scene.cancel(job);
    assert!(scene.is_started(guest));
    scene.is_durable();
}
