//! What launchers see and when they are notified: only the clusters that look different (001, Fig. 5).

use std::sync::Arc;

use rms_api::subscription::{ClusterLink, LauncherView};

use super::*;

/// 001, Fig. 5: an application sees what is before it, and those behind it see its request.
#[test]
fn each_application_sees_those_before_it() {
    let mut launchers = Launchers::new();
    let _started = launchers.waiting(on_a(4, 100));
    let (first, second, silent) = (launchers.subscribe(), launchers.subscribe(), launchers.subscribe());
    launchers.told.clear();
    launchers.request(first, 1, on_a(3, 50));
    assert_eq!(launchers.changes(first), [], "its own request changes nothing for itself");
    let expected = BTreeMap::from([(A, (4, Some(vec![(100, 4), (50, 3)])))]);
    let change = launchers.change(second);
    assert_eq!(launchers.shape(&change), expected, "nothing is said of cluster b");
    launchers.request(second, 1, on_a(1, 50));
    assert_eq!(launchers.changes(first), [], "a later request never changes an earlier one's view");
    assert_eq!(launchers.changes(second), []);
    let silent_sees = launchers.changes(silent);
    let shapes: Vec<_> = silent_sees.iter().map(|change| launchers.shape(change)).collect();
    assert_eq!(shapes, [expected, BTreeMap::from([(A, (4, Some(vec![(150, 4)])))])], "it would come after all");
    assert_eq!(silent_sees.iter().map(|change| change.version).collect::<Vec<_>>(), [2, 3]);
}

/// R7: the passing of time alone is no change, even when a step of a profile has passed.
#[test]
fn time_that_passes_is_no_news() {
    let mut launchers = Launchers::new();
    let started = launchers.waiting(on_a(4, 10));
    launchers.accept(started, 1);
    let waits = launchers.waiting(on_a(4, 10));
    let silent = launchers.subscribe();
    launchers.told.clear();
    // A request for another cluster makes a pass.
    launchers.after(5);
    let other = launchers.waiting(on_b(2, 100));
    assert_eq!(launchers.changes(waits), [], "it comes before that one");
    let change = launchers.change(silent);
    assert_eq!(change.clusters.iter().map(|cluster| cluster.cluster).collect::<Vec<_>>(), [B]);
    launchers.accept(other, 1);
    // The wall time of the first is over as planned, and the next one starts.
    launchers.after(5);
    launchers.accept(waits, 1);
    launchers.told.clear();
    launchers.after(3);
    launchers.set("kill_grace", "3s");
    assert_eq!(launchers.changes(silent), [], "all is as it was foreseen");
}

/// A holder that leaves early, and the ghost that stays for a while, are notified; so is the ghost's end, which was
/// known.
#[test]
fn an_early_end_is_seen_as_a_ghost_until_the_fair_start_delay_is_over() {
    let mut launchers = Launchers::new();
    launchers.set("fair_start", "5s");
    let holder = launchers.waiting(on_a(4, 100));
    launchers.accept(holder, 1);
    let waits = launchers.waiting(on_a(1, 10));
    launchers.told.clear();
    launchers.finish(holder, 1, 0);
    let change = launchers.change(waits);
    assert_eq!(launchers.shape(&change), BTreeMap::from([(A, (4, Some(vec![(5, 4)])))]));
    launchers.after(2);
    let late = launchers.subscribe();
    let change = launchers.change(late);
    assert_eq!(launchers.shape(&change)[&A], (4, Some(vec![(3, 4), (10, 1)])), "the one that waits comes after it");
    launchers.after(3);
    let grant = launchers.grant(waits);
    assert_eq!(grant.at, launchers.world.now);
    assert_eq!(launchers.changes(late), [], "it happened as it was foreseen");
}

