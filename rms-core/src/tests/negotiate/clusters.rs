//! Applications that hold nodes of two clusters: they grow onto the second one, and give back nodes of either.

use negotiation::{Action, Direction, Ending, Item, NegotiationId, Phase, Price, Reason, Resource, SetRule, Side};
use rms_api::answer::ClusterView;
use rms_api::call::{Nodes, Select, Shape};
use rms_api::desired::NodeExit;
use rms_api::negotiate::{Ask, AskOutcome, Asked};
use rms_api::{Answer, Call, Query, Refusal};
use rms_model::{ClusterId, JobId, Malleable, NodeId, OnResize, Span};

use super::{Scene, malleable, nodes};
use crate::Event;
use crate::negotiate;
use crate::negotiate::open::ShrinkRequest;

const C: ClusterId = ClusterId(0);
const D: ClusterId = ClusterId(1);

fn hour() -> Span {
    Span::from_hours(1)
}

fn on_d(ask: Ask) -> Ask {
    Ask { what: Asked::Nodes { cluster: Some("d".to_owned()) }, ..ask }
}

impl Scene {
    /// Creates cluster `c` with nodes n1, n2, …, and cluster `d` with m1, m2, …, whose numbers follow.
    fn of_two(n_on_c: u32, n_on_d: u32) -> Scene {
        let mut scene = Scene::new(n_on_c);
        for number in 1..=n_on_d {
            scene.node_joins_in("d", &format!("m{number}"));
        }
        scene
    }

    fn submit_on(&mut self, cluster: &str, n_nodes: u32, malleable: Option<Malleable>) -> JobId {
        let mut submission = self.world.submission();
        submission.shapes = vec![Shape { nodes: Nodes::Count(n_nodes), wall: Some(hour()) }];
        submission.clusters = vec![cluster.to_owned()];
        submission.malleable = malleable;
        match self.call(Call::Submit(Box::new(submission))) {
            Ok(Answer::Submitted { job }) => job,
            other => panic!("not submitted: {other:?}"),
        }
    }

    /// Starts an application on `c` that negotiates for itself.
    fn speaks_on_c(&mut self, n_nodes: u32) -> JobId {
        let job = self.submit_on("c", n_nodes, Some(malleable(1, 16, OnResize::Negotiates)));
        self.attach(job).expect("it may");
        job
    }

    /// Starts one that has grown to as many nodes of `d` as of `c`.
    fn speaks_on_both(&mut self, n_on_each: u32) -> JobId {
        let job = self.speaks_on_c(n_on_each);
        let id = self.app_opens(job, Direction::Grow, Item::up_to(Resource::Nodes(D), 0, n_on_each.into()));
        assert_eq!(self.app_phase(job, id), Phase::Applied);
        job
    }

    fn wants_back_on(&mut self, job: JobId, cluster: ClusterId, n_nodes: u32) -> Option<NegotiationId> {
        let mut id = None;
        self.by_itself(|rms, now, step| {
            id = rms
                .negotiations()
                .open_shrink(now, step, (job, cluster), &ShrinkRequest::Count(n_nodes, n_nodes), None)
                .ok();
        });
        id
    }

    /// Returns how many nodes of each cluster the view of the whole system shows as busy now.
    fn busy(&mut self) -> (i64, i64) {
        let now = self.world.now;
        let views = match self.call(Call::Query(Query::View { job: None })) {
            Ok(Answer::View(view)) => view.clusters,
            other => panic!("no view: {other:?}"),
        };
        let busy = |cluster: ClusterId| {
            let view = views.iter().find(|view: &&ClusterView| view.cluster == cluster).expect("it is shown");
            view.started.at(now) + view.offered.at(now)
        };
        (busy(C), busy(D))
    }

    fn free_on(&self, cluster: ClusterId) -> usize {
        self.world.rms.state().n_free(cluster)
    }

    /// Returns in how much time from now the job would start.
    fn starts_in(&mut self, job: JobId) -> Option<Span> {
        let estimate = match self.call(Call::Query(Query::Queue(Default::default()))) {
            Ok(Answer::Queue { jobs, .. }) => jobs.into_iter().find(|line| line.job == job)?.estimate,
            other => panic!("no queue: {other:?}"),
        };
        estimate.map(|at| at.since(self.world.now))
    }

