//! Tests of ranks that the agents start themselves, and of `mpirun` inside a job; both over two nodes.

mod common;

use std::path::Path;
use std::process::Command;

use common::cluster::Cluster;
use rms_api::desired::NodeExit;
use rms_model::Work;

/// Returns ranks that run this text after the definitions of `rank.bash`.
fn ranks(text: &str) -> Work {
    let script = format!("{}\n{text}", include_str!("data/pmi/rank.bash"));
    Work::Tasks { argv: ["bash", "-c", &script].map(str::to_owned).to_vec() }
}

fn script(text: &str) -> Work {
    Work::Script { script: format!("#!/bin/bash\n{text}"), args: Vec::new() }
}

const OK: NodeExit = NodeExit::Exited { code: 0 };

#[tokio::test]
async fn ranks_on_two_nodes_meet_in_fences() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    let work = ranks(
        "init
        for round in 1 2 3; do
            ask cmd=put kvsname=$kvs key=k-$round-$PMI_RANK value=$((PMI_RANK * round))
            ask cmd=barrier_in
            get k-$round-$(((PMI_RANK + 1) % PMI_SIZE))
            echo $PMI_RANK heard $value
        done
        ask cmd=finalize",
    );
    cluster.submit(1, &["n1", "n2"], 2, |launch| launch.execution.stdio.output = Some("%t".to_owned()), work).await;
    assert_eq!(cluster.agent("n1").ended(1).await.0, OK);
    assert_eq!(cluster.agent("n2").ended(1).await.0, OK);
    for rank in 0..4 {
        let next = (rank + 1) % 4;
        let expected: String = (1..=3).map(|round| format!("{rank} heard {}\n", next * round)).collect();
        assert_eq!(cluster.read(&rank.to_string()), expected);
    }
    cluster.close().await;
}

#[tokio::test]
async fn an_abort_on_one_node_ends_the_ranks_on_the_other() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    let work = ranks(
        "init
        ask cmd=barrier_in
        [ $PMI_RANK = 1 ] && say cmd=abort exitcode=13
        sleep 60",
    );
    cluster.submit(1, &["n1", "n2"], 1, |_| {}, work).await;
    assert_eq!(cluster.agent("n2").ended(1).await.0, NodeExit::Aborted { code: 13 });
    assert_eq!(cluster.agent("n1").ended(1).await.0, NodeExit::Aborted { code: 13 });
    assert_eq!(cluster.read("rms-1.out"), "rms: job 1: rank 1 called abort with code 13\n");
    cluster.close().await;
}

#[tokio::test]
async fn a_fence_holds_while_an_agent_is_restarted() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    let work = ranks(
        "init
        ask cmd=put kvsname=$kvs key=a$PMI_RANK value=$PMI_RANK
        [ $PMI_RANK = 0 ] && while [ ! -e go ]; do sleep 0.01; done
        ask cmd=barrier_in
        get a$((1 - PMI_RANK))
        ask cmd=finalize
        [ $value = $((1 - PMI_RANK)) ]",
    );
    cluster.submit(1, &["n1", "n2"], 1, |_| {}, work).await;
    cluster.agent("n2").running(1).await;
    // The agent of the other node, then the one of the hub's node.
    for node in ["n2", "n1"] {
        cluster.kill(node).await;
        cluster.start(node).await;
    }
    std::fs::write(cluster.path().join("go"), "").expect("a file");
    assert_eq!(cluster.agent("n1").ended(1).await.0, OK);
    assert_eq!(cluster.agent("n2").ended(1).await.0, OK);
    cluster.close().await;
}

#[tokio::test]
async fn a_job_reaches_its_own_nodes_and_no_others() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    let work = script(
        "exec 2>&1
        rsh=$OMPI_MCA_plm_rsh_agent
        $rsh -x n2 'echo at $RMS_NODE_NAME in $PWD; exit 3' < /dev/null; echo code $?
        head -c 3000000 /dev/zero | $rsh n2 wc -c; echo code $?
        $rsh n2 'head -c 3000000 /dev/zero; echo end >&2' < /dev/null | wc -c
        $rsh n1 echo here at n1 < /dev/null
        $rsh n3 true < /dev/null; echo code $?
        $rsh n2 'kill -9 $$' < /dev/null; echo code $?
        $rsh n2 'sleep 100 & echo $! > sleeper' < /dev/null",
    );
    cluster.submit(1, &["n1", "n2"], 1, |_| {}, work).await;
    assert_eq!(cluster.agent("n1").ended(1).await.0, OK);
    let cwd = cluster.path().display().to_string();
    let expected = format!(
        "at n2 in {cwd}\ncode 3\n3000000\ncode 0\nend\n3000000\nhere at n1\n\
         rms-rsh: n3 is not a node of job 1\ncode 255\ncode 137\n"
    );
    assert_eq!(cluster.read("rms-1.out"), expected);
    let sleeper = cluster.read("sleeper").trim().parse().expect("a pid");
    assert!(common::is_alive(sleeper), "what it left in the background is the job's");
    cluster.end(1).await;
    assert!(!common::is_alive(sleeper), "and ends with it");

    let outside = Command::new(env!("CARGO_BIN_EXE_rms-rsh"))
        .args(["n1", "true"])
        .env("RMS_AGENT_SOCKET", cluster.agent_dir("n1").join("agent.sock"))
        .output()
        .expect("it runs");
    assert_eq!(outside.status.code(), Some(255));
    assert!(
        String::from_utf8_lossy(&outside.stderr).contains("only processes of a job on this node are served"),
        "{outside:?}"
    );
    cluster.close().await;
}

