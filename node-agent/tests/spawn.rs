//! `MPI_Comm_spawn` of programs that the agents started themselves, over several nodes.

mod common;

use std::path::Path;
use std::process::Command;

use common::cluster::Cluster;
use rms_core::desired::NodeExit;
use rms_model::Work;

const OK: NodeExit = NodeExit::Exited { code: 0 };

/// A program of `tests/apps`, built with MPICH's compiler; none where that is not installed.
fn build(program: &str, dir: &Path) -> Option<String> {
    let bin = std::env::var("RMS_TEST_MPICH").ok().or_else(installed)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/apps/{program}.c"));
    let binary = dir.join(program);
    let compiler = format!("{bin}/mpicc");
    let built = Command::new(&compiler)
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-o"])
        .arg(&binary)
        .arg(source)
        .arg("-lm")
        .status();
    assert!(built.is_ok_and(|status| status.success()), "{compiler} builds {program}");
    Some(binary.display().to_string())
}

/// Where `cargo xtask setup` installs it: beside the profile's directory, in which this test lies.
fn installed() -> Option<String> {
    let exe = std::env::current_exe().ok()?;
    let bin = exe.ancestors().map(|dir| dir.join("mpich/bin")).find(|bin| bin.join("mpicc").exists());
    if bin.is_none() {
        eprintln!("SKIPPED: MPICH is not installed; `cargo xtask setup` installs it");
    }
    Some(bin?.display().to_string())
}

fn argv(program: &str, args: &str) -> Work {
    let words = std::iter::once(program).chain(args.split_whitespace());
    Work::Tasks { argv: words.map(str::to_owned).collect() }
}

/// The value of `key=` in the line that the program ends with.
fn told(output: &str, key: &str) -> String {
    let line =
        output.lines().find(|line| line.starts_with("spawn ")).unwrap_or_else(|| panic!("no result in: {output}"));
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {key} in: {line}")).to_owned()
}

/// The values of `key=` in the lines of the children, sorted.
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
async fn a_rank_spawns_another_on_a_host_that_it_names() {
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
async fn worlds_grow_and_shrink_twenty_times() {
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