    fn reason_of(&mut self, job: JobId, id: NegotiationId) -> Option<Reason> {
        self.app(job).dialogues.get(id).and_then(|dialogue| dialogue.reason())
    }
}

fn both(n_on_c: (u64, u64), n_on_d: (u64, u64)) -> Vec<Item> {
    let of = |cluster, (held, quantity)| Item::up_to(Resource::Nodes(cluster), held, quantity);
    vec![of(C, n_on_c), of(D, n_on_d)]
}

#[test]
fn a_job_of_one_cluster_grows_onto_another_one() {
    let mut scene = Scene::of_two(2, 3);
    let job = scene.speaks_on_c(2);
    let id = scene.app_opens(job, Direction::Grow, Item::up_to(Resource::Nodes(D), 0, 2));
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!(scene.held(job), [1, 2, 3, 4], "node 0 is still the first one");
    let holding = scene.app(job).holding_at_ready.clone().expect("it was told");
    let clusters: Vec<&str> = holding.nodes.iter().map(|node| node.cluster_name.as_str()).collect();
    assert_eq!(clusters, ["c", "c", "d", "d"]);
    assert_eq!(scene.busy(), (2, 2));
    scene.is_durable();
    scene.restart();
    assert_eq!(scene.held(job), [1, 2, 3, 4]);
}

#[test]
fn somebody_may_ask_for_nodes_of_another_cluster_of_a_job_that_was_never_told_of_sizes() {
    let mut scene = Scene::of_two(1, 3);
    let job = scene.submit_on("c", 1, None);
    let ticket = scene.ask(job, on_d(nodes(Direction::Grow, 2, 2)));
    let Some(AskOutcome::Ready { quantity: 2, nodes: names, .. }) = scene.outcome(ticket) else {
        panic!("{:?}", scene.outcome(ticket));
    };
    assert_eq!(names, ["m1", "m2"]);
    // Named nodes determine the cluster.
    let back = Ask { nodes: vec!["m1".to_owned()], ..nodes(Direction::Shrink, 1, 1) };
    let ticket = scene.ask(job, back);
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { quantity: 1, .. })));
    assert_eq!(scene.held(job), [1, 3]);
    let mixed = Ask { nodes: vec!["n1".to_owned(), "m2".to_owned()], ..nodes(Direction::Grow, 2, 2) };
    let ticket = scene.ask(job, mixed);
    assert!(matches!(scene.refusal(ticket), Some(Refusal::Malformed(_))));
    let ticket =
        scene.ask(job, Ask { what: Asked::Nodes { cluster: Some("e".to_owned()) }, ..nodes(Direction::Grow, 1, 1) });
    assert!(scene.refusal(ticket).is_some(), "there is no such cluster");
}

/// A held node is kept from others on its own cluster only.
#[test]
fn what_is_offered_on_a_cluster_is_busy_in_the_view_of_that_cluster_only() {
    let mut scene = Scene::of_two(2, 3);
    let job = scene.speaks_on_c(1);
    let mut id = None;
    scene.by_itself(|rms, now, step| {
        id = rms.negotiations().open_growth_offer(now, step, (job, D), 2, Price(0)).ok();
    });
    let id = id.expect("two are free there");
    assert_eq!(scene.busy(), (1, 2));
    assert_eq!((scene.free_on(C), scene.free_on(D)), (1, 1));
    let waiting = scene.submit_on("d", 2, None);
    assert!(!scene.is_started(waiting));
    assert_eq!(scene.starts_in(waiting), Some(hour()), "it may have them until its end");
    assert!(
        scene.app_sees(job, id).is_some_and(|offer| offer.items()[0].resource == Resource::Nodes(D)),
        "it is named"
    );
    scene.app_acts(job, id, Action::Reject(Reason::Declined));
    assert!(scene.is_started(waiting));
}

#[test]
fn nodes_of_two_clusters_come_together_or_not_at_all() {
    let mut scene = Scene::of_two(3, 2);
    let job = scene.speaks_on_c(1);
    let other = scene.submit_on("d", 1, None);
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::All, both((1, 2), (0, 1)));
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!(scene.held(job), [1, 2, 3, 5]);
    let mut items = both((3, 1), (1, 1));
    // No node is left on either cluster; on `d` there will be one again.
    items.remove(0);
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::All, items);
    assert_eq!(scene.app_phase(job, id), Phase::Offered(Side::Application), "it waits");
    scene.call(Call::Cancel { select: Select::Ids(vec![other]) }).expect("it is there");
    scene.after(Span::from_mins(1));
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    scene.is_durable();
}

