//! What agents are told of nodes that come and go, and when a job with such nodes is over.

use negotiation::Direction;
use rms_api::answer::JobState;
use rms_api::desired::{JobStatus, LaunchNode, NodeExit};
use rms_api::negotiate::AskOutcome;
use rms_model::{OnResize, Outcome, Span, Work};

use super::{Scene, malleable, nodes};

fn hour() -> Span {
    Span::from_hours(1)
}

impl Scene {
    /// Returns the nodes of the only job of a node, as its agent is told.
    fn nodes_told(&mut self, name: &str) -> Vec<LaunchNode> {
        let node = self.world.rms.state().node_named(name).expect("it has joined");
        let desired = self.world.rms.context.desired(node);
        desired.jobs.first().expect("it has a job").launch.nodes.clone()
    }
}

/// Ranks know each other: on later nodes they spawn others, and nothing starts by itself.
#[test]
fn tasks_that_know_each_other_get_idle_nodes() {
    let mut scene = Scene::new(4);
    let job = scene.submit(2, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.ask(job, nodes(Direction::Grow, 2, 2));
    let told = scene.nodes_told("n1");
    let tasks: Vec<(u32, u32, u32)> = told.iter().map(|node| (node.first_task, node.n_tasks, node.joined)).collect();
    assert_eq!(tasks, [(0, 1, 1), (1, 1, 1), (2, 0, 2), (2, 0, 2)]);
    // The new nodes do not keep the job running once its own tasks have ended.
    scene.ended("n1", job, NodeExit::Exited { code: 0 });
    assert_eq!(scene.world.line(job).state, JobState::Started);
    scene.ended("n2", job, NodeExit::Exited { code: 3 });
    assert!(scene.has_left(job));
    let ends = scene.facts.all().into_iter().find_map(|fact| match fact {
        crate::Fact::JobDone { record, negotiations, .. } => Some((record.outcome, negotiations.len())),
        _ => None,
    });
    assert_eq!(ends, Some((Outcome::Failed { code: 3 }, 1)));
    assert_eq!(scene.n_free(), 4);
}

/// Workers are independent: as many run on a new node as on the first.
#[test]
fn workers_are_started_on_nodes_that_come() {
    let mut scene = Scene::new(3);
    let mut submission = scene.world.submission();
    submission.execution.work = Work::Tasks { argv: vec!["worker".to_owned()] };
    submission.n_tasks = Some(4);
    submission.shapes = vec![rms_api::call::Shape { nodes: rms_api::call::Nodes::Count(2), wall: Some(hour()) }];
    submission.malleable = Some(malleable(1, 3, OnResize::Workers));
    let Ok(rms_api::Answer::Submitted { job }) = scene.call(rms_api::Call::Submit(Box::new(submission))) else {
        panic!("not submitted");
    };
    scene.ask(job, nodes(Direction::Grow, 1, 1));
    let tasks: Vec<(u32, u32)> = scene.nodes_told("n3").iter().map(|node| (node.first_task, node.n_tasks)).collect();
    assert_eq!(tasks, [(0, 2), (2, 2), (4, 2)]);
    scene.ask(job, nodes(Direction::Shrink, 2, 2));
    assert_eq!(scene.held(job), [1]);
    scene.ended("n1", job, NodeExit::Exited { code: 0 });
    assert!(scene.has_left(job));
}

/// A script ends the job, whatever is left on its other nodes.
#[test]
fn a_job_with_a_script_ends_with_it() {
    let mut scene = Scene::new(3);
    let work = Work::Script { script: "#!/bin/sh\n".to_owned(), args: Vec::new() };
    let job = scene.submit_work(1, hour(), work, Some(malleable(1, 3, OnResize::Hook("./resize".to_owned()))));
    let ticket = scene.ask(job, nodes(Direction::Grow, 2, 2));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { generation: 2, .. })));
    scene.ended("n1", job, NodeExit::Exited { code: 0 });
    assert!(scene.has_left(job));
    assert_eq!(scene.n_free(), 3);
}

/// Nodes that the job was asked to leave are marked, and its processes there are not ended.
#[test]
fn nodes_that_are_to_be_left_are_marked() {
    let mut scene = Scene::new(3);
    let job = scene.submit(3, hour(), Some(malleable(1, 3, OnResize::Signal(12))));
    scene.ask(job, nodes(Direction::Shrink, 1, 1));
    let departing: Vec<bool> = scene.nodes_told("n3").iter().map(|node| node.departing).collect();
    assert_eq!(departing, [false, false, true]);
    let node = scene.world.rms.state().node_named("n3").expect("it has joined");
    let aim = scene.world.rms.context.desired(node).jobs[0].aim;
    assert_eq!(aim, rms_api::desired::Aim::Run);
}

/// A node is up when its agent reports it, even if the report is that the worker has already ended successfully.
#[test]
fn a_worker_that_is_done_at_once_was_there() {
    let mut scene = Scene::new(2);
    let job = scene.submit(1, hour(), Some(malleable(1, 2, OnResize::Workers)));
    scene.disconnect(&["n2"]);
    let ticket = scene.ask(job, nodes(Direction::Grow, 1, 1));
    scene.share("n2", job, JobStatus::Starting);
    assert_eq!(scene.outcome(ticket), None);
    scene.ended("n2", job, NodeExit::Exited { code: 0 });
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
}

/// A pass need not examine a job with a single leg of nodes until its end.
#[test]
fn a_job_that_was_resized_does_not_slow_each_pass() {
    let mut scene = Scene::new(4);
    let job = scene.submit(2, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.ask(job, nodes(Direction::Grow, 1, 1));
    let now = scene.world.now;
    assert!(scene.world.rms.state().occupation().is_regular(now));
}
