//! Which sets of running jobs lend to a guest, where what they lend, licences and facts of the same instant matter.

use rms_api::answer::{Lenders, Reason};
use rms_api::call::{Nodes, Shape, Submission};
use rms_model::{Inventory, JobId, Mebibytes, Span};

use super::World;
use super::lending::lending_on;

impl World {
    /// Submits a job of this many nodes, minutes and cores of each that shares if `share` is set.
    fn on_cores(&mut self, mins: i64, cores: u32, share: bool, change: impl FnOnce(&mut Submission)) -> JobId {
        self.submit_with(|submission| {
            submission.shapes = vec![Shape { nodes: Nodes::Count(1), wall: Some(Span::from_mins(mins)) }];
            submission.cpus_per_task = cores;
            submission.resources.share = share;
            change(submission);
        })
    }
}

/// The sharing factor allows 8 cores, of which the guest gets 5 for its task: 1,280 minutes, and 900 without mates.
#[test]
fn who_lends_too_few_cores_to_end_earlier_is_no_mate() {
    let mut world = lending_on("nodes", 6, 16);
    world.set("max_slowdown", "infinite");
    let mates = [5000; 4].map(|mins| world.asks_to_share(1, mins, true));
    let _rigid = [500; 2].map(|mins| world.asks_to_share(1, mins, false));
    let guest = world.submit_with(|submission| {
        submission.shapes = vec![Shape { nodes: Nodes::Count(2), wall: Some(Span::from_mins(400)) }];
        (submission.n_tasks, submission.cpus_per_task) = (Some(2), 5);
        submission.resources.share = true;
    });
    let Some(Reason::Blocked { lenders: Some(lenders), .. }) = world.explained(guest) else { panic!("it waits") };
    let n_mates = mates.len() as u32;
    assert_eq!(*lenders, Lenders { n_sharing: n_mates, n_unfit: n_mates, ..Lenders::default() });
}

/// All that it asks for is lent, so it ends after 20 minutes, and after 33 without the mate.
#[test]
fn a_guest_that_is_not_slowed_need_not_wait_long_to_gain() {
    for model in ["worst", "ideal"] {
        let mut world = lending_on("cores", 2, 4);
        world.set("runtime_model", model);
        let mate = world.on_cores(60, 4, true, |_| ());
        world.on_cores(13, 4, false, |_| ());
        let guest = world.on_cores(20, 1, true, |_| ());
        assert_eq!((world.lender_of(guest), world.wall(guest)), (vec![mate], Span::from_mins(20)), "{model}");
    }
}

/// The mate that costs less keeps so much that the guest would need its licence for longer than it is free.
#[test]
fn a_guest_begins_inside_the_mate_with_whom_its_licence_is_free_until_its_end() {
    let mut world = lending_on("nodes", 3, 4);
    world.set("max_slowdown", "infinite");
    world.set("licences@c", "matlab:1");
    let licensed = |submission: &mut Submission| {
        submission.resources.licences = "matlab".parse().expect("a licence");
    };
    let keeps_three = |submission: &mut Submission| submission.resources.min_cpus_per_node = 3;
    let slow = world.on_cores(100, 0, true, keeps_three);
    let fast = world.on_cores(80, 0, true, |_| ());
    world.on_cores(30, 0, false, |_| ());
    let first = world.on_cores(60, 0, false, licensed);
    let guest = world.on_cores(10, 0, true, licensed);
    assert!(world.is_started(slow) && !world.is_started(first), "it has the licence in half an hour");
    assert_eq!(world.lender_of(guest), [fast]);
}

/// What is left on the first node is known once the job that starts there has started.
#[test]
fn a_guest_is_not_overtaken_because_what_is_left_was_not_known_yet() {
    let mut world = World::new();
    world.set("allocation", "cores");
    world.set("policy", "slowdown");
    world.set("max_slowdown", "infinite");
    for (name, feature) in [("n1", "slow"), ("n2", "fast")] {
        let features = [feature.to_owned()].into();
        let inventory = Inventory { cores: 4, cpus: 4, memory: Mebibytes(1000), features, ..Inventory::default() };
        world.joins(name, inventory, Vec::new());
    }
    let mate = world.on_cores(60, 2, true, |_| ());
    let other = world.on_cores(12, 4, true, |_| ());
    world.set("resched_timer", "1s");
    world.on_cores(60, 2, false, |_| ());
    let with_memory = |submission: &mut Submission| submission.constraint.memory = Mebibytes(100);
    let fast = |submission: &mut Submission| submission.constraint.features = ["fast".to_owned()].into();
    let waits = world.on_cores(20, 1, true, with_memory);
    let short = world.on_cores(5, 1, true, fast);
    let behind = world.on_cores(20, 1, true, with_memory);
    world.after(Span::from_secs(1));
    assert_eq!(world.lender_of(short), [other]);
    assert_eq!((world.lender_of(waits), world.lender_of(behind)), (vec![mate], vec![]));
}

/// Its cores stay its own, and no more than it asked for, although the node no longer suits a job of its kind.
#[test]
fn a_guest_takes_over_its_part_of_a_node_whose_features_have_changed() {
    let mut world = World::new();
    world.set("allocation", "cores");
    world.set("policy", "slowdown");
    world.set("max_slowdown", "infinite");
    let inventory = Inventory { cores: 6, cpus: 6, ..Inventory::default() };
    let features = ["fast".to_owned()].into();
    world.joins("n1", Inventory { features, ..inventory.clone() }, Vec::new());
    let owner = world.on_cores(60, 4, true, |_| ());
    let other = world.on_cores(60, 2, false, |_| ());
    let fast = |submission: &mut Submission| submission.constraint.features = ["fast".to_owned()].into();
    let guest = world.on_cores(5, 3, true, fast);
    assert_eq!((world.lender_of(guest), world.n_cores(guest)), (vec![owner], vec![2]));
    for job in [owner, guest] {
        world.runs("n1", job, true);
    }
    world.comes_back_with("n1", inventory);
    world.is_done(owner);
    assert_eq!((world.n_cores(other), world.n_cores(guest)), (vec![2], vec![3]));
}
