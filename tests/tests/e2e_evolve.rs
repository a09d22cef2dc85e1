//! Applications whose needs change, with real agents and processes: they grow, shrink, and outlive what is killed.

use std::fs;
use std::time::Duration;

use rms_tests::sdk::{Language, Linkage, sdk};
use test_kit::{Deployment, example, wait_until};

const SOON: Duration = Duration::from_secs(40);

fn log(deployment: &Deployment) -> String {
    fs::read_to_string(deployment.path().join("log")).unwrap_or_default()
}

/// Waits until the log has a line that begins so.
fn wait_for_line(deployment: &Deployment, start: &str) {
    wait_until(start, SOON, || log(deployment).lines().any(|line| line.starts_with(start)).then_some(()));
}

/// A script that looks at its hostfile at each generation, and does `at_each` then.
fn watcher(deployment: &Deployment, profile: &str, at_each: &str) -> String {
    let log = deployment.path().join("log");
    let text = format!(
        "#!/bin/sh\n#RMS --profile {profile}\nseen=0\nwhile :; do\n  generation=$(cat $RMS_GENERATION_FILE)\n  \
         if [ $generation != $seen ]; then\n    seen=$generation\n    \
         echo generation $generation: $(grep -v '^#' $RMS_HOSTFILE | cut -d' ' -f1) >> {0}\n    {at_each}\n  fi\n  \
         sleep 0.1\ndone\n",
        log.display()
    );
    deployment.script("watch.sh", &text)
}

#[test]
fn long_a_script_grows_and_shrinks_while_its_server_is_killed() {
    let mut deployment = Deployment::builder().cluster("a", 4).start();
    let log_file = deployment.path().join("log");
    let at_each = format!(
        "case $generation in\n      2) $OMPI_MCA_plm_rsh_agent a3 'echo on $RMS_NODE_NAME of $RMS_NNODES' >> {} ;;\n      \
         3) sleep 0.5; exit 0 ;;\n    esac",
        log_file.display()
    );
    let script = watcher(&deployment, "1x6s,3x6s,2x30s --expand 4", &at_each);
    let job = deployment.submit(&[&script]);
    wait_for_line(&deployment, "generation 1: a1");
    deployment.kill_server();
    deployment.start_server();
    wait_for_line(&deployment, "generation 2: a1 a2 a3");
    wait_for_line(&deployment, "on a3 of 3");
    let line = deployment.queued(job).expect("it runs");
    assert_eq!((&line["stages"]["number"], &line["stages"]["count"]), (&2.into(), &3.into()), "{line}");
    let explained = deployment.rms(&["explain", &job.to_string()]).ok();
    assert!(explained.stdout.contains("stage 2 of 3"), "{explained:?}");
    deployment.kill_server();
    deployment.start_server();
    wait_for_line(&deployment, "generation 3: a1 a2");
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "completed", "{record}");
    let held: Vec<&serde_json::Value> =
        record["stages_held"].as_array().expect("stages").iter().map(|stage| &stage["nodes"]).collect();
    assert_eq!(held, [1, 3, 2]);
}

#[test]
fn long_tasks_grow_with_numbers_of_their_own_though_an_agent_is_killed() {
    let mut deployment = Deployment::builder().cluster("a", 2).start();
    let dir = deployment.path().display().to_string();
    let program = format!("echo task $RMS_TASK_ID on $RMS_NODE_NAME >> {dir}/log; sleep 300");
    let mut command = deployment.command(&["run", "--profile", "1x4s,2x3s,1x2s,2x4s", "sh", "-c", &program]);
    let mut client = command.spawn().expect("a client");
    wait_for_line(&deployment, "task 0 on a1");
    deployment.kill_agent("a2");
    deployment.restart_agent("a2");
    wait_for_line(&deployment, "task 1 on a2");
    deployment.kill_agent("a2");
    deployment.restart_agent("a2");
    wait_for_line(&deployment, "task 2 on a2");
    let code = client.wait().expect("it ends").code();
    assert_ne!(code, Some(0), "its course was over before its tasks");
    assert_eq!(log(&deployment).lines().count(), 3, "{}", log(&deployment));
    let record = deployment.record(1).expect("it has ended");
    assert_eq!(record["outcome"]["word"], "timeout", "{record}");
}