#[test]
fn of_a_set_of_two_clusters_nothing_is_given_while_one_of_them_has_nothing() {
    let mut scene = Scene::of_two(3, 1);
    let job = scene.speaks_on_c(1);
    let other = scene.submit_on("d", 1, None);
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::All, both((1, 2), (0, 1)));
    assert_eq!(scene.app_phase(job, id), Phase::Offered(Side::Application));
    assert_eq!(scene.free_on(C), 2, "who waits holds nothing");
    scene.call(Call::Cancel { select: Select::Ids(vec![other]) }).expect("it is there");
    scene.after(Span::from_mins(1));
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!(scene.held(job), [1, 2, 3, 4]);
}

#[test]
fn of_any_of_two_clusters_the_server_gives_what_there_is() {
    let mut scene = Scene::of_two(1, 2);
    let job = scene.speaks_on_c(1);
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::AnyOf, both((1, 2), (0, 2)));
    assert_eq!(scene.app_phase(job, id), Phase::Countered(Side::Rms));
    let offer = scene.app_sees(job, id).expect("an offer");
    assert_eq!(offer.items().iter().map(Item::is_live).collect::<Vec<_>>(), [false, true]);
    scene.app_acts(job, id, Action::Accept);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!(scene.held(job), [1, 2, 3]);
}

#[test]
fn of_two_alternatives_the_server_gives_one() {
    let mut scene = Scene::of_two(3, 2);
    let job = scene.speaks_on_c(1);
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::OneOf, both((1, 2), (0, 2)));
    scene.app_acts(job, id, Action::Accept);
    assert_eq!(scene.held(job), [1, 2, 3]);
    assert_eq!(scene.free_on(D), 2);
}

/// All nodes that came with a node that is lost before it is up leave again, on whichever cluster they are.
#[test]
fn a_node_of_one_cluster_that_is_lost_on_its_way_takes_those_of_the_other_along() {
    let mut scene = Scene::of_two(2, 2);
    let job = scene.speaks_on_c(1);
    scene.disconnect(&["m2"]);
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::All, both((1, 1), (0, 2)));
    assert_eq!(scene.app_phase(job, id), Phase::Committing);
    scene.restart();
    scene.attach(job).expect("it may");
    assert_eq!(scene.app_phase(job, id), Phase::Committing);
    scene.ended("m2", job, NodeExit::not_started("no space"));
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Failed));
    assert_eq!(scene.reason_of(job, id), Some(Reason::Lost));
    assert_eq!(scene.held(job), [1]);
    assert_eq!((scene.free_on(C), scene.free_on(D)), (1, 2));
    assert!(scene.is_started(job));
    scene.is_durable();
}

/// A node of an offer on both clusters that is lost is replaced on its cluster, or the whole offer is withdrawn.
#[test]
fn a_node_that_was_offered_is_replaced_by_one_of_its_cluster() {
    let mut scene = Scene::of_two(4, 3);
    let job = scene.speaks_on_c(1);
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::All, both((1, 9), (0, 2)));
    assert_eq!(scene.app_phase(job, id), Phase::Countered(Side::Rms));
    assert_eq!(scene.lines(job)[0].held, ["n2", "n3", "n4", "m1", "m2"]);
    let down = |node: &str| Call::Down { nodes: vec![node.to_owned()], reason: "fire".to_owned() };
    scene.call(down("m1")).expect("an admin may");
    assert_eq!(scene.lines(job)[0].held, ["n2", "n3", "n4", "m2", "m3"]);
    scene.call(down("m2")).expect("an admin may");
    assert_eq!(scene.app_phase(job, id), Phase::Ended(Ending::Withdrawn));
    assert_eq!((scene.free_on(C), scene.free_on(D)), (3, 1));
}

