//! Tests of a restarted server: until the agents are back it does not plan with half of the cluster.

use rms_api::answer::{JobState, NodeState, Reason};
use rms_api::call::{Nodes, Shape};
use rms_model::{Inventory, JobId, NodeId, Policy, Span};

use super::World;
use crate::Event;

impl World {
    /// Creates an idle cluster of `n_nodes`, and restarts its server.
    fn restarted(n_nodes: u32) -> World {
        let mut world = World::new();
        (1..=n_nodes).for_each(|idx| {
            world.node(&format!("n{idx}"), &[]);
        });
        world.restart(1);
        world
    }

    fn comes_back(&mut self, idx: u32) {
        self.joins(&format!("n{idx}"), Inventory::default(), Vec::new());
    }

    pub(super) fn after(&mut self, span: Span) {
        let until = self.now + span;
        while let Some(due) = self.rms.next_timer().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            self.event(Event::Tick);
        }
        self.now = until;
    }

    /// Submits a job that takes what is free, from one node to four, for the same time.
    fn moldable(&mut self) -> JobId {
        self.submit_with(|submission| {
            let shape =
                |n_nodes| Shape { nodes: Nodes::Count(n_nodes), wall: Some(Span::from_secs(400 / i64::from(n_nodes))) };
            submission.shapes = [1, 2, 4].map(shape).into();
        })
    }

    fn n_nodes(&self, job: JobId) -> usize {
        self.rms.state().jobs()[&job].nodes().len()
    }
}

#[test]
fn a_moldable_job_gets_the_whole_idle_cluster_though_one_agent_came_back_first() {
    for policy in ["views", "fcfs", "easy", "conservative"] {
        let mut world = World::restarted(4);
        world.set("policy", policy);
        world.comes_back(1);
        let job = world.moldable();
        assert_eq!(world.n_nodes(job), 0, "{policy}: three agents are on their way");
        let until = world.now + Span::from_secs(10);
        let expected = Reason::AgentsExpected { cluster: "c".to_owned(), n_nodes: 3, until };
        assert_eq!(world.line(job).reason, Some(expected), "{policy}");
        world.after(Span::from_secs(2));
        (2..=4).for_each(|idx| world.comes_back(idx));
        world.after(Span::from_secs(1));
        assert_eq!(world.n_nodes(job), 4, "{policy}");
    }
}

#[test]
fn an_agent_that_does_not_come_back_is_waited_for_no_longer_than_the_setting_says() {
    for (grace, waits) in [("10s", 10), ("3s", 3), ("0s", 0)] {
        let mut world = World::new();
        (1..=4).for_each(|idx| {
            world.node(&format!("n{idx}"), &[]);
        });
        world.set("restart_grace", grace);
        world.restart(1);
        (1..=3).for_each(|idx| world.comes_back(idx));
        let job = world.moldable();
        if waits > 0 {
            world.after(Span::from_millis(waits * 1000 - 1));
            assert_eq!(world.n_nodes(job), 0, "{grace}");
            world.after(Span::from_millis(1));
        }
        assert_eq!(world.n_nodes(job), 2, "{grace}: the largest size that three nodes are enough for");
    }
}

#[test]
fn a_job_that_fits_on_the_nodes_that_are_back_starts_at_once_and_does_not_overtake() {
    for policy in Policy::ALL {
        let mut world = World::restarted(4);
        world.set("policy", &policy.to_string());
        let wide = world.submit(4, 100, &[]);
        let small = world.submit(1, 1000, &[]);
        world.comes_back(1);
        assert_eq!((world.n_nodes(wide), world.n_nodes(small)), (0, 0), "{policy}");
        (2..=4).for_each(|idx| world.comes_back(idx));
        assert_eq!((world.n_nodes(wide), world.n_nodes(small)), (4, 0), "{policy}");

        let mut world = World::restarted(4);
        world.set("policy", &policy.to_string());
        let small = world.submit(1, 1000, &[]);
        world.comes_back(3);
        assert_eq!(world.n_nodes(small), 1, "{policy}: nothing smaller or better is coming");
    }
}

#[test]
fn a_node_that_was_lost_before_or_is_lost_meanwhile_is_not_waited_for() {
    let mut world = World::new();
    (1..=4).for_each(|idx| {
        world.node(&format!("n{idx}"), &[]);
    });
    world.set("node_lost_after", "5s");
    world.event(Event::AgentGone { name: "n4".to_owned() });
    world.after(Span::from_secs(5));
    world.restart(1);
    let job = world.submit(4, 100, &[]);
    assert!(matches!(world.line(job).reason, Some(Reason::TooFewNodes { usable: 3, .. })));
    (1..=2).for_each(|idx| world.comes_back(idx));
    let pair = world.moldable();
    world.after(Span::from_secs(5));
    assert_eq!(world.n_nodes(pair), 2, "the third is lost after five seconds, sooner than the server stops waiting");
}

#[test]
fn an_agent_that_was_back_and_left_again_is_away_and_a_drained_node_is_not_planned_with() {
    let mut world = World::restarted(2);
    world.comes_back(1);
    world.event(Event::AgentGone { name: "n1".to_owned() });
    let job = world.submit(2, 100, &[]);
    assert!(
        matches!(world.line(job).reason, Some(Reason::TooFewNodes { usable: 1, .. })),
        "{:?}",
        world.line(job).reason
    );
    let rms_api::answer::Answer::Nodes { nodes, .. } =
        world.ask(rms_api::Call::Query(rms_api::Query::Nodes(Default::default())))
    else {
        panic!("no nodes")
    };
    assert!(nodes.iter().all(|line| line.state == NodeState::Away));
    assert!(nodes[1].reason.as_ref().is_some_and(|reason| reason.contains("restarted")), "{:?}", nodes[1].reason);
    assert_eq!(world.line(job).state, JobState::Waiting);
    assert_eq!(world.rms.state().node_named("n2"), Some(NodeId(2)));
}
