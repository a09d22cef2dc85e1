//! Tests of the lines of single ranks: transcripts of real ones, and invalid ones.

use super::*;
use crate::pmi::WorldId;
use crate::pmi::node::MAX_KVS_BYTES;
use crate::pmi::ranks::MAX_FRESH_BYTES;
use crate::pmi::{KEYLEN_MAX, LINE_MAX, VALLEN_MAX};

/// Sends the recorded lines of the ranks, and expects the recorded answers. Ranks of job 1 were spawned; `task` returns
/// the task of each.
fn replay(transcript: &str, mut job: Job, task: impl Fn(&str) -> u32, expect: impl Fn(&str) -> String) -> Job {
    let mut n_answers = 0;
    for line in transcript.lines() {
        let (direction, rest) = line.split_once(' ').expect("a direction");
        let (who, text) = rest.split_once(' ').expect("a rank");
        let task = task(who);
        match direction {
            "<" => job.say(task, text),
            ">" => {
                assert_eq!(job.hears(task), expect(text));
                n_answers += 1;
            }
            other => panic!("no direction: {other}"),
        }
    }
    assert!(n_answers > 5 && job.aborted.is_none(), "{:?}", job.aborted);
    job
}

#[test]
fn two_nodes_of_mpich_4_hear_what_they_heard_then() {
    let transcript = include_str!("../../../tests/data/pmi/mpich-4.0.2.txt");
    let task = |who: &str| who.strip_prefix("0.").and_then(|rank| rank.parse().ok()).expect("a rank of job 0");
    // The same mapping, folded.
    let same = |text: &str| text.replace("(vector,(0,1,1),(1,1,1))", "(vector,(0,2,1))");
    let mut job = replay(transcript, Job::new("kvs_8184_0", &[1, 1]), task, same);
    job.task_ended(0, End::Exited(0));
    job.task_ended(1, End::Exited(0));
    assert_eq!(job.aborted, None);
}

#[test]
fn a_spawn_of_mpich_5_is_served_as_it_was_then() {
    let transcript = include_str!("../../../tests/data/pmi/mpich-5.0.2-spawn.txt");
    let task = |who: &str| if who.starts_with("0.") { 0 } else { 1 };
    // One name for all worlds of a job, and a number for each.
    let renamed = transcript.replace("kvs_8124_0", "kvs_8124");
    let mut job = replay(&renamed, Job::with_room("kvs_8124", &[1, 0], &[1, 1]), task, str::to_owned);
    let (node, placement) = &job.started[0];
    assert_eq!((node.node.as_str(), placement.parts[0].argv.join(" ")), ("b", "out/md.m5 2 1".to_owned()));
    job.task_ended(1, End::Exited(0));
    job.task_ended(0, End::Exited(0));
    assert_eq!(job.aborted, None);
}

#[test]
fn lines_may_arrive_in_pieces_and_several_at_once() {
    let mut job = Job::new("k", &[1]);
    let wire = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_appnum\ncmd=get_universe_size\n";
    for byte in wire {
        job.send(0, &[*byte]);
    }
    assert!(job.hears(0).starts_with("cmd=response_to_init"));
    assert_eq!(job.hears(0), "cmd=appnum appnum=0");
    assert_eq!(job.hears(0), "cmd=universe_size rc=0 size=1");
}

#[test]
fn what_one_rank_puts_another_gets_after_the_fence() {
    let mut job = Job::new("k", &[2, 1]);
    (0..3).for_each(|rank| job.init(rank));
    job.say(0, "cmd=put kvsname=k key=a value=1");
    assert_eq!(job.hears(0), "cmd=put_result rc=0 msg=success");
    job.say(2, "cmd=get kvsname=k key=a");
    assert_eq!(job.hears(2), "cmd=get_result rc=-1 msg=key_a_not_found value=unknown");
    (0..3).for_each(|rank| job.say(rank, "cmd=barrier_in"));
    (0..3).for_each(|rank| assert_eq!(job.hears(rank), "cmd=barrier_out"));
    job.say(2, "cmd=get kvsname=k key=a");
    assert_eq!(job.hears(2), "cmd=get_result rc=0 msg=success value=1");
    job.say(2, "cmd=get kvsname=other key=a");
    assert!(job.hears(2).starts_with("cmd=get_result rc=-1"));
}