#[test]
fn long_what_does_not_leave_a_freed_node_is_killed_and_counted() {
    let deployment =
        Deployment::builder().cluster("a", 4).config("[settings]\nkill_grace = \"1s\"\nrelease_grace = \"5s\"").start();
    let at_each = "[ $generation = 1 ] && for node in a2 a3; do $OMPI_MCA_plm_rsh_agent $node \"trap '' TERM; sleep 1000\" & done";
    let script = watcher(&deployment, "3x4s,1x60s --open", at_each);
    let job = deployment.submit(&[&script]);
    wait_for_line(&deployment, "generation 1: a1 a2 a3");
    let text = job.to_string();
    let refused = deployment.rms(&["free", &text, "a1"]).fails(1);
    assert!(refused.stderr.contains("first node"), "{refused:?}");
    deployment.rms(&["free", &text, "a2"]).ok();
    wait_for_line(&deployment, "generation 2: a1");
    let stages = wait_until("the nodes to be free", SOON, || {
        let line = deployment.queued(job).expect("it runs");
        line["stages"]["leaving"].as_array().is_some_and(Vec::is_empty).then(|| line["stages"].clone())
    });
    assert_eq!(stages["violations"], 2, "{stages}");

    // It may be extended, but not beyond what there is.
    let refused = deployment.rms(&["evolve", &text, "--profile", "1x10m,9x1m"]).fails(1);
    assert!(refused.stderr.contains("stage 2 needs 9 nodes"), "{refused:?}");
    deployment.rms(&["evolve", &text, "--profile", "1x1s,2x10m"]).ok();
    wait_for_line(&deployment, "generation 3: a1 a");
    deployment.rms(&["cancel", &text]).ok();
    assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "cancelled");
}

/// 000: the application tells its stages, with the credentials that its node has placed and no others.
#[test]
fn long_a_job_with_a_profile_announces_its_stages_and_frees_its_nodes_by_itself() {
    let deployment = Deployment::builder().cluster("a", 3).start();
    let rms = deployment.rms_program().display();
    let text = format!(
        "#!/bin/sh\n#RMS --profile 3x2s,2x60s\nunset RMS_DIR\nexport HOME=/nonexistent\n\
         {rms} free $RMS_JOB_ID a2 >> log 2>&1 || exit 3\n\
         while [ $(cat $RMS_GENERATION_FILE) = 1 ]; do sleep 0.1; done\n\
         echo left: $(grep -v '^#' $RMS_HOSTFILE | cut -d' ' -f1) >> log\n\
         {rms} evolve $RMS_JOB_ID --profile 2x2s,1x60s >> log 2>&1 || exit 4\n\
         {rms} evolve 999 --profile 2x9s >> log 2>&1 && exit 5\n\
         while [ $(cat $RMS_GENERATION_FILE) = 2 ]; do sleep 0.1; done\n\
         echo then: $(grep -v '^#' $RMS_HOSTFILE | cut -d' ' -f1) >> log\n"
    );
    let script = deployment.script("stages.sh", &text);
    let job = deployment.submit(&[&script]);
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "completed", "{record}: {}", log(&deployment));
    let log = log(&deployment);
    assert!(log.contains("left: a1 a3\n") && log.contains("then: a1\n"), "{log}");
    assert!(log.contains("a process of job"), "another job is none of its business: {log}");
}

