//! Nodes that are given back: kept and broken promises, orderly departures, and loans.

use negotiation::{Action, Direction, Item, NegotiationId, Phase, Quantity, Reason, Resource, SetRule, Side, Terms};
use rms_api::Call;
use rms_api::negotiate::{AskOutcome, Holding};
use rms_model::{ClusterId, JobId, NodeId, OnResize, Outcome, Span};

use super::{Scene, malleable, nodes};
use crate::negotiate::open::ShrinkRequest;

fn hour() -> Span {
    Span::from_hours(1)
}

impl Scene {
    /// Lets the server ask for `n_nodes` nodes.
    pub(super) fn wants_back(&mut self, job: JobId, n_nodes: u32) -> NegotiationId {
        let mut id = None;
        self.by_itself(|rms, now, step| {
            id = rms
                .negotiations()
                .open_shrink(now, step, (job, ClusterId(0)), &ShrinkRequest::Count(n_nodes, n_nodes), None)
                .ok();
        });
        id.expect("it can be asked")
    }

    pub(super) fn departing(&self, job: JobId) -> Vec<u32> {
        let started = self.world.rms.state().jobs()[&job].started().expect("it runs");
        let evolved = started.evolved.as_ref();
        evolved.map(|evolved| evolved.departing.keys().map(|node| node.0).collect()).unwrap_or_default()
    }

    pub(super) fn generation(&self, job: JobId) -> u32 {
        self.world.rms.state().jobs()[&job].started().expect("it runs").generation()
    }
}

