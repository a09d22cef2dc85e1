//! Tests of ranks that spawn others: their nodes, what they see, and what happens if they cannot be started.

use super::*;
use crate::pmi::WorldId;
use crate::pmi::hub::{Grown, Need};

const REFUSED: &str = "cmd=spawn_result rc=-1 msg=";

/// Returns the nodes that got ranks, and how many each got.
fn places(job: &Job) -> Vec<(String, u32)> {
    let n_ranks = |placement: &Placement| placement.parts.iter().map(|part| part.n_ranks).sum();
    job.started.iter().map(|(node, placement)| (node.node.clone(), n_ranks(placement))).collect()
}

fn placed(expected: &[(&str, u32)]) -> Vec<(String, u32)> {
    expected.iter().map(|(node, n_ranks)| ((*node).to_owned(), *n_ranks)).collect()
}

#[test]
fn children_find_their_world_their_parent_and_each_other() {
    let mut job = Job::with_room("k", &[1, 0], &[2, 2]);
    job.init(0);
    job.say(0, &spawn_lines(3, &[]));
    assert_eq!(job.hears(0), "cmd=spawn_result rc=0 errcodes=0,0,0");
    assert_eq!(places(&job), placed(&[("a", 1), ("b", 2)]));
    for task in 1..=3 {
        job.init(task);
        job.say(task, "cmd=get_my_kvsname");
        assert_eq!(job.hears(task), "cmd=my_kvsname kvsname=k_1");
        job.say(task, "cmd=get kvsname=k_1 key=PMI_process_mapping");
        assert!(job.hears(task).ends_with("value=(vector,(0,1,1),(1,1,2))"));
        job.say(task, "cmd=get kvsname=k_1 key=PARENT_ROOT_PORT_NAME");
        assert!(job.hears(task).ends_with("value=tag#0$"));
        job.say(task, "cmd=get_universe_size");
        assert_eq!(job.hears(task), "cmd=universe_size rc=0 size=4");
    }
    job.say(3, "cmd=put kvsname=k_1 key=card value=3");
    job.hears(3);
    (1..=3).for_each(|task| job.say(task, "cmd=barrier_in"));
    (1..=3).for_each(|task| assert_eq!(job.hears(task), "cmd=barrier_out"));
    job.say(1, "cmd=get kvsname=k_1 key=card");
    assert!(job.hears(1).ends_with("value=3"));
    // Worlds do not see each other's keys, and have fences of their own.
    job.say(0, "cmd=get kvsname=k key=card");
    assert!(job.hears(0).contains("rc=-1"));
    job.say(0, "cmd=barrier_in");
    assert_eq!(job.hears(0), "cmd=barrier_out");
    // Published names are known in all worlds.
    job.say(2, "cmd=publish_name service=s port=p");
    job.hears(2);
    job.say(0, "cmd=lookup_name service=s");
    assert!(job.hears(0).ends_with("port=p"));
}

#[test]
fn who_spawned_may_leave_while_the_others_go_on() {
    let mut job = Job::with_room("k", &[1, 0], &[1, 2]);
    job.init(0);
    job.say(0, &spawn_lines(2, &[]));
    job.hears(0);
    (1..=2).for_each(|task| job.init(task));
    job.finish(0);
    assert_eq!(job.hub.need(), Need::Ranks, "the job goes on without its first rank");
    assert!(job.node(&node(1)).is_kept());
    job.say(1, "cmd=barrier_in");
    assert!(job.hears_nothing(1));
    job.finish(2);
    assert_eq!(job.hears(1), "cmd=barrier_out", "one that has left is not waited for");
    job.finish(1);
    assert_eq!((job.hub.need(), job.aborted.clone()), (Need::Nothing, None));
    assert!(!job.node(&node(1)).is_kept(), "it has heard that it is over");
}

#[test]
fn room_is_free_again_when_ranks_have_left() {
    let mut job = Job::new("k", &[2, 2]);
    (0..4).for_each(|task| job.init(task));
    job.finish(3);
    job.say(0, &spawn_lines(1, &[]));
    assert!(job.hears(0).contains("rc=0"), "of one rank alone");
    for cycle in 0..20 {
        let task = 4 + cycle;
        job.init(task);
        job.finish(task);
        job.say(0, &spawn_lines(1, &[("host", "b")]));
        assert!(job.hears(0).contains("rc=0"));
    }
    assert!(places(&job).iter().all(|place| *place == ("b".to_owned(), 1)));
}

