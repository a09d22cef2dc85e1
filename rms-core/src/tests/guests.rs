//! Guests that end before their time, and whether they run again (004).

use rms_api::answer::JobState;
use rms_api::call::{Nodes, Shape};
use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_model::{JobId, NodeId, Span};

use super::lending::lending_on;
use crate::Event;

#[test]
fn a_guest_that_has_begun_on_one_node_runs_again_only_if_it_may() {
    for may in [false, true] {
        let mut world = lending_on("nodes", 2, 4);
        let owners: Vec<JobId> = (0..2).map(|_| world.asks_to_share(1, 60, true)).collect();
        for (node, owner) in ["n1", "n2"].into_iter().zip(&owners) {
            world.runs(node, *owner, true);
        }
        let guest = world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(2), wall: Some(Span::from_mins(10)) }];
            submission.resources.share = true;
            submission.requeue = Some(may);
        });
        world.runs("n1", owners[0], true);
        world.runs("n1", guest, true);
        let run = world.rms.state().jobs()[&guest].run;
        world.runs("n2", owners[1], false);
        for node in 1..=2 {
            let status = JobStatus::Ended { at: world.now, exit: NodeExit::Ordered, usage: Default::default() };
            let seen = world.rms.state().nodes()[&NodeId(node)].generation;
            let report = NodeReport { seen, jobs: vec![JobReport { job: guest, run, status }] };
            world.event(Event::AgentReported { name: format!("n{node}"), report });
        }
        let waits = world.rms.state().jobs().get(&guest).is_some_and(|entry| entry.state() == JobState::Waiting);
        assert_eq!(waits, may, "it has run on n1");
    }
}