/// 000: a process of the job negotiates for it, and is told of each stage; what it asks for beside them is refused.
#[test]
fn long_a_program_of_the_sdk_sees_each_stage_though_its_server_is_killed() {
    let mut deployment = Deployment::builder().cluster("a", 4).start();
    let program = example("elastic");
    let text = format!(
        "#!/bin/sh\n#RMS --profile 1x5s,3x10s,2x60s\n{0} 1-4 grow 1 > refused 2>&1\nexec {0} 1-4 >> log 2>&1\n",
        program.display()
    );
    let script = deployment.script("elastic.sh", &text);
    let job = deployment.submit(&[&script]);
    wait_for_line(&deployment, "begins on a1");
    deployment.kill_server();
    deployment.start_server();
    wait_for_line(&deployment, "generation 2: grown to a1 a2 a3");
    wait_for_line(&deployment, "leaves a3");
    let explained = deployment.rms(&["show", &job.to_string(), "--json"]).ok();
    assert!(explained.stdout.contains("\"a3\""), "it is named before the stage is over: {}", explained.stdout);
    wait_until("the third stage", SOON, || (deployment.queued(job)?["stages"]["number"] == 3).then_some(()));
    fs::write(deployment.path().join("stop"), "").expect("the directory is ours");
    let record = deployment.wait_for_end(job);
    assert_eq!(record["outcome"]["word"], "completed", "{record}: {}", log(&deployment));
    let log = log(&deployment);
    assert!(log.ends_with("ends on a1 a2\n") && !log.contains("lost"), "{log}");
    let refused = fs::read_to_string(deployment.path().join("refused")).expect("it was written");
    assert!(refused.contains(&format!("'rms evolve {job}' announces others")), "{refused}");
}

/// The same in C and Fortran, at a breakpoint: on nodes that came work begins, and none is cut off on nodes that go.
#[test]
fn long_breakpoints_in_c_and_fortran_tell_the_stages() {
    let deployment = Deployment::builder().cluster("a", 4).start();
    let dir = deployment.path().display();
    let piece = deployment
        .script("piece.sh", &format!("#!/bin/sh\necho piece $2 of $3 on $RMS_NODE_NAME >> {dir}/pieces\nsleep 0.2\n"));
    let programs = [(Language::C, "examples/steps.c"), (Language::Fortran, "examples/malleable.f90")];
    for (language, source) in programs {
        let program = deployment.path().join("program");
        if !sdk().compile(language, source, Linkage::Shared, &program) {
            continue;
        }
        let _ = fs::remove_file(deployment.path().join("log"));
        let text = format!(
            "#!/bin/sh\n#RMS --profile 1x4s,3x12s,2x30s\ncd {dir}\nexport GFORTRAN_UNBUFFERED_ALL=1\n\
             exec {} 1000000 {piece} >> log 2>&1\n",
            program.display()
        );
        let script = deployment.script("job.sh", &text);
        let job = deployment.submit(&[&script]);
        wait_for_line(&deployment, "generation 2: 3 nodes");
        wait_for_line(&deployment, "generation 2: 2 nodes");
        wait_until("the third stage", SOON, || (deployment.queued(job)?["stages"]["number"] == 3).then_some(()));
        let line = deployment.queued(job).expect("it runs");
        assert_eq!((line["stages"]["violations"].as_u64(), line["nodes"].as_array().map(Vec::len)), (Some(0), Some(2)));
        std::thread::sleep(Duration::from_secs(1));
        deployment.rms(&["cancel", &job.to_string()]).ok();
        assert_eq!(deployment.wait_for_end(job)["outcome"]["word"], "cancelled", "{}", log(&deployment));
        let generations = log(&deployment).lines().filter(|line| line.starts_with("generation ")).count();
        let (before, changes) = (usize::from(language == Language::Fortran), 2);
        assert_eq!(generations, before + changes, "each is told once: {}", log(&deployment));
    }
    let pieces = fs::read_to_string(deployment.path().join("pieces")).unwrap_or_default();
    assert!(pieces.is_empty() || pieces.contains("piece 2 of 3 on a"), "{pieces}");
}
