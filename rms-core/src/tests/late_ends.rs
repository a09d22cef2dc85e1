//! When and how jobs have ended whose nodes were away at their end.

use rms_api::answer::JobState;
use rms_api::call::{Nodes, Shape};
use rms_api::desired::{AgentHello, JobReport, JobStatus, NodeExit, NodeReport};
use rms_model::{ExpandLimit, JobId, JobRecord, Outcome, Run, Span, Time, Usage, Work};

use super::World;
use super::fixture::outcome;
use super::lending::lending_on;
use crate::{Event, Fact, Step};

const DONE: NodeExit = NodeExit::Exited { code: 0 };

impl World {
    /// A node reports how a job ended there. Returns the record of the job, if it is done.
    pub(super) fn ended_on(&mut self, name: &str, job: JobId, at: Time, exit: NodeExit) -> Option<JobRecord> {
        let status = JobStatus::Ended { at, exit, usage: Usage::default() };
        let run = self.rms.state().jobs()[&job].run;
        let report = NodeReport { jobs: vec![JobReport { job, run, status }], ..NodeReport::default() };
        let step = self.rms.handle(self.now, Event::AgentReported { name: name.to_owned(), report });
        record_in(step)
    }
}

fn record_in(step: Step) -> Option<JobRecord> {
    outcome(step).0.into_iter().find_map(|fact| match fact {
        Fact::JobDone { record, .. } => Some(*record),
        _ => None,
    })
}

fn secs(span: Span) -> i64 {
    span.as_millis() / 1000
}

#[test]
fn a_job_that_has_lent_ended_when_its_node_says_if_it_says_so_late() {
    let ended = |reported: i64| {
        let mut world = lending_on("nodes", 1, 4);
        let begun = world.now;
        let owner = world.asks_to_share(1, 60, true);
        world.runs("n1", owner, true);
        let guest = world.asks_to_share(1, 10, true);
        world.now += Span::from_secs(20);
        world.is_done(guest);
        world.now += Span::from_secs(60);
        let record = world.ended_on("n1", owner, begun + Span::from_secs(reported), DONE);
        secs(record.expect("it is done").ended.since(begun))
    };
    assert_eq!(ended(50), 50);
    assert_eq!(ended(5), 20, "it had its cores back then");
    assert_eq!(ended(95), 80, "nothing ends later than it is told of");
}

/// The script of a guest ends while the agent of its other node is away, before the owner has left the cores there.
#[test]
fn nobody_is_charged_for_loans_after_an_end_that_is_known_late() {
    for allocation in ["nodes", "cores"] {
        let mut world = lending_on(allocation, 2, 4);
        let begun = world.now;
        let owner = world.asks_to_share(2, 60, true);
        ["n1", "n2"].iter().for_each(|name| _ = world.runs(name, owner, true));
        world.now += Span::from_secs(10);
        let guest = world.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(2), wall: Some(Span::from_mins(10)) }];
            submission.resources.share = true;
            submission.execution.work = Work::Script { script: "true".to_owned(), args: Vec::new() };
        });
        world.runs("n1", owner, true);
        world.runs("n1", guest, true);
        world.event(Event::AgentGone { name: "n2".to_owned() });
        world.now += Span::from_secs(4);
        assert!(world.ended_on("n1", guest, begun + Span::from_secs(14), DONE).is_none(), "{allocation}");
        world.now += Span::from_secs(10);
        world.runs("n2", owner, true);
        world.now += Span::from_secs(10);
        let record = world.ended_on("n2", guest, Time::EPOCH, DONE).expect("it is done");
        let loans = record.loans.expect("it was a guest");
        assert_eq!((secs(record.ended.since(begun)), loans.borrowed), (14, 8000), "{allocation}");
        assert_eq!(record.granted.map(|granted| granted.core_time), Some(8000), "{allocation}");
    }
}

