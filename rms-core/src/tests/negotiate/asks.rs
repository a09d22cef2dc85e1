//! Callers make requests on behalf of an application and wait for the outcome.

use negotiation::{Direction, Item, Phase, Reason, Resource};
use rms_api::Call;
use rms_api::answer::Answer;
use rms_api::call::Select;
use rms_api::call::update::{Changes, WallChange};
use rms_api::desired::NodeExit;
use rms_api::negotiate::{Ask, AskOutcome, Asked};
use rms_model::{JobId, OnResize, Outcome, Span};

use super::{Scene, malleable, nodes};
use crate::{Event, Fact};

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

/// Changes the time of a job, and returns why that is refused if it is.
fn update_time(scene: &mut Scene, job: JobId, wall: WallChange) -> Option<String> {
    let changes = Box::new(Changes { wall: Some(wall), ..Changes::default() });
    match scene.call(Call::Update { select: Select::Ids(vec![job]), changes }) {
        Ok(Answer::Jobs { refused, .. }) => refused.into_iter().next().map(|(_, why)| why.message),
        other => panic!("no list of jobs: {other:?}"),
    }
}

fn time(direction: Direction, span: Span) -> Ask {
    Ask { what: Asked::Time, ..nodes(direction, span.as_millis().unsigned_abs(), 1) }
}

fn wall(scene: &Scene, job: JobId) -> Span {
    scene.world.rms.state().jobs()[&job].started().expect("it runs").request.wall
}

