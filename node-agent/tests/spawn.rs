//! `MPI_Comm_spawn` of programs that the agents started themselves, over several nodes.

mod common;

use common::cluster::Cluster;
use common::mpich::{self, argv, build};
use negotiation::{NegotiationId, Side};
use rms_api::Refused;
use rms_api::desired::{Launch, NodeExit};
use rms_api::negotiate::AskOutcome;
use rms_model::Work;
use rms_wire::ToAgent;

const OK: NodeExit = NodeExit::Exited { code: 0 };

/// Returns the message that the requested nodes are granted, and come with this generation.
fn ready(seq: u64, generation: u32) -> ToAgent {
    let negotiation = NegotiationId { initiator: Side::Application, number: 1 };
    let outcome = AskOutcome::Ready { negotiation, quantity: 2, nodes: Vec::new(), generation, n_rounds: 1 };
    ToAgent::Asked { seq, outcome }
}

fn told(output: &str, key: &str) -> String {
    mpich::told(output, "spawn ", key)
}

/// Returns the values of `key=` in the lines of the children, sorted.
fn children(output: &str, key: &str) -> Vec<String> {
    let lines = output.lines().filter(|line| line.starts_with("child "));
    let value = |line: &str| {
        let value = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {key} in: {line}")).to_owned()
    };
    let mut values: Vec<String> = lines.map(value).collect();
    values.sort();
    values
}

#[tokio::test]
async fn a_rank_spawns_another_on_a_node_that_it_names() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    if let Some(spawn) = build("spawn", cluster.path()) {
        cluster.submit(1, &["n1", "n2"], 1, |_| {}, argv(&spawn, "1 2 n1,n2")).await;
        assert_eq!(cluster.agent("n1").ended(1).await.0, OK, "{}", cluster.read("rms-1.out"));
        assert_eq!(cluster.agent("n2").ended(1).await.0, OK);
        let output = cluster.read("rms-1.out");
        assert_eq!(children(&output, "node"), ["n1", "n2"], "{output}");
        assert_eq!(children(&output, "task"), ["2", "3"], "{output}");
        assert_eq!(told(&output, "largest"), "4", "{output}");
    }
    cluster.close().await;
}

#[tokio::test]
async fn long_worlds_grow_and_shrink_twenty_times() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    if let Some(spawn) = build("spawn", cluster.path()) {
        cluster.submit(1, &["n1", "n2"], 1, |_| {}, argv(&spawn, "20 2 n1,n2")).await;
        assert_eq!(cluster.agent("n1").ended(1).await.0, OK, "{}", cluster.read("rms-1.out"));
        assert_eq!(cluster.agent("n2").ended(1).await.0, OK);
        let output = cluster.read("rms-1.out");
        assert_eq!((told(&output, "refused"), told(&output, "largest")), ("0".to_owned(), "4".to_owned()), "{output}");
        assert_eq!(children(&output, "rank").len(), 40, "{output}");
    }
    cluster.close().await;
}

#[tokio::test]
async fn long_a_spawn_without_room_asks_the_server_and_goes_to_the_nodes_that_come() {
    let mut cluster = Cluster::new(&["n1", "n2", "n3"]).await;
    if let Some(spawn) = build("spawn", cluster.path()) {
        let own_files = |launch: &mut Launch| launch.execution.stdio.output = Some("%t".to_owned());
        cluster.submit(1, &["n1"], 2, own_files, argv(&spawn, "3 5 - several")).await;
        let (seq, ask) = cluster.agent("n1").asked().await;
        assert_eq!((ask.quantity, ask.least), (2, 2), "a node with four CPUs has room for four ranks");
        cluster.agent("n1").answer(ready(seq, 2)).await;
        cluster.join(1, &["n2", "n3"]).await;
        assert_eq!(cluster.agent("n1").ended(1).await.0, OK, "{}", cluster.read("0"));
        for node in ["n2", "n3"] {
            assert_eq!(cluster.agent(node).ended(1).await.0, OK, "it hears that no ranks will come");
        }
        let output = cluster.read("0");
        assert_eq!((told(&output, "refused"), told(&output, "largest")), ("0".to_owned(), "7".to_owned()), "{output}");
        // Three times five, on the nodes that joined, each with a number and a file of its own.
        let all: String = (2..17).map(|task| cluster.read(&task.to_string())).collect();
        assert!(children(&all, "node").iter().all(|node| node == "n2" || node == "n3"), "{all}");
        assert_eq!(children(&all, "app"), [vec!["0"; 3], vec!["1"; 12]].concat(), "{all}");
    }
    cluster.close().await;
}

