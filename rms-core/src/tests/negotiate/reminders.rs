//! A negotiator that takes over from another one is told the state of the negotiations, and continues them.

use negotiation::{Action, Direction, Phase, Side};
use rms_model::{ClusterId, JobId, NodeId, OnResize, Span};

use super::{Scene, malleable, nodes};

fn attached(n_held: u32, n_nodes: u32) -> (Scene, JobId) {
    let mut scene = Scene::new(n_nodes);
    let job = scene.submit(n_held, Span::from_hours(1), Some(malleable(1, n_nodes, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    (scene, job)
}

#[test]
fn who_comes_back_after_its_shrink_was_accepted_gives_the_nodes_it_chooses() {
    let (mut scene, job) = attached(4, 4);
    let item = scene.item(job, 2);
    let id = scene.app_opens(job, Direction::Shrink, item);
    assert_eq!(scene.app_phase(job, id), Phase::Accepted);
    scene.hangs_up(job);
    scene.after(Span::from_secs(20));
    scene.attach_anew(job).expect("it may");
    assert_eq!(scene.app_phase(job, id), Phase::Accepted, "it is told of what it has agreed to");
    scene.app_acts(job, id, Action::Commit([NodeId(2), NodeId(3)].into()));
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!(scene.held(job), [1, 4], "it has lost none that it did not choose");
    scene.is_durable();
}

#[test]
fn who_comes_back_is_told_how_long_it_may_still_keep_what_it_gives() {
    let (mut scene, job) = attached(4, 4);
    scene.set("release_grace", "60s");
    let item = scene.item(job, 2);
    scene.app_opens(job, Direction::Shrink, item);
    let told = |scene: &mut Scene| {
        let attached = scene.world.rms.negotiations().attachment(scene.world.now, job);
        (attached.release_within, attached.open[0].left)
    };
    assert_eq!(told(&mut scene), (Span::from_secs(120), Some(Span::from_secs(120))));
    scene.after(Span::from_secs(100));
    assert_eq!(told(&mut scene).1, Some(Span::from_secs(20)), "not the ten minutes of the dialogue");
    let until = scene.lines(job)[0].until;
    assert_eq!(until, Some(scene.world.now + Span::from_secs(20)), "users are told the same");
}

#[test]
fn who_agrees_to_give_is_told_how_long_it_may_keep_by_the_current_settings() {
    let (mut scene, job) = attached(4, 4);
    scene.set("release_grace", "4s");
    let id = scene.wants_back(job, 2);
    scene.app_acts(job, id, Action::Accept);
    assert_eq!(scene.app(job).release_within, Some(Span::from_secs(8)));
}

#[test]
fn an_offer_to_a_process_that_is_gone_is_answered_by_the_next_one() {
    let (mut scene, job) = attached(1, 3);
    scene.set("offer_valid", "10m");
    scene.by_itself(|rms, now, step| {
        rms.negotiations()
            .open_growth_offer(now, step, (job, ClusterId(0)), 2, Default::default())
            .expect("there are idle nodes");
    });
    let id = scene.app_hears(job, Direction::Grow).expect("it was told");
    scene.hangs_up(job);
    scene.attach_anew(job).expect("it may");
    assert_eq!(scene.app_phase(job, id), Phase::Offered(Side::Rms));
    scene.app_acts(job, id, Action::Accept);
    assert_eq!((scene.app_phase(job, id), scene.held(job)), (Phase::Applied, vec![1, 2, 3]));
}

#[test]
fn growth_that_was_agreed_with_another_process_is_told_when_it_is_ready() {
    let (mut scene, job) = attached(1, 3);
    scene.disconnect(&["n3"]);
    let item = scene.item(job, 2);
    let id = scene.app_opens(job, Direction::Grow, item);
    scene.hangs_up(job);
    scene.restart();
    scene.attach_anew(job).expect("it may");
    assert_eq!(scene.app_phase(job, id), Phase::Committing);
    scene.reconnect(&["n3"]);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
}

#[test]
fn what_others_asked_for_is_not_told_as_its_own() {
    let (mut scene, job) = attached(1, 2);
    scene.hangs_up(job);
    scene.disconnect(&["n2"]);
    scene.ask(job, nodes(Direction::Grow, 1, 1));
    scene.attach_anew(job).expect("it may");
    assert_eq!(scene.app_hears(job, Direction::Grow), None);
}
