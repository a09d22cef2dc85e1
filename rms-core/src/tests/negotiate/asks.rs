//! Callers make requests on behalf of an application and wait for the outcome.

use negotiation::{Direction, Reason};
use rms_api::negotiate::{Ask, AskOutcome};
use rms_model::{OnResize, Span};

use super::{Scene, malleable, nodes};
use crate::Event;

fn hour() -> Span {
    Span::from_hours(1)
}

/// PAPERS §3 (a): a job on two nodes asks for two more, and has four.
#[test]
fn a_job_that_asks_for_free_nodes_gets_them() {
    let mut scene = Scene::new(4);
    let job = scene.submit(2, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    let ticket = scene.ask(job, nodes(Direction::Grow, 2, 2));
    let Some(AskOutcome::Ready { quantity, nodes, generation, n_rounds, .. }) = scene.outcome(ticket) else {
        panic!("{:?}", scene.outcome(ticket));
    };
    assert_eq!((quantity, generation, n_rounds), (2, 2, 1));
    assert_eq!(nodes, ["n3", "n4"]);
    assert_eq!(scene.held(job), [1, 2, 3, 4]);
    scene.is_durable();
}

/// Accepted is not ready: the request is answered when the agents report that the nodes are up.
#[test]
fn who_asks_hears_nothing_before_the_nodes_are_up() {
    let mut scene = Scene::new(3);
    let job = scene.submit(1, hour(), Some(malleable(1, 3, OnResize::Negotiates)));
    scene.disconnect(&["n3"]);
    let ticket = scene.ask(job, nodes(Direction::Grow, 2, 2));
    assert_eq!(scene.held(job), [1, 2, 3], "they are its own");
    assert_eq!(scene.outcome(ticket), None, "but one of them is not up");
    scene.reconnect(&["n3"]);
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
}

/// PAPERS §3 (b): a job asks for fourteen, is offered six, and accepts.
#[test]
fn a_job_that_asks_for_too_much_takes_what_there_is_if_that_will_do() {
    let mut scene = Scene::new(8);
    let job = scene.submit(2, hour(), Some(malleable(1, 8, OnResize::Negotiates)));
    let ticket = scene.ask(job, nodes(Direction::Grow, 14, 4));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 6, n_rounds: 2, .. })));
    let ticket = scene.ask(job, nodes(Direction::Grow, 14, 4));
    let Some(AskOutcome::Failed { reason: Reason::NoResources, free: Some(0), .. }) = scene.outcome(ticket) else {
        panic!("{:?}", scene.outcome(ticket));
    };
    assert_eq!(scene.held(job).len(), 8);
}

/// A spawn of 25 ranks, one per node, where six nodes are free.
#[test]
fn who_asks_for_too_much_hears_how_much_there_is() {
    let mut scene = Scene::new(8);
    let job = scene.submit(2, hour(), Some(malleable(1, 8, OnResize::Negotiates)));
    let free = |outcome| match outcome {
        Some(AskOutcome::Failed { reason: Reason::NoResources, free, .. }) => free,
        other => panic!("{other:?}"),
    };
    let ticket = scene.ask(job, nodes(Direction::Grow, 25, 25));
    assert_eq!(free(scene.outcome(ticket)), Some(6));
    scene.submit(4, hour(), None);
    let ticket = scene.ask(job, nodes(Direction::Grow, 25, 25));
    assert_eq!(free(scene.outcome(ticket)), Some(2));
}

#[test]
fn nodes_are_given_back_and_free_once_nothing_runs_there() {
    let mut scene = Scene::new(4);
    let job = scene.submit(4, hour(), Some(malleable(1, 4, OnResize::Workers)));
    scene.disconnect(&["n4"]);
    let ticket = scene.ask(job, nodes(Direction::Shrink, 2, 2));
    assert_eq!(scene.held(job), [1, 2]);
    assert_eq!((scene.n_free(), scene.outcome(ticket)), (1, None), "something still runs on the fourth");
    scene.reconnect(&["n4"]);
    assert_eq!(scene.n_free(), 2);
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 2, .. })));
    scene.is_durable();
}

/// The agent of the job's first node restarts, or loses the server, while ranks wait for nodes.
#[test]
fn an_agent_that_asks_again_hears_what_comes_of_it() {
    let mut scene = Scene::new(2);
    let job = scene.submit(1, hour(), None);
    let other = scene.submit(1, hour(), None);
    let run = scene.world.rms.state().jobs()[&job].run;
    let ask = |scene: &mut Scene| {
        let ticket = scene.ticket();
        let ask = Ask { wait: Span::from_secs(30), ..nodes(Direction::Grow, 1, 1) };
        scene.event(Event::AgentAsked { ticket, name: "n1".to_owned(), job, run, ask });
        ticket
    };
    let first = ask(&mut scene);
    let again = ask(&mut scene);
    assert_eq!((scene.outcome(first), scene.refusal(again)), (None, None), "it waits still");
    scene.restart();
    let last = ask(&mut scene);
    scene.ended("n2", other, rms_api::desired::NodeExit::Exited { code: 0 });
    scene.after(Span::from_secs(1));
    assert!(matches!(scene.outcome(last), Some(AskOutcome::Ready { quantity: 1, .. })), "{:?}", scene.refusal(last));
    assert_eq!(scene.held(job), [1, 2]);
}