#[test]
fn an_application_lets_go_what_it_has_promised_at_its_breakpoint() {
    let mut scene = Scene::new(4);
    let job = scene.submit(4, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let id = scene.wants_back(job, 2);
    assert_eq!(scene.app_phase(job, id), Phase::Offered(Side::Rms));
    scene.app_acts(job, id, Action::Accept);
    scene.after(Span::from_secs(50));
    assert_eq!(scene.held(job).len(), 4, "it has not reached its breakpoint");
    scene.app_acts(job, id, Action::Commit([NodeId(2), NodeId(4)].into()));
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!((scene.held(job), scene.n_free()), (vec![1, 3], 2));
}

/// The time is given back with the nodes, and not before.
#[test]
fn nodes_and_time_are_given_back_together() {
    let mut scene = Scene::new(4);
    let job = scene.submit(4, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let exactly = |resource, held, quantity| {
        let item = Item::up_to(resource, held, quantity);
        Item { terms: Terms::exactly(item.quantity), ..item }
    };
    let items = vec![exactly(Resource::Nodes(ClusterId(0)), 4, 2), exactly(Resource::Time, 3_600_000, 20 * 60_000)];
    let now = scene.world.now;
    let opened = scene.app(job).dialogues.open(now, Direction::Shrink, vec![SetRule::All], items, hour());
    let (id, output) = opened.expect("it may open one");
    scene.speak(job, output);
    let wall = |scene: &Scene| scene.world.rms.state().jobs()[&job].started().expect("it runs").request.wall;
    assert_eq!((scene.app_phase(job, id), wall(&scene)), (Phase::Accepted, hour()));
    scene.app_acts(job, id, Action::Commit([NodeId(2), NodeId(4)].into()));
    assert_eq!((scene.app_phase(job, id), wall(&scene)), (Phase::Applied, Span::from_mins(40)));
    assert_eq!(scene.held(job), [1, 3]);
    scene.is_durable();
    scene.after(Span::from_mins(40) + Span::from_millis(1));
    assert_eq!(scene.apps[&job].ended, Some(Outcome::WallTime));
}

#[test]
fn who_breaks_a_promise_is_warned_and_then_its_last_nodes_are_taken() {
    let mut scene = Scene::new(4);
    scene.set("release_grace", "10s");
    let job = scene.submit(4, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let id = scene.wants_back(job, 2);
    scene.app_acts(job, id, Action::Accept);
    scene.after(Span::from_secs(10));
    let negotiations = scene.world.rms.state().jobs()[&job].negotiations.as_ref().expect("it negotiates");
    assert!(negotiations.get(id).expect("it is known").is_warned);
    assert_eq!(scene.held(job).len(), 4);
    let doomed = |holding: &Holding| holding.nodes.iter().map(|node| node.is_departing).collect::<Vec<_>>();
    assert_eq!(scene.app(job).holding.as_ref().map(doomed), Some(vec![false, false, true, true]), "it is told which");
    scene.after(Span::from_secs(10));
    assert_eq!((scene.held(job), scene.n_free()), (vec![1, 2], 2));
    assert_eq!(scene.app_phase(job, id), Phase::Ended(negotiation::Ending::Failed));
    let reason = scene.app(job).dialogues.get(id).and_then(|dialogue| dialogue.reason());
    assert_eq!(reason, Some(Reason::BrokenPromise));
    let holding = scene.app(job).holding.clone().expect("it was told");
    assert_eq!(holding.nodes.len(), 2);
}

#[test]
fn the_first_node_is_never_given_back() {
    let mut scene = Scene::new(3);
    let job = scene.submit(2, hour(), Some(malleable(1, 3, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let id = scene.wants_back(job, 1);
    scene.app_acts(job, id, Action::Accept);
    scene.app_acts(job, id, Action::Commit([NodeId(1)].into()));
    assert_eq!(scene.app_phase(job, id), Phase::Ended(negotiation::Ending::Failed));
    assert_eq!(scene.held(job), [1, 2]);
}

/// The limits of an application's own proposal are told; that of the server is known to it.
#[test]
fn who_asks_for_what_is_not_possible_is_told_the_limit() {
    let mut scene = Scene::new(3);
    scene.set("growth_limit", "1");
    let job = scene.submit(2, hour(), Some(malleable(1, 3, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let all = Item::up_to(Resource::Nodes(ClusterId(0)), 2, 2);
    let mut is_told = |direction, least: u64, expected: Option<&str>| {
        let mut item = all.clone();
        item.terms.least = Quantity(least);
        let id = scene.app_opens(job, direction, item);
        assert!(scene.app_phase(job, id).is_over(), "{direction:?}");
        assert_eq!(scene.app(job).why.as_deref(), expected, "{direction:?}");
    };
    let keeps = "nodes: 2 fewer proposed, at most 1 of 2 allowed: its first node stays to its end";
    is_told(Direction::Shrink, 2, Some(keeps));
    let grows = "nodes: 2 more proposed; growth_limit allows all jobs of root together 1 more than they started with";
    is_told(Direction::Grow, 2, Some(grows));
    let id = scene.wants_back(job, 1);
    scene.app_acts(job, id, Action::Reject(Reason::Policy));
    assert_eq!(scene.app(job).why, None);
}

#[test]
fn what_a_job_gave_back_comes_again_whatever_the_growth_limit() {
    let mut scene = Scene::new(6);
    scene.set("growth_limit", "1");
    let job = scene.submit(3, hour(), Some(malleable(1, 6, OnResize::Negotiates)));
    let mut changes = |direction, n_nodes| {
        let ticket = scene.ask(job, nodes(direction, n_nodes, n_nodes));
        matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. }))
    };
    assert!(changes(Direction::Shrink, 2));
    assert!(!changes(Direction::Grow, 4), "two more than it started with");
    assert!(changes(Direction::Grow, 3));
    assert!(!changes(Direction::Grow, 1));
}

/// A job that is told by a signal leaves by itself: the hostfile no longer has the nodes, and its processes run on
/// there.
#[test]
fn a_job_that_is_told_leaves_its_nodes_and_says_so() {
    let mut scene = Scene::new(4);
    let job = scene.submit(4, hour(), Some(malleable(1, 4, OnResize::Signal(10))));
    let ticket = scene.ask(job, nodes(Direction::Shrink, 2, 2));
    assert_eq!((scene.departing(job), scene.generation(job)), (vec![3, 4], 2));
    assert_eq!(scene.held(job).len(), 4, "its processes run on");
    scene.call(Call::ResizeDone { job, generation: 1 }).expect("it may");
    assert_eq!(scene.held(job).len(), 4, "it has not heard of this change");
    scene.call(Call::ResizeDone { job, generation: 2 }).expect("it may");
    assert_eq!((scene.held(job), scene.n_free()), (vec![1, 2], 2));
    assert_eq!(scene.generation(job), 2, "its nodes are those that it knows of");
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 2, generation: 2, .. })));
}

#[test]
fn a_job_that_is_told_and_does_nothing_loses_its_nodes_all_the_same() {
    let mut scene = Scene::new(4);
    scene.set("release_grace", "5s");
    let job = scene.submit(4, hour(), Some(malleable(1, 4, OnResize::Hook("./resize".to_owned()))));
    let ticket = scene.ask(job, nodes(Direction::Shrink, 1, 1));
    scene.after(Span::from_secs(4));
    assert_eq!(scene.held(job).len(), 4);
    scene.after(Span::from_secs(1));
    assert_eq!(scene.held(job).len(), 3);
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
}

/// A loan comes back when its time is over, without what was given back before.
#[test]
fn a_loan_is_given_back_in_time() {
    let mut scene = Scene::new(6);
    let job = scene.submit(2, hour(), Some(malleable(1, 6, OnResize::Workers)));
    let mut ask = nodes(Direction::Grow, 4, 4);
    ask.duration = Some(Span::from_mins(10));
    let ticket = scene.ask(job, ask);
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
    scene.after(Span::from_mins(5));
    scene.ask(job, nodes(Direction::Shrink, 1, 1));
    assert_eq!(scene.held(job).len(), 5);
    scene.after(Span::from_mins(6));
    assert_eq!((scene.held(job), scene.n_free()), (vec![1, 2], 4));
    scene.is_durable();
}

/// What comes back for one loan counts against no other one.
#[test]
fn each_loan_is_given_back_at_its_own_time() {
    let mut scene = Scene::new(6);
    let job = scene.submit(2, hour(), Some(malleable(1, 6, OnResize::Workers)));
    for (n_nodes, mins) in [(2, 10), (1, 30)] {
        let mut ask = nodes(Direction::Grow, n_nodes, n_nodes);
        ask.duration = Some(Span::from_mins(mins));
        let ticket = scene.ask(job, ask);
        assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
    }
    assert_eq!(scene.held(job).len(), 5);
    scene.after(Span::from_mins(11));
    assert_eq!((scene.held(job).len(), scene.n_free()), (3, 3));
    scene.after(Span::from_mins(20));
    assert_eq!((scene.held(job), scene.n_free()), (vec![1, 2], 4));
    scene.is_durable();
}

/// Others are planned for what comes back, by the latest time at which that is free.
#[test]
fn a_loan_is_planned_to_come_back() {
    let mut scene = Scene::new(4);
    let job = scene.submit(2, hour(), Some(malleable(1, 4, OnResize::Workers)));
    let mut ask = nodes(Direction::Grow, 2, 2);
    ask.duration = Some(Span::from_mins(10));
    scene.ask(job, ask);
    let waiting = [2, 4].map(|n_nodes| scene.submit(n_nodes, hour(), None));
    let begun = scene.world.now;
    let estimates = waiting.map(|waiting| scene.world.line(waiting).estimate.expect("it can start").since(begun));
    let bound = Span::from_mins(10)..Span::from_mins(15);
    assert!(bound.contains(&estimates[0]) && estimates[1] > hour(), "{estimates:?}");
    assert_eq!(scene.world.detail(job).limited.iter().map(|part| part.nodes).sum::<u64>(), 2);
    scene.after(Span::from_mins(11));
    assert!(scene.is_started(waiting[0]));
    assert!(scene.world.detail(job).limited.is_empty());
}

/// A growth that is over before a waiting job needs the nodes delays nobody.
#[test]
fn a_short_loan_fits_before_a_waiting_job() {
    for (duration, is_granted) in [(Some(10), true), (Some(30), false), (None, false)] {
        let mut scene = Scene::new(5);
        let job = scene.submit(2, hour(), Some(malleable(1, 4, OnResize::Workers)));
        scene.submit(2, Span::from_mins(20), None);
        let waiting = scene.submit(3, hour(), None);
        let before = scene.world.line(waiting).estimate;
        let mut ask = nodes(Direction::Grow, 1, 1);
        ask.duration = duration.map(Span::from_mins);
        let ticket = scene.ask(job, ask);
        let is_ready = matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. }));
        assert_eq!(is_ready, is_granted, "{duration:?}");
        assert_eq!(scene.world.line(waiting).estimate, before);
    }
}

