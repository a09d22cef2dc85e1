//! Nodes on which `mpirun` has started ranks are not requested, nor given back, before all of these ranks end.

use negotiation::{Direction, Reason};
use rms_api::Call;
use rms_api::answer::Answer;
use rms_api::call::{Query, Select};
use rms_api::negotiate::{AskOutcome, Keeps, Manner};
use rms_model::{JobId, NodeId, Sizes};

use super::super::negotiate::nodes;
use super::{Scene, hour, speaking};

impl Scene {
    /// Declares that the job's ranks are on all of its nodes.
    fn keeps_its_start(&mut self, job: JobId) {
        self.attach_as(job, Manner { keeps: Keeps::All, ..Manner::default() }).expect("it may");
    }

    /// Starts an application on four of these nodes, by `mpirun`.
    fn started_by_mpirun(n_nodes: u32) -> (Scene, JobId) {
        let mut scene = Scene::offering(n_nodes);
        scene.set("offer_idle", "never");
        let job = scene.submit(4, hour(), Some(speaking(1, 8, Sizes::Any)));
        scene.keeps_its_start(job);
        (scene, job)
    }

    fn least_of(&mut self, job: JobId) -> u32 {
        match self.call(Call::Query(Query::Explain(Select::Ids(vec![job])))) {
            Ok(Answer::Detail { jobs, .. }) => jobs[0].line.malleable.as_ref().expect("it is malleable").least,
            other => panic!("not explained: {other:?}"),
        }
    }

    /// Returns the outcome of a request to give nodes back.
    fn gives_back(&mut self, job: JobId, names: &[&str], quantity: u64) -> AskOutcome {
        let mut ask = nodes(Direction::Shrink, quantity, quantity);
        ask.nodes = names.iter().map(|name| (*name).to_owned()).collect();
        let ticket = self.ask(job, ask);
        self.outcome(ticket).expect("it is over")
    }

    /// Lets the application agree to the request, and release its last nodes.
    fn obliges(&mut self, job: JobId, n_nodes: usize) {
        let wish = self.wish_to(job).expect("it is asked");
        assert_eq!(self.n_proposed(job, wish), n_nodes as u64);
        self.accepts(job, wish);
        let held = self.held(job);
        let last = held[held.len() - n_nodes..].iter().copied().map(NodeId).collect();
        self.app_acts(job, wish, negotiation::Action::Commit(last));
    }
}

#[test]
fn nobody_is_asked_for_nodes_of_the_start_and_others_are() {
    let (mut scene, job) = Scene::started_by_mpirun(8);
    let other = scene.submit(4, hour(), Some(speaking(1, 8, Sizes::Any)));
    scene.attach(other).expect("it may");
    let waits = scene.rigid(3, hour());
    assert_eq!(scene.wish_to(job), None, "its ranks cannot leave");
    scene.obliges(other, 3);
    assert!(scene.is_started(waits));
    let next = scene.rigid(1, hour());
    assert_eq!((scene.wish_to(job), scene.is_started(next)), (None, false), "it waits");
    assert_eq!((scene.least_of(job), scene.least_of(other)), (4, 1), "which is explained");
}

#[test]
fn nodes_that_came_later_can_leave_again() {
    let (mut scene, job) = Scene::started_by_mpirun(6);
    scene.ask(job, nodes(Direction::Grow, 2, 2));
    assert_eq!(scene.held(job), [1, 2, 3, 4, 5, 6]);
    let too_large = scene.rigid(3, hour());
    assert_eq!(scene.wish_to(job), None, "three cannot be given");
    scene.cancel(too_large);
    let waits = scene.rigid(2, hour());
    scene.obliges(job, 2);
    assert!(scene.is_started(waits));
    assert_eq!(scene.held(job), [1, 2, 3, 4]);
    scene.is_durable();
}

/// One drained node could be spared by number, but only the other has no pinned ranks.
#[test]
fn a_drained_node_is_asked_for_only_if_its_ranks_can_leave() {
    let (mut scene, job) = Scene::started_by_mpirun(6);
    scene.ask(job, nodes(Direction::Grow, 2, 2));
    let drain = |scene: &mut Scene, node: &str| {
        scene.call(Call::Drain { nodes: vec![node.to_owned()], reason: "new memory".to_owned() }).expect("it is known");
    };
    drain(&mut scene, "n2");
    assert_eq!(scene.wish_to(job), None);
    drain(&mut scene, "n5");
    let wish = scene.wish_to(job).expect("ranks that were spawned can leave");
    let named = scene.app_sees(job, wish).map(|template| template.items()[0].nodes.clone());
    assert_eq!(named, Some([NodeId(5)].into()));
}

#[test]
fn its_own_shrink_below_its_start_is_refused_with_the_reason() {
    let (mut scene, job) = Scene::started_by_mpirun(6);
    scene.ask(job, nodes(Direction::Grow, 1, 1));
    let is_refused = |outcome| matches!(outcome, AskOutcome::Failed { reason: Reason::KeepsRanks, .. });
    assert!(is_refused(scene.gives_back(job, &[], 2)));
    assert!(is_refused(scene.gives_back(job, &["n2"], 1)), "there are its ranks");
    assert!(matches!(scene.gives_back(job, &["n5"], 1), AskOutcome::Ready { .. }));
    assert_eq!(scene.held(job), [1, 2, 3, 4]);
}

#[test]
fn after_a_restart_its_process_says_so_again_and_after_its_end_nobody_does() {
    let (mut scene, job) = Scene::started_by_mpirun(6);
    scene.ask(job, nodes(Direction::Grow, 2, 2));
    scene.restart();
    let names = ["n1", "n2", "n3", "n4"].map(str::to_owned).to_vec();
    scene.attach_as(job, Manner { keeps: Keeps::Nodes(names), ..Manner::default() }).expect("it may");
    scene.rigid(3, hour());
    assert_eq!((scene.wish_to(job), scene.least_of(job)), (None, 4));
    scene
        .attach_as(job, Manner { keeps: Keeps::Nodes(vec!["elsewhere".to_owned()]), ..Manner::default() })
        .expect("it may");
    assert_eq!(scene.least_of(job), 6, "what it means is not known: all of them");
    scene.hangs_up(job);
    assert!(matches!(scene.gives_back(job, &[], 5), AskOutcome::Ready { .. }), "the script goes on without its ranks");
}