/// If the growth fails, the job has the time that it had before.
#[test]
fn the_time_of_a_job_is_not_changed_while_a_growth_changes_it() {
    let mut scene = Scene::new(2);
    let job = scene.submit(1, hour(), Some(malleable(1, 2, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    scene.disconnect(&["n2"]);
    let items = vec![
        Item::up_to(Resource::Nodes(rms_model::ClusterId(0)), 1, 1),
        Item::up_to(Resource::Time, 3_600_000, 3_600_000),
    ];
    let now = scene.world.now;
    let opened = scene.app(job).dialogues.open(now, Direction::Grow, vec![negotiation::SetRule::All], items, hour());
    let (id, output) = opened.expect("it may open one");
    scene.speak(job, output);
    assert_eq!((scene.app_phase(job, id), wall(&scene, job)), (Phase::Committing, Span::from_hours(2)));
    scene.after(Span::from_secs(10));
    let refused = update_time(&mut scene, job, WallChange::To(Span::from_mins(30))).unwrap_or_default();
    assert!(refused.contains("try again when that has ended"), "{refused}");
    scene.ended("n2", job, NodeExit::not_started("no space"));
    assert_eq!(wall(&scene, job), hour());
    assert_eq!(update_time(&mut scene, job, WallChange::To(Span::from_mins(30))), None);
    assert!(scene.is_started(job));
}

/// The supervisors end a job by themselves: once its time is over, nothing more can be given.
#[test]
fn a_job_whose_wall_time_is_over_gets_no_more_of_anything() {
    let mut scene = Scene::new(3);
    let job = scene.submit(1, hour(), Some(malleable(1, 3, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let late = scene.app_opens(job, Direction::Grow, Item::up_to(Resource::Nodes(rms_model::ClusterId(0)), 1, 5));
    assert_eq!(scene.app_phase(job, late), Phase::Countered(negotiation::Side::Rms), "two are offered");
    scene.after(hour() + Span::from_millis(1));
    for (change, to) in [("more", WallChange::More(hour())), ("less", WallChange::Less(Span::from_mins(1)))] {
        let refused = update_time(&mut scene, job, to).unwrap_or_default();
        assert!(refused.contains("is over: it is being ended"), "{change}: {refused}");
    }
    for ask in [time(Direction::Grow, hour()), nodes(Direction::Grow, 1, 1)] {
        let ticket = scene.ask(job, ask);
        let refused = scene.refusal(ticket).map(|refusal| refusal.to_string()).unwrap_or_default();
        assert!(refused.contains("is over: it is being ended"), "{refused}");
    }
    // It has been told, and what it says nevertheless changes nothing.
    assert_eq!(scene.apps[&job].ended, Some(Outcome::WallTime));
    scene.app_opens(job, Direction::Grow, Item::up_to(Resource::Time, 3_600_000, 3_600_000));
    let n_free = scene.n_free();
    assert_eq!((wall(&scene, job), scene.held(job).len(), n_free), (hour(), 1, 2));
}

#[test]
fn time_is_not_promised_while_an_agent_that_must_know_it_is_away() {
    let mut scene = Scene::new(2);
    let job = scene.submit(2, hour(), Some(malleable(1, 2, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    scene.event(Event::AgentGone { name: "n2".to_owned() });
    let refused = update_time(&mut scene, job, WallChange::More(hour())).unwrap_or_default();
    assert!(refused.contains("node n2 is away") && refused.contains("try again"), "{refused}");
    assert_eq!(update_time(&mut scene, job, WallChange::Less(Span::from_mins(10))), None, "its end comes later");
    let ticket = scene.ask(job, time(Direction::Grow, hour()));
    let refused = scene.refusal(ticket).map(|refusal| refusal.to_string()).unwrap_or_default();
    assert!(refused.contains("node n2 is away"), "{refused}");
    let longer = scene.app_opens(job, Direction::Grow, Item::up_to(Resource::Time, 3_000_000, 60_000));
    assert_eq!(wall(&scene, job), Span::from_mins(50));
    scene.node_joins("n2");
    assert_eq!(scene.app_phase(job, longer), Phase::Applied, "it was waited for");
    assert_eq!(wall(&scene, job), Span::from_mins(51));
    assert_eq!(update_time(&mut scene, job, WallChange::More(hour())), None);
    scene.is_durable();
}

#[test]
fn a_job_that_negotiated_has_its_time_changed_and_remembered() {
    let mut scene = Scene::new(3);
    let job = scene.submit(2, hour(), Some(malleable(1, 3, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let minutes = Span::from_mins;
    let ticket = scene.ask(job, time(Direction::Grow, minutes(5)));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })), "{:?}", scene.refusal(ticket));
    assert_eq!(wall(&scene, job), minutes(65));
    assert_eq!(update_time(&mut scene, job, WallChange::More(minutes(10))), None);
    let ticket = scene.ask(job, nodes(Direction::Grow, 1, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })), "{:?}", scene.refusal(ticket));
    scene.after(minutes(1));
    assert_eq!(update_time(&mut scene, job, WallChange::Less(minutes(25))), None, "it has another size");
    let entry = &scene.world.rms.state().jobs()[&job];
    let evolved = entry.started().and_then(|started| started.evolved.as_ref()).expect("it has changed");
    assert_eq!(evolved.course.end().since(entry.started().expect("it runs").at), minutes(50), "no other end");
    assert_eq!((wall(&scene, job), scene.held(job)), (minutes(50), vec![1, 2, 3]));
    let less = scene.ask(job, time(Direction::Shrink, minutes(5)));
    assert!(matches!(scene.outcome(less), Some(AskOutcome::Ready { .. })), "{:?}", scene.refusal(less));
    assert_eq!(wall(&scene, job), minutes(45));
    scene.is_durable();
    for name in ["n1", "n2"] {
        scene.ended(name, job, NodeExit::Exited { code: 0 });
    }
    let record = scene.facts().into_iter().find_map(|fact| match fact {
        Fact::JobDone { record, .. } => Some(record),
        _ => None,
    });
    let record = record.expect("it has ended");
    assert_eq!((record.outcome, record.request.wall), (Outcome::Completed, minutes(45)));
    assert_eq!(record.request.n_nodes(), 2, "its size is that with which it began, beside its history");
    assert_eq!(record.granted.map(|granted| (granted.cores, granted.whole_nodes)), Some((12, 3)));
}