#[test]
fn who_will_not_give_back_what_was_lent_loses_it() {
    let mut scene = Scene::new(4);
    scene.set("offer_valid", "5s");
    let job = scene.submit(2, hour(), Some(malleable(1, 4, OnResize::Negotiates)));
    scene.attach(job).expect("it may");
    let mut item = scene.item(job, 2);
    item.terms.duration = Some(Span::from_mins(10));
    let id = scene.app_opens(job, Direction::Grow, item);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    scene.after(Span::from_mins(10));
    assert_eq!(scene.held(job).len(), 4, "it is asked");
    let called = NegotiationId { initiator: Side::Rms, number: 1 };
    scene.app_acts(job, called, Action::Reject(Reason::Declined));
    assert_eq!((scene.held(job), scene.n_free()), (vec![1, 2], 2));
}

/// A node that still has processes when the time for all that is over is not free: the request fails, and the node
/// leaves later.
#[test]
fn a_node_is_not_free_before_nothing_runs_there() {
    let mut scene = Scene::new(2);
    let job = scene.submit(2, hour(), Some(malleable(1, 2, OnResize::Workers)));
    scene.disconnect(&["n2"]);
    let ticket = scene.ask(job, nodes(Direction::Shrink, 1, 1));
    let waiting = scene.submit(1, hour(), None);
    scene.after(Span::from_mins(11));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Failed { reason: Reason::Overdue, .. })));
    assert!(!scene.is_started(waiting));
    scene.reconnect(&["n2"]);
    assert!(scene.is_started(waiting));
}

/// Jobs that can leave a draining node do so.
#[test]
fn a_malleable_job_leaves_a_node_that_drains() {
    let mut scene = Scene::new(3);
    let job = scene.submit(3, hour(), Some(malleable(1, 3, OnResize::Workers)));
    let (nodes, reason) = (vec!["n2".to_owned()], "fan".to_owned());
    scene.call(Call::Drain { nodes, reason }).expect("an admin may");
    scene.after(Span::from_secs(1));
    assert_eq!(scene.held(job), [1, 3]);
}
