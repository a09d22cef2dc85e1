//! Programs under `mpirun` that grow and shrink: with Open MPI by an `mpirun` for each node, with MPICH by spawning.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rms_tests::apps::{BuildError, Mpi, build, build_negotiating};
use test_kit::{Deployment, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// A batch script that computes twice: first on ranks that stay, then with these arguments more.
fn script(mpi: Mpi, program: &Path, args: &str, more: &str) -> Option<String> {
    let mpirun = mpi.mpirun()?;
    let (mpirun, program) = (mpirun.display(), program.display());
    Some(match mpi {
        // Ranks that wait leave the CPUs to those that compute: here are more ranks than CPUs.
        Mpi::OpenMpi => format!(
            "export RESIZE_MPIRUN={mpirun} OMPI_MCA_mpi_yield_when_idle=1
            {mpirun} --host localhost:2 -n 2 {program} {args} || exit 1
            ompi-server --no-daemonize -r \"$PWD/meet\" & server=$!
            while [ ! -s meet ]; do sleep 0.05; done
            export OMPI_MCA_pmix_server_uri=\"file:$PWD/meet\"
            {mpirun} --host localhost:1 -n 1 {program} {args} {more}
            code=$?
            kill $server
            exit $code"
        ),
        Mpi::Mpich => format!("{mpirun} -n 2 {program} {args} && {mpirun} -n 1 {program} {args} {more}"),
    })
}

/// A program of `tests/apps`, if its MPI is installed.
fn installed(mpi: Mpi, program: Result<Option<PathBuf>, BuildError>) -> Option<PathBuf> {
    let program = program.expect("it compiles");
    if program.is_none() {
        eprintln!("SKIPPED: {} is not installed; `cargo xtask setup` installs it", mpi.name());
    }
    program
}

/// The values of `key=` in all lines.
fn told<'a>(output: &'a str, key: &str) -> Vec<&'a str> {
    output.split_whitespace().filter_map(|word| word.strip_prefix(key)?.strip_prefix('=')).collect()
}

fn check_same_results(output: &str) {
    let checksums = told(output, "checksum");
    assert!(checksums.len() == 2 && checksums[0] == checksums[1], "{output}");
}

fn read(deployment: &Deployment, name: &str) -> String {
    std::fs::read_to_string(deployment.path().join(name)).unwrap_or_default()
}

#[test]
fn long_heat_spreads_as_ever_while_groups_connect_and_leave_and_come_again() {
    let Some(jacobi) = installed(Mpi::OpenMpi, build(Mpi::OpenMpi, "jacobi")) else { return };
    let deployment = Deployment::of_nodes(3);
    let Some(script) = script(Mpi::OpenMpi, &jacobi, "40 40", "--plan 1,3,2,3,1 --hosts a2,a3") else { return };
    let job = deployment.submit(&["-N", "3", "-o", "out", "--wrap", &script]);
    let record = deployment.wait_for_end(job);
    let output = read(&deployment, "out");
    assert_eq!(record["outcome"]["word"], "completed", "{output}");
    check_same_results(&output);
    assert_eq!(told(&output, "changes"), ["0", "6"], "{output}");
    assert_eq!(told(&output, "largest"), ["2", "3"], "{output}");
}

#[test]
fn long_a_group_that_cannot_come_is_refused_and_the_program_goes_on() {
    let Some(jacobi) = installed(Mpi::OpenMpi, build(Mpi::OpenMpi, "jacobi")) else { return };
    let deployment = Deployment::of_nodes(2);
    // The job has one node, and this is the other.
    let Some(script) = script(Mpi::OpenMpi, &jacobi, "20 20", "--plan 1,2 --hosts a2,a2") else { return };
    let job = deployment.submit(&["-N", "1", "-o", "out", "--wrap", &script]);
    let record = deployment.wait_for_end(job);
    let output = read(&deployment, "out");
    assert_eq!(record["outcome"]["word"], "completed", "{output}");
    assert!(output.contains("a2 is not a node of job"), "{output}");
    check_same_results(&output);
    assert_eq!(told(&output, "refused"), ["0", "1"], "{output}");
}