#[test]
fn names_are_published_across_nodes() {
    let mut job = Job::new("k", &[1, 1]);
    (0..2).for_each(|rank| job.init(rank));
    job.say(1, "cmd=lookup_name service=s");
    assert!(job.hears(1).contains("rc=-1"));
    job.say(0, "cmd=publish_name service=s port=tag#0$x$");
    assert_eq!(job.hears(0), "cmd=publish_result info=ok rc=0 msg=ok");
    job.say(1, "cmd=lookup_name service=s");
    assert_eq!(job.hears(1), "cmd=lookup_result info=ok rc=0 port=tag#0$x$");
    job.say(1, "cmd=unpublish_name service=s");
    assert_eq!(job.hears(1), "cmd=unpublish_result info=ok rc=0 msg=ok");
}

#[test]
fn a_question_whose_answer_got_lost_is_asked_again() {
    let mut job = Job::new("k", &[1, 1]);
    job.init(1);
    job.say(1, "cmd=put kvsname=k key=a value=1");
    let rank = job.node(&node(1));
    let outs = rank.bytes(1, b"cmd=barrier_in\n");
    let [Out::Hub(fence)] = outs.as_slice() else { panic!("{outs:?}") };
    assert_eq!(rank.relinked(), [Up::Hello, fence.clone()]);
    let done = Down::FenceDone { world: WorldId::FIRST, seq: 1, pairs: Vec::new() };
    assert_eq!(rank.receive(done.clone()).len(), 1, "the rank is let go");
    assert_eq!(rank.receive(done), [], "once");
    assert_eq!(rank.relinked(), [Up::Hello]);
}

/// Otherwise the first node would wait for the end message of any node that has sent something.
#[test]
fn a_program_that_is_none_of_mpi_says_nothing_when_the_way_is_there_again() {
    let mut job = Job::new("k", &[1, 1]);
    assert_eq!(job.node(&node(1)).relinked(), []);
}

#[test]
fn a_rank_that_dies_takes_the_job_along() {
    for (end, code, how) in [
        (End::Exited(0), 1, "rank 1 exited without finalizing"),
        (End::Exited(4), 4, "rank 1 exited with code 4"),
        (End::Signaled(11), 139, "rank 1 was killed by signal 11"),
    ] {
        let mut job = Job::new("k", &[1, 1]);
        (0..2).for_each(|rank| job.init(rank));
        job.task_ended(1, end);
        assert_eq!(job.aborted().0, code);
        assert!(job.aborted().1.contains(how), "{:?}", job.aborted);
    }
}

#[test]
fn a_program_that_is_none_of_mpi_may_just_end() {
    let mut job = Job::new("k", &[2]);
    job.task_ended(0, End::Exited(3));
    job.task_ended(1, End::Signaled(9));
    assert_eq!(job.aborted, None);
}

#[test]
fn nobody_waits_for_a_rank_that_never_came() {
    let mut job = Job::new("k", &[2]);
    job.init(0);
    job.say(0, "cmd=barrier_in");
    job.task_ended(1, End::Exited(0));
    assert!(job.aborted().1.contains("rank 1 ended without MPI_Init"));
}

#[test]
fn ranks_that_have_finalized_are_not_waited_for() {
    let mut job = Job::new("k", &[1, 2]);
    (0..3).for_each(|rank| job.init(rank));
    job.say(2, "cmd=finalize");
    job.say(1, "cmd=finalize");
    job.say(0, "cmd=barrier_in");
    assert_eq!(job.hears(0), "cmd=barrier_out");
}

#[test]
fn abort_carries_its_code() {
    let mut job = Job::new("k", &[1, 1]);
    (0..2).for_each(|rank| job.init(rank));
    job.say(1, "cmd=abort exitcode=42");
    assert_eq!(job.aborted().0, 42);
}

#[test]
fn of_the_code_of_an_abort_the_job_has_what_the_kernel_keeps_of_it() {
    for (said, code) in [("255", 255), ("70000", 112), ("-1", 255), ("0", 1), ("256", 1), ("99999999999", 1)] {
        let mut job = Job::new("k", &[1]);
        job.init(0);
        job.say(0, &format!("cmd=abort exitcode={said}"));
        assert_eq!(job.aborted().0, code, "{said}");
    }
    let mut job = Job::new("k", &[1]);
    job.init(0);
    job.say(0, "cmd=abort exitcode=70000");
    assert_eq!(job.told, ["rank 0 called abort with code 70000"], "as the program has it");
}

