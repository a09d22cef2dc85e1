//! Tests of the agents' handler: nodes join once and are planned with while their agents are connected, and a report of
//! unwanted jobs keeps a node only from new jobs.

use rms_model::{Inventory, Outcome, Span, Usage, Work};

use super::*;
use crate::tests::fixture::{Fixture, NOW, outcome};

impl Fixture {
    fn agents(&mut self) -> Agents<'_> {
        Agents { jobs: self.jobs() }
    }
}

fn hello(cluster: &str) -> AgentHello {
    AgentHello {
        cluster: cluster.to_owned(),
        address: "127.0.0.1:1".to_owned(),
        inventory: Inventory::default(),
        trouble: None,
    }
}

fn ran(job: JobId, run: Run) -> JobReport {
    JobReport { job, run, status: JobStatus::running(NOW) }
}

#[test]
fn a_new_node_joins_with_its_cluster_and_is_to_be_told() {
    let (mut fixture, mut step) = (Fixture::with_nodes(0), Step::default());
    fixture.agents().agent_connected(NOW, &mut step, "x1", hello("x"), NodeReport::default());
    let node = fixture.state().node_named("x1").expect("it has joined");
    assert!(fixture.state().cluster_named("x").is_some() && fixture.state().nodes()[&node].is_connected());
    assert!(fixture.context.passes.wanted && outcome(step).1.is_empty());
    let mut step = Step::default();
    fixture.agents().agent_connected(NOW, &mut step, "x1", hello("x"), NodeReport::default());
    let (facts, _) = outcome(step);
    assert!(!facts.iter().any(|fact| matches!(fact, Fact::NodeJoined { .. })), "it is known: {facts:?}");
}

#[test]
fn an_agent_that_cannot_be_let_in_is_refused_and_changes_nothing() {
    let (mut fixture, mut step) = (Fixture::with_nodes(1), Step::default());
    let no_cpus = AgentHello { inventory: Inventory { cpus: 0, ..Inventory::default() }, ..hello("c") };
    let seen_all = NodeReport { seen: Generation(u64::MAX), ..NodeReport::default() };
    fixture.agents().agent_connected(NOW, &mut step, "n1", hello("elsewhere"), NodeReport::default());
    fixture.agents().agent_connected(NOW, &mut step, "n2", no_cpus, NodeReport::default());
    fixture.agents().agent_connected(NOW, &mut step, "n2", hello("c"), seen_all);
    let (facts, effects) = outcome(step);
    assert!(facts.is_empty(), "{facts:?}");
    assert!(effects.iter().all(|effect| matches!(effect, Effect::RefuseAgent { .. })) && effects.len() == 3);
}

#[test]
fn a_node_that_drains_itself_resumes_itself_and_leaves_an_admins_word_alone() {
    let (mut fixture, mut step) = (Fixture::with_nodes(1), Step::default());
    let trouble = || Some("its spool is full".to_owned());
    fixture.agents().agent_troubled(NOW, &mut step, "n1", trouble());
    assert!(matches!(fixture.state().nodes()[&NodeId(1)].admin, NodeAdmin::Drain { .. }));
    fixture.agents().agent_troubled(NOW, &mut step, "n1", None);
    assert_eq!(fixture.state().nodes()[&NodeId(1)].admin, NodeAdmin::Enabled);
    let by_admin = NodeAdmin::Drain { reason: "fan".to_owned(), by: "root".to_owned(), since: NOW };
    fixture.record(Fact::NodeAdminChanged { node: NodeId(1), admin: by_admin.clone() });
    fixture.agents().agent_troubled(NOW, &mut step, "n1", trouble());
    fixture.agents().agent_troubled(NOW, &mut step, "n1", None);
    assert_eq!(fixture.state().nodes()[&NodeId(1)].admin, by_admin);
    drop(outcome(step));
}

#[test]
fn a_job_that_nobody_wants_there_fences_the_node_until_it_has_ended() {
    let (mut fixture, mut step) = (Fixture::with_nodes(1), Step::default());
    let stranger = (JobId(9), Run(1));
    let report = |jobs| NodeReport { jobs, ..NodeReport::default() };
    fixture.agents().agent_reported(NOW, &mut step, "n1", report(vec![ran(stranger.0, stranger.1)]));
    assert_eq!(fixture.state().nodes()[&NodeId(1)].stale, [stranger]);
    fixture.agents().agent_reported(NOW, &mut step, "n1", report(Vec::new()));
    assert_eq!(fixture.state().nodes()[&NodeId(1)].stale, [stranger], "a report of changes says nothing of others");
    let ended = JobStatus::Ended { at: NOW, exit: NodeExit::Ordered, usage: Usage::default() };
    let ended = JobReport { job: stranger.0, run: stranger.1, status: ended };
    fixture.agents().agent_reported(NOW, &mut step, "n1", report(vec![ended]));
    assert!(fixture.state().nodes()[&NodeId(1)].stale.is_empty());
    drop(outcome(step));
}

