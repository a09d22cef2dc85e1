//! Concurrent events: crossing offers, nodes that are lost on the way, ends in the middle.

use negotiation::{Action, Direction, Ending, Item, NegotiationId, Phase, Quantity, Reason, Resource, Side};
use rms_api::Call;
use rms_api::call::Select;
use rms_api::desired::NodeExit;
use rms_api::negotiate::AskOutcome;
use rms_model::{ClusterId, JobId, OnResize, Outcome, Span};

use super::{Scene, malleable, nodes};
use crate::event::Event;
use crate::negotiate::open::ShrinkRequest;

fn hour() -> Span {
    Span::from_hours(1)
}

/// Starts an application that negotiates for itself, on `n_held` of `n_nodes` nodes.
fn attached(n_held: u32, n_nodes: u32) -> (Scene, JobId) {
    let mut scene = Scene::new(n_nodes);
    let job = scene.submit(n_held, hour(), Some(malleable(1, n_nodes, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    (scene, job)
}

fn offers(scene: &mut Scene, job: JobId, n_nodes: u32) -> NegotiationId {
    let mut id = None;
    scene.by_itself(|rms, now, step| {
        id = rms.negotiations().open_growth_offer(now, step, (job, ClusterId(0)), n_nodes, Default::default()).ok();
    });
    id.expect("there are nodes for it")
}

fn failed(phase: Phase) -> bool {
    phase == Phase::Ended(Ending::Failed)
}

/// Both sides open a negotiation in the same direction: the server's goes on.
#[test]
fn crossing_offers_resolve_to_the_servers() {
    let (mut scene, job) = attached(1, 4);
    scene.app(job).is_mute = true;
    let item = scene.item(job, 2);
    let of_app = scene.app_opens(job, Direction::Grow, item);
    let of_server = offers(&mut scene, job, 3);
    scene.app(job).is_mute = false;
    // The application's message arrives now, as its repetition.
    scene.after(Span::from_secs(1));
    assert_eq!(scene.app_phase(job, of_app), Phase::Ended(Ending::Rejected));
    let reason = scene.app(job).dialogues.get(of_app).and_then(|dialogue| dialogue.reason());
    assert_eq!(reason, Some(Reason::Crossed));
    scene.app_acts(job, of_server, Action::Accept);
    assert_eq!(scene.app_phase(job, of_server), Phase::Applied);
    assert_eq!(scene.held(job).len(), 4);
}

#[test]
fn a_second_opening_for_the_same_direction_is_refused() {
    let (mut scene, job) = attached(1, 4);
    let first = {
        let item = scene.item(job, 9);
        scene.app_opens(job, Direction::Grow, item)
    };
    assert_eq!(scene.app_phase(job, first), Phase::Countered(Side::Rms));
    // An end that breaks the rules: dialogues of the same execution that know nothing of the first.
    let run = scene.app(job).run;
    let mut other = negotiation::Dialogues::new(Side::Application, job, run, Default::default());
    let item = scene.item(job, 1);
    let (_, output) = other
        .open(scene.world.now, Direction::Shrink, vec![negotiation::SetRule::All], vec![item.clone()], hour())
        .expect("a template");
    drop(output);
    let opened = other.open(scene.world.now, Direction::Grow, vec![negotiation::SetRule::All], vec![item], hour());
    let (second, output) = opened.expect("a template");
    for message in output.messages {
        scene.send(job, message);
    }
    assert_eq!(scene.phase(job, second), Phase::Ended(Ending::Rejected));
    assert_eq!(scene.phase(job, first), Phase::Countered(Side::Rms), "the first goes on");
}

#[test]
fn a_node_that_is_lost_while_it_is_kept_is_replaced() {
    let (mut scene, job) = attached(1, 4);
    let id = offers(&mut scene, job, 2);
    assert_eq!(scene.lines(job)[0].held, ["n2", "n3"]);
    scene.call(Call::Down { nodes: vec!["n2".to_owned()], reason: "fire".to_owned() }).expect("an admin may");
    assert_eq!(scene.lines(job)[0].held, ["n3", "n4"]);
    assert!(scene.is_started(job), "it had not yet been its own");
    scene.app_acts(job, id, Action::Accept);
    assert_eq!(scene.held(job), [1, 3, 4]);
}

#[test]
fn what_cannot_be_kept_is_taken_back() {
    let (mut scene, job) = attached(1, 3);
    let id = offers(&mut scene, job, 2);
    scene.event(Event::AgentGone { name: "n3".to_owned() });
    assert_eq!(scene.app_phase(job, id), Phase::Offered(Side::Rms), "its agent may come back");
    scene.after(Span::from_secs(20));
    scene.node_joins("n3");
    scene.event(Event::AgentGone { name: "n3".to_owned() });
    scene.set("offer_valid", "10m");
    scene.app_acts(job, id, Action::Reject(Reason::Declined));
    let id = {
        scene.node_joins("n3");
        offers(&mut scene, job, 2)
    };
    scene.event(Event::AgentGone { name: "n3".to_owned() });
    scene.after(Span::from_secs(61));
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Withdrawn));
    assert_eq!(scene.n_free(), 1);
}

/// Its supervisors would end it at the old time: there are nodes enough, but one cannot be told.
#[test]
fn more_time_fails_as_lost_while_an_agent_is_away() {
    let (mut scene, job) = attached(2, 2);
    scene.set("max_wall", "90m");
    let hours = hour().as_millis() as u64;
    let mut more = Item::up_to(Resource::Time, hours, hours);
    more.terms.least = Quantity(1);
    let id = scene.app_opens(job, Direction::Grow, more);
    assert_eq!(scene.app_phase(job, id), Phase::Countered(Side::Rms), "half an hour is possible");
    scene.event(Event::AgentGone { name: "n2".to_owned() });
    scene.app_acts(job, id, Action::Accept);
    let ended = scene.app(job).dialogues.get(id).map(|dialogue| (dialogue.phase(), dialogue.reason()));
    assert_eq!(ended, Some((Phase::Ended(Ending::Failed), Some(Reason::Lost))));
    assert!(scene.is_started(job), "it has the time that it had");
}

#[test]
fn a_node_that_does_not_come_up_fails_the_growth_and_all_go_again() {
    let mut scene = Scene::new(4);
    let job = scene.submit(1, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.disconnect(&["n3"]);
    let ticket = scene.ask(job, nodes(Direction::Grow, 3, 3));
    assert_eq!(scene.held(job).len(), 4);
    scene.ended("n3", job, NodeExit::not_started("no space"));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::Lost, .. })));
    assert_eq!(scene.held(job), [1], "all or none");
    assert_eq!(scene.n_free(), 3);
    assert!(scene.is_started(job));
}