#[test]
fn what_a_run_lent_and_borrowed_counts_though_another_one_follows() {
    for allocation in ["nodes", "cores"] {
        let mut world = lending_on(allocation, 1, 4);
        let begun = world.now;
        let shares = |world: &mut World, mins| {
            world.submit_with(|submission| {
                submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(mins)) }];
                submission.resources.share = true;
                submission.requeue = Some(true);
            })
        };
        let owner = shares(&mut world, 60);
        world.runs("n1", owner, true);
        let guest = shares(&mut world, 10);
        world.runs("n1", owner, true);
        world.runs("n1", guest, true);
        world.now += Span::from_secs(20);
        let killed = NodeExit::Unsupervised { reason: "its supervisor was killed".to_owned() };
        assert!(world.ended_on("n1", guest, world.now, killed.clone()).is_none(), "{allocation}: it runs again");
        world.runs("n1", owner, true);
        world.event(Event::Tick);
        assert_eq!(world.lender_of(guest), [owner], "{allocation}");
        world.runs("n1", owner, true);
        world.runs("n1", guest, true);
        world.now += Span::from_secs(10);
        let record = world.ended_on("n1", guest, world.now, DONE).expect("it is done");
        assert_eq!(record.loans.map(|loans| loans.borrowed), Some(20_000), "{allocation}");
        assert_eq!(record.total_loans().map(|loans| loans.borrowed), Some(60_000), "{allocation}");
        assert!(world.ended_on("n1", owner, begun + Span::from_secs(30), killed).is_none(), "{allocation}");
        world.event(Event::Tick);
        world.runs("n1", owner, true);
        world.now += Span::from_secs(5);
        let record = world.ended_on("n1", owner, world.now, DONE).expect("it is done");
        assert_eq!((record.run, record.loans), (rms_model::Run(2), None), "{allocation}");
        assert_eq!(record.total_loans().map(|loans| loans.lent), Some(60_000), "{allocation}");
    }
}

/// Both nodes of a job with stages are away when its time is over. Returns its outcome, and when it ended.
fn ended_while_away(reports: [(i64, NodeExit); 2]) -> (Outcome, i64) {
    let mut world = World::new();
    let names = ["n1", "n2"];
    names.iter().for_each(|name| _ = world.node(name, &[]));
    let job = world.evolving("2x5s,2x5s", ExpandLimit::NONE);
    let begun = world.now;
    for name in names {
        world.runs(name, job, true);
        world.event(Event::AgentGone { name: name.to_owned() });
    }
    world.until(12);
    assert_eq!(world.line(job).state, JobState::Ending);
    let reports = names.into_iter().zip(reports);
    let told = reports.filter_map(|(name, (after, exit))| {
        world.now += Span::from_secs(2);
        world.ended_on(name, job, begun + Span::from_secs(after), exit)
    });
    let record = told.last().expect("it is done");
    (record.outcome, secs(record.ended.since(begun)))
}

#[test]
fn a_job_that_ended_before_its_time_was_over_has_its_own_outcome_though_nobody_knew() {
    let (failed, killed) = (NodeExit::Exited { code: 3 }, NodeExit::Signaled { signal: 9 });
    assert_eq!(ended_while_away([(8, DONE), (7, DONE)]), (Outcome::Completed, 8));
    assert_eq!(ended_while_away([(7, failed.clone()), (9, DONE)]), (Outcome::Failed { code: 3 }, 9));
    assert_eq!(ended_while_away([(7, DONE), (9, failed)]), (Outcome::Failed { code: 3 }, 9));
    assert_eq!(ended_while_away([(7, killed), (11, NodeExit::Ordered)]), (Outcome::Signaled { signal: 9 }, 11));
}

#[test]
fn a_job_that_ran_until_its_time_was_over_is_told_so_whenever_its_nodes_say_how_it_ended() {
    assert_eq!(ended_while_away([(8, DONE), (11, DONE)]), (Outcome::WallTime, 11));
    assert_eq!(ended_while_away([(11, DONE), (8, DONE)]), (Outcome::WallTime, 11));
    assert_eq!(ended_while_away([(8, DONE), (10, NodeExit::WallTime)]), (Outcome::WallTime, 10));
    assert_eq!(ended_while_away([(9, NodeExit::WallTime), (8, DONE)]), (Outcome::WallTime, 9));
    // What an order ended did not end before it, though the clock of its node is behind.
    assert_eq!(ended_while_away([(9, NodeExit::Ordered), (8, DONE)]), (Outcome::WallTime, 10));
    assert_eq!(ended_while_away([(14, NodeExit::Ordered), (8, DONE)]), (Outcome::WallTime, 14), "it ended at once");
}

#[test]
fn what_ended_while_its_agent_was_away_ended_then_however_soon_it_is_back() {
    let mut world = World::new();
    let node = world.node("n1", &[]);
    let job = world.submit(1, 60, &[]);
    world.runs("n1", job, true);
    world.event(Event::AgentGone { name: "n1".to_owned() });
    let at = world.now + Span::from_millis(200);
    world.now += Span::from_millis(700);
    let status = JobStatus::Ended { at, exit: DONE, usage: Usage::default() };
    let report = NodeReport { jobs: vec![JobReport { job, run: Run(1), status }], ..NodeReport::default() };
    let inventory = world.rms.state().nodes()[&node].inventory.clone();
    let (cluster, address) = ("c".to_owned(), "127.0.0.1:1".to_owned());
    let hello = AgentHello { cluster, address, inventory, trouble: None };
    let step = world.rms.handle(world.now, Event::AgentConnected { name: "n1".to_owned(), hello, report });
    assert_eq!(record_in(step).expect("it is done").ended, at);
}
