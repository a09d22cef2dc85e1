//! Which nodes an application gets, and which are kept for an earlier one.

use std::collections::BTreeMap;

use rms_api::answer::{Answer, JobState, Reason};
use rms_api::call::{Nodes, Select, Shape};
use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_api::{Call, Query};
use rms_model::{Inventory, JobId, NodeId, Time, Usage};

use super::World;
use crate::Event;

impl World {
    pub(super) fn finish(&mut self, job: JobId) {
        let entry = &self.rms.state().jobs()[&job];
        let (run, nodes) = (entry.run, self.rms.state().node_names(entry.nodes()));
        for name in nodes {
            let exit = NodeExit::Exited { code: 0 };
            let status = JobStatus::Ended { at: self.now, exit, usage: Usage::default() };
            let report = NodeReport { seen: Default::default(), jobs: vec![JobReport { job, run, status }] };
            self.event(Event::AgentReported { name, report });
        }
    }

    fn at_secs(&mut self, secs: i64) {
        self.now = Time::from_secs(1_000_000 + secs);
    }

    fn placed(&self) -> BTreeMap<JobId, Vec<NodeId>> {
        self.rms.state().jobs().iter().map(|(job, entry)| (*job, entry.nodes().to_vec())).collect()
    }
}

/// Two GPU nodes and a plain one. One application waits for both GPUs; the second one is free in ten seconds more.
/// A long one behind it wants any node: there will be one, but the GPU that is free now is not it.
#[test]
fn a_node_that_is_kept_for_an_earlier_application_is_not_given_to_one_that_may_use_any() {
    let mut world = World::new();
    let plain = world.node("plain", &[]);
    let gpus = [world.node("gpu1", &["gpu"]), world.node("gpu2", &["gpu"])];
    let on_plain = world.submit(1, 15, &[]);
    let on_gpus = [world.submit(1, 10, &["gpu"]), world.submit(1, 20, &["gpu"])];
    let both_gpus = world.submit(2, 100, &["gpu"]);
    let long = world.submit(1, 1000, &[]);
    let short = world.submit(1, 5, &[]);

    world.at_secs(10);
    world.finish(on_gpus[0]);
    assert_eq!(world.placed()[&long], [], "it would keep the application before it from starting in time");
    assert_eq!(world.placed()[&short], [gpus[0]], "it ends before the GPU is needed");
    assert_eq!(world.line(long).state, JobState::Waiting);

    world.at_secs(15);
    world.finish(on_plain);
    assert_eq!(world.placed()[&long], [plain]);
    world.finish(short);

    world.at_secs(20);
    world.finish(on_gpus[1]);
    assert_eq!(world.placed()[&both_gpus], gpus);
}

/// One of four GPU nodes can be spared, so an application that wants two nodes finds one and waits for another.
#[test]
fn an_application_whose_nodes_are_kept_is_told_of_the_step_that_keeps_them() {
    let mut world = World::new();
    world.node("plain", &[]);
    for name in ["gpu1", "gpu2", "gpu3", "gpu4"] {
        world.node(name, &["gpu"]);
    }
    world.submit(1, 15, &[]);
    world.submit(2, 20, &["gpu"]);
    let three_gpus = world.submit(3, 100, &["gpu"]);
    let any_two = world.submit(2, 1000, &[]);
    assert_eq!(world.placed()[&any_two], []);
    let Answer::Detail { jobs, .. } = world.ask(Call::Query(Query::Explain(Select::Ids(vec![any_two])))) else {
        panic!("no details");
    };
    let Some(Reason::Blocked { by, capacity, .. }) = &jobs[0].line.reason else { panic!("{:?}", jobs[0].line) };
    assert_eq!(*capacity, 4, "the GPU nodes are what it waits for");
    assert_eq!(by[0].job, three_gpus);
}

#[test]
fn jobs_on_nodes_that_an_application_cannot_use_are_not_in_its_way() {
    for allocation in ["nodes", "cores"] {
        let mut world = World::new();
        world.set("allocation", allocation);
        world.node("plain", &["cpu"]);
        world.node("gpu", &["gpu"]);
        let on_gpu = world.submit(1, 100, &["gpu"]);
        let on_plain = world.submit(1, 20, &["cpu"]);
        assert_eq!(world.placed().len(), 2);
        let next_on_plain = world.submit(1, 1000, &["cpu"]);
        let waits = world.submit(1, 100, &["gpu"]);
        let Answer::Detail { jobs, .. } = world.ask(Call::Query(Query::Explain(Select::Ids(vec![waits])))) else {
            panic!("no details");
        };
        let Some(Reason::Blocked { by, .. }) = &jobs[0].line.reason else { panic!("{:?}", jobs[0].line) };
        let by: Vec<JobId> = by.iter().map(|blocker| blocker.job).collect();
        assert_eq!(by, [on_gpu], "{allocation}: {on_plain} and {next_on_plain} are elsewhere");
    }
}

/// The server restarts with a clock that was corrected by a day meanwhile. What had begun "tomorrow" has begun.
#[test]
fn a_clock_that_was_set_back_over_a_restart_neither_frees_nor_keeps_nodes() {
    let mut world = World::new();
    let (n1, n2) = (world.node("n1", &[]), world.node("n2", &[]));
    world.set("fair_start", "1h");
    let (done, running) = (world.submit(1, 60, &[]), world.submit(1, 60, &[]));
    world.finish(done);
    assert_eq!(world.line(done).state, JobState::Ghost);

    world.restart(-86_400);
    assert_eq!(world.placed(), BTreeMap::from([(running, vec![n2])]), "the ghost would have stayed for a day");
    let run = world.rms.state().jobs()[&running].run;
    let status = JobStatus::running(world.now);
    world.joins("n2", Inventory::default(), vec![JobReport { job: running, run, status }]);
    let next = world.submit(1, 60, &[]);
    let line = world.line(next);
    assert!(matches!(line.reason, Some(Reason::AgentsExpected { n_nodes: 1, .. })), "{line:?}");
    world.joins("n1", Inventory::default(), Vec::new());
    assert_eq!(world.placed()[&next], [n1]);
}

/// Two sizes that need different nodes: the reason is about one of them, not about both mixed.
#[test]
fn the_shortage_of_nodes_is_that_of_the_size_that_it_names() {
    let mut world = World::new();
    for (name, cpus) in [("big", 8), ("small1", 4), ("small2", 4)] {
        world.joins(name, Inventory { cpus, ..Inventory::default() }, Vec::new());
    }
    let job = world.submit_with(|submission| {
        submission.n_tasks = Some(8);
        submission.cpus_per_task = 1;
        submission.hold = true;
        submission.shapes = [1, 2].map(|n_nodes| Shape { nodes: Nodes::Count(n_nodes), wall: None }).to_vec();
    });
    world.ask(Call::Drain { nodes: vec!["big".to_owned(), "small1".to_owned()], reason: "repair".to_owned() });
    world.ask(Call::Release { select: Select::Ids(vec![job]) });
    let few = Reason::TooFewNodes {
        cluster: "c".to_owned(),
        wanted: 2,
        usable: 1,
        total: 3,
        licence: None,
        contiguous: false,
        lacking: None,
    };
    assert_eq!(world.line(job).reason, Some(few));
}
