//! Ranks and their process manager, tried line by line.

use std::collections::VecDeque;

use super::*;
use crate::pmi::hub::Hub;

/// All hosts of a job with their hub, joined without a network.
struct World {
    hosts: Vec<Ranks>,
    hub: Hub,
    ranks_per_host: Vec<u32>,
    /// Lines to each rank.
    heard: Vec<VecDeque<String>>,
    aborted: Option<(i32, String)>,
}

impl World {
    fn new(kvsname: &str, ranks_per_host: &[u32]) -> World {
        let hosts = (0..ranks_per_host.len() as u32)
            .map(|host_idx| Ranks::new(kvsname.to_owned(), ranks_per_host, host_idx))
            .collect();
        let n_ranks = ranks_per_host.iter().sum::<u32>() as usize;
        World {
            hosts,
            hub: Hub::new(ranks_per_host),
            ranks_per_host: ranks_per_host.to_vec(),
            heard: vec![VecDeque::new(); n_ranks],
            aborted: None,
        }
    }

    fn place(&self, rank: usize) -> (usize, usize) {
        let mut local = rank;
        for (host_idx, n_ranks) in self.ranks_per_host.iter().enumerate() {
            if local < *n_ranks as usize {
                return (host_idx, local);
            }
            local -= *n_ranks as usize;
        }
        panic!("there is no rank {rank}")
    }

    fn say(&mut self, rank: usize, line: &str) {
        let (host_idx, local) = self.place(rank);
        let outs = self.hosts[host_idx].bytes(local, format!("{line}\n").as_bytes());
        self.carry(host_idx, outs);
    }

    fn left(&mut self, rank: usize, end: End) {
        let (host_idx, local) = self.place(rank);
        let outs = self.hosts[host_idx].left(local, end);
        self.carry(host_idx, outs);
    }

    fn carry(&mut self, host_idx: usize, outs: Vec<Out>) {
        let first: u32 = self.ranks_per_host[..host_idx].iter().sum();
        for out in outs {
            match out {
                Out::Line { local, line } => self.heard[first as usize + local].push_back(line.trim_end().to_owned()),
                Out::Abort { code, reason } => self.aborted = self.aborted.take().or(Some((code, reason))),
                Out::Hub(up) => {
                    for (to, down) in self.hub.hear(host_idx as u32, up) {
                        let outs = self.hosts[to as usize].hear(down);
                        self.carry(to as usize, outs);
                    }
                }
            }
        }
    }

    fn hears(&mut self, rank: usize) -> String {
        self.heard[rank].pop_front().unwrap_or_else(|| panic!("rank {rank} hears nothing"))
    }

