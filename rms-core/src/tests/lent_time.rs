//! When jobs that lend and borrow CPUs have ended, and the core-time that they are charged for (004).

use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_model::{JobId, Span, Usage};

use super::World;
use super::fixture::outcome;
use super::lending::lending_on;
use crate::{Event, Fact};

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
        let (run, exit) = (world.rms.state().jobs()[&owner].run, NodeExit::Exited { code: 0 });
        let status = JobStatus::Ended { at: begun + Span::from_secs(reported), exit, usage: Usage::default() };
        let report = NodeReport { jobs: vec![JobReport { job: owner, run, status }], ..NodeReport::default() };
        let (facts, _) = outcome(world.rms.handle(world.now, Event::AgentReported { name: "n1".to_owned(), report }));
        let record = facts
            .into_iter()
            .find_map(|fact| if let Fact::JobDone { record, .. } = fact { Some(record) } else { None });
        record.expect("it is done").ended.since(begun).as_millis() / 1000
    };
    assert_eq!(ended(50), 50);
    assert_eq!(ended(5), 20, "it had its cores back then");
    assert_eq!(ended(95), 80, "nothing ends later than it is told of");
}

#[test]
fn a_guest_that_outlives_its_mate_is_charged_for_what_it_had() {
    for allocation in ["nodes", "cores"] {
        let mut world = lending_on(allocation, 1, 4);
        let owner = world.asks_to_share(1, 60, true);
        world.now += Span::from_secs(10);
        let guest = world.asks_to_share(1, 10, true);
        assert_eq!(world.n_cores(guest), [2]);
        world.now += Span::from_secs(30);
        let core_time = |world: &World, job: JobId| {
            let state = world.rms.state();
            state.granted(&state.jobs()[&job], world.now).expect("it has started").core_time
        };
        assert_eq!((core_time(&world, owner), core_time(&world, guest)), (100_000, 60_000), "{allocation}");
        world.is_done(owner);
        assert_eq!(world.n_cores(guest), [4]);
        world.restart(5);
        assert_eq!(core_time(&world, guest), 60_000 + 20_000, "{allocation}");
    }
}
