//! Waiting growth is an occasion to ask other jobs for nodes, as a waiting job is.

use negotiation::Direction;
use negotiation::Reason;
use rms_api::Call;
use rms_api::call::Select;
use rms_api::negotiate::{Ask, AskOutcome, Asked};
use rms_model::{JobId, Sizes, Span};

use super::super::negotiate::nodes;
use super::{Scene, hour, speaking, told};

impl Scene {
    fn priority(&mut self, job: JobId, priority: i32) {
        self.call(Call::set_priority(Select::Ids(vec![job]), priority)).expect("it runs");
    }

    fn evolving(&mut self, n_nodes: u32) -> JobId {
        let negotiable = speaking(0, 0, Sizes::Any);
        self.submit(n_nodes, hour(), Some(negotiable))
    }
}

fn patient(quantity: u64, least: u64) -> Ask {
    Ask { wait: Span::from_secs(25), ..nodes(Direction::Grow, quantity, least) }
}

/// A farm of 2 to 7 holds everything, and an evolving application wants two.
#[test]
fn a_farm_gives_nodes_to_an_application_that_asks_for_them() {
    let mut scene = Scene::offering(8);
    let asker = scene.evolving(1);
    let farm = scene.submit(7, hour(), Some(told(2, 7, Sizes::Any)));
    assert_eq!(scene.n_held(farm), 7);
    let ticket = scene.ask(asker, patient(2, 2));
    scene.after(Span::from_secs(1));
    assert!(
        matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 2, .. })),
        "{:?}",
        scene.outcome(ticket)
    );
    assert_eq!((scene.n_held(asker), scene.n_held(farm)), (3, 5));
    scene.is_durable();
}

#[test]
fn as_much_is_asked_for_as_others_can_give_and_never_below_what_is_of_use() {
    let mut scene = Scene::offering(8);
    let asker = scene.evolving(1);
    let farm = scene.submit(7, hour(), Some(told(4, 7, Sizes::Any)));
    let too_much = scene.ask(asker, patient(6, 5));
    scene.after(Span::from_secs(30));
    assert_eq!(scene.n_held(farm), 7, "nobody shrinks in vain");
    assert!(matches!(scene.outcome(too_much), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
    let some = scene.ask(asker, patient(6, 2));
    scene.after(Span::from_secs(1));
    assert!(matches!(scene.outcome(some), Some(AskOutcome::Ready { quantity: 3, .. })), "{:?}", scene.outcome(some));
    assert_eq!(scene.n_held(farm), 4);
}

/// 002, §1: what an emergency needs is taken from the less urgent.
#[test]
fn by_priority_only_the_urgent_get_something_and_a_priority_may_change_while_it_runs() {
    let mut scene = Scene::offering(8);
    scene.set("shrink_for", "priority");
    let asker = scene.evolving(1);
    let farm = scene.submit(7, hour(), Some(told(2, 7, Sizes::Any)));
    let equal = scene.ask(asker, patient(2, 2));
    scene.after(Span::from_secs(5));
    assert_eq!((scene.outcome(equal), scene.n_held(farm)), (None, 7), "it is not more urgent");
    scene.priority(asker, 10);
    scene.after(Span::from_secs(1));
    assert!(matches!(scene.outcome(equal), Some(AskOutcome::Ready { .. })), "an emergency");
    assert_eq!(scene.n_held(farm), 5);
    // And the other way round.
    scene.set("shrink_for", "queue");
    scene.priority(farm, 20);
    let lower = scene.ask(asker, patient(1, 1));
    scene.after(Span::from_secs(30));
    assert!(matches!(scene.outcome(lower), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
    assert_eq!(scene.n_held(farm), 5);
    scene.is_durable();
}

#[test]
fn nobody_is_asked_where_it_is_switched_off() {
    let mut scene = Scene::offering(4);
    scene.set("shrink_for", "never");
    let asker = scene.evolving(1);
    let farm = scene.submit(3, hour(), Some(told(1, 3, Sizes::Any)));
    let ticket = scene.ask(asker, patient(1, 1));
    scene.after(Span::from_secs(30));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::NoResources, .. })));
    assert_eq!(scene.n_held(farm), 3);
}

