//! Scripts that were written for Slurm, through real processes: they find what they use, or are refused before they do harm.

use std::fs;

use rms_tests::apps::{Mpi, build_or_skip};
use test_kit::Deployment;

fn read(deployment: &Deployment, name: &str) -> String {
    fs::read_to_string(deployment.path().join(name)).unwrap_or_default()
}

/// Runs a script to its end and returns what it wrote.
fn output_of(deployment: &Deployment, script: &str) -> String {
    let script = deployment.script("job.sh", script);
    let job = deployment.submit(&["-o", "out", &script]);
    let record = deployment.wait_for_end(job);
    let output = read(deployment, "out");
    assert_eq!(record["outcome"]["word"], "completed", "{output}");
    output.replace(&format!("={job}\n"), "=JOB\n")
}

#[test]
fn the_account_of_a_job_is_told_from_its_submission_to_the_history() {
    let mut deployment = Deployment::of_nodes(1);
    let script = deployment.script("job.sh", "#!/bin/sh\n#SBATCH --account=physics\necho $SLURM_JOB_ACCOUNT\n");
    let job = deployment.submit(&["--hold", "-o", "out", &script]);
    let other = deployment.submit(&["--hold", "-A", "chemistry", &script]).to_string();
    let account = |deployment: &Deployment, job: &str| {
        let (show, history) = (deployment.rms(&["show", job, "--json"]), deployment.rms(&["history", job, "--json"]));
        (show.ok().json()["account"].clone(), history.ok().json()["jobs"][0]["account"].clone())
    };
    assert_eq!(account(&deployment, &other).0, "chemistry", "the command line wins");
    let queue = deployment.rms(&["queue", "--json"]).ok().json();
    assert_eq!(queue["jobs"][0]["account"], "physics", "{queue}");
    deployment.kill_server();
    deployment.start_server();
    deployment.rms(&["release", &job.to_string()]).ok();
    deployment.wait_for_end(job);
    assert_eq!(read(&deployment, "out"), "physics\n");
    assert_eq!(account(&deployment, &job.to_string()), ("physics".into(), "physics".into()));
    let shown = deployment.rms(&["show", &job.to_string()]).ok().stdout;
    assert!(shown.lines().any(|line| line.trim_start().starts_with("account") && line.ends_with("physics")), "{shown}");
    assert!(deployment.rms(&["history"]).ok().stdout.contains("physics"));
    deployment.rms(&["submit", "-A", "a\u{7}", &script]).fails(1);
}

#[test]
fn long_a_job_runs_on_the_nodes_that_it_names() {
    let deployment = Deployment::of_nodes(4);
    let of_script = output_of(&deployment, "#!/bin/sh\n#SBATCH -w a[2-3]\necho $SLURM_JOB_NODELIST\n");
    assert_eq!(of_script, "a[2-3]\n", "both, because it does not say how many");
    let nodes_of = |args: &[&str]| {
        let args = [&["run", "-x", "a1,a3"], args, &["sh", "-c", "echo $RMS_NODELIST"]].concat();
        deployment.rms(&args).ok().stdout
    };
    assert_eq!(nodes_of(&[]), "a2\n");
    assert_eq!(nodes_of(&["-w", "a[1-4]", "-N", "2", "-n", "2"]), "a[2,4]\n".repeat(2));
    let step = output_of(&deployment, "#!/bin/sh\n#SBATCH -N 3\nsrun -n 1 -x a1,a2 sh -c 'echo $RMS_NODELIST'\n");
    assert_eq!(step, "a3\n", "a step of the job leaves nodes out in the same way");
    let refused = deployment.rms(&["submit", "-w", "a7", "--wrap", "true"]).fails(1);
    assert!(refused.stderr.contains("there is no node 'a7'"), "{}", refused.stderr);
    deployment.rms(&["submit", "-w", "a[2", "--wrap", "true"]).fails(2);

    let job = deployment.submit(&["--hold", "-w", "a4", "--wrap", "true"]).to_string();
    deployment.rms(&["update", &job, "nodelist=a3", "exclude=a4"]).ok();
    let shown = deployment.rms(&["show", &job]).ok().stdout;
    assert!(shown.contains("among a3, without a4"), "{shown}");
    let constraint = deployment.rms(&["show", &job, "--json"]).ok().json()["constraint"].clone();
    assert_eq!((&constraint["nodelist"][0], &constraint["exclude"][0]), (&"a3".into(), &"a4".into()));
    deployment.rms(&["release", &job]).ok();
    assert_eq!(deployment.wait_for_end(job.parse().expect("a number"))["nodes"][0], "a3");
}

