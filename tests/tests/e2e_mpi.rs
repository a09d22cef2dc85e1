//! MPI programs under `rms run` and `rms submit` that spawn ranks: on nodes that they hold, and on nodes that they are given.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rms_tests::apps::{Mpi, build_negotiating, build_or_skip};
use test_kit::{Deployment, wait_until};

const SOON: Duration = Duration::from_secs(40);

fn program(name: &str) -> Option<String> {
    Some(build_or_skip(Mpi::Mpich, name)?.display().to_string())
}

fn read(deployment: &Deployment, name: &str) -> String {
    std::fs::read_to_string(deployment.path().join(name)).unwrap_or_default()
}

/// The value of `key=` in the line that begins so.
fn told(output: &str, beginning: &str, key: &str) -> String {
    let line = output.lines().find(|line| line.starts_with(beginning));
    let line = line.unwrap_or_else(|| panic!("no '{beginning}' in: {output}"));
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("no {key} in: {line}")).to_owned()
}

#[test]
fn long_what_spawned_ranks_write_is_seen_where_the_job_was_started() {
    let Some(spawn) = program("spawn") else { return };
    let deployment = Deployment::builder().cluster("a", 2).start();
    let output = deployment.rms(&["run", "-N", "2", "-n", "2", &spawn, "3", "2", "a1,a2"]).ok().stdout;
    assert_eq!(told(&output, "spawn ", "largest"), "4", "{output}");
    let children = |node: &str| output.lines().filter(|line| line.ends_with(node) || line.contains(node)).count();
    assert_eq!((children("node=a1 "), children("node=a2 ")), (3, 3), "{output}");
}

#[test]
fn long_a_spawn_without_room_becomes_a_negotiation_and_ends_with_its_ranks() {
    let Some(spawn) = program("spawn") else { return };
    let deployment = Deployment::builder().cluster("a", 3).start();
    let size = ["--malleable", "1-3", "--negotiable", "-N", "1", "-n", "1", "-o", "out"];
    let output = deployment.rms(&[&["run"], &size[..], &[&spawn, "2", "2", "-"]].concat()).ok();
    let written = read(&deployment, "out");
    assert_eq!(told(&written, "spawn ", "refused"), "0", "{output:?} {written}");
    assert_eq!(told(&written, "spawn ", "largest"), "3", "{written}");
    assert!(
        written.lines().filter(|line| line.starts_with("child")).all(|line| !line.contains("node=a1 ")),
        "{written}"
    );
}

#[test]
fn a_spawn_for_which_nothing_is_free_is_refused_and_the_program_goes_on() {
    let Some(spawn) = program("spawn") else { return };
    let deployment = Deployment::builder().cluster("a", 1).start();
    let output = deployment.rms(&["run", "-N", "1", "-n", "1", &spawn, "1", "99", "-"]).ok().stdout;
    assert_eq!(told(&output, "spawn ", "refused"), "1", "{output}");
}

/// What a pool of workers does, and what a program that is not there leads to.
const POOL: &str = "\
import sys
from mpi4py import MPI

if sys.argv[1:] == ['worker']:
    boss = MPI.Comm.Get_parent()
    boss.reduce(sum(range(boss.bcast(None, root=0))), root=0)
    boss.Disconnect()
    sys.exit(0)
for round in range(2):
    workers = MPI.COMM_SELF.Spawn(sys.executable, args=[sys.argv[0], 'worker'], maxprocs=2)
    workers.bcast(10, root=MPI.ROOT)
    print('total', workers.reduce(None, root=MPI.ROOT), flush=True)
    workers.Disconnect()
try:
    MPI.COMM_SELF.Spawn('/no/such/program', maxprocs=1)
except MPI.Exception:
    print('refused')
";

#[test]
fn long_a_program_in_python_spawns_workers_on_nodes_that_come() {
    let python = rms_tests::apps::target().expect("built by cargo").join("mpich/bin/python");
    let imports = Command::new(&python).args(["-c", "import mpi4py"]).output();
    if !imports.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: mpi4py is not installed; `cargo xtask setup` installs it");
        return;
    }
    let deployment = Deployment::builder().cluster("a", 2).start();
    let pool = deployment.script("pool.py", POOL);
    let python = python.display().to_string();
    let output = deployment.rms(&["run", "-N", "1", "-n", "1", &python, &pool]).ok().stdout;
    assert_eq!(output, "total 90\ntotal 90\nrefused\n");
}

fn negotiating(name: &str) -> Option<PathBuf> {
    let program = build_negotiating(Mpi::Mpich, name).expect("it compiles");
    if program.is_none() {
        eprintln!("SKIPPED: MPICH is not installed; `cargo xtask setup` installs it");
    }
    program
}

/// The checksum of the rigid program on one rank.
fn expected(deployment: &Deployment, args: &[&str]) -> Option<String> {
    let nbody = program("nbody")?;
    let output = deployment.rms(&[&["run", "-N", "1", "-n", "1", &nbody], args].concat()).ok().stdout;
    Some(told(&output, "nbody ", "checksum"))
}

#[test]
fn long_a_malleable_application_takes_idle_nodes_and_computes_the_same() {
    let Some(malleable) = negotiating("nbody_malleable") else { return };
    let deployment = Deployment::builder().cluster("a", 3).start();
    let Some(expected) = expected(&deployment, &["60", "40"]) else { return };
    let malleable = malleable.display().to_string();
    let size = ["--malleable", "1-3", "--negotiable", "-N", "1", "-n", "1", "-o", "out"];
    let work = [malleable.as_str(), "60", "40", "100", "--negotiate", "--least", "1", "--most", "3"];
    deployment.rms(&[&["run"], &size[..], &work[..]].concat()).ok();
    let written = read(&deployment, "out");
    assert_eq!(told(&written, "nbody_malleable ", "checksum"), expected, "{written}");
    assert_eq!(told(&written, "nbody_malleable ", "largest"), "3", "{written}");
}

