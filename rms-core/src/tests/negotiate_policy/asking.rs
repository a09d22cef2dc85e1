//! When running applications are asked to give nodes back, and for which jobs.

use negotiation::{Action, Reason};
use rms_api::Call;
use rms_api::call::{Nodes, Select, Shape};
use rms_model::{JobId, Sizes, Span};

use super::{Scene, hour, speaking, told};

impl Scene {
    fn urgent(&mut self, n_nodes: u32, priority: i32) -> JobId {
        self.job_of("root", n_nodes, |submission| submission.priority = priority)
    }

    fn take_out(&mut self, node: &str) {
        self.call(Call::Drain { nodes: vec![node.to_owned()], reason: "new memory".to_owned() }).expect("it is known");
    }
}

/// 002 (f): a malleable application shrinks for a job of higher priority.
#[test]
fn an_application_shrinks_for_a_job_of_higher_priority() {
    for allocation in ["nodes", "cores"] {
        let mut scene = Scene::offering(8);
        scene.set("allocation", allocation);
        scene.set("shrink_for", "priority");
        let job = scene.submit(8, hour(), Some(told(2, 8, Sizes::PowerOfTwo)));
        let equal = scene.rigid(2, hour());
        assert!(!scene.is_started(equal), "it is not more urgent");
        let urgent = scene.urgent(3, 10);
        assert_eq!(scene.n_held(job), 4, "to the next power of two ({allocation})");
        assert!(scene.is_started(urgent), "as soon as the agents saw the processes gone");
        scene.is_durable();
    }
}

#[test]
fn the_first_of_the_queue_gets_what_it_lacks_and_nobody_else_does() {
    let mut scene = Scene::offering(8);
    let large = scene.submit(5, hour(), Some(told(2, 8, Sizes::Any)));
    let small = scene.submit(3, hour(), Some(told(2, 8, Sizes::Any)));
    let head = scene.rigid(3, hour());
    let other = scene.rigid(2, hour());
    assert_eq!((scene.n_held(large), scene.n_held(small)), (2, 3), "who has most above its minimum gives");
    assert!(scene.is_started(head));
    assert!(!scene.is_started(other), "one node is all that could be given");
    assert_eq!(scene.n_held(small), 3, "which would be in vain");
}

/// An application that made room is the first to get it back, long before it could decline the same again.
#[test]
fn nodes_that_were_given_for_others_come_back_once_nobody_waits() {
    let mut scene = Scene::offering(8);
    let job = scene.submit(8, hour(), Some(told(2, 8, Sizes::Any)));
    let guest = scene.rigid(5, hour());
    assert!(scene.is_started(guest));
    assert_eq!(scene.n_held(job), 3);
    scene.call(Call::Cancel { select: Select::Ids(vec![guest]) }).expect("it runs");
    assert_eq!(scene.n_held(job), 8);
}

#[test]
fn under_every_policy_the_first_of_the_queue_gets_its_nodes() {
    for policy in rms_model::Policy::ALL {
        let mut scene = Scene::offering(8);
        scene.set("policy", policy.name());
        let job = scene.submit(8, hour(), Some(told(2, 8, Sizes::Any)));
        let head = scene.rigid(4, hour());
        assert!(scene.is_started(head), "{policy}");
        assert_eq!(scene.n_held(job), 4, "{policy}");
        let range = scene.job_of("root", 1, |submission| {
            submission.malleable = Some(told(1, 6, Sizes::Any));
            submission.shapes = vec![Shape { nodes: Nodes::FromTasks, wall: Some(hour()) }];
        });
        assert!(scene.is_started(range), "{policy}");
    }
}

#[test]
fn nobody_is_asked_in_vain_or_by_the_less_urgent_or_if_it_is_switched_off() {
    let mut scene = Scene::offering(8);
    let job = scene.submit(8, hour(), Some(told(4, 8, Sizes::Any)));
    scene.rigid(5, hour());
    assert_eq!(scene.n_held(job), 8, "only four can be given");

    let mut scene = Scene::offering(8);
    let urgent = scene.job_of("root", 8, |submission| {
        submission.malleable = Some(told(1, 8, Sizes::Any));
        submission.priority = 5;
    });
    scene.rigid(2, hour());
    assert_eq!(scene.n_held(urgent), 8, "it is more urgent than who waits");

    let mut scene = Scene::offering(8);
    scene.set("shrink_for", "never");
    let job = scene.submit(8, hour(), Some(told(1, 8, Sizes::Any)));
    scene.rigid(2, hour());
    assert_eq!(scene.n_held(job), 8);
}

#[test]
fn nobody_shrinks_for_what_will_be_free_in_a_moment() {
    let mut scene = Scene::offering(8);
    scene.rigid(2, Span::from_secs(20));
    let job = scene.submit(6, hour(), Some(told(1, 8, Sizes::Any)));
    let waits = scene.rigid(2, hour());
    assert_eq!(scene.n_held(job), 6);
    assert!(!scene.is_started(waits));
}