#[test]
fn a_script_with_sbatch_lines_finds_slurms_variables() {
    let deployment = Deployment::of_nodes(3);
    let script = "#!/bin/bash\n#SBATCH --nodes=3 --job-name=sims\n#SBATCH --ntasks=5\n#SBATCH --ntasks-per-node=2\n\
                  #SBATCH --account=physics\n: $SLURM_PROCID $SLURM_LOCALID $SLURM_NODEID $SLURMD_NODENAME\n\
                  env | grep ^SLURM | sort\n";
    let mut output = output_of(&deployment, script);
    let dir = deployment.path().display().to_string();
    output = output.replace(&dir, "DIR");
    for line in [
        "SLURM_JOB_ID=JOB",
        "SLURM_JOBID=JOB",
        "SLURM_JOB_NAME=sims",
        "SLURM_JOB_NODELIST=a[1-3]",
        "SLURM_NODELIST=a[1-3]",
        "SLURM_JOB_NUM_NODES=3",
        "SLURM_NNODES=3",
        "SLURM_NTASKS=5",
        "SLURM_NTASKS_PER_NODE=2",
        "SLURM_TASKS_PER_NODE=2(x2),1",
        "SLURM_PROCID=0",
        "SLURM_LOCALID=0",
        "SLURM_NODEID=0",
        "SLURMD_NODENAME=a1",
        "SLURM_CLUSTER_NAME=a",
        "SLURM_JOB_PARTITION=a",
        "SLURM_JOB_ACCOUNT=physics",
        "SLURM_SUBMIT_DIR=DIR",
    ] {
        assert!(output.lines().any(|found| found == line), "no {line} in\n{output}");
    }
    let unnamed = output_of(&deployment, "#!/bin/sh\n#SBATCH -N 2\nenv | grep ^SLURM\n");
    let holds_on_one = |line: &&str| {
        ["SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURMD_"].iter().any(|name| line.starts_with(name))
    };
    assert_eq!(unnamed.lines().find(holds_on_one), None, "mpirun of MPICH would hand it on: {unnamed}");
    let mut command = deployment.command(&["run", "--slurm-env", "-N", "2", "-n", "2", "env"]);
    command.env("SLURM_JOB_ID", "99").env("SLURM_CONF", "/etc/slurm.conf");
    let tasks = deployment.finish(command).ok().stdout;
    for line in ["SLURM_PROCID=0", "SLURM_PROCID=1", "SLURM_NODEID=1", "SLURM_NTASKS=2"] {
        assert!(tasks.lines().any(|found| found == line), "no {line} in\n{tasks}");
    }
    assert!(!tasks.contains("SLURM_CONF") && tasks.lines().all(|line| line != "SLURM_JOB_ID=99"), "{tasks}");
    assert!(!deployment.rms(&["run", "env"]).ok().stdout.contains("SLURM_"));
}