#[test]
fn long_an_evolving_application_asks_for_nodes_and_computes_the_same() {
    let Some(evolving) = negotiating("nbody_evolving") else { return };
    let deployment = Deployment::builder().cluster("a", 4).start();
    let Some(expected) = expected(&deployment, &["60", "12"]) else { return };
    let evolving = evolving.display().to_string();
    // Without limits, the RMS offers nothing by itself.
    let size = ["--negotiable", "-N", "1", "-n", "1", "-o", "out"];
    // It starts on one, asks for fourteen more, and can use powers of two (002, §6).
    let work = [evolving.as_str(), "60", "12", "--negotiate", "--grow", "14", "--power-of-two"];
    deployment.rms(&[&["run"], &size[..], &work[..]].concat()).ok();
    let written = read(&deployment, "out");
    assert_eq!(told(&written, "nbody_evolving ", "checksum"), expected, "{written}");
    assert_eq!(told(&written, "nbody_evolving ", "ranks"), "4", "{written}");
}

#[test]
fn long_a_malleable_application_makes_room_for_a_rigid_job_and_computes_the_same() {
    let Some(malleable) = negotiating("nbody_malleable") else { return };
    // Ranks that go finalize: on a slow machine that takes its time, and TERM in the midst of it would end them all.
    let deployment = Deployment::builder().cluster("a", 3).config("[settings]\nexit_grace = \"1m\"\n").start();
    let Some(expected) = expected(&deployment, &["60", "100"]) else { return };
    let malleable = malleable.display().to_string();
    let size = ["--malleable", "1-3", "--negotiable", "-N", "1", "-n", "1", "-o", "out"];
    let work = [malleable.as_str(), "60", "100", "100", "--negotiate", "--least", "1", "--most", "3"];
    let (deployment, all) = (&deployment, [&["run"], &size[..], &work[..]].concat());
    std::thread::scope(|scope| {
        let running = scope.spawn(|| deployment.rms(&all).ok());
        wait_until("it to grow", SOON, || read(deployment, "out").contains("breakpoint growth").then_some(()));
        // Nobody else could run on two nodes now.
        deployment.rms(&["run", "-N", "2", "-n", "2", "true"]).ok();
        assert!(!running.is_finished(), "it goes on with what is left");
    });
    let written = read(deployment, "out");
    assert!(written.contains("breakpoint shrink"), "{written}");
    assert_eq!(told(&written, "nbody_malleable ", "checksum"), expected, "{written}");
    assert_eq!(told(&written, "nbody_malleable ", "largest"), "3", "{written}");
}

/// What the ranks of `leave` print while something happens, again and again, that takes nodes from them.
fn leaving(run: &[&str], work: &[&str], occasion: impl Fn(&Deployment)) -> Option<String> {
    let program = negotiating("leave")?.display().to_string();
    // Ranks that go finalize: on a slow machine that takes its time.
    let deployment = Deployment::builder().cluster("a", 4).config("[settings]\nexit_grace = \"1m\"\n").start();
    let all = [&["run", "-o", "out"], run, &[program.as_str()], work].concat();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| deployment.rms(&all).ok());
        // On drained nodes it would never start.
        wait_until("its start", SOON, || {
            let queue = deployment.rms(&["queue", "--json"]).ok().json();
            (queue["jobs"][0]["state"] == "started").then_some(())
        });
        wait_until("a change", SOON, || {
            occasion(&deployment);
            let is_over = running.is_finished() || read(&deployment, "out").contains("changed ranks=2");
            is_over.then_some(())
        });
    });
    let written = read(&deployment, "out");
    assert!(written.contains("changed ranks=2"), "{written}");
    assert_eq!(told(&written, "leave ", "sum"), "1", "those that stay compute together until the end: {written}");
    Some(written)
}

fn drain(deployment: &Deployment, nodes: &str) {
    deployment.rms(&["admin", "drain", "--reason", "new memory", nodes]).ok();
}

#[test]
fn long_ranks_of_the_start_make_room_for_a_rigid_job_and_the_others_go_on() {
    let run = ["--malleable", "2-4:pow2", "--negotiable", "-N", "4", "-n", "4"];
    leaving(&run, &["100", "100", "2", "4"], |deployment| {
        deployment.rms(&["run", "-N", "2", "-n", "2", "true"]).ok();
    });
}

#[test]
fn long_ranks_of_the_start_leave_nodes_that_are_drained_and_the_others_go_on() {
    let run = ["--malleable", "1-4", "--negotiable", "-N", "4", "-n", "8"];
    let Some(written) = leaving(&run, &["120", "100", "1", "4"], |deployment| drain(deployment, "a[2-4]")) else {
        return;
    };
    assert_eq!(told(&written, "leave ", "ranks"), "2", "{written}");
}

#[test]
fn long_ranks_of_one_spawned_group_leave_node_by_node() {
    let run = ["--malleable", "1-3", "--negotiable", "-N", "1", "-n", "1"];
    leaving(&run, &["150", "100", "1", "3", "--grow"], |deployment| {
        if read(deployment, "out").contains("changed ranks=3") {
            drain(deployment, "a3");
        }
    });
}
