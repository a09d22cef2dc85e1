//! MPI applications that grow and shrink while they compute, and get bit-for-bit the same results as without.

mod common;

use common::cluster::Cluster;
use common::mpich::{argv, build, told};
use rms_api::Refused;
use rms_api::desired::NodeExit;
use rms_wire::ToAgent;

const OK: NodeExit = NodeExit::Exited { code: 0 };

/// Runs a program on two nodes with `n_each` ranks on each, and returns its output.
async fn run(cluster: &mut Cluster, job: u64, n_each: u32, program: &str, args: &str) -> String {
    cluster.submit(job, &["n1", "n2"], n_each, |_| {}, argv(program, args)).await;
    let output = format!("rms-{job}.out");
    assert_eq!(cluster.agent("n1").ended(job).await.0, OK, "{}", cluster.read(&output));
    assert_eq!(cluster.agent("n2").ended(job).await.0, OK, "{}", cluster.read(&output));
    cluster.read(&output)
}

/// Checks that a program's result does not depend on the changes of its ranks.
async fn check(program: &str, rigid: &str, size: &str) {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    let (Some(adaptive), Some(fixed)) = (build(program, cluster.path()), build(rigid, cluster.path())) else {
        return cluster.close().await;
    };
    let expected = told(&run(&mut cluster, 1, 2, &fixed, size).await, &format!("{rigid} "), "checksum");
    let plans = [
        ("--plan 2,4,2 --hosts n1,n2", "4", "4"),
        // A node may take several groups, and groups of several ranks.
        ("--plan 2,5,3,6,2 --hosts n2", "6", "6"),
    ];
    for (job, (plan, largest, n_changes)) in (2..).zip(plans) {
        let output = run(&mut cluster, job, 1, &adaptive, &format!("{size} {plan}")).await;
        let told = |key| told(&output, &format!("{program} "), key);
        assert_eq!((told("checksum"), told("refused")), (expected.clone(), "0".to_owned()), "{plan}: {output}");
        assert_eq!((told("largest").as_str(), told("changes").as_str()), (largest, n_changes), "{plan}: {output}");
    }
    // On any node with room, of which there is none: a refusal changes nothing.
    let args = format!("{size} --plan 2,3,2");
    cluster.submit(4, &["n1", "n2"], 1, |_| {}, argv(&adaptive, &args)).await;
    let (seq, _) = cluster.agent("n1").asked().await;
    let refused = Refused::new("not_negotiable", "no nodes are free");
    cluster.agent("n1").answer(ToAgent::NotAsked { seq, refused }).await;
    assert_eq!(cluster.agent("n1").ended(4).await.0, OK, "{}", cluster.read("rms-4.out"));
    let output = cluster.read("rms-4.out");
    let told = |key| told(&output, &format!("{program} "), key);
    assert_eq!((told("checksum"), told("refused"), told("changes")), (expected, "1".to_owned(), "0".to_owned()));
    cluster.close().await;
}

#[tokio::test]
async fn long_bodies_move_as_ever_while_their_ranks_come_and_go() {
    check("nbody_malleable", "nbody", "61 30").await;
}

#[tokio::test]
async fn long_heat_spreads_as_ever_while_rows_move_from_rank_to_rank() {
    check("jacobi", "jacobi", "50 60").await;
}

#[tokio::test]
async fn an_evolving_application_grows_once_and_stays_large() {
    let mut cluster = Cluster::new(&["n1", "n2"]).await;
    if let (Some(evolving), Some(rigid)) = (build("nbody_evolving", cluster.path()), build("nbody", cluster.path())) {
        let expected = told(&run(&mut cluster, 1, 2, &rigid, "40 12").await, "nbody ", "checksum");
        let output = run(&mut cluster, 2, 1, &evolving, "40 12 --plan 2,4,4 --hosts n1,n2").await;
        let told = |key| told(&output, "nbody_evolving ", key);
        assert_eq!(
            (told("checksum"), told("ranks"), told("hosts")),
            (expected, "4".to_owned(), "2".to_owned()),
            "{output}"
        );
    }
    cluster.close().await;
}