#[test]
fn several_programs_are_one_world() {
    let mut job = Job::with_room("k", &[1, 0], &[1, 3]);
    job.init(0);
    for so_far in 1..=2 {
        let program = format!("execname=p{so_far}");
        for line in ["mcmd=spawn", "nprocs=1", &program, "totspawns=2", &format!("spawnssofar={so_far}"), "endcmd"] {
            job.say(0, line);
        }
    }
    assert_eq!(job.hears(0), "cmd=spawn_result rc=0 errcodes=0,0");
    assert!(job.hears_nothing(0), "one answer for both");
    for (task, appnum) in [(1, 0), (2, 1)] {
        job.init(task);
        job.say(task, "cmd=get_appnum");
        assert_eq!(job.hears(task), format!("cmd=appnum appnum={appnum}"));
        job.say(task, "cmd=get_my_kvsname");
        assert_eq!(job.hears(task), "cmd=my_kvsname kvsname=k_1");
    }
    let programs: Vec<&str> = job.started[0].1.parts.iter().map(|part| part.argv[0].as_str()).collect();
    assert_eq!(programs, ["p1", "p2"]);
}

#[test]
fn named_nodes_must_be_the_jobs_and_are_not_too_small() {
    let mut job = Job::new("k", &[1, 1]);
    job.init(0);
    job.say(0, &spawn_lines(3, &[("hosts", "b"), ("rms_grant", "a1")]));
    assert!(job.hears(0).contains("rc=0"));
    assert_eq!(places(&job), placed(&[("b", 3)]));
    job.say(0, &spawn_lines(1, &[("hosts", "z")]));
    assert_eq!(job.hears(0), format!("{REFUSED}node_z_does_not_belong_to_the_job"));
    job.say(0, &spawn_lines(1, &[("hostfile", "hosts")]));
    let (from, paths) = job.read.pop().expect("somebody reads it");
    assert_eq!(paths, ["hosts"]);
    let outs = job.node(&node(0)).hostfiles_read(from, vec![Ok("a:2\n".to_owned())]);
    job.take(&node(0), outs);
    job.carry_all();
    assert!(job.hears(0).contains("rc=0"));
    assert_eq!(places(&job).last(), Some(&("a".to_owned(), 1)));
}

#[test]
fn what_cannot_be_started_is_refused_and_nothing_of_it_is_left() {
    let mut job = Job::with_room("k", &[1, 0], &[2, 3]);
    job.init(0);
    // The first node starts its rank; the second starts two of three.
    job.problem = None;
    job.say(0, "cmd=get_appnum");
    job.hears(0);
    job.problem = Some(("cannot execute './md'".to_owned(), 0));
    job.say(0, &spawn_lines(4, &[]));
    assert_eq!(job.hears(0), format!("{REFUSED}cannot_execute_'./md'"));
    assert_eq!(job.killed, [2, 3, 4], "those of the other node");
    assert_eq!(job.aborted, None);
    job.killed.clear();
    job.problem = Some(("too many processes".to_owned(), 1));
    job.say(0, &spawn_lines(1, &[("host", "b")]));
    assert!(job.hears(0).starts_with(REFUSED));
    assert_eq!(job.killed.len(), 1, "what was started before the problem");
    job.say(0, &spawn_lines(4, &[]));
    assert!(job.hears(0).contains("rc=0"), "all of the room is free again");
}

#[test]
fn without_room_more_nodes_are_asked_for_and_waited_for() {
    let mut job = Job::new("k", &[1]);
    job.init(0);
    job.say(0, &spawn_lines(3, &[]));
    job.pause();
    assert_eq!(job.asked, [Growth { seq: 1, nodes: 2, least: 2 }], "a node has room for two");
    assert_eq!(job.hub.unanswered(), Some(job.asked[0]), "an agent that was restarted is asked again");
    let outs = job.hub.grown(1, Grown::Granted { generation: 2 });
    job.hub_wants(outs);
    assert!(job.hears_nothing(0), "they have not come yet");
    let new = |node: &str| JobNode { node: node.to_owned(), joined: 2 };
    let mut members = members(&[1]);
    members.extend(["x", "y"].map(|node| Member { node: new(node), capacity: 2, is_departing: false }));
    for node in ["x", "y"] {
        let birth = first_birth("k", 1, 1, String::new(), 0, 0);
        job.nodes.insert(new(node), NodeRanks::new(birth));
    }
    let outs = job.hub.update(members.clone(), 2);
    job.hub_wants(outs);
    job.carry_all();
    assert_eq!(job.hears(0), "cmd=spawn_result rc=0 errcodes=0,0,0");
    assert_eq!(places(&job), placed(&[("x", 2), ("y", 1)]));

    // They leave, and the nodes are given back without an error.
    (1..=3).for_each(|task| job.init(task));
    (1..=3).for_each(|task| job.finish(task));
    members.truncate(1);
    job.hub.update(members, 3);
    job.say(0, "cmd=barrier_in");
    assert_eq!(job.hears(0), "cmd=barrier_out");
    job.finish(0);
    assert_eq!((job.hub.need(), job.aborted), (Need::Nothing, None));
}

#[test]
fn ranks_that_are_about_to_leave_are_waited_for_before_nodes_are_asked_for() {
    let mut job = Job::new("k", &[1, 1]);
    (0..2).for_each(|task| job.init(task));
    job.say(0, &spawn_lines(1, &[]));
    assert!(job.hears_nothing(0) && job.n_pauses == 1);
    job.finish(1);
    assert!(job.hears(0).contains("rc=0"));
    job.pause();
    assert_eq!(job.asked, []);
}

