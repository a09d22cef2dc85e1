//! Since when jobs count as waiting, and what is remembered of the runs after which they returned to the queue.

use rms_api::call::Select;
use rms_api::call::update::Changes;
use rms_api::desired::NodeExit;
use rms_api::{Call, answer::JobState};
use rms_model::{FormerRun, JobId, NodeId, NodeLink, Outcome, Run, Span, Time};

use super::World;
use crate::Event;

const DONE: NodeExit = NodeExit::Exited { code: 0 };

/// What its first run used counts, and its time is not one that the job waited.
#[test]
fn the_history_of_a_job_has_the_runs_after_which_it_returned_to_the_queue() {
    let mut world = World::new();
    let node = world.node("n1", &[]);
    let job = world.submit_with(|job| job.requeue = Some(true));
    let first_start = world.now;
    world.event(Event::AgentGone { name: "n1".to_owned() });
    while !matches!(world.rms.state().nodes()[&node].link, NodeLink::Lost { .. }) {
        world.now += Span::from_secs(10);
        world.event(Event::Tick);
    }
    let lost = world.now;
    world.restart(7);
    world.node("n2", &[]);
    let began = world.now;
    world.now += Span::from_secs(5);
    let record = world.ended_on("n2", job, Time::EPOCH, DONE).expect("it is done");
    let cores = u64::from(world.rms.state().nodes()[&NodeId(1)].inventory.cores);
    let first = FormerRun {
        run: Run(1),
        started: first_start,
        ended: lost,
        outcome: Outcome::NodeLost { node: "n1".to_owned(), reason: "its agent did not come back".to_owned() },
        nodes: vec!["n1".to_owned()],
        usage: Default::default(),
        core_time: cores * lost.since(first_start).as_millis() as u64,
        loans: None,
    };
    assert_eq!((record.run, record.eligible, record.started), (Run(2), lost, Some(began)));
    assert_eq!(record.total_core_time(), Some(first.core_time + cores * 5000));
    assert_eq!(record.former_runs, [first]);
}

/// Its place in the queue is that of its submission.
#[test]
fn a_job_that_was_held_or_put_off_while_it_waited_is_eligible_from_then_on() {
    let held = |world: &mut World, job: JobId| {
        let select = Select::Ids(vec![job]);
        world.ask(Call::Hold { select: select.clone() });
        world.now += Span::from_secs(20);
        world.ask(Call::Release { select });
    };
    let put_off = |world: &mut World, job: JobId| {
        let begin = Some(world.now + Span::from_secs(20));
        let changes = Box::new(Changes { begin, ..Changes::default() });
        world.ask(Call::Update { select: Select::Ids(vec![job]), changes });
        world.now += Span::from_secs(20);
        world.event(Event::Tick);
    };
    let ways: [fn(&mut World, JobId); 2] = [held, put_off];
    for waits_again in ways {
        let mut world = World::new();
        world.node("n1", &[]);
        let running = world.submit(1, 100, &[]);
        let (first, second) = (world.submit(1, 100, &[]), world.submit(1, 100, &[]));
        world.now += Span::from_secs(10);
        waits_again(&mut world, first);
        let eligible = world.now;
        world.now += Span::from_secs(5);
        world.ended_on("n1", running, Time::EPOCH, DONE).expect("it is done");
        world.event(Event::Tick);
        assert_eq!([first, second].map(|job| world.line(job).state), [JobState::Started, JobState::Waiting]);
        world.now += Span::from_secs(5);
        let record = world.ended_on("n1", first, Time::EPOCH, DONE).expect("it is done");
        assert_eq!((record.eligible, record.started), (eligible, Some(eligible + Span::from_secs(5))));
    }
}