#[test]
fn a_node_that_is_lost_before_it_is_up_fails_the_growth_and_not_the_job() {
    let mut scene = Scene::new(3);
    let job = scene.submit(1, hour(), Some(malleable(1, 3, OnResize::Negotiates)));
    scene.disconnect(&["n3"]);
    let ticket = scene.ask(job, nodes(Direction::Grow, 2, 2));
    scene.event(Event::AgentGone { name: "n3".to_owned() });
    scene.after(Span::from_secs(61));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::Lost, .. })));
    assert_eq!(scene.held(job), [1]);
    assert!(scene.is_started(job));
}

#[test]
fn a_node_that_an_admin_takes_down_before_it_is_up_fails_the_growth_and_not_the_job() {
    let mut scene = Scene::new(2);
    let job = scene.submit(1, hour(), Some(malleable(1, 2, OnResize::Negotiates)));
    scene.disconnect(&["n2"]);
    let ticket = scene.ask(job, nodes(Direction::Grow, 1, 1));
    scene.call(Call::Down { nodes: vec!["n2".to_owned()], reason: "fire".to_owned() }).expect("an admin may");
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::Lost, .. })));
    assert!(scene.is_started(job));
}

/// A growth that is not ready by its deadline has failed, and its nodes leave.
#[test]
fn a_growth_that_is_not_ready_by_its_deadline_is_rolled_back() {
    let (mut scene, job) = attached(1, 3);
    scene.disconnect(&["n3"]);
    let mut item = scene.item(job, 2);
    item.terms.deadline = Some(scene.world.now + Span::from_secs(30));
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, id), Phase::Committing);
    scene.after(Span::from_secs(30));
    assert!(failed(scene.app_phase(job, id)));
    assert_eq!(scene.held(job), [1]);
    scene.reconnect(&["n3"]);
    assert_eq!(scene.n_free(), 2);
}

