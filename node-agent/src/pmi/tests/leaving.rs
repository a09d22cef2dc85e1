//! Tests of ranks on nodes that a job gives back: they finalize while others of their world continue, or are ended.

use super::*;
use crate::pmi::hub::Need;
use crate::pmi::ranks::Ending;

impl Job {
    /// Orders a node to end its ranks.
    fn end(&mut self, idx: usize, ending: Ending) {
        let outs = self.node(&node(idx)).end(ending);
        self.take(&node(idx), outs);
        self.carry_all();
    }

    /// Sets the nodes of the job.
    fn keep(&mut self, nodes: &[usize], generation: u32) {
        let member = |idx: &usize| Member { node: node(*idx), capacity: 1, is_departing: false };
        let outs = self.hub.update(nodes.iter().map(member).collect(), generation);
        self.hub_wants(outs);
        self.carry_all();
    }

    fn is_let_through(&mut self, task: u32) {
        assert_eq!(self.hears(task), "cmd=barrier_out", "task {task}");
    }
}

/// Returns a job of three nodes with two ranks each, all active.
fn three_nodes() -> Job {
    let mut job = Job::new("k", &[2, 2, 2]);
    (0..6).for_each(|task| job.init(task));
    job
}

#[test]
fn ranks_of_the_start_that_leave_come_out_of_the_barrier_of_finalize() {
    let mut job = three_nodes();
    job.say(4, "cmd=barrier_in");
    assert!(job.hears_nothing(4), "the others of its world go on");
    job.end(2, Ending::Leaving);
    job.is_let_through(4);
    // A rank that enters later does not wait at all.
    job.say(5, "cmd=barrier_in");
    job.is_let_through(5);
    job.finish(4);
    job.finish(5);
    job.keep(&[0, 1], 2);
    (0..4).for_each(|task| job.say(task, "cmd=barrier_in"));
    (0..4).for_each(|task| job.is_let_through(task));
    (0..4).for_each(|task| job.finish(task));
    assert_eq!((job.hub.need(), job.aborted), (Need::Nothing, None));
}

#[test]
fn ranks_of_a_spawned_group_leave_while_others_of_it_stay() {
    let mut job = Job::with_room("k", &[1, 0, 0], &[1, 2, 2]);
    job.init(0);
    job.say(0, &spawn_lines(4, &[("hosts", "b:2,c:2")]));
    assert!(job.hears(0).starts_with("cmd=spawn_result rc=0"));
    (1..5).for_each(|task| job.init(task));
    (1..5).for_each(|task| job.say(task, "cmd=barrier_in"));
    (1..5).for_each(|task| job.is_let_through(task));
    (3..5).for_each(|task| job.say(task, "cmd=barrier_in"));
    job.end(2, Ending::Leaving);
    (3..5).for_each(|task| job.is_let_through(task));
    (3..5).for_each(|task| job.finish(task));
    job.keep(&[0, 1], 3);
    (1..3).for_each(|task| job.say(task, "cmd=barrier_in"));
    (1..3).for_each(|task| job.is_let_through(task));
    (0..3).for_each(|task| job.finish(task));
    assert_eq!((job.hub.need(), job.aborted), (Need::Nothing, None));
}

#[test]
fn what_the_order_to_leave_ends_is_no_crash() {
    for (ending, end) in [(Ending::Leaving, End::Signaled(15)), (Ending::Ordered, End::Exited(143))] {
        let mut job = three_nodes();
        job.say(4, "cmd=barrier_in");
        job.end(2, ending);
        job.task_ended(4, end);
        job.task_ended(5, end);
        job.keep(&[0, 1], 2);
        assert_eq!((job.aborted.clone(), job.told.len()), (None, 0), "{ending:?}");
        (0..4).for_each(|task| job.say(task, "cmd=barrier_in"));
        (0..4).for_each(|task| job.is_let_through(task));
    }
}

#[test]
fn a_crash_on_a_node_that_stays_is_one_though_another_node_leaves() {
    let mut job = three_nodes();
    job.end(2, Ending::Leaving);
    job.task_ended(0, End::Signaled(11));
    assert_eq!(job.aborted().0, 139);
}

#[test]
fn nobody_waits_for_ranks_of_a_node_that_is_lost() {
    let mut job = three_nodes();
    (0..4).for_each(|task| job.say(task, "cmd=barrier_in"));
    assert!(job.hears_nothing(0));
    // The third node will send nothing.
    job.nodes.remove(&node(2));
    job.keep(&[0, 1], 2);
    (0..4).for_each(|task| job.is_let_through(task));
    (0..4).for_each(|task| job.finish(task));
    assert_eq!((job.hub.need(), job.aborted.clone()), (Need::Nothing, None), "its last word is not waited for");
    assert!(!job.node(&node(1)).is_kept(), "the other node has heard that it is over");
}

#[test]
fn who_is_told_later_than_the_hub_is_let_through_by_the_hub() {
    let mut job = three_nodes();
    (4..6).for_each(|task| job.say(task, "cmd=barrier_in"));
    job.keep(&[0, 1], 2);
    (4..6).for_each(|task| job.is_let_through(task));
    (4..6).for_each(|task| job.finish(task));
    assert_eq!(job.aborted, None);
}

#[test]
fn the_first_node_may_be_gone_before_those_that_leave() {
    let mut job = three_nodes();
    job.end(2, Ending::Leaving);
    let outs = job.node(&node(2)).receive(Down::Over);
    job.take(&node(2), outs);
    assert_eq!(job.aborted, None);
}