/// An offer is held while it is valid (002): no other job takes its nodes before an accept.
#[test]
fn an_offer_is_held_for_its_time_against_whoever_is_no_more_urgent() {
    let offered = || {
        let mut scene = Scene::offering(8);
        let job = scene.submit(4, hour(), Some(speaking(1, 8, Sizes::Any)));
        scene.attach(job).expect("it may");
        scene.after(Span::from_secs(1));
        let offer = scene.offer_to(job).expect("four are idle");
        let waits = scene.rigid(4, hour());
        scene.after(Span::from_secs(28));
        assert!(!scene.app_phase(job, offer).is_over(), "it stands for 30 seconds");
        assert_eq!(scene.wish_to(job), None, "nor is it asked for others meanwhile");
        assert!(!scene.is_started(waits));
        (scene, job, offer, waits)
    };
    let (mut scene, job, offer, _) = offered();
    scene.accepts(job, offer);
    assert_eq!(scene.n_held(job), 8);
    scene.is_durable();

    let (mut scene, job, offer, waits) = offered();
    scene.declines(job, offer);
    assert!(scene.is_started(waits), "it was next");

    let (mut scene, job, offer, waits) = offered();
    scene.after(Span::from_secs(2));
    assert!(scene.app_phase(job, offer).is_over());
    assert!(scene.is_started(waits), "the offer has lapsed");
}

#[test]
fn an_offer_is_taken_back_for_a_more_urgent_job_and_the_reason_is_said() {
    for (setting, priority, is_recalled) in
        [("priority", 0, false), ("priority", 1, true), ("never", 1, false), ("queue", 0, true), ("queue", -1, false)]
    {
        let mut scene = Scene::offering(8);
        scene.set("offer_recall", setting);
        let job = scene.submit(4, hour(), Some(speaking(1, 8, Sizes::Any)));
        scene.attach(job).expect("it may");
        scene.after(Span::from_secs(1));
        let offer = scene.offer_to(job).expect("four are idle");
        // The application's message crosses the server's next one.
        let now = scene.world.now;
        let accept = scene.app(job).dialogues.act(now, offer, Action::Accept).expect("it stands");
        let urgent = scene.urgent(4, priority);
        assert_eq!(scene.phase(job, offer).is_over(), is_recalled, "{setting}, {priority}");
        assert_eq!(scene.is_started(urgent), is_recalled, "{setting}, {priority}");
        accept.messages.into_iter().for_each(|message| scene.send(job, message));
        let hears = scene.app(job).dialogues.get(offer).and_then(|dialogue| dialogue.reason());
        assert_eq!(hears, is_recalled.then_some(Reason::Recalled), "{setting}, {priority}: it is told why");
        assert_eq!(scene.n_held(job), if is_recalled { 4 } else { 8 }, "{setting}, {priority}");
    }
}

#[test]
fn offers_that_nobody_has_answered_are_taken_back_first_where_a_setting_lets_the_queue_do_so() {
    let mut scene = Scene::offering(8);
    scene.set("offer_recall", "queue");
    let job = scene.submit(4, hour(), Some(speaking(1, 8, Sizes::Any)));
    scene.attach(job).expect("it may");
    scene.after(Span::from_secs(1));
    let offer = scene.offer_to(job).expect("four are idle");
    let waits = scene.rigid(4, hour());
    assert!(scene.app_phase(job, offer).is_over());
    assert_eq!(scene.wish_to(job), None, "it need not shrink");
    assert!(scene.is_started(waits));
    scene.cancel(waits);
    assert!(scene.offer_to(job).is_some(), "it has declined nothing");
}

#[test]
fn an_application_that_declines_everything_does_not_keep_the_server_busy() {
    let mut scene = Scene::offering(8);
    scene.set("offer_again", "0s");
    let job = scene.submit(4, hour(), Some(speaking(1, 8, Sizes::Any)));
    scene.attach(job).expect("it may");
    let mut n_declined = 0;
    for _ in 0..100 {
        scene.after(Span::from_millis(100));
        if let Some(offer) = scene.offer_to(job) {
            scene.declines(job, offer);
            n_declined += 1;
        }
    }
    assert!((5..=11).contains(&n_declined), "once a second at most: {n_declined}");
}

