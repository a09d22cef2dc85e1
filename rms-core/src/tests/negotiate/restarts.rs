//! A restarted server continues each negotiation, and ends cleanly those that a power failure has affected.

use negotiation::{Action, Direction, Ending, Phase, Reason, Side};
use rms_api::negotiate::AskOutcome;
use rms_model::{ClusterId, JobId, OnResize, Span};

use super::{Scene, malleable, nodes};

fn attached(n_held: u32, n_nodes: u32) -> (Scene, JobId) {
    let mut scene = Scene::new(n_nodes);
    let limits = malleable(1, n_nodes, OnResize::Negotiates);
    let job = scene.submit(n_held, Span::from_hours(1), Some(limits));
    scene.attach(job).expect("it may");
    (scene, job)
}

fn asks_for_too_much(scene: &mut Scene, job: JobId) -> negotiation::NegotiationId {
    let item = scene.item(job, 9);
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, id), Phase::Countered(Side::Rms));
    id
}

#[test]
fn a_talk_goes_on_after_a_restart() {
    let (mut scene, job) = attached(1, 4);
    let id = asks_for_too_much(&mut scene, job);
    scene.restart();
    assert_eq!(scene.n_free(), 0, "what it offered is still kept");
    scene.attach(job).expect("it may");
    scene.app_acts(job, id, Action::Accept);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!(scene.held(job).len(), 4);
}

#[test]
fn what_was_agreed_is_finished_after_a_restart() {
    let (mut scene, job) = attached(1, 3);
    scene.disconnect(&["n3"]);
    let item = scene.item(job, 2);
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, id), Phase::Committing);
    scene.restart();
    scene.attach(job).expect("it may");
    assert_eq!(scene.app_phase(job, id), Phase::Committing);
    scene.reconnect(&["n3"]);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
}

#[test]
fn a_promise_is_remembered_over_a_restart() {
    let (mut scene, job) = attached(3, 3);
    let item = scene.item(job, 1);
    let id = scene.app_opens(job, Direction::Shrink, item);
    assert_eq!(scene.app_phase(job, id), Phase::Accepted);
    scene.restart();
    scene.after(Span::from_mins(3));
    assert_eq!((scene.held(job), scene.n_free()), (vec![1, 2], 1), "it was broken");
    scene.attach(job).expect("it may");
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Failed));
}

/// No caller waits for the answer to a request any more: what is not agreed yet is withdrawn, the rest is finished.
#[test]
fn asks_do_not_outlive_the_server_unless_they_were_agreed() {
    let mut scene = Scene::new(4);
    let limits = || Some(malleable(1, 4, OnResize::Negotiates));
    let job = scene.submit(1, Span::from_hours(1), limits());
    let other = scene.submit(1, Span::from_hours(1), limits());
    scene.disconnect(&["n3"]);
    scene.ask(job, nodes(Direction::Grow, 1, 1));
    let mut ask = nodes(Direction::Grow, 3, 3);
    ask.wait = Span::from_mins(30);
    scene.ask(other, ask);
    scene.restart();
    let phases = |scene: &mut Scene, job| scene.lines(job).iter().map(|line| line.phase).collect::<Vec<_>>();
    assert_eq!(phases(&mut scene, other), [Phase::Ended(Ending::Withdrawn)]);
    assert_eq!(phases(&mut scene, job), [Phase::Committing]);
    scene.reconnect(&["n3"]);
    assert_eq!(phases(&mut scene, job), [Phase::Applied]);
    let ticket = scene.ask(other, nodes(Direction::Grow, 1, 1));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
}

/// The server's counter was sent before it was durable, and the power failed: the application has received a counter
/// that the server does not know.
#[test]
fn an_accept_of_a_counter_that_was_lost_ends_it_at_both_ends() {
    let (mut scene, job) = attached(1, 4);
    // A durable fact, so that only later facts are lost.
    scene.set("offer_again", "2m");
    let id = asks_for_too_much(&mut scene, job);
    assert!(!scene.facts.noted.is_empty(), "talk is not synced");
    scene.power_cut();
    assert_eq!(scene.n_free(), 3, "what it kept is forgotten with it");
    scene.attach(job).expect("it may");
    assert!(matches!(scene.app_phase(job, id), Phase::Ended(Ending::Failed)), "{}", scene.app_phase(job, id));
    let item = scene.item(job, 3);
    let again = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, again), Phase::Applied);
}

/// The opening is durable, and the counter after it is lost.
#[test]
fn a_counter_that_was_lost_after_the_opening_is_given_up() {
    let (mut scene, job) = attached(1, 4);
    let mut id = None;
    scene.by_itself(|rms, now, step| {
        id = rms.negotiations().open_growth_offer(now, step, (job, ClusterId(0)), 1, negotiation::Price(7)).ok();
    });
    let id = id.expect("there are nodes for it");
    assert!(scene.facts.noted.is_empty(), "the server's opening is durable before it leaves");
    // A bid that the server counters.
    scene.set("price", "7");
    let offered = scene.app(job).dialogues.get(id).and_then(|dialogue| dialogue.proposal()).cloned().expect("an offer");
    let mut items = offered.items().to_vec();
    items[0].terms.price = negotiation::Price(1);
    let template = offered.with_items(items).expect("a template");
    scene.app_acts(job, id, Action::Propose { template, valid_for: Span::from_mins(1) });
    assert_eq!(scene.app_phase(job, id), Phase::Countered(Side::Rms));
    scene.power_cut();
    scene.attach(job).expect("it may");
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Withdrawn));
    assert_eq!(scene.app(job).dialogues.get(id).and_then(|dialogue| dialogue.reason()), Some(Reason::Unknown));
    assert_eq!(scene.n_free(), 3);
}

#[test]
fn an_accept_is_durable_before_anybody_hears_of_it() {
    let (mut scene, job) = attached(1, 4);
    let id = asks_for_too_much(&mut scene, job);
    scene.app_acts(job, id, Action::Accept);
    scene.power_cut();
    assert_eq!(scene.held(job).len(), 4);
    assert_eq!(scene.phase(job, id), Phase::Applied);
}

#[test]
fn loans_and_departures_are_remembered() {
    let mut scene = Scene::new(4);
    let job = scene.submit(2, Span::from_hours(1), Some(malleable(1, 4, OnResize::Signal(10))));
    let mut ask = nodes(Direction::Grow, 2, 2);
    ask.duration = Some(Span::from_mins(10));
    scene.ask(job, ask);
    scene.restart();
    scene.after(Span::from_mins(10));
    assert_eq!(scene.held(job).len(), 4, "it is asked to leave them");
    scene.restart();
    scene.after(Span::from_mins(1));
    assert_eq!((scene.held(job), scene.n_free()), (vec![1, 2], 2));
}