    fn init(&mut self, rank: usize) {
        self.say(rank, "cmd=init pmi_version=1 pmi_subversion=1");
        assert_eq!(self.hears(rank), "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    }

    /// The code and the reason of an abort that must have happened.
    fn aborted(&self) -> (i32, &str) {
        let (code, reason) = self.aborted.as_ref().expect("the job is aborted");
        (*code, reason)
    }
}

/// Says what the ranks of job 0 said, and expects what they heard.
fn replay(transcript: &str, mut world: World, expect: impl Fn(&str) -> String) -> World {
    let mut n_answers = 0;
    for line in transcript.lines() {
        let (direction, rest) = line.split_once(' ').expect("a direction");
        let (who, text) = rest.split_once(' ').expect("a rank");
        let Some(rank) = who.strip_prefix("0.").and_then(|rank| rank.parse().ok()) else { continue };
        match direction {
            "<" => world.say(rank, text),
            ">" => {
                assert_eq!(world.hears(rank), expect(text));
                n_answers += 1;
            }
            other => panic!("no direction: {other}"),
        }
    }
    assert!(n_answers > 5 && world.aborted.is_none(), "{:?}", world.aborted);
    world
}

#[test]
fn two_nodes_of_mpich_4_hear_what_they_heard_then() {
    let transcript = include_str!("../../tests/data/pmi/mpich-4.0.2.txt");
    // The same mapping, in fewer words.
    let same = |text: &str| text.replace("(vector,(0,1,1),(1,1,1))", "(vector,(0,2,1))");
    let mut world = replay(transcript, World::new("kvs_8184_0", &[1, 1]), same);
    world.left(0, End::Exited(0));
    world.left(1, End::Exited(0));
    assert_eq!(world.aborted, None);
}

#[test]
fn a_spawn_of_mpich_5_is_refused_and_the_rank_goes_on() {
    let transcript = include_str!("../../tests/data/pmi/mpich-5.0.2-spawn.txt");
    let refused =
        |text: &str| text.replace("spawn_result rc=0 errcodes=0", "spawn_result rc=-1 msg=spawn_is_not_supported");
    replay(transcript, World::new("kvs_8124_0", &[1]), refused);
}

#[test]
fn several_programs_are_spawned_in_one_question() {
    let mut world = World::new("k", &[1]);
    world.init(0);
    for so_far in 1..=2 {
        for line in ["mcmd=spawn", "nprocs=1", "totspawns=2", &format!("spawnssofar={so_far}"), "endcmd"] {
            world.say(0, line);
        }
    }
    assert_eq!(world.hears(0), "cmd=spawn_result rc=-1 msg=spawn_is_not_supported");
    assert!(world.heard[0].is_empty(), "one answer for both");
}

#[test]
fn lines_may_arrive_in_pieces_and_several_at_once() {
    let mut world = World::new("k", &[1]);
    let wire = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_appnum\ncmd=get_universe_size\n";
    for byte in wire {
        let outs = world.hosts[0].bytes(0, &[*byte]);
        world.carry(0, outs);
    }
    assert!(world.hears(0).starts_with("cmd=response_to_init"));
    assert_eq!(world.hears(0), "cmd=appnum appnum=0");
    assert_eq!(world.hears(0), "cmd=universe_size rc=0 size=1");
}

#[test]
fn what_one_rank_puts_another_gets_after_the_fence() {
    let mut world = World::new("k", &[2, 1]);
    (0..3).for_each(|rank| world.init(rank));
    world.say(0, "cmd=put kvsname=k key=a value=1");
    assert_eq!(world.hears(0), "cmd=put_result rc=0 msg=success");
    world.say(2, "cmd=get kvsname=k key=a");
    assert_eq!(world.hears(2), "cmd=get_result rc=-1 msg=key_a_not_found value=unknown");
    (0..3).for_each(|rank| world.say(rank, "cmd=barrier_in"));
    (0..3).for_each(|rank| assert_eq!(world.hears(rank), "cmd=barrier_out"));
    world.say(2, "cmd=get kvsname=k key=a");
    assert_eq!(world.hears(2), "cmd=get_result rc=0 msg=success value=1");
    world.say(2, "cmd=get kvsname=other key=a");
    assert!(world.hears(2).starts_with("cmd=get_result rc=-1"));
}

#[test]
fn names_are_published_across_hosts() {
    let mut world = World::new("k", &[1, 1]);
    (0..2).for_each(|rank| world.init(rank));
    world.say(1, "cmd=lookup_name service=s");
    assert!(world.hears(1).contains("rc=-1"));
    world.say(0, "cmd=publish_name service=s port=tag#0$x$");
    assert_eq!(world.hears(0), "cmd=publish_result info=ok rc=0 msg=ok");
    world.say(1, "cmd=lookup_name service=s");
    assert_eq!(world.hears(1), "cmd=lookup_result info=ok rc=0 port=tag#0$x$");
    world.say(1, "cmd=unpublish_name service=s");
    assert_eq!(world.hears(1), "cmd=unpublish_result info=ok rc=0 msg=ok");
}

#[test]
fn a_question_whose_answer_got_lost_is_asked_again() {
    let mut ranks = Ranks::new("k".to_owned(), &[1, 1], 1);
    let _ = ranks.bytes(0, b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=put kvsname=k key=a value=1\n");
    let outs = ranks.bytes(0, b"cmd=barrier_in\n");
    let [Out::Hub(fence)] = outs.as_slice() else { panic!("{outs:?}") };
    assert_eq!(ranks.relinked(), std::slice::from_ref(fence));
    let done = Down::FenceDone { seq: 1, pairs: Vec::new() };
    assert_eq!(ranks.hear(done.clone()).len(), 1, "the rank is let go");
    assert_eq!(ranks.hear(done), [], "once");
    assert_eq!(ranks.relinked(), []);
}

#[test]
fn a_rank_that_dies_takes_the_job_along() {
    for (end, code, how) in [
        (End::Exited(0), 1, "rank 1 exited without finalizing"),
        (End::Exited(4), 4, "rank 1 exited with code 4"),
        (End::Signaled(11), 139, "rank 1 was killed by signal 11"),
    ] {
        let mut world = World::new("k", &[1, 1]);
        (0..2).for_each(|rank| world.init(rank));
        world.left(1, end);
        assert_eq!(world.aborted().0, code);
        assert!(world.aborted().1.contains(how), "{:?}", world.aborted);
    }
}

#[test]
fn a_program_that_is_none_of_mpi_may_just_end() {
    let mut world = World::new("k", &[2]);
    world.left(0, End::Exited(3));
    world.left(1, End::Signaled(9));
    assert_eq!(world.aborted, None);
}

#[test]
fn nobody_waits_for_a_rank_that_never_came() {
    let mut world = World::new("k", &[2]);
    world.init(0);
    world.say(0, "cmd=barrier_in");
    world.left(1, End::Exited(0));
    assert!(world.aborted().1.contains("rank 1 ended without MPI_Init"));
}

#[test]
fn ranks_that_have_finalized_are_not_waited_for() {
    let mut world = World::new("k", &[1, 2]);
    (0..3).for_each(|rank| world.init(rank));
    world.say(2, "cmd=finalize");
    world.say(1, "cmd=finalize");
    world.say(0, "cmd=barrier_in");
    assert_eq!(world.hears(0), "cmd=barrier_out");
}

#[test]
fn abort_carries_its_code() {
    let mut world = World::new("k", &[1, 1]);
    (0..2).for_each(|rank| world.init(rank));
    world.say(1, "cmd=abort exitcode=42");
    assert_eq!(world.aborted().0, 42);
}

#[test]
fn nonsense_ends_the_job_and_never_us() {
    let long_key = format!("cmd=put kvsname=k key={} value=1", "x".repeat(KEYLEN_MAX + 1));
    let long_value = format!("cmd=put kvsname=k key=a value={}", "x".repeat(VALLEN_MAX + 1));
    let long_line = "x".repeat(3 * LINE_MAX);
    for (line, problem) in [
        ("hello", "'hello' has no '='"),
        ("cmd=fly", "no command 'fly'"),
        ("cmd=put kvsname=k key=a", "put has no value"),
        ("cmd=getbyidx kvsname=k idx=x", "an index"),
        (long_key.as_str(), "key of put is 65 bytes"),
        (long_value.as_str(), "value of put is 4097 bytes"),
        (long_line.as_str(), "sent a line of"),
    ] {
        let mut world = World::new("k", &[1]);
        world.init(0);
        world.say(0, line);
        assert!(world.aborted().1.contains(problem), "{line}: {:?}", world.aborted);
    }
    let mut early = World::new("k", &[1]);
    early.say(0, "cmd=barrier_in");
    assert!(early.aborted().1.contains("out of turn"));
    let mut endless = World::new("k", &[1]);
    let outs = endless.hosts[0].bytes(0, &vec![b'a'; LINE_MAX + 1]);
    endless.carry(0, outs);
    assert!(endless.aborted().1.contains("without an end of line"));
}

#[test]
fn floods_end_the_job() {
    let mut world = World::new("k", &[1]);
    world.init(0);
    let value = "v".repeat(VALLEN_MAX);
    for n in 0..=MAX_FRESH_BYTES / VALLEN_MAX {
        world.say(0, &format!("cmd=put kvsname=k key={n} value={value}"));
        world.heard[0].clear();
    }
    assert!(world.aborted().1.contains("more to its process manager"));
}

#[test]
fn the_mapping_folds_equal_hosts() {
    assert_eq!(process_mapping(&[2, 2, 2]), "(vector,(0,3,2))");
    assert_eq!(process_mapping(&[2, 1, 1]), "(vector,(0,1,2),(1,2,1))");
    assert_eq!(process_mapping(&[3]), "(vector,(0,1,3))");
}