/// The daemon of Open MPI leaves the remote shell that has started it at once.
#[test]
fn an_mpirun_of_one_task_outlives_the_task_on_the_other_node() {
    let Some(mpirun) = Mpi::OpenMpi.mpirun() else { return eprintln!("SKIPPED: Open MPI is not installed") };
    let deployment = Deployment::of_nodes(2);
    let task = format!(
        "#!/bin/sh\n\
         if [ $RMS_TASK_ID = 1 ]; then until [ -e runs ]; do sleep 0.05; done; exit; fi\n\
         {} -n 2 --map-by node sh -c 'touch runs; sleep 1; echo whole' > out 2>&1; echo code $? >> out\n",
        mpirun.display()
    );
    let task = deployment.script("task.sh", &task);
    deployment.rms(&["run", "-N", "2", "-n", "2", &task]).ok();
    assert_eq!(read(&deployment, "out"), "whole\nwhole\ncode 0\n");
}

#[test]
fn a_daemon_of_mpiexec_outlives_the_agent_of_a_node_without_tasks() {
    let Some(mpiexec) = Mpi::Mpich.mpirun() else { return eprintln!("SKIPPED: MPICH is not installed") };
    let mut deployment = Deployment::of_nodes(2);
    let task = format!(
        "#!/bin/sh\n\
         if [ $RMS_TASK_ID = 1 ]; then until [ -e runs.0 ] && [ -e runs.1 ]; do sleep 0.05; done; touch over; exit; fi\n\
         {} -n 2 sh -c 'touch runs.$PMI_RANK; until [ -e go ]; do sleep 0.05; done; echo whole' > out 2>&1; echo code $? >> out\n",
        mpiexec.display()
    );
    let task = deployment.script("task.sh", &task);
    let mut run = deployment.command(&["run", "-q", "-N", "2", "-n", "2", &task]).spawn().expect("it starts");
    wait_until("the other task to end", SOON, || deployment.path().join("over").exists().then_some(()));
    std::thread::sleep(Duration::from_millis(300));
    deployment.kill_agent("a2");
    deployment.restart_agent("a2");
    // An `mpiexec` that is about to end would count that as a failure.
    let has_lost_it = || read(&deployment, "out").contains("lost the other node").then_some(());
    wait_until("the remote shell to lose the node", SOON, has_lost_it);
    std::fs::write(deployment.path().join("go"), "").expect("written");
    let status = run.wait().expect("our child");
    let out = read(&deployment, "out");
    assert!(out.ends_with("whole\nwhole\ncode 0\n") && status.success(), "{status}: {out}");
}

/// A malleable application takes idle nodes, and gives them back when a rigid job needs them.
fn check_makes_room(mpi: Mpi) {
    let Some(malleable) = installed(mpi, build_negotiating(mpi, "nbody_malleable")) else { return };
    let deployment = Deployment::of_nodes(3);
    let more = "150 --negotiate --least 1 --most 3";
    let Some(script) = script(mpi, &malleable, "60 60", more) else { return };
    let size = ["--malleable", "1-3", "--negotiable", "-N", "1", "-n", "1", "-o", "out"];
    let job = deployment.submit(&[&size[..], &["--wrap", &script]].concat());
    wait_until("it to grow", SOON, || read(&deployment, "out").contains("breakpoint growth").then_some(()));
    // Nobody else could run on two nodes now.
    deployment.rms(&["run", "-N", "2", "-n", "2", "true"]).ok();
    let record = deployment.wait_for_end(job);
    let output = read(&deployment, "out");
    assert_eq!(record["outcome"]["word"], "completed", "{output}");
    assert!(output.contains("breakpoint shrink"), "{output}");
    check_same_results(&output);
    assert_eq!(told(&output, "largest"), ["2", "3"], "{output}");
    assert_eq!(told(&output, "refused"), ["0", "0"], "{output}");
}

#[test]
fn long_an_application_of_open_mpi_makes_room_for_a_rigid_job() {
    check_makes_room(Mpi::OpenMpi);
}

#[test]
fn long_an_application_of_mpich_under_its_mpirun_makes_room_for_a_rigid_job() {
    check_makes_room(Mpi::Mpich);
}