#[tokio::test]
async fn a_spawn_that_is_refused_leaves_the_program_as_it_was() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    if let Some(spawn) = build("spawn", cluster.path()) {
        cluster.submit(1, &["n1", "n2"], 1, |_| {}, argv(&spawn, "1 2 -")).await;
        let (seq, _) = cluster.agent("n1").asked().await;
        let refused = Refused::new("not_negotiable", "no nodes are free");
        cluster.agent("n1").answer(ToAgent::NotAsked { seq, refused }).await;
        // A program that does not exist, and a node that the job does not hold.
        for (job, args) in [(2, "2 2 n1,n2 program=/no/such/program"), (3, "1 1 n9")] {
            cluster.submit(job, &["n1", "n2"], 1, |_| {}, argv(&spawn, args)).await;
        }
        for job in 1..=3 {
            assert_eq!(cluster.agent("n1").ended(job).await.0, OK, "{}", cluster.read(&format!("rms-{job}.out")));
            assert_eq!(cluster.agent("n2").ended(job).await.0, OK);
            let output = cluster.read(&format!("rms-{job}.out"));
            assert_eq!(told(&output, "refused"), if job == 2 { "2" } else { "1" }, "{output}");
        }
    }
    cluster.close().await;
}

#[tokio::test]
async fn long_spawns_as_users_write_them_are_served_or_refused() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    if let Some(odd) = build("odd", cluster.path()) {
        cluster.submit(1, &["n1", "n2"], 1, |_| {}, argv(&odd, "spawns n1 n2")).await;
        // An MPI library whose ports are those of two nodes on one machine cannot connect them.
        cluster.submit(2, &["n1"], 2, |_| {}, argv(&odd, "names")).await;
        for (job, expected) in [
            (1, "odd universe=2\nodd words=22\nodd several=42\nodd half=11\nodd many=122\nodd refused=6\n"),
            (2, "odd unknown=1\nodd met=3\nodd unpublished=1\n"),
        ] {
            let output = format!("rms-{job}.out");
            assert_eq!(cluster.agent("n1").ended(job).await.0, OK, "{}", cluster.read(&output));
            let printed = cluster.read(&output);
            // The output includes the agent's reason why a spawn was refused.
            let (said, told): (Vec<&str>, Vec<&str>) =
                printed.split_inclusive('\n').partition(|line| line.starts_with("rms: "));
            assert_eq!(told.concat(), expected);
            let names_program = said.iter().any(|line| line.contains("cannot execute '/no/such/program'"));
            assert_eq!(names_program, job == 1, "{said:?}");
        }
    }
    cluster.close().await;
}

/// The end of a job whose spawned ranks fail, and the message to its owner.
#[tokio::test]
async fn ranks_that_end_badly_end_the_job_and_it_is_said_which() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    let child = "printf 'cmd=init pmi_version=1 pmi_subversion=1\\n' >&$PMI_FD; read -r answer <&$PMI_FD";
    for (job, child, code, told) in [
        (1, format!("{child}; exit 3"), 3, "rank 0 of world 1 exited with code 3 without finalizing"),
        (2, "exit 0".to_owned(), 1, "rank 0 of world 1 exited without MPI_Init"),
        (3, format!("{child}; kill -9 $$"), 137, "rank 0 of world 1 was killed by signal 9 without finalizing"),
    ] {
        let parent = format!(
            "{}\ninit
            ask cmd=barrier_in
            [ $PMI_RANK = 0 ] && printf '%s\\n' \
                mcmd=spawn nprocs=1 execname=bash totspawns=1 spawnssofar=1 argcnt=2 arg1=-c \
                {} info_num=1 info_key_0=host info_val_0=n2 endcmd >&$PMI_FD
            sleep 60",
            include_str!("data/pmi/rank.bash"),
            format_args!("'arg2={}'", child.replace('\'', "'\\''")),
        );
        let work = Work::Tasks { argv: vec!["bash".to_owned(), "-c".to_owned(), parent] };
        cluster.submit(job, &["n1", "n2"], 1, |_| {}, work).await;
        for node in ["n1", "n2"] {
            assert_eq!(cluster.agent(node).ended(job).await.0, NodeExit::Aborted { code }, "{told}");
        }
        assert_eq!(cluster.read(&format!("rms-{job}.out")), format!("rms: job {job}: {told}\n"));
    }
    cluster.close().await;
}