#[test]
fn the_started_are_told_of_the_start_alone() {
    let mut launchers = Launchers::new();
    let job = launchers.subscribe();
    launchers.told.clear();
    launchers.request(job, 1, on_a(4, 100));
    launchers.accept(job, 1);
    let other = launchers.waiting(on_a(4, 100));
    let told = launchers.told(job);
    assert!(matches!(told.as_slice(), [Notice::Started(_)]), "{told:?}");
    assert_eq!(launchers.changes(other).len(), 1);
}

#[test]
fn nodes_that_come_and_go_are_news() {
    let mut launchers = Launchers::new();
    let job = launchers.subscribe();
    launchers.told.clear();
    launchers.admin(Call::Drain { nodes: vec!["a1".to_owned()], reason: "fan".to_owned() });
    let change = launchers.change(job);
    assert_eq!(launchers.shape(&change), BTreeMap::from([(A, (3, None))]), "the occupation has not changed");
    assert!(!change.clusters[0].info, "the node still exists");
    let drain_all = Call::Drain { nodes: vec!["b1".to_owned(), "b2".to_owned()], reason: "fire".to_owned() };
    launchers.admin(drain_all);
    let change = launchers.change(job);
    assert_eq!(launchers.shape(&change), BTreeMap::from([(B, (0, Some(vec![])))]), "it is still to be seen");
    launchers.joins("b", "b3", plain());
    let change = launchers.change(job);
    assert_eq!(launchers.shape(&change), BTreeMap::from([(B, (1, None))]));
    assert!(change.clusters[0].info, "one more is another information");
    assert_eq!(launchers.infos(job).clusters[1].nodes, 3);
}

/// Two GPUs among four nodes: a launcher that filters for them sees their occupation, and requests no more than there
/// are.
#[test]
fn a_filter_shows_only_the_nodes_that_meet_it() {
    let mut launchers = Launchers::new();
    for name in ["g1", "g2"] {
        let features = BTreeSet::from(["gpu".to_owned()]);
        launchers.joins("a", name, Inventory { features, ..plain() });
    }
    let mut filter = Filter::default();
    filter.constraint.features.insert("gpu".to_owned());
    let gpu = launchers.subscribe_with(filter.clone()).expect("there are some");
    let change = launchers.change(gpu);
    assert_eq!(launchers.shape(&change), BTreeMap::from([(A, (2, Some(vec![])))]), "cluster b has none");
    assert_eq!(launchers.infos(gpu).clusters[0].features, BTreeSet::from(["gpu".to_owned()]));
    // Plain nodes are taken first: the fifth and the sixth are GPUs.
    let plain = launchers.waiting(on_a(5, 100));
    launchers.accept(plain, 1);
    let change = launchers.change(gpu);
    assert_eq!(launchers.shape(&change), BTreeMap::from([(A, (2, Some(vec![(100, 1)])))]));
    let refused = launchers.try_request(gpu, 1, on_a(3, 10)).expect_err("there are two");
    assert_eq!(refused.to_string(), "3 nodes with gpu are needed, but cluster a has 2, cluster b has 0");
    launchers.request(gpu, 2, on_a(2, 10));
    assert_eq!(launchers.state(gpu), Some(JobState::Waiting));
    filter.least_nodes = 3;
    assert!(launchers.subscribe_with(filter).is_err(), "no cluster has three");
}

#[test]
fn a_link_between_clusters_is_news_for_those_who_see_both() {
    let mut launchers = Launchers::new();
    let both = launchers.subscribe();
    let only_a = Filter { clusters: BTreeSet::from(["a".to_owned()]), ..Filter::default() };
    let one = launchers.subscribe_with(only_a).expect("it exists");
    launchers.told.clear();
    let link =
        |bandwidth_mbit| Call::SetLink { a: "b".to_owned(), b: "a".to_owned(), latency_us: 5000, bandwidth_mbit };
    launchers.admin(link(0));
    let change = launchers.change(both);
    let news: Vec<_> = change.clusters.iter().map(|cluster| (cluster.cluster, cluster.info)).collect();
    assert_eq!(news, [(A, true), (B, true)]);
    assert!(change.clusters.iter().all(|cluster| cluster.occupied.is_none()));
    let expected = ClusterLink { between: (A, B), latency_us: 5000, bandwidth_mbit: 0 };
    assert_eq!(launchers.infos(both).links, [expected]);
    assert_eq!(launchers.infos(one).links, []);
    launchers.told.clear();
    launchers.admin(link(0));
    assert_eq!(launchers.changes(both), [], "it is as it was");
}