#[test]
fn a_restarted_server_goes_on_in_every_phase() {
    let mut scene = Scene::of_two(3, 3);
    let job = scene.speaks_on_c(1);
    let restarts = |scene: &mut Scene| {
        scene.is_durable();
        scene.restart();
        scene.attach(job).expect("it may");
    };
    // Countered: what was offered is still held, on each cluster.
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::All, both((1, 9), (0, 2)));
    restarts(&mut scene);
    assert_eq!((scene.free_on(C), scene.free_on(D)), (0, 1));
    // Committing.
    scene.disconnect(&["m1"]);
    scene.app_acts(job, id, Action::Accept);
    restarts(&mut scene);
    assert_eq!(scene.app_phase(job, id), Phase::Committing);
    scene.reconnect(&["m1"]);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    restarts(&mut scene);
    assert_eq!((scene.held(job), scene.busy()), (vec![1, 2, 3, 4, 5], (3, 2)));
    // A shrink that is offered, agreed, and carried out.
    let back = scene.wants_back_on(job, D, 1).expect("it has nodes there");
    restarts(&mut scene);
    scene.app_acts(job, back, Action::Accept);
    restarts(&mut scene);
    assert_eq!(scene.app_phase(job, back), Phase::Accepted);
    scene.disconnect(&["m1"]);
    scene.app_acts(job, back, Action::Commit([NodeId(4)].into()));
    restarts(&mut scene);
    assert_eq!((scene.held(job), scene.free_on(D)), (vec![1, 2, 3, 5], 1), "something still runs there");
    scene.reconnect(&["m1"]);
    assert_eq!(scene.app_phase(job, back), Phase::Applied);
    assert_eq!((scene.free_on(C), scene.free_on(D)), (0, 2));
}

#[test]
fn a_shrink_takes_nodes_of_the_cluster_that_it_names() {
    let mut scene = Scene::of_two(2, 2);
    let job = scene.speaks_on_both(2);
    let item = Item::up_to(Resource::Nodes(D), 2, 2);
    let id = scene.app_opens(job, Direction::Shrink, item);
    assert_eq!(scene.app_phase(job, id), Phase::Accepted, "on the second cluster all may go");
    // Nodes of the other cluster are not what was agreed.
    scene.app_acts(job, id, Action::Commit([NodeId(2), NodeId(4)].into()));
    assert_eq!(scene.reason_of(job, id), Some(Reason::BadProposal));
    assert_eq!(scene.held(job), [1, 2, 3, 4]);
    let id = scene.app_opens(job, Direction::Shrink, Item::up_to(Resource::Nodes(D), 2, 2));
    scene.app_acts(job, id, Action::Commit([NodeId(3), NodeId(4)].into()));
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    assert_eq!((scene.held(job), scene.busy()), (vec![1, 2], (2, 0)));
    let id = scene.app_opens(job, Direction::Shrink, Item::up_to(Resource::Nodes(C), 2, 2));
    assert_eq!(scene.reason_of(job, id), Some(Reason::Policy), "its first node stays to its end");
}

#[test]
fn who_breaks_a_promise_loses_the_last_nodes_of_that_cluster() {
    let mut scene = Scene::of_two(3, 2);
    scene.set("release_grace", "10s");
    let job = scene.speaks_on_both(2);
    // The last node came on `c`.
    let grown = scene.app_opens(job, Direction::Grow, Item::up_to(Resource::Nodes(C), 2, 1));
    assert_eq!(scene.app_phase(job, grown), Phase::Applied);
    assert_eq!(scene.held(job), [1, 2, 4, 5, 3]);
    let id = scene.wants_back_on(job, D, 1).expect("it has nodes there");
    scene.app_acts(job, id, Action::Accept);
    // Other jobs are planned with what was promised, on that cluster.
    let waiting = scene.submit_on("d", 1, None);
    let hopeless = scene.submit_on("c", 1, None);
    assert!(scene.starts_in(waiting).is_some_and(|span| span < Span::from_mins(1)));
    assert!(scene.starts_in(hopeless).is_some_and(|span| span > Span::from_mins(50)));
    scene.after(Span::from_secs(25));
    assert_eq!(scene.reason_of(job, id), Some(Reason::BrokenPromise));
    assert_eq!(scene.held(job), [1, 2, 4, 3]);
    assert!(scene.is_started(waiting) && !scene.is_started(hopeless));
}