#[test]
fn a_job_is_lost_with_a_whole_report_that_lacks_it_and_not_with_the_link() {
    let mut fixture = Fixture::with_nodes(1);
    let job = fixture.waiting("ann", 1, |spec| spec.requeue = Some(false));
    let run = fixture.start(job, &[NodeId(1)]);
    let mut step = Step::default();
    fixture.agents().agent_gone(NOW, &mut step, "n1");
    fixture.agents().agent_gone(NOW, &mut step, "n1");
    let (facts, _) = outcome(step);
    assert!(matches!(facts[..], [Fact::NodeLinkChanged { link: NodeLink::Expected { .. }, .. }]), "once: {facts:?}");
    let (mut step, later) = (Step::default(), NOW + Span::from_secs(1));
    let with_it = NodeReport { jobs: vec![ran(job, run)], ..NodeReport::default() };
    fixture.agents().agent_connected(later, &mut step, "n1", hello("c"), with_it);
    assert!(fixture.state().jobs()[&job].started().is_some(), "it runs on");
    fixture.agents().agent_connected(later, &mut step, "n1", hello("c"), NodeReport::default());
    assert!(fixture.state().jobs().get(&job).is_none_or(|entry| entry.started().is_none()), "it has vanished");
    drop(outcome(step));
}

/// The node's own clock is an hour behind.
#[test]
fn a_job_that_ended_while_nobody_could_be_told_ended_then() {
    let began = NOW - Span::from_hours(1);
    let ended = |job, run, ran_for| {
        let at = began + Span::from_secs(ran_for);
        let exit = NodeExit::Exited { code: 0 };
        JobReport { job, run, status: JobStatus::Ended { at, exit, usage: Usage::default() } }
    };
    let end = |nodes: &[u32], reports: &dyn Fn(&mut Fixture, &mut Step, JobId, Run)| {
        let mut fixture = Fixture::with_nodes(2);
        let job = fixture.waiting("ann", nodes.len() as u32, |_| {});
        let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
        let run = fixture.start(job, &nodes);
        for node in nodes {
            fixture.record(Fact::ShareRunning { job, node, since: began });
        }
        let mut step = Step::default();
        reports(&mut fixture, &mut step, job, run);
        let (facts, _) = outcome(step);
        let record = facts
            .into_iter()
            .find_map(|fact| if let Fact::JobDone { record, .. } = fact { Some(record) } else { None });
        record.expect("it is done").ended.since(NOW)
    };
    let secs = Span::from_secs;
    let whole = |jobs| NodeReport { jobs, ..NodeReport::default() };
    let alone_there = end(&[1], &|fixture, step, job, run| {
        fixture.agents().agent_connected(NOW + secs(90), step, "n1", hello("c"), whole(vec![ended(job, run, 20)]));
    });
    assert_eq!(alone_there, secs(20));
    let longer_than_away = end(&[1], &|fixture, step, job, run| {
        fixture.agents().agent_connected(NOW + secs(90), step, "n1", hello("c"), whole(vec![ended(job, run, 95)]));
    });
    assert_eq!(longer_than_away, secs(90), "nothing ends later than it is told of");
    let last_of_two = end(&[1, 2], &|fixture, step, job, run| {
        fixture.agents().agent_connected(NOW + secs(90), step, "n1", hello("c"), whole(vec![ended(job, run, 40)]));
        fixture.agents().agent_connected(NOW + secs(91), step, "n2", hello("c"), whole(vec![ended(job, run, 30)]));
    });
    assert_eq!(last_of_two, secs(40));
    let one_at_once = end(&[1, 2], &|fixture, step, job, run| {
        fixture.agents().agent_connected(NOW + secs(90), step, "n1", hello("c"), whole(vec![ended(job, run, 40)]));
        fixture.agents().agent_reported(NOW + secs(95), step, "n2", whole(vec![ended(job, run, 94)]));
    });
    assert_eq!(one_at_once, secs(95));
}

