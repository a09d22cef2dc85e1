//! Tests of agents that are away after a restart, of the server or their own: it does not plan with half of the cluster.

use rms_api::answer::{JobState, NodeState, Reason};
use rms_api::call::{Nodes, Shape};
use rms_model::{JobId, Policy, Span};

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
        world.comes_back("n1");
        let job = world.moldable();
        assert_eq!(world.n_nodes(job), 0, "{policy}: three agents are on their way");
        let until = world.now + Span::from_secs(10);
        let expected = Reason::AgentsExpected { cluster: "c".to_owned(), n_nodes: 3, until };
        assert_eq!(world.line(job).reason, Some(expected), "{policy}");
        world.after(Span::from_secs(2));
        (2..=4).for_each(|idx| drop(world.comes_back(&format!("n{idx}"))));
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
        (1..=3).for_each(|idx| drop(world.comes_back(&format!("n{idx}"))));
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
        world.comes_back("n1");
        assert_eq!((world.n_nodes(wide), world.n_nodes(small)), (0, 0), "{policy}");
        (2..=4).for_each(|idx| drop(world.comes_back(&format!("n{idx}"))));
        assert_eq!((world.n_nodes(wide), world.n_nodes(small)), (4, 0), "{policy}");

        let mut world = World::restarted(4);
        world.set("policy", &policy.to_string());
        let small = world.submit(1, 1000, &[]);
        world.comes_back("n3");
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
    (1..=2).for_each(|idx| drop(world.comes_back(&format!("n{idx}"))));
    let pair = world.moldable();
    world.after(Span::from_secs(5));
    assert_eq!(world.n_nodes(pair), 2, "the third is lost after five seconds, sooner than the server stops waiting");
}

/// Only what has really passed counts as absence, or a step of the clock would end the jobs of agents that restart.
#[test]
fn the_time_by_which_the_clock_was_set_forward_loses_no_node() {
    for step in [Span::ZERO, Span::from_hours(2)] {
        let mut world = World::new();
        world.set("node_lost_after", "10s");
        world.node("n1", &[]);
        let job = world.submit(1, 100_000, &[]);
        world.event(Event::AgentGone { name: "n1".to_owned() });
        world.after(Span::from_secs(6));
        world.now += step;
        world.event(Event::ClockSetForward);
        world.after(Span::from_secs(9));
        assert_eq!(world.n_nodes(job), 1, "set forward by {step}");
        world.after(Span::from_secs(1));
        assert!(!world.rms.state().jobs().contains_key(&job), "set forward by {step}: its agent has not come back");
    }
}

#[test]
fn an_agent_that_restarts_costs_no_job_its_planned_start() {
    for policy in Policy::ALL {
        for (allocation, who) in [("nodes", 1), ("nodes", 4), ("cores", 1), ("cores", 4)] {
            let mut world = World::new();
            (1..=4).for_each(|idx| {
                world.node(&format!("n{idx}"), &[]);
            });
            world.set("policy", &policy.to_string());
            world.set("allocation", allocation);
            let mut submit = |n_nodes, wall| {
                world.submit_with(|submission| {
                    submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(Span::from_secs(wall)) }];
                    submission.n_tasks = Some(n_nodes);
                })
            };
            let running = submit(3, 30);
            let waiting = [(4, 10), (1, 20), (3, 20)].map(|(n_nodes, wall)| submit(n_nodes, wall));
            let estimates = |world: &mut World| waiting.map(|job| world.line(job).estimate);
            let before = estimates(&mut world);
            world.event(Event::AgentGone { name: format!("n{who}") });
            for _ in 0..3 {
                assert_eq!(estimates(&mut world), before, "{policy} {allocation} {who}");
                world.after(Span::from_secs(1));
            }
            world.comes_back(&format!("n{who}"));
            world.after(Span::from_secs(1));
            assert_eq!(estimates(&mut world), before, "{policy} {allocation} {who}");
            assert_eq!(world.line(running).state, JobState::Started, "{policy} {allocation} {who}");
        }
    }
}

#[test]
fn a_promise_that_is_due_while_an_agent_restarts_is_kept_a_moment_later() {
    for (allocation, away) in [("nodes", 300), ("nodes", 900), ("cores", 300), ("cores", 900)] {
        let mut world = World::new();
        (1..=3).for_each(|idx| {
            world.node(&format!("n{idx}"), &[]);
        });
        world.set("policy", "conservative");
        world.set("allocation", allocation);
        let mut submit = |n_nodes, wall| {
            world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(Span::from_secs(wall)) }];
                submission.n_tasks = Some(n_nodes);
            })
        };
        let running = submit(1, 30);
        let next = submit(3, 10);
        let others = [(3, 20), (2, 40)].map(|(n_nodes, wall)| submit(n_nodes, wall));
        let begun = world.now;
        let at = |secs| Some(begun + Span::from_secs(secs));
        let estimates = |world: &mut World| others.map(|job| world.line(job).estimate);
        world.after(Span::from_millis(29_800));
        world.event(Event::AgentGone { name: "n2".to_owned() });
        world.after(Span::from_millis(200));
        world.ends(running);
        for _ in 0..away / 100 {
            assert_eq!(world.line(next).state, JobState::Waiting, "{allocation} {away}");
            world.after(Span::from_millis(100));
            assert_eq!(estimates(&mut world), [at(40), at(60)], "{allocation} {away}");
        }
        world.comes_back("n2");
        assert_eq!(world.line(next).state, JobState::Started, "{allocation} {away}");
        assert_eq!(estimates(&mut world), [at(40), at(60)], "{allocation} {away}");
    }
}

#[test]
fn an_agent_that_was_back_and_left_again_is_expected_anew() {
    let mut world = World::restarted(2);
    world.comes_back("n1");
    world.after(Span::from_secs(9));
    world.event(Event::AgentGone { name: "n1".to_owned() });
    let job = world.submit(2, 100, &[]);
    let reason = world.line(job).reason;
    assert!(matches!(reason, Some(Reason::AgentsExpected { n_nodes: 2, .. })), "{reason:?}");
    let rms_api::answer::Answer::Nodes { nodes, .. } =
        world.ask(rms_api::Call::Query(rms_api::Query::Nodes(Default::default())))
    else {
        panic!("no nodes")
    };
    assert!(nodes.iter().all(|line| line.state == NodeState::Away));
    assert!(nodes[1].reason.as_ref().is_some_and(|reason| reason.contains("expected back")), "{:?}", nodes[1].reason);
    assert_eq!(world.line(job).state, JobState::Waiting);
    for (after, n_usable) in [(1, 1), (9, 0)] {
        world.after(Span::from_secs(after));
        let reason = world.line(job).reason;
        assert!(matches!(&reason, Some(Reason::TooFewNodes { usable, .. }) if *usable == n_usable), "{reason:?}");
    }
}