/// Launchers with equal views share one: nothing is copied for each of ten thousand.
#[test]
fn launchers_that_see_the_same_share_one_profile() {
    let mut launchers = Launchers::new();
    let silent: Vec<JobId> = (0..3).map(|_| launchers.subscribe()).collect();
    launchers.told.clear();
    launchers.waiting(on_a(2, 100));
    let changes: Vec<ViewChange> = silent.iter().map(|job| launchers.change(*job)).collect();
    let profile = |change: &ViewChange| change.clusters[0].occupied.clone().expect("it changed");
    assert!(Arc::ptr_eq(&profile(&changes[0]), &profile(&changes[2])));
}

/// The connection breaks and another comes: it is sent everything again, as of the pass that follows.
#[test]
fn a_launcher_that_attaches_again_is_told_everything() {
    let mut launchers = Launchers::new();
    let holder = launchers.waiting(on_a(4, 100));
    let waits = launchers.waiting(on_a(2, 100));
    let mut held = LauncherView::default();
    launchers.changes(waits).into_iter().for_each(|change| {
        held.apply(change);
    });
    launchers.event(Event::LauncherGone { job: waits });
    launchers.accept(holder, 1);
    launchers.finish(holder, 1, 0);
    assert_eq!(launchers.changes(waits), [], "nobody listens");
    assert_eq!(launchers.state(waits), Some(JobState::Waiting), "nobody could be told");
    launchers.ann(LauncherCall::Attach { job: waits }).expect("it is ann's");
    assert_eq!(launchers.grant(waits).tag, Tag(1));

    let last = launchers.waiting(on_a(4, 50));
    let whole = |change: &ViewChange| change.clusters.len() == 2 && change.clusters.iter().all(|c| c.info);
    launchers.told.clear();
    launchers.ann(LauncherCall::Attach { job: last }).expect("it is ann's");
    let told = launchers.told(last);
    let [Notice::Replaced, Notice::Changed(change)] = told.as_slice() else { panic!("{told:?}") };
    assert!(whole(change), "{change:?}");
    assert_eq!(launchers.shape(change)[&A].1, Some(vec![(100, 2)]), "without its own request");
}

/// Launchers beyond the depth see what is left behind all that are considered.
#[test]
fn beyond_the_queue_depth_one_sees_what_is_left() {
    let mut launchers = Launchers::new();
    launchers.set("queue_depth", "1");
    let _holder = launchers.waiting(on_a(4, 100));
    let _first = launchers.waiting(on_a(4, 100));
    let behind = launchers.waiting(on_a(4, 100));
    launchers.told.clear();
    launchers.admin(Call::Drain { nodes: vec!["b1".to_owned()], reason: "fan".to_owned() });
    let change = launchers.change(behind);
    assert_eq!(launchers.shape(&change).keys().collect::<Vec<_>>(), [&B]);
    launchers.set("queue_depth", "0");
    assert_eq!(launchers.changes(behind), [], "what is left was what is before it");
}

