//! A negotiator of the application negotiates for it.

use negotiation::{Action, Direction, Ending, Item, Phase, Resource};
use rms_model::{JobId, OnResize, Span, Time};

use super::{Scene, malleable};
use crate::event::Event;

#[test]
fn an_application_that_speaks_for_itself_grows_and_shrinks() {
    let mut scene = Scene::new(4);
    let job = scene.submit(2, Span::from_hours(1), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let item = scene.item(job, 2);
    let grown = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, grown), Phase::Applied);
    assert_eq!(scene.held(job), [1, 2, 3, 4]);
    let holding = scene.app(job).holding.clone().expect("it was told");
    assert_eq!((holding.generation, holding.nodes.len()), (2, 4));

    let item = scene.item(job, 1);
    let shrunk = scene.app_opens(job, Direction::Shrink, item);
    assert_eq!(scene.app_phase(job, shrunk), Phase::Accepted, "it lets go at its next breakpoint");
    assert_eq!(scene.held(job).len(), 4);
    let third = [rms_model::NodeId(3)].into();
    scene.app_acts(job, shrunk, Action::Commit(third));
    assert_eq!(scene.app_phase(job, shrunk), Phase::Applied);
    assert_eq!((scene.held(job), scene.n_free()), (vec![1, 2, 4], 1));
    scene.is_durable();
}

#[test]
fn what_is_held_is_told_before_that_it_is_ready() {
    let mut scene = Scene::new(4);
    let hour = Span::from_hours(1);
    let job = scene.submit(2, hour, Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let until = |scene: &mut Scene| -> Option<Time> { Some(scene.app(job).holding_at_ready.as_ref()?.until) };
    let before = scene.app(job).holding.clone().expect("it was told").until;
    let millis = hour.as_millis().unsigned_abs();
    let longer = scene.app_opens(job, Direction::Grow, Item::up_to(Resource::Time, millis, millis));
    assert_eq!(scene.app_phase(job, longer), Phase::Applied);
    assert_eq!(until(&mut scene), Some(before + hour));

    let item = scene.item(job, 2);
    scene.app_opens(job, Direction::Grow, item);
    let known = scene.app(job).holding_at_ready.clone().expect("it is ready");
    assert_eq!(known.nodes.len(), 4);
    assert!(known.nodes.iter().all(|node| !node.is_coming), "{known:?}");
}

/// Returns the nodes that the application was told are not ready yet.
fn coming(scene: &mut Scene, job: JobId) -> Vec<u32> {
    let holding = scene.app(job).holding.clone().expect("it was told");
    holding.nodes.iter().filter(|node| node.is_coming).map(|node| node.node.0).collect()
}

/// Agreed is not ready: a hostfile written then must not name nodes where nothing can be started.
#[test]
fn a_node_that_is_not_ready_is_said_to_be_coming() {
    let mut scene = Scene::new(4);
    let job = scene.submit(2, Span::from_hours(1), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    assert!(coming(&mut scene, job).is_empty());
    scene.disconnect(&["n3", "n4"]);
    let item = scene.item(job, 2);
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!((scene.app_phase(job, id), coming(&mut scene, job)), (Phase::Committing, vec![3, 4]));
    scene.reconnect(&["n3"]);
    // Those that come together are ready together: if one fails, the other one goes again.
    assert_eq!((scene.app_phase(job, id), coming(&mut scene, job)), (Phase::Committing, vec![3, 4]));
    scene.is_durable();
    scene.reconnect(&["n4"]);
    assert_eq!((scene.app_phase(job, id), coming(&mut scene, job)), (Phase::Applied, vec![]));
}

/// Who is told of nodes only together, and when all are ready, knows of no loss while they come.
#[test]
fn a_node_that_is_lost_after_it_came_up_fails_a_growth_that_is_not_ready() {
    let mut scene = Scene::new(4);
    let job = scene.submit(1, Span::from_hours(1), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    scene.disconnect(&["n4"]);
    let item = scene.item(job, 3);
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, id), Phase::Committing);
    scene.restart();
    scene.attach(job).expect("it may");
    assert_eq!(coming(&mut scene, job), [2, 3, 4], "after a restart, too");
    scene.event(Event::AgentGone { name: "n2".to_owned() });
    scene.after(Span::from_secs(61));
    assert!(scene.is_started(job), "it has not used the node");
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Failed));
    assert_eq!((scene.held(job), scene.app(job).lost.clone()), (vec![1], Vec::new()));
    scene.is_durable();
}