/// The network stood still for less than it takes to give up the link, so nothing connects again.
#[test]
fn a_job_whose_end_was_held_up_on_its_way_ended_before_the_report() {
    let secs = Span::from_secs;
    let ended = |since: Time, at: Time| {
        let mut fixture = Fixture::with_nodes(1);
        let job = fixture.waiting("ann", 1, |_| {});
        let run = fixture.start(job, &[NodeId(1)]);
        fixture.record(Fact::ShareRunning { job, node: NodeId(1), since });
        let status = JobStatus::Ended { at, exit: NodeExit::Exited { code: 0 }, usage: Usage::default() };
        let report = NodeReport { jobs: vec![JobReport { job, run, status }], ..NodeReport::default() };
        let mut step = Step::default();
        fixture.agents().agent_reported(NOW + secs(40), &mut step, "n1", report);
        let (facts, _) = outcome(step);
        let record = facts
            .into_iter()
            .find_map(|fact| if let Fact::JobDone { record, .. } = fact { Some(record) } else { None });
        record.expect("it is done").ended.since(NOW)
    };
    assert_eq!(ended(NOW, NOW + secs(33)), secs(33));
    assert_eq!(ended(NOW, NOW + Span::from_millis(39_500)), secs(40), "the report came at once");
    assert_eq!(ended(NOW + secs(28), NOW + secs(30)), secs(30), "its start was held up, too");
    assert_eq!(ended(NOW - secs(500), NOW - secs(480)), secs(20), "the node's clock is behind");
    assert_eq!(ended(NOW + secs(500), NOW + secs(520)), secs(20), "the node's clock is ahead");
}

/// The server died before it heard that the job runs, so nothing relates the node's clock to its own.
#[test]
fn a_job_whose_start_was_never_reported_ended_when_its_node_says() {
    let secs = Span::from_secs;
    let ended_at = |at: Time| {
        let mut fixture = Fixture::with_nodes(1);
        let job = fixture.waiting("ann", 1, |_| {});
        let run = fixture.order(job, &[NodeId(1)]);
        let status = JobStatus::Ended { at, exit: NodeExit::Exited { code: 0 }, usage: Usage::default() };
        let report = NodeReport { jobs: vec![JobReport { job, run, status }], ..NodeReport::default() };
        let mut step = Step::default();
        fixture.agents().agent_connected(NOW + secs(90), &mut step, "n1", hello("c"), report);
        let (facts, _) = outcome(step);
        let record = facts
            .into_iter()
            .find_map(|fact| if let Fact::JobDone { record, .. } = fact { Some(record) } else { None });
        record.expect("it is done").ended.since(NOW)
    };
    assert_eq!(ended_at(NOW + secs(1)), secs(1));
    assert_eq!(ended_at(NOW + secs(95)), secs(90), "nothing ends later than it is told of");
    assert_eq!(ended_at(NOW - secs(5)), Span::ZERO, "nothing ends before it has started");
    assert_eq!(ended_at(Time::EPOCH), secs(90), "it never began there");
}

/// The script ended in time, and its other node ran on until the wall time because nobody could tell it to stop.
#[test]
fn the_node_of_a_script_decides_how_and_when_its_job_ended() {
    let secs = Span::from_secs;
    let done = |reports: &[(u32, Span, NodeExit)]| {
        let mut fixture = Fixture::with_nodes(2);
        let job = fixture.waiting("ann", 2, |spec| {
            spec.execution.work = Work::Script { script: "#!/bin/sh\n".to_owned(), args: Vec::new() };
        });
        let run = fixture.start(job, &[NodeId(1), NodeId(2)]);
        let mut step = Step::default();
        for (node, after, exit) in reports {
            let status = JobStatus::Ended { at: NOW + *after, exit: exit.clone(), usage: Usage::default() };
            let report = NodeReport { jobs: vec![JobReport { job, run, status }], ..NodeReport::default() };
            let name = format!("n{node}");
            fixture.agents().agent_connected(NOW + secs(90), &mut step, &name, hello("c"), report);
        }
        let stopped = JobStatus::Ended { at: NOW + secs(91), exit: NodeExit::Ordered, usage: Usage::default() };
        let report = NodeReport { jobs: vec![JobReport { job, run, status: stopped }], ..NodeReport::default() };
        fixture.agents().agent_reported(NOW + secs(91), &mut step, "n2", report);
        let (facts, _) = outcome(step);
        let record = facts
            .into_iter()
            .find_map(|fact| if let Fact::JobDone { record, .. } = fact { Some(record) } else { None })
            .expect("it is done");
        (record.outcome, record.ended.since(NOW))
    };
    let (exited, too_long) = (NodeExit::Exited { code: 3 }, NodeExit::WallTime);
    let failed = Outcome::Failed { code: 3 };
    assert_eq!(done(&[(2, secs(60), too_long.clone()), (1, secs(1), exited.clone())]), (failed.clone(), secs(1)));
    assert_eq!(done(&[(1, secs(1), exited.clone()), (2, secs(60), too_long.clone())]), (failed.clone(), secs(1)));
    assert_eq!(done(&[(1, secs(1), exited)]), (failed, secs(1)), "its other node was stopped later");
    assert_eq!(done(&[(2, secs(60), too_long.clone()), (1, secs(61), too_long)]), (Outcome::WallTime, secs(61)));
}