#[test]
fn an_application_that_cannot_use_what_came_gives_it_back() {
    let (mut scene, job) = attached(1, 3);
    scene.disconnect(&["n3"]);
    let item = scene.item(job, 2);
    let id = scene.app_opens(job, Direction::Grow, item);
    scene.app_acts(job, id, Action::Fail(Reason::Changed));
    assert!(failed(scene.app_phase(job, id)));
    assert_eq!(scene.held(job), [1]);
}

/// The application no longer answers: offers are not held without end, agreed changes are finished.
#[test]
fn an_application_whose_channel_breaks_leaks_nothing() {
    let (mut scene, job) = attached(1, 4);
    scene.set("offer_valid", "30m");
    let id = offers(&mut scene, job, 2);
    scene.hangs_up(job);
    scene.after(Span::from_secs(20));
    assert_eq!(scene.n_free(), 1, "it may come back");
    scene.after(Span::from_secs(11));
    assert_eq!(scene.n_free(), 3);
    assert_eq!(scene.phase(job, id), Phase::Ended(Ending::Withdrawn));
    scene.attach(job).expect("it may");
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Withdrawn), "and hears of it when it comes back");
}

#[test]
fn an_application_that_comes_back_in_time_goes_on() {
    let (mut scene, job) = attached(1, 4);
    let id = offers(&mut scene, job, 2);
    scene.hangs_up(job);
    scene.after(Span::from_secs(10));
    scene.attach(job).expect("it may");
    scene.app_acts(job, id, Action::Accept);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!(scene.held(job).len(), 3);
}

#[test]
fn what_was_agreed_is_finished_though_nobody_listens() {
    let (mut scene, job) = attached(1, 3);
    scene.disconnect(&["n3"]);
    let item = scene.item(job, 2);
    let id = scene.app_opens(job, Direction::Grow, item);
    scene.hangs_up(job);
    scene.after(Span::from_mins(2));
    scene.reconnect(&["n3"]);
    assert_eq!(scene.phase(job, id), Phase::Applied);
    scene.attach(job).expect("it may");
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
}

/// The job ends in each phase: its dialogues end, and all of its nodes are free.
#[test]
fn the_end_of_a_job_ends_its_negotiations() {
    for phase in [Phase::Offered(Side::Rms), Phase::Committing, Phase::Accepted] {
        let (mut scene, job) = attached(2, 4);
        scene.disconnect(&["n3"]);
        let id = match phase {
            Phase::Offered(_) => offers(&mut scene, job, 2),
            Phase::Committing => {
                let item = scene.item(job, 2);
                scene.app_opens(job, Direction::Grow, item)
            }
            _ => {
                let item = scene.item(job, 1);
                scene.app_opens(job, Direction::Shrink, item)
            }
        };
        assert_eq!(scene.app_phase(job, id), phase);
        scene.call(Call::Cancel { select: Select::Ids(vec![job]) }).expect("an admin may");
        assert!(matches!(scene.app_phase(job, id), Phase::Ended(_)), "{phase}: {}", scene.app_phase(job, id));
        assert_eq!(scene.app(job).ended, Some(Outcome::Cancelled { by: "root".to_owned() }));
        scene.reconnect(&["n3"]);
        assert!(scene.has_left(job));
        assert_eq!(scene.n_free(), 4, "{phase}");
    }
}