#[test]
fn scratch_that_is_named_after_the_job_is_all_that_is_removed() {
    let deployment = Deployment::of_nodes(1);
    let scratch = deployment.path().join("scratch");
    fs::create_dir_all(scratch.join("of-another-job")).expect("ours");
    let clean = |variable: &str| {
        let dir = scratch.display();
        format!("#!/bin/sh\n#SBATCH -N 1\nSCRATCH={dir}/{variable}\nmkdir -p $SCRATCH/x\nrm -rf $SCRATCH\n")
    };
    output_of(&deployment, &clean("$SLURM_JOB_ID"));
    assert!(scratch.join("of-another-job").exists());
    let n_left = fs::read_dir(&scratch).expect("it is there").count();
    assert_eq!(n_left, 1);

    let unset = deployment.script("unset.sh", &clean("$SLURM_TMPDIR_OF_JOB"));
    let refused = deployment.rms(&["submit", &unset]).fails(2);
    assert!(refused.stderr.contains("unset.sh:3: SLURM_TMPDIR_OF_JOB"), "{refused:?}");
    let script = clean("$SLURM_JOB_ID").replace("#SBATCH", "#");
    let plain = deployment.script("plain.sh", &script);
    for arguments in [&["submit", plain.as_str()][..], &["run", &plain], &["submit", "--wrap", &script]] {
        let refused = deployment.rms(arguments).fails(2);
        assert!(refused.stderr.contains("SLURM_JOB_ID") && refused.stderr.contains("--slurm-env"), "{refused:?}");
    }
    assert!(scratch.join("of-another-job").exists());
    deployment.rms(&["run", "--slurm-env", &plain]).ok();
    assert!(scratch.join("of-another-job").exists());
}

#[test]
fn scripts_come_from_standard_input_and_directives_mean_what_sbatch_means() {
    let deployment = Deployment::of_nodes(2);
    let script = "#!/bin/sh\n#SBATCH --ntasks=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --output=o-%A-%s-%03j\n\
                  #SBATCH --export=ALL,X=1\n#SBATCH --mail-type=END\necho $SLURM_JOB_NUM_NODES $X\n";
    let submitted = deployment.rms_with_input(&["submit", "--json"], script).ok();
    assert!(submitted.stderr.contains("stdin:6: option --mail-type END is kept as a comment only"), "{submitted:?}");
    let job = submitted.json()["job"].as_u64().expect("a job");
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
    assert_eq!(read(&deployment, &format!("o-{job}-batch-{job:03}")), "2 1\n");

    let refused = |script: &str, part: &str| {
        let refused = deployment.rms_with_input(&["submit"], script);
        assert!(refused.code != 0 && refused.stderr.contains(part), "{script}: {refused:?}");
    };
    refused("#!/bin/sh\n#SBATCH -o out-%q\ntrue\n", "'%q', which stands for nothing");
    refused("#!/bin/sh\r\n#SBATCH -N 2\r\ntrue\r\n", "CRLF");
    refused("#!/bin/sh\n#SBATCH -p fast\ntrue\n", "there is no cluster 'fast'");
    refused(
        "#!/bin/sh\n#SBATCH -N 2 -n 4\n#SBATCH --ntasks-per-node=1\ntrue\n",
        "4 tasks are more than 1 on each of 2",
    );
    refused("", "empty");
}

#[test]
fn long_a_jobs_own_word_starts_it_again_after_its_node_was_lost() {
    let mut deployment = Deployment::builder().cluster("a", 2).config("[settings]\nnode_lost_after = \"1s\"").start();
    let job =
        deployment.submit(&["--requeue", "-o", "out", "--wrap", "echo run $RMS_RUN; [ $RMS_RUN = 2 ] || sleep 60"]);
    let queued = deployment.wait_for_state(job, "started");
    let node = queued["nodes"][0].as_str().expect("a node").to_owned();
    deployment.kill_agent(&node);
    let record = deployment.wait_for_end(job);
    assert_eq!((&record["outcome"]["word"], &record["run"]), (&"completed".into(), &2.into()), "{record}");
}

mod long {
    use super::*;