#[tokio::test]
async fn long_rank_0_may_leave_and_its_node_stays_for_the_others() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    if let Some(spawn) = build("spawn", cluster.path()) {
        let args = "4 1 n2 leave linger=100";
        cluster.submit(1, &["n1", "n2"], 1, |_| {}, argv(&spawn, args)).await;
        assert_eq!(cluster.agent("n1").ended(1).await.0, OK, "{}", cluster.read("rms-1.out"));
        assert_eq!(cluster.agent("n2").ended(1).await.0, OK);
        let output = cluster.read("rms-1.out");
        assert_eq!((told(&output, "refused"), told(&output, "largest")), ("0".to_owned(), "3".to_owned()), "{output}");
        assert_eq!(children(&output, "node"), ["n2"; 4], "{output}");
    }
    cluster.close().await;
}

/// A rank in bash that spawns others in bash on node `n2`, whenever the test requests it.
const PARENT: &str = r#"
child='say() { printf "%s\n" "$*" >&$PMI_FD; IFS= read -r answer <&$PMI_FD; }
    say cmd=init pmi_version=1 pmi_subversion=1
    say cmd=finalize
    echo child at $RMS_NODE_NAME spawned $PMI_SPAWNED task $RMS_TASK_ID'
spawn() {
    while [ ! -e $1 ]; do sleep 0.01; done
    printf '%s\n' mcmd=spawn nprocs=1 execname=bash totspawns=1 spawnssofar=1 argcnt=2 arg1=-c "arg2=${child//$'\n'/;}" \
        info_num=1 info_key_0=host info_val_0=n2 >&$PMI_FD
    ask endcmd
    echo "$answer"
}
init
spawn joined
spawn again
echo "spawned twice"
spawn freed
ask cmd=barrier_in
ask cmd=finalize
"#;

#[tokio::test]
async fn a_node_whose_ranks_have_left_is_taken_away_without_a_sound() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    let parent = format!("{}\n{PARENT}", include_str!("data/pmi/rank.bash"));
    let work = Work::Tasks { argv: vec!["bash".to_owned(), "-c".to_owned(), parent] };
    cluster.submit(1, &["n1"], 1, |_| {}, work).await;
    cluster.agent("n1").running(1).await;
    cluster.join(1, &["n2"]).await;
    cluster.agent("n2").running(1).await;
    std::fs::write(cluster.path().join("joined"), "").expect("a file");
    cluster.says("rms-1.out", "child at n2 spawned 1 task 1").await;
    // An agent that is restarted meanwhile changes nothing.
    cluster.kill("n2").await;
    cluster.start("n2").await;
    std::fs::write(cluster.path().join("again"), "").expect("a file");
    cluster.says("rms-1.out", "child at n2 spawned 1 task 2").await;
    cluster.says("rms-1.out", "spawned twice").await;
    assert_eq!(cluster.free(1, "n2").await, NodeExit::Ordered);
    std::fs::write(cluster.path().join("freed"), "").expect("a file");
    assert_eq!(cluster.agent("n1").ended(1).await.0, OK, "{}", cluster.read("rms-1.out"));
    let output = cluster.read("rms-1.out");
    assert_eq!(output.matches("rc=0 errcodes=0").count(), 2, "{output}");
    // Whether or not the node of its parent has heard of it before the spawn begins.
    let is_told = ["node_n2_does_not_belong_to_the_job", "a_node_was_taken_from_the_job"]
        .iter()
        .any(|why| output.contains(&format!("rc=-1 msg={why}")));
    assert!(is_told, "{output}");
    cluster.close().await;
}

#[tokio::test]
async fn long_spawns_go_on_while_agents_are_killed_and_come_back() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    if let Some(spawn) = build("spawn", cluster.path()) {
        cluster.submit(1, &["n1", "n2"], 1, |_| {}, argv(&spawn, "40 2 n1,n2 linger=10")).await;
        cluster.agent("n1").running(1).await;
        // The agent of the other node, the one of the hub's node, and both again.
        for (node, cycle) in [("n2", 2), ("n1", 8), ("n2", 14), ("n1", 20)] {
            cluster.says("rms-1.out", &format!("child cycle={cycle} ")).await;
            cluster.kill(node).await;
            cluster.start(node).await;
        }
        assert_eq!(cluster.agent("n1").ended(1).await.0, OK, "{}", cluster.read("rms-1.out"));
        assert_eq!(cluster.agent("n2").ended(1).await.0, OK);
        let output = cluster.read("rms-1.out");
        assert_eq!((told(&output, "refused"), told(&output, "largest")), ("0".to_owned(), "4".to_owned()), "{output}");
        assert_eq!(children(&output, "rank").len(), 80, "each is started once");
    }
    cluster.close().await;
}
