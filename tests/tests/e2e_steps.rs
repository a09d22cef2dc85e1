//! Steps of jobs through real processes: `rms run` and `srun` inside of a job, on several agents.

mod long {
    use std::fs;
    use std::path::PathBuf;
    use std::time::Duration;

    use rms_tests::apps::{Mpi, build_or_skip};
    use serde_json::Value;
    use test_kit::{Deployment, is_alive, wait_until};

    const SOON: Duration = Duration::from_secs(40);

    fn two_nodes() -> Deployment {
        Deployment::builder().cluster("a", 2).start()
    }

    /// Runs a script as a job: how it ended, and what it wrote.
    fn ran(deployment: &Deployment, flags: &[&str], text: &str) -> (Value, String) {
        let job = submitted(deployment, flags, text);
        let record = deployment.wait_for_end(job);
        (record, written(deployment, job))
    }

    /// `$rms` is the command, in whichever directory it was built.
    fn submitted(deployment: &Deployment, flags: &[&str], text: &str) -> u64 {
        let text = format!("#!/bin/sh\nrms={}\n{text}\n", deployment.rms_program().display());
        let script = deployment.script("job.sh", &text);
        deployment.submit(&[flags, &[&script]].concat())
    }

    fn written(deployment: &Deployment, job: u64) -> String {
        fs::read_to_string(deployment.path().join(format!("rms-{job}.out"))).unwrap_or_default()
    }

    fn sorted(text: &str) -> Vec<&str> {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines
    }

    /// The process id that a task has written into a file.
    fn pid(deployment: &Deployment, name: &str) -> i32 {
        wait_until(&format!("a task to write {name}"), SOON, || {
            fs::read_to_string(deployment.path().join(name)).ok()?.trim().parse().ok()
        })
    }

    fn gone(what: &str, pid: i32) {
        wait_until(&format!("{what} to be gone"), SOON, || (!is_alive(pid)).then_some(()));
    }

    /// As in `MPI_Comm_spawn` with `MPI_ERRORS_RETURN`: the program hears of it and may go on.
    #[test]
    fn a_spawn_that_fails_in_a_step_ends_no_rank() {
        let deployment = two_nodes();
        let rank = "\
say() { printf '%s\\n' \"$*\" >&$PMI_FD; IFS= read -r answer <&$PMI_FD; }
say cmd=init pmi_version=1 pmi_subversion=1
if [ $PMI_RANK = 1 ]; then
    printf '%s\\n' mcmd=spawn nprocs=1 execname=true totspawns=1 spawnssofar=1 info_num=1 info_key_0=hostfile \
        info_val_0=missing >&$PMI_FD
    say endcmd; echo \"spawned: $answer\"
fi
say cmd=barrier_in
say cmd=finalize
echo rank $PMI_RANK has ended
";
        deployment.script("rank.bash", rank);
        let text = "$rms run -N2 -n2 bash rank.bash 2>&1; echo code $?";
        let (record, output) = ran(&deployment, &["-N2"], text);
        let lines = sorted(&output);
        assert!(lines.contains(&"code 0") && record["outcome"]["word"] == "completed", "{output}");
        assert!(lines.contains(&"rank 0 has ended") && lines.contains(&"rank 1 has ended"), "{output}");
        let told = lines.iter().find(|line| line.starts_with("rms: a spawn by rank 1 has failed")).expect(&output);
        assert!(told.contains("missing"), "{told}");
        assert!(lines.iter().any(|line| line.starts_with("spawned: cmd=spawn_result rc=-1")), "{output}");
    }

    #[test]
    fn input_that_no_task_reads_any_more_does_not_hold_up_who_writes_it() {
        let deployment = two_nodes();
        let text = "\
(head -c 4000000 /dev/zero; touch written) |
    $rms run -N1 -n2 sh -c '[ $RMS_TASK_ID = 0 ] || until [ -e written ]; do sleep 0.1; done'; echo code $?
";
        assert_eq!(ran(&deployment, &["-N1", "-t", "1m"], text).1, "code 0\n");
    }