    fn mpirun_starts_ranks_on_all_nodes(mpi: Mpi) {
        let Some(hello) = build_or_skip(mpi, "hello") else { return };
        let mpirun = mpi.mpirun().expect("it comes with the compiler");
        let (hello, mpirun) = (hello.display(), mpirun.display());
        let deployment = Deployment::of_nodes(2);
        // The supervisor above a rank tells its node, whatever mpirun makes of its environment.
        let place = deployment.script(
            "place.sh",
            "#!/bin/sh\np=$$\nwhile [ \"$(cat /proc/$p/comm)\" != rms-supervisor ]; do p=$(cut -d' ' -f4 /proc/$p/stat); done\n\
             echo supervisor $p\n",
        );
        let script = format!("#!/bin/bash\n#SBATCH -N 2 -n 2\n{mpirun} -n 2 {hello}\n{mpirun} -n 2 {place}\n");
        let output = output_of(&deployment, &script);
        for rank in [" rank=0 ranks=2 ", " rank=1 ranks=2 "] {
            assert!(output.contains(rank), "no{rank}in {output}");
        }
        let mut supervisors: Vec<&str> = output.lines().filter(|line| line.starts_with("supervisor ")).collect();
        supervisors.sort_unstable();
        supervisors.dedup();
        assert_eq!(supervisors.len(), 2, "{output}");
        let direct = format!("#!/bin/bash\n#SBATCH -N 2 -n 2\n{hello}\n");
        assert!(output_of(&deployment, &direct).contains(" rank=0 ranks=1 "));
    }

    /// It calls the launcher that it is given as if that were srun.
    #[test]
    fn mpiexec_of_mpich_that_is_to_use_srun_starts_ranks_on_all_nodes() {
        let Some(hello) = build_or_skip(Mpi::Mpich, "hello") else { return };
        let mpiexec = Mpi::Mpich.mpirun().expect("it comes with the compiler");
        let (hello, mpiexec) = (hello.display(), mpiexec.display());
        let deployment = Deployment::of_nodes(2);
        let script = format!("#!/bin/bash\n#SBATCH -N 2 -n 2\n{mpiexec} -bootstrap slurm -n 2 {hello}\n");
        let output = output_of(&deployment, &script);
        for rank in [" rank=0 ranks=2 ", " rank=1 ranks=2 "] {
            assert!(output.contains(rank), "no{rank}in {output}");
        }
    }

    #[test]
    fn mpirun_of_open_mpi_goes_through_the_agents_though_it_sees_slurms_variables() {
        mpirun_starts_ranks_on_all_nodes(Mpi::OpenMpi);
    }

    #[test]
    fn mpirun_of_mpich_goes_through_the_agents_though_it_sees_slurms_variables() {
        mpirun_starts_ranks_on_all_nodes(Mpi::Mpich);
    }

    #[test]
    fn ranks_of_open_mpi_that_do_not_find_each_other_are_told_of() {
        let Some(hello) = build_or_skip(Mpi::OpenMpi, "hello") else { return };
        let hello = hello.display().to_string();
        let deployment = Deployment::of_nodes(2);
        let warned = |arguments: &[&str]| {
            let output = deployment.rms(&[&["run"], arguments].concat()).ok();
            let n_warnings = output.stderr.matches("do not find each other").count();
            assert!(n_warnings <= 1, "{output:?}");
            assert_eq!(n_warnings, output.stderr.matches("mpirun").count().min(1), "{output:?}");
            n_warnings == 1
        };
        assert!(warned(&["-N", "2", "-n", "4", &hello]));
        assert!(warned(&["-n", "2", "sh", "-c", &format!("{hello}; true")]));
        assert!(!warned(&["-n", "1", &hello]));
        assert!(!warned(&["-N", "2", "-n", "4", "sh", "-c", "sleep 0.5"]));
        assert!(!warned(&["-n", "2", "sh", "-c", &format!("mpirun.openmpi -n 1 {hello}")]));
        let step = format!("#!/bin/bash\n#SBATCH -N 2 -n 2\nsrun {hello}\nsrun -n 1 {hello}\n");
        let written = output_of(&deployment, &step);
        assert_eq!(written.matches("do not find each other").count(), 1, "{written}");
        if let Some(mpich) = build_or_skip(Mpi::Mpich, "hello") {
            assert!(!warned(&["-N", "2", "-n", "4", &mpich.display().to_string()]));
        }
    }
}
