//! The core-time that jobs which lend and borrow CPUs are charged for (004).

use rms_api::desired::{JobReport, JobStatus, NodeExit, NodeReport};
use rms_model::{JobId, Span, Usage};

use super::World;
use super::lending::lending_on;
use crate::Event;

#[test]
fn a_guest_that_outlives_its_mate_is_charged_for_what_it_had() {
    for allocation in ["nodes", "cores"] {
        let mut world = lending_on(allocation, 1, 4);
        let owner = world.asks_to_share(1, 60, true);
        world.now += Span::from_secs(10);
        let guest = world.asks_to_share(1, 10, true);
        world.runs("n1", owner, true);
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

/// Returns an owner that has run alone for ten seconds, and a guest for which it has to leave cores.
fn handing_over(allocation: &str) -> (World, JobId, JobId) {
    let mut world = lending_on(allocation, 1, 4);
    let owner = world.asks_to_share(1, 60, true);
    world.runs("n1", owner, true);
    world.now += Span::from_secs(10);
    let guest = world.asks_to_share(1, 10, true);
    (world, owner, guest)
}

/// Nothing was lent, because the guest had none of the cores before its owner was gone.
#[test]
fn cores_that_their_owner_had_until_its_end_were_not_lent() {
    for allocation in ["nodes", "cores"] {
        let (mut world, owner, guest) = handing_over(allocation);
        world.now += Span::from_secs(20);
        let run = world.rms.state().jobs()[&owner].run;
        let exit = NodeExit::Exited { code: 0 };
        let status = JobStatus::Ended { at: world.now, exit, usage: Usage::default() };
        let report = NodeReport { jobs: vec![JobReport { job: owner, run, status }], ..NodeReport::default() };
        world.event(Event::AgentReported { name: "n1".to_owned(), report });
        assert_eq!(world.n_cores(guest), [4], "{allocation}");
        let state = world.rms.state();
        let started = state.jobs()[&guest].started().expect("it has started");
        let loans = state.loans_at(started, world.now).expect("it shares");
        assert_eq!((loans.lent, loans.borrowed), (0, 0), "{allocation}");
    }
}

/// Both sides are charged once the owner's processes have left the cores, however long its agent was away.
#[test]
fn a_loan_begins_once_the_owner_has_left_the_cores() {
    for allocation in ["nodes", "cores"] {
        let (mut world, owner, guest) = handing_over(allocation);
        let loans = |world: &World, job: JobId| {
            let state = world.rms.state();
            let started = state.jobs()[&job].started().expect("it has started");
            let loans = state.loans_at(started, world.now).expect("it shares");
            let granted = state.granted(&state.jobs()[&job], world.now).expect("it has started");
            (loans.lent, loans.borrowed, granted.core_time)
        };
        world.now += Span::from_secs(20);
        let before = [owner, guest].map(|job| loans(&world, job));
        assert_eq!(before, [(0, 0, 120_000), (0, 0, 0)], "{allocation}");
        world.runs("n1", owner, true);
        world.now += Span::from_secs(5);
        let after = [owner, guest].map(|job| loans(&world, job));
        assert_eq!(after, [(10_000, 0, 130_000), (0, 10_000, 10_000)], "{allocation}");
        world.restart(5);
        let after_restart = [owner, guest].map(|job| loans(&world, job));
        assert_eq!(after_restart, [(20_000, 0, 140_000), (0, 20_000, 20_000)], "{allocation}");
    }
}