    #[test]
    fn steps_run_on_the_nodes_of_their_job_one_after_the_other() {
        let deployment = two_nodes();
        let text = "\
$rms run sh -c 'echo task $RMS_TASK_ID of $RMS_N_TASKS on $RMS_NODE_NAME, job $RMS_JOB_ID, step $RMS_STEP_ID'
$rms run -n 1 sh -c 'exit 5'; echo code $?
$rms run -n 3 sh -c 'exit $RMS_TASK_ID'; echo code $?
$rms run -N 1 -n 1 sh -c 'kill -9 $$' 2>/dev/null; echo code $?
$rms run -w a2 sh -c 'echo one on $RMS_NODE_NAME of $RMS_NODELIST, task $RMS_TASK_ID $RMS_LOCAL_ID, node $RMS_NODE_ID'
$rms run -N 3 true; echo code $?
$rms run --mem 1G true; echo code $?
$rms run /no/such/program; echo code $?
for interpreter in /no/such/shell /etc/passwd; do printf \"#!$interpreter\\n\" > odd; chmod +x odd; $rms run -n 1 ./odd; done; true";
        let (record, output) = ran(&deployment, &["-N", "2", "-n", "2", "-e", "errors"], text);
        let job = record["job"].clone();
        let mut lines: Vec<String> = output.lines().map(str::to_owned).collect();
        lines[..2].sort();
        let expected = [
            format!("task 0 of 2 on a1, job {job}, step 0"),
            format!("task 1 of 2 on a2, job {job}, step 0"),
            "code 5".to_owned(),
            "code 2".to_owned(),
            "code 137".to_owned(),
            "one on a2 of a2, task 0 0, node 0".to_owned(),
            "code 1".to_owned(),
            "code 2".to_owned(),
            "code 125".to_owned(),
        ];
        assert_eq!(lines, expected);
        let errors = fs::read_to_string(deployment.path().join("errors")).expect("a file");
        for told in [
            "asks for 3 nodes, but 2 of job",
            "--mem is not possible for a step",
            "cannot execute '/no/such/program'",
            "its first line names /no/such/shell, which is not there",
            "its first line names /etc/passwd, which may not be executed",
        ] {
            assert!(errors.contains(told), "no '{told}' in: {errors}");
        }
        assert_eq!(record["outcome"]["word"], "completed");
        let jobs = deployment.rms(&["history", "--json"]).ok().json();
        assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "no step is a job: {jobs}");
    }

    #[test]
    fn steps_run_side_by_side_and_spread_over_the_nodes() {
        let deployment = two_nodes();
        // Each waits for the other: one after the other they would wait for ever.
        let text = "\
one='touch one; until [ -e two ]; do sleep 0.02; done; echo $RMS_NODE_NAME'
two='touch two; until [ -e one ]; do sleep 0.02; done; echo $RMS_NODE_NAME'
$rms run -n 1 sh -c \"$one\" & $rms run -n 1 sh -c \"$two\" & wait
echo both";
        let (_, output) = ran(&deployment, &["-N", "2", "-t", "60s"], text);
        assert_eq!(sorted(&output), ["a1", "a2", "both"]);
    }

    #[test]
    fn exclusive_steps_wait_for_each_other() {
        let deployment = two_nodes();
        let text = "\
step='mkdir alone || echo TWO AT ONCE; sleep 0.3; rmdir alone; echo done'
$rms run --exclusive -N 2 --tasks-per-node 1 -c $RMS_CPUS_ON_NODE sh -c 'sleep 0.2' &
$rms run --exclusive -n 1 -c $RMS_CPUS_ON_NODE -w a1 sh -c \"$step\" &
$rms run --exclusive -n 1 -c $RMS_CPUS_ON_NODE -w a1 sh -c \"$step\" & wait";
        let (_, output) = ran(&deployment, &["-N", "2", "-t", "60s", "-e", "errors"], text);
        assert_eq!(output, "done\ndone\n");
        let errors = fs::read_to_string(deployment.path().join("errors")).expect("a file");
        assert!(errors.contains("it waits for CPUs that other steps of the job have"), "{errors}");
    }

    #[test]
    fn jobs_that_fill_the_cluster_do_not_wait_for_their_own_steps() {
        let deployment = two_nodes();
        let text = "until [ $(ls started.* 2>/dev/null | wc -l) = 2 ]; do touch started.$RMS_JOB_ID; sleep 0.02; done
$rms run -n 1 echo stepped";
        let jobs = [1, 2].map(|_| submitted(&deployment, &["-N", "1", "-t", "60s"], text));
        for job in jobs {
            assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "completed");
            assert_eq!(written(&deployment, job), "stepped\n");
        }
    }

    #[test]
    fn a_new_job_is_made_where_that_is_said() {
        let deployment = two_nodes();
        let text = "unset XDG_STATE_HOME XDG_CONFIG_HOME; export HOME=/nonexistent
$rms run --new-job -N 1 sh -c 'echo $RMS_JOB_ID $RMS_STEP_ID.'";
        let (record, output) = ran(&deployment, &["-N", "1", "-t", "60s"], text);
        let other: u64 = output.trim().trim_end_matches(" .").parse().expect("another job, and no step");
        assert_ne!(record["job"], other, "{output}");
    }

    #[test]
    fn a_step_has_what_its_script_has_set_input_and_labels() {
        let deployment = two_nodes();
        let text = "\
export LEVEL='3 4' RMS_TASK_ID=77; unset GONE
mkdir -p sub; umask 027
$rms run -N 2 -l sh -c 'echo $LEVEL ${GONE-unset} $RMS_TASK_ID $(umask)'
$rms run -D sub -n 1 pwd
$rms run --export=ONLY=1 -n 1 sh -c 'echo ${ONLY} ${LEVEL-none} $HOME'
printf 'one\\ntwo\\n' | $rms run -N 2 cat
$rms run -n 1 -i job.sh head -n 1 | cat
head -c 3000000 /dev/zero | $rms run -n 1 wc -c
$rms run -n 1 head -c 3000000 /dev/zero | wc -c
$rms run -n 1 sh -c 'yes line | head -n 200000' | sort -u
$rms run --json -n 1 sh -c 'echo out; echo err >&2; exit 3'";
        let job = {
            let text = format!("#!/bin/sh\nrms={}\n{text}\n", deployment.rms_program().display());
            let script = deployment.script("job.sh", &text);
            let mut submit = deployment.command(&["submit", "--json", "-N", "2", "-t", "60s", &script]);
            submit.env("GONE", "there").env("LEVEL", "0");
            deployment.finish(submit).ok().json()["job"].as_u64().expect("a job")
        };
        deployment.wait_for_end(job);
        let output = written(&deployment, job);
        let lines: Vec<&str> = output.lines().collect();
        let mut first = lines[..2].to_vec();
        first.sort_unstable();
        assert_eq!(first, ["0: 3 4 unset 0 0027", "1: 3 4 unset 1 0027"]);
        let sub = deployment.path().canonicalize().expect("it is there").join("sub").display().to_string();
        assert_eq!(lines[2], sub);
        assert!(lines[3].starts_with("1 none /"), "{output}");
        assert_eq!(lines[4..10], ["one", "two", "#!/bin/sh", "3000000", "3000000", "line"]);
        let told: Value = serde_json::from_str(lines[10]).expect("one value");
        assert_eq!((&told["stdout"], &told["stderr"], &told["exit"]), (&"out\n".into(), &"err\n".into(), &3.into()));
    }

    #[test]
    fn what_a_script_limits_is_limited_for_all_that_it_starts() {
        let deployment = two_nodes();
        let rsh = test_kit::binaries().dir.join("rms-rsh");
        let text = format!(
            "\
umask 027; ulimit -Sn 77; ulimit -Ss 4096; ulimit -Sc 0
ask='echo $(umask) $(ulimit -n) $(ulimit -s)'
$rms run -N 2 sh -c \"$ask\"
for node in a1 a2; do {} $node \"$ask\"; done",
            rsh.display()
        );
        let (_, output) = ran(&deployment, &["-N", "2", "-t", "60s"], &text);
        assert_eq!(output, "0027 77 4096\n".repeat(4));
    }

    #[test]
    fn a_signal_ends_the_step_and_not_the_job() {
        let deployment = two_nodes();
        for (signal, code) in [("INT", 130), ("TERM", 143), ("KILL", 137)] {
            // One of its tasks has begun a session of its own, and one has left a child behind.
            let text = format!(
                "\
$rms run -N 2 sh -c 'echo $$ > pid.$RMS_NODE_NAME.{signal}; setsid sleep 60 & echo $! > child.$RMS_NODE_NAME.{signal}; wait' & step=$!
until [ -s child.a1.{signal} -a -s child.a2.{signal} ]; do sleep 0.02; done
kill -{signal} $step; wait $step; echo code $?
until ! kill -0 $(cat pid.a1.{signal}) 2>/dev/null; do sleep 0.02; done
$rms run -n 1 echo goes on"
            );
            let (record, output) = ran(&deployment, &["-N", "2", "-t", "60s", "-e", "errors"], &text);
            assert_eq!(output, format!("code {code}\ngoes on\n"), "{signal}");
            assert_eq!(record["outcome"]["word"], "completed");
            for file in ["pid.a1", "pid.a2", "child.a1", "child.a2"] {
                gone(file, pid(&deployment, &format!("{file}.{signal}")));
            }
        }
    }

    #[test]
    fn what_tasks_leave_in_a_session_of_its_own_ends_with_their_step() {
        let deployment = two_nodes();
        // The second step must not be taken for the first one.
        let text = "\
$rms run -N 2 sh -c 'setsid sleep 60 & echo $! > left.$RMS_NODE_NAME; sleep 0.3' & left=$!
$rms run -N 2 sh -c '(setsid sh -c \"sleep 3; echo ended by itself\" &); sleep 5'
wait $left
for pid in $(cat left.a1 left.a2); do kill -0 $pid 2>/dev/null && echo $pid is left; done
exit 0";
        let (record, output) = ran(&deployment, &["-N", "2", "-t", "60s", "-e", "errors"], text);
        assert_eq!(output, "ended by itself\nended by itself\n");
        assert_eq!(record["outcome"]["word"], "completed");
    }

    #[test]
    fn a_step_that_ignores_term_is_killed_and_its_time_may_be_limited() {
        let deployment = Deployment::builder().cluster("a", 2).config("[settings]\nkill_grace = \"1s\"").start();
        let text = "\
$rms run -N 2 -t 1s sh -c 'trap : TERM; echo $$ > deaf.$RMS_NODE_NAME; while :; do sleep 0.1; done'
echo code $?";
        let (record, output) = ran(&deployment, &["-N", "2", "-t", "60s", "-e", "errors"], text);
        assert_eq!(output, "code 137\n");
        assert_eq!(record["outcome"]["word"], "completed");
        for file in ["deaf.a1", "deaf.a2"] {
            gone(file, pid(&deployment, file));
        }
    }

    #[test]
    fn a_step_may_take_longer_to_end_than_its_agent_to_answer() {
        let deployment = Deployment::builder().cluster("a", 1).config("[settings]\nkill_grace = \"6s\"").start();
        let text = "\
$rms run -n 1 sh -c 'trap : TERM; echo $$ > deaf; while :; do sleep 0.1; done' & step=$!
until [ -s deaf ]; do sleep 0.02; done
kill -TERM $step; wait $step; echo code $?";
        let (_, output) = ran(&deployment, &["-N", "1", "-t", "60s", "-e", "errors"], text);
        assert_eq!(output, "code 137\n");
    }

    #[test]
    fn the_end_of_the_job_reaches_its_steps() {
        let deployment = two_nodes();
        let text = "$rms run -N 2 sh -c 'echo $$ > of.$RMS_NODE_NAME; exec sleep 60'";
        let job = submitted(&deployment, &["-N", "2", "-t", "60s"], text);
        let pids = ["of.a1", "of.a2"].map(|file| pid(&deployment, file));
        deployment.rms(&["cancel", &job.to_string()]).ok();
        assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "cancelled");
        pids.into_iter().for_each(|pid| gone("a task", pid));

        // A script that ends leaves no step behind.
        let text = "$rms run -N 2 sh -c 'echo $$ > left.$RMS_NODE_NAME; exec sleep 60' & until [ -s left.a2 ]; do sleep 0.02; done";
        let (record, _) = ran(&deployment, &["-N", "2", "-t", "60s"], text);
        assert_eq!(record["outcome"]["word"], "completed");
        gone("a task", pid(&deployment, "left.a2"));
    }

    #[test]
    fn tasks_of_a_step_get_one_term_when_their_job_ends() {
        let deployment = two_nodes();
        // The caller of the step gets TERM as well, and ends its step by that.
        let text = "\
exec $rms run -N 2 -n 4 sh -c 'trap \"echo term >> terms.$RMS_TASK_ID\" TERM; echo $$ > of.$RMS_TASK_ID
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do sleep 0.05; done'";
        for _ in 0..3 {
            let job = submitted(&deployment, &["-N", "2", "-t", "60s"], text);
            let tasks = ["0", "1", "2", "3"];
            let pids = tasks.map(|task| pid(&deployment, &format!("of.{task}")));
            deployment.rms(&["cancel", &job.to_string()]).ok();
            deployment.wait_for_end(job);
            pids.into_iter().for_each(|pid| gone("a task", pid));
            for task in tasks {
                let terms = fs::read_to_string(deployment.path().join(format!("terms.{task}"))).unwrap_or_default();
                assert_eq!(terms, "term\n", "task {task}");
                for file in ["terms", "of"] {
                    fs::remove_file(deployment.path().join(format!("{file}.{task}"))).expect("it was written");
                }
            }
        }
    }

    #[test]
    fn what_another_node_runs_here_outlives_the_tasks_of_this_node() {
        let deployment = two_nodes();
        let rms = deployment.rms_program().display();
        let rsh = test_kit::binaries().dir.join("rms-rsh");
        for (name, runs_there) in
            [("step", format!("{rms} run -w a2 -n 1")), ("command", format!("{} a2", rsh.display()))]
        {
            let there = format!("#!/bin/sh\necho $$ > {name}.pid; sleep 0.6; echo whole >> {name}\n");
            let there = deployment.script(&format!("{name}-there.sh"), &there);
            let task = format!(
                "#!/bin/sh\n\
                 if [ $RMS_TASK_ID = 0 ]; then\n\
                 {runs_there} {there} 2>> {name}; echo code $? >> {name}\n\
                 {runs_there} true 2>> {name}; echo code $? >> {name}\n\
                 else until [ -s {name}.pid ]; do sleep 0.02; done; fi\n"
            );
            let task = deployment.script(&format!("{name}.sh"), &task);
            deployment.rms(&["run", "-N", "2", "-n", "2", &task]).ok();
            let told = fs::read_to_string(deployment.path().join(name)).expect("it was written");
            assert!(told.starts_with("whole\ncode 0\n"), "{name}: {told}");
            // Nothing more can be run there; the node may be about to say so, or its supervisor has just left.
            let refusals = [
                "the job runs nothing on a2 any more: its tasks there have ended",
                "the job is ending",
                "the job has ended on a2, or its supervisor there is gone",
            ];
            assert!(refusals.iter().any(|refusal| told.contains(refusal)), "{name}: {told}");
        }
    }

    #[test]
    fn a_node_does_not_stay_for_a_command_whose_caller_is_gone() {
        let mut deployment = two_nodes();
        let rsh = test_kit::binaries().dir.join("rms-rsh");
        let there = deployment
            .script("there.sh", "#!/bin/sh\ntrap '' TERM\necho $$ > there.pid\nsleep 300 & wait\nsleep 300\n");
        let task = format!(
            "#!/bin/sh\n\
             [ $RMS_TASK_ID = 1 ] || exec {} a2 {there}\n\
             until [ -s there.pid ]; do sleep 0.02; done\n\
             echo $$ > task.pid\n",
            rsh.display()
        );
        let task = deployment.script("task.sh", &task);
        let mut run = deployment.command(&["run", "-q", "-N", "2", "-n", "2", &task]).spawn().expect("it starts");
        let there = pid(&deployment, "there.pid");
        gone("the task there", pid(&deployment, "task.pid"));
        deployment.kill_agent("a2");
        deployment.restart_agent("a2");
        // The caller fails as its agent has lost the other, and the command is not waited for.
        let code = run.wait().expect("it ends").code();
        assert_eq!(code, Some(255));
        gone("the command", there);
    }

    #[test]
    fn an_agent_that_is_killed_ends_its_steps_and_harms_no_job() {
        for lost in ["a1", "a2"] {
            let mut deployment = two_nodes();
            let text = "\
$rms run -N 2 sh -c 'echo $$ > of.$RMS_NODE_NAME; exec sleep 60'; echo code $?
$rms run -N 2 sh -c 'echo again $RMS_STEP_ID'";
            let job = submitted(&deployment, &["-N", "2", "-t", "60s", "-e", "errors"], text);
            let pids = ["of.a1", "of.a2"].map(|file| pid(&deployment, file));
            deployment.kill_agent(lost);
            // As a service manager does: the next step waits for its agent, but not for ever.
            deployment.restart_agent(lost);
            pids.into_iter().for_each(|pid| gone("a task", pid));
            let record = deployment.wait_for_end(job);
            let errors = fs::read_to_string(deployment.path().join("errors")).expect("a file");
            assert_eq!(record["outcome"]["word"], "completed", "{lost}: {errors}");
            assert_eq!(written(&deployment, job), "code 125\nagain 1\nagain 1\n", "{lost}: no number comes twice");
            let told = if lost == "a1" { "the job goes on" } else { "node a2: lost its agent" };
            assert!(errors.contains(told), "{lost}: {errors}");
        }
    }

    #[test]
    fn a_step_that_leaves_writers_or_asks_for_too_much_harms_nobody() {
        let deployment = two_nodes();
        let text = "\
$rms run -n 1 sh -c 'yes & yes & exit 3' > /dev/null; echo code $?
$rms run -O -n 4000000000 true; echo code $?
$rms run --exclusive -N 2 -n 4 sh -c 'echo > begun; sleep 2' & first=$!
while [ ! -e begun ]; do sleep 0.05; done
$rms run --exclusive -N 2 -n 2 echo ran & second=$!
sleep 1; kill -USR1 $second; wait $second; echo code $?; wait $first";
        let flags = ["-N", "2", "-n", "4", "-c", "1", "-t", "60s", "-e", "errors"];
        let (_, output) = ran(&deployment, &flags, text);
        let errors = fs::read_to_string(deployment.path().join("errors")).expect("a file");
        assert_eq!(output, "code 3\ncode 1\nran\nran\ncode 0\n", "{errors}");
        assert!(errors.contains("at most 4096"), "{errors}");
    }

    #[test]
    fn srun_in_a_script_for_slurm_is_a_step() {
        let deployment = two_nodes();
        let text = "\
srun -l sh -c 'echo $RMS_TASK_ID $RMS_STEP_ID' | sort
srun -N1 -n1 -c2 --mpi=none --cpu-bind=cores --exclusive sh -c 'echo one, $SLURM_CPUS_PER_TASK'
echo in | srun -n 2 cat
srun -o step-%s-%t.%N -e none sh -c 'echo to a file; echo lost >&2'; cat step-3-0.a1 step-3-1.a2
srun -o /no/such/dir/x true; srun -o /no/such/dir/x echo; echo code $?
srun -p fast -K0 --mem=1G --jobid=$SLURM_JOB_ID -n 1 echo idle; srun --jobid=1000000 true; echo code $?
srun --pty bash; echo code $?
srun --multi-prog x; echo code $?
srun -n 2 -K sh -c '[ $RMS_TASK_ID = 1 ] || exec sleep 60; exit 4'; echo code $?";
        let script = deployment.script("job.sh", &format!("#!/bin/sh\n#SBATCH -N 2 -t 1 -e errors\n{text}\n"));
        let job = deployment.submit(&[&script]);
        deployment.wait_for_end(job);
        let output = written(&deployment, job);
        assert_eq!(
            output,
            "0: 0 0\n1: 1 0\none, 2\nin\nin\nto a file\nto a file\ncode 1\nidle\ncode 2\ncode 2\ncode 2\ncode 143\n"
        );
        let errors = fs::read_to_string(deployment.path().join("errors")).expect("a file");
        for told in [
            "--cpu-bind has no effect",
            "/no/such/dir/x cannot be written",
            "--partition=fast has no effect",
            "--mem=1G has no effect",
            "--jobid=1000000 is not possible",
            "--pty is not possible",
            "--multi-prog",
            "task 1 on a2 exited with code 4",
        ] {
            assert!(errors.contains(told), "no '{told}' in: {errors}");
        }
        let (_, output) = ran(&deployment, &["-N", "1"], "command -v srun; echo code $?");
        assert!(output.contains("code 1") || output.contains("code 127"), "no srun elsewhere: {output}");
    }

    #[test]
    fn srun_reads_options_from_its_environment() {
        let deployment = two_nodes();
        let text = "\
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK SLURM_KILL_BAD_EXIT=1
srun sh -c 'echo $SLURM_CPUS_PER_TASK'
srun -c 1 sh -c 'echo $SLURM_CPUS_PER_TASK'
SLURM_NTASKS=1 SLURM_LABELIO=1 srun echo one
SLURM_NNODES=1 srun -n 1 sh -c 'echo $SLURM_STEP_NUM_NODES'
SLURM_EXACT=1 srun --overlap -n 1 echo overlaps
srun sh -c '[ $RMS_TASK_ID = 1 ] || exec sleep 60; exit 4'; echo code $?
SRUN_CPUS_PER_TASK=x srun true; echo code $?";
        let script =
            deployment.script("job.sh", &format!("#!/bin/sh\n#SBATCH -N 2 -n 2 -c 2 -t 1 -e errors\n{text}\n"));
        let job = deployment.submit(&[&script]);
        deployment.wait_for_end(job);
        let errors = fs::read_to_string(deployment.path().join("errors")).expect("a file");
        let output = written(&deployment, job);
        assert_eq!(output, "2\n2\n1\n1\n0: one\n1\noverlaps\ncode 143\ncode 2\n", "{errors}");
        assert!(errors.contains("'x' for '--cpus-per-task"), "{errors}");
    }

    #[test]
    fn rms_works_inside_of_every_job() {
        let deployment = two_nodes();
        let home = deployment.path().join("home");
        fs::create_dir(&home).expect("made");
        let text = "\
export HOME=$PWD/home; unset XDG_STATE_HOME XDG_CONFIG_HOME RMS_DIR
$rms show $RMS_JOB_ID --json | grep -c '\"name\"'
$rms explain $RMS_JOB_ID >/dev/null; echo explain $?
$rms queue --me -q
$rms show -q; $rms explain -q >/dev/null; echo explain $?; $rms masks last >/dev/null; echo masks $?
$rms logs $RMS_JOB_ID | grep -c explain
$rms show 99 2>/dev/null; echo other $?
RMS_DIR=/nowhere $rms show -q
$rms wait 2>/dev/null; echo wait $?
$rms submit --wrap true 2>&1 | grep -c RMS_DIR
$rms cancel $RMS_JOB_ID; sleep 60";
        let (record, output) = ran(&deployment, &["-N", "1", "-t", "60s", "-e", "errors"], text);
        let errors = fs::read_to_string(deployment.path().join("errors")).expect("a file");
        let job = record["job"].clone();
        let expected = format!("1\nexplain 0\n{job}\n{job}\nexplain 0\nmasks 0\n2\nother 1\n{job}\nwait 2\n1\n");
        assert!(output.starts_with(&expected), "{output} {errors}");
        assert_eq!(record["outcome"]["word"], "cancelled", "{errors}");
        // Nobody asks for keys that nobody uses.
        ran(&deployment, &["-N", "1"], "ls -A $(dirname $RMS_AGENT_SOCKET)/spool/keys | wc -l");
        let keys = deployment.agent_dir("a1").join("spool/keys");
        let left: Vec<PathBuf> = fs::read_dir(keys).expect("it is there").flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    fn mpich(name: &str) -> Option<String> {
        Some(build_or_skip(Mpi::Mpich, name)?.display().to_string())
    }

    #[test]
    fn a_program_of_open_mpi_in_a_step_is_told_that_it_is_alone() {
        let Some(hello) = build_or_skip(Mpi::OpenMpi, "hello") else { return };
        let deployment = two_nodes();
        let text = format!("$rms run -N 2 -n 2 sh -c '{} && sleep 1'; $rms run -n 2 hostname", hello.display());
        ran(&deployment, &["-N", "2", "-t", "60s", "-e", "errors"], &text);
        let errors = fs::read_to_string(deployment.path().join("errors")).expect("a file");
        assert_eq!(errors.matches("do not find each other").count(), 1, "{errors}");
    }

    #[test]
    fn ranks_of_a_step_find_each_other_and_may_spawn() {
        let (Some(hello), Some(spawn), Some(abort)) = (mpich("hello"), mpich("spawn"), mpich("abort")) else { return };
        let deployment = two_nodes();
        let text = format!(
            "\
$rms run -N 2 -n 2 {hello} & $rms run -N 2 -n 2 {hello} & wait
$rms run -N 2 -n 2 {spawn} 1 1 a2
timeout 30 $rms run -N 2 -n 2 {abort}; echo code $?
$rms run -N 2 echo not MPI"
        );
        let (_, output) = ran(&deployment, &["-N", "2", "-n", "2", "-t", "100s"], &text);
        let hellos = output.lines().filter(|line| line.starts_with("hello ") && line.contains("ranks=2")).count();
        assert_eq!(hellos, 4, "{output}");
        assert!(output.contains("node=a2"), "{output}");
        assert!(output.contains("children=1 refused=0"), "{output}");
        assert!(output.contains("code 9\n"), "{output}");
        assert!(output.ends_with("not MPI\nnot MPI\n"), "{output}");
    }
}
