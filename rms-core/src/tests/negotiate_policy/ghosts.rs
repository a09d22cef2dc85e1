//! Nodes that running applications give back stay visible as occupied for the fair-start delay, as those of ended ones
//! do.

use negotiation::Direction;
use rms_api::Call;
use rms_api::answer::{Answer, Reason};
use rms_api::call::{Query, Select};
use rms_model::{Sizes, Span};

use super::super::negotiate::nodes;
use super::{Scene, hour, told};

/// Creates a job of four nodes that gives two of them back, and one that waits for these.
fn given_back(settings: &[(&str, &str)]) -> (Scene, rms_model::JobId) {
    let mut scene = Scene::offering(4);
    scene.set("offer_idle", "never");
    scene.set("shrink_for", "never");
    for (key, value) in settings {
        scene.set(key, value);
    }
    let job = scene.submit(4, hour(), Some(told(1, 4, Sizes::Any)));
    let waits = scene.rigid(2, hour());
    let ticket = scene.ask(job, nodes(Direction::Shrink, 2, 2));
    assert!(scene.outcome(ticket).is_some());
    assert_eq!(scene.n_held(job), 2);
    (scene, waits)
}

#[test]
fn nodes_that_are_given_back_are_kept_for_the_fair_start_delay() {
    let (mut scene, waits) = given_back(&[("fair_start", "15s")]);
    assert_eq!(scene.n_free(), 0);
    let explained = scene.call(Call::Query(Query::Explain(Select::Ids(vec![waits]))));
    let Ok(Answer::Detail { jobs, .. }) = explained else { panic!("no detail: {explained:?}") };
    let line = &jobs[0].line;
    let Some(Reason::Blocked { by, .. }) = &line.reason else { panic!("{line:?}") };
    assert!(by.iter().any(|blocker| blocker.state == rms_api::answer::JobState::Ghost && blocker.nodes == 2), "{by:?}");
    assert_eq!(line.estimate, Some(scene.world.now + Span::from_secs(15)));
    scene.is_durable();
    scene.after(Span::from_millis(14_999));
    assert!(!scene.is_started(waits));
    scene.after(Span::from_millis(1));
    assert!(scene.is_started(waits));
    let kept = scene.world.rms.state().ghost_node_time();
    assert_eq!(kept, Span::from_secs(30), "two nodes for 15 seconds");
    scene.is_durable();
}

#[test]
fn without_a_delay_or_anybody_whom_it_is_for_they_are_free_at_once() {
    for settings in [&[][..], &[("fair_start", "15s"), ("ghosts", "if_wanted")]] {
        let (scene, waits) = given_back(settings);
        assert!(scene.is_started(waits), "{settings:?}");
    }
}

/// An application that makes room is not asked for more because what it gave is not free yet.
#[test]
fn nodes_that_are_kept_are_on_their_way_to_who_waits() {
    let mut scene = Scene::offering(8);
    scene.set("offer_idle", "never");
    scene.set("fair_start", "1m");
    let job = scene.submit(8, hour(), Some(told(1, 8, Sizes::Any)));
    let waits = scene.rigid(3, hour());
    scene.after(Span::from_secs(30));
    assert_eq!((scene.n_held(job), scene.n_free()), (5, 0));
    assert!(!scene.is_started(waits));
    scene.after(Span::from_secs(30));
    assert!(scene.is_started(waits));
    assert_eq!(scene.n_held(job), 5);
}

/// A farm goes on without the node; no job could use it.
#[test]
fn a_lost_node_leaves_no_ghost() {
    let mut scene = Scene::offering(3);
    scene.set("offer_idle", "never");
    scene.set("fair_start", "10m");
    let job = scene.submit(3, hour(), Some(told(1, 3, Sizes::Any)));
    scene.event(crate::Event::AgentGone { name: "n3".to_owned() });
    scene.after(Span::from_secs(61));
    assert_eq!(scene.n_held(job), 2);
    assert_eq!(scene.world.rms.state().node_ghosts().count(), 0);
    scene.node_joins("n3");
    assert_eq!(scene.n_free(), 1, "it is back, and may be had");
    scene.is_durable();
}