#[test]
fn a_refused_growth_refuses_the_spawn_and_no_other() {
    let mut job = Job::new("k", &[2, 1]);
    (0..3).for_each(|task| job.init(task));
    job.say(0, &spawn_lines(2, &[]));
    job.say(1, &spawn_lines(5, &[]));
    job.pause();
    assert_eq!(job.asked.len(), 1, "one question at a time");
    job.finish(2);
    assert!(job.hears_nothing(0) && job.hears_nothing(1));
    let outs = job.hub.grown(1, Grown::Refused { reason: "no nodes are free".to_owned() });
    job.hub_wants(outs);
    job.carry_all();
    assert_eq!(job.hears(0), format!("{REFUSED}asked_for_1_node,_no_nodes_are_free"));
    assert_eq!(job.told, ["a spawn by rank 0 has failed: asked for 1 node, no nodes are free"]);
    job.pause();
    assert_eq!(job.asked.len(), 2, "now for the other");
    assert_eq!(job.asked[1], Growth { seq: 2, nodes: 2, least: 2 });
    let outs = job.hub.grown(1, Grown::Granted { generation: 9 });
    assert_eq!(outs, [], "an answer that comes twice");
    let outs = job.hub.grown(2, Grown::Refused { reason: "the server is out of reach".to_owned() });
    job.hub_wants(outs);
    job.carry_all();
    assert!(job.hears(1).starts_with(REFUSED));
    job.say(1, &spawn_lines(1, &[]));
    assert!(job.hears(1).contains("rc=0"), "the room that a rank has left");
}

#[test]
fn a_grant_that_is_too_small_is_not_asked_about_for_ever() {
    let mut job = Job::new("k", &[1]);
    job.init(0);
    job.say(0, &spawn_lines(2, &[]));
    for seq in 1..=2 {
        job.pause();
        assert_eq!(job.asked.len() as u64, seq);
        let outs = job.hub.grown(seq, Grown::Granted { generation: 1 });
        job.hub_wants(outs);
        job.carry_all();
    }
    assert!(job.hears(0).starts_with(REFUSED));
    assert_eq!(job.asked.len(), 2);
}

#[test]
fn a_child_that_never_becomes_one_ends_the_job() {
    let mut job = Job::with_room("k", &[1], &[2]);
    job.init(0);
    job.say(0, &spawn_lines(1, &[]));
    job.task_ended(1, End::Exited(3));
    assert_eq!(job.aborted(), (3, "rank 0 of world 1 exited with code 3 without MPI_Init"));
}

#[test]
fn a_child_that_dies_ends_the_ranks_of_every_world() {
    let mut job = Job::with_room("k", &[1, 1], &[1, 2]);
    (0..2).for_each(|task| job.init(task));
    job.say(0, &spawn_lines(1, &[]));
    job.init(2);
    job.ups.clear();
    let outs = job.node(&node(1)).task_ended(2, End::Signaled(11));
    assert!(outs.iter().any(|out| matches!(out, Out::Abort { code: 139, .. })), "{outs:?}");
    job.take(&node(1), outs);
    job.aborted = None;
    job.carry_all();
    assert_eq!(job.aborted(), (139, "the ranks on another node aborted"));
    assert_eq!(job.told, ["rank 0 of world 1 was killed by signal 11 without finalizing"]);
}

#[test]
fn a_node_that_is_taken_away_before_its_ranks_run_refuses_the_spawn() {
    let mut job = Job::with_room("k", &[1, 0], &[1, 1]);
    job.init(0);
    job.send(0, format!("{}\n", spawn_lines(1, &[])).as_bytes());
    while let Some((from, up)) = job.ups.pop_front() {
        job.carry_up(&from, up);
    }
    let lost = job.downs.pop_front().expect("the order to start it");
    assert!(matches!(lost.1, Down::Place(_)));
    let outs = job.hub.update(members(&[1]), 2);
    job.hub_wants(outs);
    job.carry_all();
    assert!(job.hears(0).starts_with(REFUSED));
    job.finish(0);
    assert_eq!(job.hub.need(), Need::Nothing);
}

#[test]
fn an_order_that_comes_after_its_cancellation_starts_nothing() {
    let mut job = Job::with_room("k", &[1, 0], &[1, 1]);
    let b = node(1);
    let world = WorldId(7);
    let outs = job.node(&b).receive(Down::Cancel { world });
    assert_eq!(outs, [Out::Hub(Up::Remaining { world, n_ranks: 0 })]);
    let placement = Placement {
        world,
        kvsname: "k_7".to_owned(),
        n_ranks: 1,
        universe: 1,
        first_task: 9,
        parts: Vec::new(),
        pairs: Vec::new(),
    };
    let outs = job.node(&b).receive(Down::Place(placement));
    assert_eq!(outs, [Out::Hub(Up::Placed { world, problem: None })]);
}