#[tokio::test]
async fn the_remote_shell_reaches_nodes_that_have_joined_and_none_that_have_left() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    let work = script(
        "for step in alone joined left again; do
            while [ ! -e $step ]; do sleep 0.01; done
            $OMPI_MCA_plm_rsh_agent n2 'echo at $RMS_NODE_NAME' < /dev/null
            echo $step: code $?
        done 2> /dev/null",
    );
    cluster.submit(1, &["n1"], 1, |_| {}, work).await;
    cluster.agent("n1").running(1).await;
    let touch = |cluster: &Cluster, step: &str| std::fs::write(cluster.path().join(step), "").expect("a file");
    touch(&cluster, "alone");
    cluster.says("rms-1.out", "alone: code 255").await;
    cluster.join(1, &["n2"]).await;
    cluster.agent("n2").running(1).await;
    touch(&cluster, "joined");
    cluster.says("rms-1.out", "at n2\njoined: code 0").await;
    assert_eq!(cluster.free(1, "n2").await, NodeExit::Ordered);
    touch(&cluster, "left");
    cluster.says("rms-1.out", "left: code 255").await;
    cluster.join(1, &["n2"]).await;
    cluster.agent("n2").running(1).await;
    touch(&cluster, "again");
    cluster.says("rms-1.out", "at n2\nagain: code 0").await;
    cluster.close().await;
}

/// Builds a program of the test suite with this compiler; `None` if that is not installed.
fn build(compiler: &str, program: &str, dir: &Path) -> Option<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/apps/{program}.c"));
    let binary = dir.join(program);
    let built = Command::new(compiler).arg("-O1").arg("-o").arg(&binary).arg(source).arg("-lm").status();
    match built {
        Ok(status) if status.success() => Some(binary.display().to_string()),
        Ok(_) | Err(_) => {
            eprintln!("skipped: {compiler} does not build here");
            None
        }
    }
}

/// Returns the path of an MPICH program: the wheel's programs may be anywhere.
fn mpich(program: &str) -> String {
    std::env::var("RMS_TEST_MPICH").map_or(format!("{program}.mpich"), |bin| format!("{bin}/{program}"))
}

/// Returns `rank@node` of each line that the ranks wrote, sorted.
fn places(output: &str) -> Vec<String> {
    let word = |line: &str, key: &str| {
        let value = line.split_whitespace().find_map(|word| word.strip_prefix(key));
        value.unwrap_or_else(|| panic!("no {key} in: {line}")).to_owned()
    };
    let ranks = output.lines().filter(|line| line.starts_with("hello"));
    let mut places: Vec<String> =
        ranks.map(|line| format!("{}@{}", word(line, "rank="), word(line, "node="))).collect();
    places.sort();
    places
}

#[tokio::test]
async fn mpirun_of_open_mpi_reaches_both_nodes() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    if let Some(hello) = build("mpicc.openmpi", "hello", cluster.path()) {
        cluster.submit(1, &["n1", "n2"], 2, |_| {}, script(&format!("mpirun.openmpi {hello}"))).await;
        assert_eq!(cluster.agent("n1").ended(1).await.0, OK);
        assert_eq!(
            places(&cluster.read("rms-1.out")),
            ["0@n1", "1@n1", "2@n2", "3@n2"],
            "{}",
            cluster.read("rms-1.out")
        );
    }
    cluster.close().await;
}

#[tokio::test]
async fn mpirun_of_mpich_reaches_both_nodes() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    if let Some(hello) = build(&mpich("mpicc"), "hello", cluster.path()) {
        let text = format!("env -u RMS_NODE_NAME {} {hello}", mpich("mpirun"));
        cluster.submit(1, &["n1", "n2"], 2, |_| {}, script(&text)).await;
        assert_eq!(cluster.agent("n1").ended(1).await.0, OK);
        assert_eq!(
            places(&cluster.read("rms-1.out")),
            ["0@n1", "1@n1", "2@n2", "3@n2"],
            "{}",
            cluster.read("rms-1.out")
        );
    }
    cluster.close().await;
}

#[tokio::test]
async fn mpich_programs_start_without_mpirun() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    if let Some(hello) = build(&mpich("mpicc"), "hello", cluster.path()) {
        for job in 1..=3 {
            let work = Work::Tasks { argv: vec![hello.clone()] };
            cluster.submit(job, &["n1", "n2"], 2, |_| {}, work).await;
            assert_eq!(cluster.agent("n1").ended(job).await.0, OK);
            assert_eq!(cluster.agent("n2").ended(job).await.0, OK);
            let output = cluster.read(&format!("rms-{job}.out"));
            assert_eq!(places(&output), ["0@n1", "1@n1", "2@n2", "3@n2"], "{output}");
        }
    }
    cluster.close().await;
}