#[test]
fn a_rank_that_does_not_read_ends_the_job() {
    let mut job = Job::new("k", &[1, 1]);
    (0..2).for_each(|rank| job.init(rank));
    let own = node(1);
    let outs = job.node(&own).unread(1);
    job.take(&own, outs);
    job.carry_all();
    assert_eq!(job.aborted().0, 1);
    assert_eq!(job.told, ["rank 1 does not read from its process manager"]);
}

#[test]
fn why_the_job_ends_is_told_once() {
    let mut job = Job::new("k", &[1, 1]);
    (0..2).for_each(|rank| job.init(rank));
    job.say(1, "cmd=abort exitcode=42");
    job.task_ended(0, End::Signaled(9));
    assert_eq!(job.told, ["rank 1 called abort with code 42"], "what comes after it comes of it");
}

#[test]
fn a_name_that_is_published_may_be_of_several_words() {
    let mut job = Job::new("k", &[1]);
    job.init(0);
    job.say(0, "cmd=publish_name service=the ocean model port=tag#0$connentry#6E[8]$");
    assert_eq!(job.hears(0), "cmd=publish_result info=ok rc=0 msg=ok");
    job.say(0, "cmd=lookup_name service=the ocean model");
    assert_eq!(job.hears(0), "cmd=lookup_result info=ok rc=0 port=tag#0$connentry#6E[8]$");
    job.say(0, "cmd=lookup_name service=the ocean");
    assert!(job.hears(0).contains("rc=-1"));
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
        let mut job = Job::new("k", &[1]);
        job.init(0);
        job.say(0, line);
        assert!(job.aborted().1.contains(problem), "{line}: {:?}", job.aborted);
    }
    let mut early = Job::new("k", &[1]);
    early.say(0, "cmd=barrier_in");
    assert!(early.aborted().1.contains("out of turn"));
    let mut endless = Job::new("k", &[1]);
    endless.send(0, &vec![b'a'; LINE_MAX + 1]);
    assert!(endless.aborted().1.contains("without an end of line"));
}

#[test]
fn floods_end_the_job() {
    let mut job = Job::new("k", &[1]);
    job.init(0);
    let value = "v".repeat(VALLEN_MAX);
    for n in 0..=MAX_FRESH_BYTES / VALLEN_MAX {
        job.say(0, &format!("cmd=put kvsname=k key={n} value={value}"));
        job.heard.clear();
    }
    assert!(job.aborted().1.contains("more to its process manager"));
}

/// Puts one value for each key and lets both ranks pass a fence; the ranks take turns.
fn fence_with(job: &mut Job, n: u32, keys: impl Iterator<Item = String>) {
    let value = "v".repeat(VALLEN_MAX);
    keys.for_each(|key| job.say(n % 2, &format!("cmd=put kvsname=k key={key} value={value}")));
    (0..2).for_each(|rank| job.say(rank, "cmd=barrier_in"));
    job.heard.clear();
}

#[test]
fn long_a_key_space_that_grows_with_every_fence_ends_the_job() {
    let mut job = Job::new("k", &[1, 1]);
    (0..2).for_each(|rank| job.init(rank));
    let n_keys = (MAX_FRESH_BYTES / VALLEN_MAX / 2) as u32;
    for n in 0..MAX_KVS_BYTES / MAX_FRESH_BYTES * 4 {
        fence_with(&mut job, n as u32, (0..n_keys).map(|key| key.to_string()));
    }
    assert_eq!(job.aborted, None, "values that replace others take no more room");
    for n in 0..MAX_KVS_BYTES / MAX_FRESH_BYTES * 2 + 1 {
        fence_with(&mut job, n as u32, (0..n_keys).map(|key| format!("{n}.{key}")));
    }
    let (code, reason) = job.aborted();
    assert_eq!(code, 1);
    assert!(reason.contains("cannot go on: the ranks have put more than 32 MiB of keys and values in all"), "{reason}");
}