#[test]
fn what_would_go_to_a_job_of_the_queue_is_not_asked_for() {
    let mut scene = Scene::offering(8);
    scene.set("shrink_for", "priority");
    let asker = scene.evolving(1);
    let farm = scene.submit(7, hour(), Some(told(2, 7, Sizes::Any)));
    scene.priority(asker, 5);
    let waiting = scene.rigid(2, hour());
    let ticket = scene.ask(asker, patient(2, 2));
    scene.after(Span::from_secs(1));
    assert_eq!((scene.outcome(ticket), scene.n_held(farm)), (None, 7));
    assert!(!scene.is_started(waiting));
}

#[test]
fn two_that_ask_are_served_by_priority() {
    let mut scene = Scene::offering(8);
    let (first, second) = (scene.evolving(1), scene.evolving(1));
    let farm = scene.submit(6, hour(), Some(told(4, 6, Sizes::Any)));
    scene.set("shrink_for", "never");
    let (early, late) = (scene.ask(first, patient(2, 2)), scene.ask(second, patient(2, 2)));
    scene.priority(second, 3);
    scene.set("shrink_for", "queue");
    scene.after(Span::from_secs(2));
    assert_eq!(scene.n_held(farm), 4);
    assert!(scene.outcome(late).is_some() && scene.outcome(early).is_none(), "the urgent one has them");
}

#[test]
fn several_clusters_give_what_one_request_needs_of_each() {
    let mut scene = Scene::offering(3);
    (1..=2).for_each(|number| scene.node_joins_in("b", &format!("b{number}")));
    let asker = scene.evolving(1);
    let on_a = scene.submit(2, hour(), Some(told(1, 2, Sizes::Any)));
    let on_b = scene.submit(2, hour(), Some(told(1, 2, Sizes::Any)));
    assert_eq!((scene.n_held(on_a), scene.n_held(on_b), scene.n_free()), (2, 2, 0));
    // A node of another cluster, where the application has none yet.
    let there = Ask { what: Asked::Nodes { cluster: Some("b".to_owned()) }, ..patient(1, 1) };
    let ticket = scene.ask(asker, there);
    scene.after(Span::from_secs(1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })), "{:?}", scene.outcome(ticket));
    assert_eq!((scene.n_held(on_a), scene.n_held(on_b), scene.n_held(asker)), (2, 1, 2));
    // Nodes of both at once, all or nothing: b has no more to give.
    scene.attach(asker).expect("it runs");
    let items = both(&scene, asker);
    let id = scene.app_opens_set(asker, Direction::Grow, negotiation::SetRule::All, items);
    scene.after(Span::from_secs(2));
    assert_eq!(
        (scene.n_held(on_a), scene.n_held(on_b)),
        (2, 1),
        "nobody shrinks in vain: {:?}",
        scene.phase(asker, id)
    );
    scene.app_acts(asker, id, negotiation::Action::Withdraw(Reason::Declined));
    // Nodes of either: a has some.
    let items = both(&scene, asker);
    let id = scene.app_opens_set(asker, Direction::Grow, negotiation::SetRule::AnyOf, items);
    scene.after(Span::from_secs(1));
    assert_eq!(scene.n_held(on_a), 1, "{:?}", scene.phase(asker, id));
    assert_eq!(scene.n_held(on_b), 1);
}

/// Returns items for one node of each cluster.
fn both(scene: &Scene, job: JobId) -> Vec<negotiation::Item> {
    let one = scene.item(job, 1);
    let on = |cluster: u16, held: u64| negotiation::Item {
        resource: negotiation::Resource::Nodes(rms_model::ClusterId(cluster)),
        held: negotiation::Quantity(held),
        ..one.clone()
    };
    vec![on(0, 1), on(1, 1)]
}