/// Ranks of the start cannot leave: nobody asks for their nodes, and whoever does hears why not.
fn check_keeps_its_start(mpi: Mpi) {
    let Some(program) = installed(mpi, build_negotiating(mpi, "leave")) else { return };
    let Some(mpirun) = mpi.mpirun() else { return };
    let deployment = Deployment::of_nodes(3);
    // It says for itself that one node would do.
    let script = format!("{} -n 3 {} 60 100 1 3", mpirun.display(), program.display());
    let size = ["--malleable", "1-3", "--negotiable", "-N", "3", "-n", "3", "-o", "out"];
    let job = deployment.submit(&[&size[..], &["--wrap", &script]].concat());
    let number = job.to_string();
    let least = || deployment.rms(&["show", "--json", &number]).ok().json()["malleable"]["least"].as_u64();
    wait_until("it to say so", SOON, || (least() == Some(3)).then_some(()));
    let waits = deployment.submit(&["-N", "1", "-o", "other", "--wrap", "true"]);
    let shown = deployment.rms(&["show", &number]).ok().stdout;
    assert!(shown.contains("has ranks of mpirun that cannot leave"), "{shown}");
    let refused = deployment.rms(&["negotiate", &number, "--shrink", "1"]).fails(1).stderr;
    assert!(refused.contains("ranks that mpirun has started there cannot leave before all of them end"), "{refused}");
    let record = deployment.wait_for_end(job);
    let output = read(&deployment, "out");
    assert_eq!(record["outcome"]["word"], "completed", "{output}");
    assert_eq!(told(&output, "ranks"), ["3"], "{output}");
    let negotiations = deployment.rms(&["negotiations", "--json", &number]).ok().json();
    let negotiations = negotiations["negotiations"].as_array().expect("a list").clone();
    let is_of_the_server = |negotiation: &serde_json::Value| negotiation["initiator"] == "server";
    assert!(!negotiations.iter().any(is_of_the_server), "nobody has asked: {negotiations:?}");
    assert_eq!(deployment.wait_for_end(waits)["outcome"]["word"], "completed");
}

#[test]
fn long_nobody_asks_ranks_that_mpirun_of_mpich_has_started_to_leave() {
    check_keeps_its_start(Mpi::Mpich);
}

#[test]
fn long_nobody_asks_ranks_that_mpirun_of_open_mpi_has_started_to_leave() {
    check_keeps_its_start(Mpi::OpenMpi);
}

/// What ranks under `mpirun` find in their environment is right, or not there.
fn check_what_ranks_are_told(mpi: Mpi, rank: &str) {
    let Some(mpirun) = mpi.mpirun() else { return };
    let deployment = Deployment::of_nodes(2);
    let told = "task=${RMS_TASK_ID-none},${RMS_LOCAL_ID-none},${SLURM_PROCID-none},${SLURM_LOCALID-none} \
                node=$RMS_NODE_ID,$RMS_NODE_NAME slurm=${SLURM_NODEID-none},${SLURMD_NODENAME-none}";
    let text = format!("#!/bin/sh\necho rank=${rank} {told}\n");
    let program = deployment.script("told.sh", &text);
    let script = format!("{} -n 4 {program}", mpirun.display());
    let job = deployment.submit(&["-N", "2", "-n", "4", "--slurm-env", "-o", "out", "--wrap", &script]);
    let record = deployment.wait_for_end(job);
    let output = read(&deployment, "out");
    assert_eq!(record["outcome"]["word"], "completed", "{output}");
    assert_eq!(told_of(&output, "task"), ["none,none,none,none"; 4], "{output}");
    assert_eq!(told_of(&output, "rank"), ["0", "1", "2", "3"], "{output}");
    // The nodes are none of mpirun's own machine by their names, so it starts all through the agents.
    for key in ["node", "slurm"] {
        assert_eq!(told_of(&output, key), ["0,a1", "0,a1", "1,a2", "1,a2"], "{output}");
    }
}

/// The values of `key=`, in order.
fn told_of<'a>(output: &'a str, key: &str) -> Vec<&'a str> {
    let mut values = told(output, key);
    values.sort_unstable();
    values
}

#[test]
fn ranks_of_open_mpi_are_told_of_their_node_and_of_no_task() {
    check_what_ranks_are_told(Mpi::OpenMpi, "OMPI_COMM_WORLD_RANK");
}

/// Its `mpirun` carries the environment of the script to all ranks.
#[test]
fn ranks_of_mpich_are_told_of_their_node_and_of_no_task() {
    check_what_ranks_are_told(Mpi::Mpich, "PMI_RANK");
}