#[test]
fn what_is_lent_on_each_cluster_is_called_back_there() {
    let mut scene = Scene::of_two(3, 2);
    let job = scene.speaks_on_c(1);
    let mut items = both((1, 2), (0, 2));
    items.iter_mut().for_each(|item| item.terms.duration = Some(Span::from_mins(10)));
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::All, items);
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    scene.after(Span::from_mins(10));
    let called = scene.app_hears(job, Direction::Shrink).expect("the first of them");
    scene.app_acts(job, called, Action::Reject(Reason::Declined));
    assert_eq!(scene.held(job), [1, 4, 5], "taken, on this cluster");
    scene.restart();
    scene.attach(job).expect("it may");
    scene.after(Span::from_secs(1));
    let called = scene.app_hears(job, Direction::Shrink).expect("the second one");
    scene.app_acts(job, called, Action::Accept);
    scene.app_acts(job, called, Action::Commit([NodeId(4), NodeId(5)].into()));
    assert_eq!(scene.held(job), [1]);
    scene.after(Span::from_mins(10));
    assert_eq!(scene.app_hears(job, Direction::Shrink), None, "nothing is owed any more");
    scene.is_durable();
}

/// It would cost nothing, whatever the budget, and the plan would not show it.
#[test]
fn nothing_is_lent_that_is_to_be_given_back_at_once() {
    for (secs, is_lent) in [(-1, false), (600, true)] {
        let mut scene = Scene::of_two(3, 2);
        let job = scene.speaks_on_c(1);
        let mut items = both((1, 2), (0, 2));
        let back = scene.world.now + Span::from_secs(secs);
        items.iter_mut().for_each(|item| item.terms.give_back_by = Some(back));
        scene.app_opens_set(job, Direction::Grow, SetRule::All, items);
        assert_eq!(scene.held(job).len() > 1, is_lent, "until {secs} s from now");
    }
}

#[test]
fn each_cluster_has_its_price() {
    let mut scene = Scene::of_two(3, 3);
    scene.set("price", "0");
    scene.set("price@d", "3600");
    let job = scene.speaks_on_c(1);
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::All, both((1, 2), (0, 2)));
    let offer = scene.app_sees(job, id).expect("a counter");
    assert_eq!(offer.items().iter().map(|item| item.terms.price.0).collect::<Vec<_>>(), [0, 3600]);
    scene.app_acts(job, id, Action::Accept);
    assert_eq!(scene.held(job).len(), 5);
    let owner = scene.world.rms.state().jobs()[&job].spec.owner.0.clone();
    let spent = |scene: &Scene| negotiate::balance(scene.world.rms.state(), scene.world.now, &owner, None).spent;
    scene.after(Span::from_mins(10));
    assert_eq!(spent(&scene), 1200, "two nodes of `d` for ten minutes");
    // A node of the other cluster that leaves is none of those.
    let back = scene.app_opens(job, Direction::Shrink, Item::up_to(Resource::Nodes(C), 3, 1));
    scene.app_acts(job, back, Action::Commit([NodeId(3)].into()));
    scene.after(Span::from_mins(10));
    assert_eq!(spent(&scene), 2400);
    let back = scene.app_opens(job, Direction::Shrink, Item::up_to(Resource::Nodes(D), 2, 2));
    scene.app_acts(job, back, Action::Commit([NodeId(4), NodeId(5)].into()));
    scene.after(Span::from_mins(10));
    assert_eq!(spent(&scene), 2400);
}

#[test]
fn a_users_limit_and_budget_are_for_all_clusters_together() {
    let mut scene = Scene::of_two(4, 4);
    scene.set("growth_limit", "3");
    let job = scene.speaks_on_c(1);
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::All, both((1, 2), (0, 2)));
    let offer = scene.app_sees(job, id).expect("a counter");
    assert_eq!(offer.items().iter().map(|item| item.quantity.0).collect::<Vec<_>>(), [2, 1]);
    scene.app_acts(job, id, Action::Withdraw(Reason::Changed));
    scene.set("growth_limit", "none");
    scene.set("price", "1000");
    scene.set("budget", "3000");
    let id = scene.app_opens_set(job, Direction::Grow, SetRule::All, both((1, 2), (0, 2)));
    let offer = scene.app_sees(job, id).expect("a counter");
    assert_eq!(offer.items().iter().map(|item| item.quantity.0).collect::<Vec<_>>(), [2, 1]);
}