/// A caller that waits for the outcome of a request is told that the job has ended.
#[test]
fn who_asked_hears_that_the_job_has_ended() {
    let mut scene = Scene::new(2);
    let job = scene.submit(1, hour(), Some(malleable(1, 2, OnResize::Negotiates)));
    scene.disconnect(&["n2"]);
    let ticket = scene.ask(job, nodes(Direction::Grow, 1, 1));
    scene.call(Call::Cancel { select: Select::Ids(vec![job]) }).expect("an admin may");
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::Stopping, .. })));
}

/// A repeated message is handled once.
#[test]
fn replayed_messages_change_nothing() {
    let (mut scene, job) = attached(1, 6);
    let item = scene.item(job, 1);
    let now = scene.world.now;
    let dialogues = &mut scene.app(job).dialogues;
    let opened = dialogues.open(now, Direction::Grow, vec![negotiation::SetRule::All], vec![item], hour());
    let (id, output) = opened.expect("it may");
    let message = output.messages[0].clone();
    for _ in 0..3 {
        scene.send(job, message.clone());
    }
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!(scene.held(job).len(), 2);
    let other = negotiation::Message { ack_seq: 0, ..message };
    for _ in 0..20 {
        scene.send(job, other.clone());
    }
    assert_eq!(scene.held(job).len(), 2);
}

/// A late answer is ignored.
#[test]
fn an_answer_after_the_offer_lapsed_changes_nothing() {
    let (mut scene, job) = attached(1, 3);
    scene.set("offer_valid", "5s");
    let id = offers(&mut scene, job, 2);
    scene.app(job).is_mute = true;
    scene.app_acts(job, id, Action::Accept);
    scene.after(Span::from_secs(6));
    assert_eq!(scene.n_free(), 2, "it has lapsed");
    scene.app(job).is_mute = false;
    scene.after(Span::from_secs(10));
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Expired));
    assert_eq!(scene.held(job), [1]);
}

/// An application grows while it shrinks: it cannot give back a node that is on its way to it.
#[test]
fn a_node_that_is_on_its_way_cannot_be_given_back() {
    let (mut scene, job) = attached(2, 3);
    scene.disconnect(&["n3"]);
    let item = scene.item(job, 1);
    let grows = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, grows), Phase::Committing);
    let item = scene.item(job, 1);
    let shrinks = scene.app_opens(job, Direction::Shrink, item);
    scene.app_acts(job, shrinks, Action::Commit([rms_model::NodeId(3)].into()));
    assert!(failed(scene.app_phase(job, shrinks)));
    scene.reconnect(&["n3"]);
    assert_eq!(scene.app_phase(job, grows), Phase::Applied);
}

/// A node that left and comes again is a new place: the report of its first end does not end it.
#[test]
fn a_node_comes_again_after_it_was_given_back() {
    let mut scene = Scene::new(2);
    let job = scene.submit(1, hour(), Some(malleable(1, 2, OnResize::Workers)));
    for _ in 0..3 {
        let grown = scene.ask(job, nodes(Direction::Grow, 1, 1));
        assert!(matches!(scene.outcome(grown), Some(AskOutcome::Ready { .. })));
        let shrunk = scene.ask(job, nodes(Direction::Shrink, 1, 1));
        assert!(matches!(scene.outcome(shrunk), Some(AskOutcome::Ready { .. })));
    }
    assert_eq!(scene.lines(job).len(), 6);
}

/// The server must not ask for nodes that another shrink already names.
#[test]
fn nobody_is_asked_twice_for_the_same() {
    let (mut scene, job) = attached(4, 4);
    let mut answers = Vec::new();
    for _ in 0..2 {
        scene.by_itself(|rms, now, step| {
            answers.push(
                rms.negotiations()
                    .open_shrink(now, step, (job, ClusterId(0)), &ShrinkRequest::Count(1, 1), None)
                    .is_ok(),
            );
        });
    }
    assert_eq!(answers, [true, false]);
}