#[test]
fn who_will_not_shrink_is_not_asked_again_and_others_are() {
    let mut scene = Scene::offering(8);
    scene.set("offer_recall", "queue");
    let stubborn = scene.submit(5, hour(), Some(speaking(1, 8, Sizes::Any)));
    scene.attach(stubborn).expect("it may");
    let other = scene.submit(3, hour(), Some(speaking(1, 8, Sizes::Any)));
    scene.attach(other).expect("it may");
    scene.after(Span::from_secs(1));
    let waits = scene.rigid(2, hour());
    let wish = scene.wish_to(stubborn).expect("it has most to give");
    assert_eq!(scene.wish_to(other), None);
    scene.declines(stubborn, wish);
    assert_eq!(scene.wish_to(stubborn), None);
    let wish = scene.wish_to(other).expect("it has two to give, too");
    scene.accepts(other, wish);
    let nodes = scene.held(other)[1..].iter().copied().map(rms_model::NodeId).collect();
    scene.app_acts(other, wish, negotiation::Action::Commit(nodes));
    assert_eq!(scene.n_held(other), 1);
    assert!(scene.is_started(waits));
}

/// While nodes are gathered for a waiting job, those that are free already are not offered.
#[test]
fn nodes_that_come_together_are_not_given_away() {
    let mut scene = Scene::offering(8);
    scene.set("offer_recall", "queue");
    let job = scene.submit(5, hour(), Some(speaking(1, 8, Sizes::Any)));
    scene.attach(job).expect("it may");
    scene.set("offer_idle", "never");
    let short = scene.submit(2, Span::from_mins(2), Some(told(1, 8, Sizes::Any)));
    let waits = scene.rigid(4, hour());
    scene.set("offer_idle", "equal_share");
    let wish = scene.wish_to(job).expect("three are missing");
    scene.after(Span::from_secs(1));
    assert_eq!((scene.n_free(), scene.n_held(short)), (1, 2), "the free node is for who waits");
    scene.accepts(job, wish);
    let nodes = scene.held(job)[2..].iter().copied().map(rms_model::NodeId).collect();
    scene.app_acts(job, wish, negotiation::Action::Commit(nodes));
    assert!(scene.is_started(waits));
}

/// One victim is quick and the other slow: what the first one gave is lent only to jobs that end before the other one
/// must have given, too.
#[test]
fn nodes_that_were_given_for_one_are_not_lent_to_another_for_long() {
    let mut scene = Scene::offering(8);
    let [quick, slow] = [1, 2].map(|_| {
        let job = scene.submit(4, hour(), Some(speaking(1, 4, Sizes::Any)));
        scene.attach(job).expect("it may");
        job
    });
    scene.after(Span::from_secs(1));
    let head = scene.rigid(6, hour());
    for job in [quick, slow] {
        let wish = scene.wish_to(job).expect("both are needed");
        scene.accepts(job, wish);
    }
    let wish = scene.wish_to(quick).expect("it was agreed");
    let nodes = scene.held(quick)[1..].iter().copied().map(rms_model::NodeId).collect();
    scene.app_acts(quick, wish, negotiation::Action::Commit(nodes));
    assert_eq!((scene.n_held(quick), scene.n_free()), (1, 3));
    let long = scene.rigid(2, Span::from_mins(30));
    let short = scene.rigid(2, Span::from_mins(1));
    assert!(!scene.is_started(long), "it would keep the first one waiting");
    assert!(scene.is_started(short), "it is gone before the nodes of the slow one can be counted on");
    scene.cancel(short);
    scene.after(Span::from_mins(2));
    assert_eq!(scene.n_held(slow), 1, "who does not keep his word is made to");
    assert!(scene.is_started(head));
    scene.is_durable();
}

#[test]
fn a_drained_node_is_left() {
    let mut scene = Scene::offering(6);
    scene.set("shrink_for", "never");
    scene.set("offer_idle", "never");
    let job = scene.submit(4, hour(), Some(told(2, 6, Sizes::Any)));
    let rigid = scene.rigid(2, hour());
    scene.take_out("n3");
    assert_eq!(scene.held(job), [1, 2, 4]);
    scene.take_out("n1");
    assert_eq!(scene.held(job), [1, 2, 4], "node 0 runs what leads it");
    scene.take_out("n4");
    assert_eq!(scene.held(job), [1, 2]);
    scene.take_out("n2");
    assert_eq!(scene.held(job), [1, 2], "it keeps its least");
    assert!(scene.is_started(rigid));
}

#[test]
fn who_leaves_a_drained_node_is_offered_others() {
    let mut scene = Scene::offering(6);
    let job = scene.submit(4, hour(), Some(told(2, 4, Sizes::Any)));
    scene.take_out("n3");
    assert_eq!(scene.held(job), [1, 2, 4, 5]);
}

/// A waiting malleable job starts with its minimum once that is available.
#[test]
fn who_waits_with_a_range_needs_only_its_least() {
    let mut scene = Scene::offering(8);
    let job = scene.submit(8, hour(), Some(told(1, 8, Sizes::Any)));
    let waits = scene.job_of("root", 1, |submission| {
        submission.malleable = Some(told(3, 6, Sizes::Any));
        submission.shapes = vec![Shape { nodes: Nodes::FromTasks, wall: Some(hour()) }];
    });
    assert_eq!((scene.n_held(job), scene.n_held(waits)), (5, 3));
}