/// The server does not know whether an application can use a cluster where it has no nodes: the application must ask
/// for that one itself.
#[test]
fn the_server_offers_idle_nodes_of_clusters_where_the_application_has_some() {
    let mut scene = Scene::of_two(2, 4);
    let job = scene.speaks_on_c(2);
    scene.set("offer_idle", "equal_share");
    scene.after(Span::from_secs(1));
    assert_eq!(scene.app_hears(job, Direction::Grow), None);
    let id = scene.app_opens(job, Direction::Grow, Item::up_to(Resource::Nodes(D), 0, 1));
    assert_eq!(scene.app_phase(job, id), Phase::Applied);
    scene.after(Span::from_secs(1));
    let offer = scene.app_hears(job, Direction::Grow).expect("it has a node there now");
    let offered = scene.app_sees(job, offer).expect("an offer");
    assert_eq!((offered.items()[0].resource.clone(), offered.n_nodes()), (Resource::Nodes(D), 3));
}

#[test]
fn for_a_job_that_waits_the_nodes_of_its_cluster_are_asked_back() {
    let mut scene = Scene::of_two(2, 2);
    let job = scene.speaks_on_both(2);
    scene.set("shrink_for", "queue");
    let waiting = scene.submit_on("d", 2, None);
    scene.after(Span::from_secs(1));
    let id = scene.app_hears(job, Direction::Shrink).expect("it is asked");
    let asked = scene.app_sees(job, id).expect("a wish");
    assert_eq!((asked.items()[0].resource.clone(), asked.n_nodes()), (Resource::Nodes(D), 2));
    scene.app_acts(job, id, Action::Accept);
    scene.app_acts(job, id, Action::Commit([NodeId(3), NodeId(4)].into()));
    assert!(scene.is_started(waiting));
}

/// Where the server is the proxy of the application, the limits are those of all of its nodes.
#[test]
fn a_job_that_is_told_of_its_size_keeps_within_its_limits_over_both_clusters() {
    let mut scene = Scene::of_two(2, 4);
    let job = scene.submit_on("c", 2, Some(malleable(2, 4, OnResize::Workers)));
    let ticket = scene.ask(job, on_d(nodes(Direction::Grow, 1, 1)));
    assert!(matches!(scene.outcome(ticket), Some(AskOutcome::Ready { .. })));
    scene.set("offer_idle", "equal_share");
    scene.after(Span::from_secs(1));
    assert_eq!(scene.held(job).len(), 4, "one more of four is within them");
    scene.set("shrink_for", "queue");
    scene.set("offer_idle", "never");
    let waiting = scene.submit_on("d", 4, None);
    scene.after(Span::from_secs(1));
    assert_eq!(scene.held(job), [1, 2], "two of them are its least");
    assert!(scene.is_started(waiting));
}

#[test]
fn a_drained_node_is_left_on_its_own_cluster() {
    let mut scene = Scene::of_two(2, 2);
    let job = scene.speaks_on_both(2);
    let drain = Call::Drain { nodes: vec!["m1".to_owned()], reason: "fan".to_owned() };
    scene.call(drain).expect("an admin may");
    scene.after(Span::from_secs(1));
    let id = scene.app_hears(job, Direction::Shrink).expect("it is asked");
    let asked = scene.app_sees(job, id).expect("a wish");
    assert_eq!(
        (asked.items()[0].resource.clone(), asked.items()[0].nodes.clone()),
        (Resource::Nodes(D), [NodeId(3)].into())
    );
}

#[test]
fn a_job_on_two_clusters_ends_and_leaves_both() {
    let mut scene = Scene::of_two(2, 2);
    let job = scene.speaks_on_both(2);
    scene.event(Event::Tick);
    scene.call(Call::Cancel { select: Select::Ids(vec![job]) }).expect("it is there");
    scene.after(Span::from_mins(1));
    assert!(scene.has_left(job));
    assert_eq!((scene.free_on(C), scene.free_on(D)), (2, 2));
    scene.is_durable();
}

/// A job that nobody can help does not keep those of other clusters from being helped.
#[test]
fn who_waits_first_for_a_cluster_is_helped_whoever_waits_for_others() {
    let mut scene = Scene::of_two(2, 2);
    scene.set("shrink_for", "queue");
    let rigid = scene.submit_on("c", 2, None);
    let gives = scene.submit_on("d", 2, Some(malleable(1, 2, OnResize::Workers)));
    assert!(scene.is_started(rigid) && scene.is_started(gives));
    let [first, second, third] = [("c", 1), ("d", 1), ("d", 1)].map(|(cluster, n)| scene.submit_on(cluster, n, None));
    assert_eq!([first, second, third].map(|job| scene.is_started(job)), [false, true, false]);
    scene.is_durable();
}