/// Several clusters, each with its own delay: the nodes of the one without a delay are free at once.
#[test]
fn a_ghost_leaves_each_cluster_when_its_own_delay_is_over() {
    let mut launchers = Launchers::new();
    launchers.set("fair_start", "10s");
    launchers.set("fair_start@b", "3s");
    let wide = Request { nodes: BTreeMap::from([(A, 4), (B, 2)]), wall: Span::from_secs(100) };
    let holder = launchers.waiting(wide);
    launchers.accept(holder, 1);
    let (on_a, on_b) = (launchers.waiting(on_a(1, 50)), launchers.waiting(on_b(1, 50)));
    launchers.told.clear();
    launchers.finish(holder, 1, 0);
    let change = launchers.change(on_a);
    let steps = |launchers: &Launchers, change| launchers.shape(change);
    assert_eq!(
        steps(&launchers, &change),
        BTreeMap::from([(A, (4, Some(vec![(10, 4)]))), (B, (2, Some(vec![(3, 2)])))])
    );
    launchers.after(2);
    assert_eq!(launchers.state(on_b), Some(JobState::Waiting));
    launchers.after(1);
    assert_eq!(launchers.grant(on_b).nodes[0].name, "b1");
    assert_eq!(launchers.state(on_a), Some(JobState::Waiting));
    assert_eq!(launchers.state(holder), Some(JobState::Ghost));
    launchers.after(7);
    assert_eq!(launchers.grant(on_a).nodes[0].name, "a1");
    assert_eq!(launchers.state(holder), None);
    let status = launchers.world.rms.answers().status(rms_model::Time::EPOCH).launchers;
    let kept = [("a".to_owned(), Span::from_secs(40)), ("b".to_owned(), Span::from_secs(6))];
    assert_eq!(status.ghost_node_time, kept);
    launchers.set("fair_start@b", "default");
    let unknown = Call::Set { key: "fair_start@nowhere".to_owned(), value: "1s".to_owned() };
    let effects = launchers.event(Event::Called {
        ticket: Ticket(1),
        who: Identity::new(Role::Admin, "root").expect("a plain name"),
        call: unknown,
    });
    assert!(matches!(&effects[0], Effect::Answer { answer: Err(Refusal::NoSuchCluster { .. }), .. }), "{effects:?}");
}

/// Counts what 001, B.1 counts: one byte for a cluster and eight for a step; four and five for a request.
#[test]
fn bytes_and_adaptation_delays_are_counted() {
    let mut launchers = Launchers::new();
    let job = launchers.subscribe();
    launchers.after(2);
    let wish = LauncherRequest::of_nodes(Tag(1), 1, on_a(4, 100));
    launchers.ann(LauncherCall::Request { job, wish }).expect("it is possible");
    let _second = launchers.subscribe();
    let status = launchers.world.rms.answers().status(rms_model::Time::EPOCH).launchers;
    assert_eq!((status.n_launchers, status.n_connected), (2, 2));
    assert_eq!((status.n_notices, status.notice_bytes), (2, 2 + (2 + 8)));
    assert_eq!((status.n_requests, status.request_bytes), (1, 9));
    assert_eq!((status.adaptations.count, status.adaptations.longest), (1, Span::from_secs(2)));
    assert_eq!(status.adaptations.buckets, [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
}

/// Its view was taken before the other one started in the same pass.
#[test]
fn who_waits_is_shown_what_has_started_behind_it() {
    for (refresh, fair_start) in [("1s", "0s"), ("0s", "0s"), ("1s", "5s")] {
        let mut launchers = Launchers::new();
        launchers.set("view_refresh", refresh);
        launchers.set("fair_start", fair_start);
        let on = |a, b, secs| Request { nodes: [(A, a), (B, b)].into(), wall: Span::from_secs(secs) };
        let first = launchers.waiting(on(0, 2, 600));
        launchers.accept(first, 1);
        let waits = launchers.waiting(on(2, 2, 600));
        launchers.after(2);
        launchers.changes(waits);
        let behind = launchers.waiting(on(4, 0, 300));
        launchers.accept(behind, 1);
        launchers.after(2);
        let told = launchers.changes(waits);
        if refresh == "0s" {
            assert_eq!(told, [], "as in 001: with the next pass");
            continue;
        }
        let [change] = &told[..] else { panic!("told once: {told:?}") };
        let busy = change.clusters[0].occupied.as_ref().expect("it sees the cluster");
        assert_eq!((change.clusters.len(), launchers.secs(busy)), (1, vec![(298, 4)]));
        launchers.after(60);
        assert_eq!(launchers.changes(waits), [], "nothing else has changed");
    }
}
