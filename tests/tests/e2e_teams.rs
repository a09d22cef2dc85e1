//! OpenMP programs that nobody has changed follow the cores of their job: looked at from inside, region by region.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rms_tests::apps::{Mpi, build_hybrid_or_skip};
use rms_tests::openmp::{OpenMp, build_or_skip};
use test_kit::{Deployment, NodeOptions, is_alive, wait_until};

const SOON: Duration = Duration::from_secs(60);

/// One node that counts the two CPUs that it has.
fn deployment(more: &[&str]) -> Option<Deployment> {
    let n_cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if n_cpus < 2 {
        eprintln!("SKIPPED: this machine has one CPU, and none of it can be given back");
        return None;
    }
    let node =
        NodeOptions::new("a", "a1").with(&["--topology", "pack:1 core:2 pu:1", "--cpus", &two_cpus()]).with(more);
    let settings = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\noffer_idle = \"never\"\n";
    Some(Deployment::builder().node(node).config(settings).start())
}

/// The first two that this process may use.
fn two_cpus() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("this runs");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list").trim();
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse().expect("a CPU")..=last.parse::<u32>().expect("a CPU")
    };
    let cpus: Vec<String> = list.split(',').flat_map(range).take(2).map(|cpu| cpu.to_string()).collect();
    cpus.join(",")
}

/// A job that runs `teams`.
struct Teams<'a> {
    deployment: &'a Deployment,
    job: String,
    /// What it prints.
    told: PathBuf,
}

impl<'a> Teams<'a> {
    fn submit(deployment: &'a Deployment, runtime: OpenMp, way: &str, flags: &[&str]) -> Option<Teams<'a>> {
        let teams = Teams::submit_ready(deployment, runtime, way, flags)?;
        teams.told(2, 2);
        Some(teams)
    }

    /// Without a look at its first line.
    fn submit_ready(deployment: &'a Deployment, runtime: OpenMp, way: &str, flags: &[&str]) -> Option<Teams<'a>> {
        let program = build_or_skip(runtime, "teams")?;
        let name = format!("{}-{way}", runtime.compiler());
        let told = deployment.path().join(format!("{name}.told"));
        let text = format!(
            "#!/bin/sh\ncd {}\necho $$ > pid\nexec {} {way} 5 > {}\n",
            deployment.path().display(),
            program.display(),
            told.display()
        );
        let script = deployment.script(&name, &text);
        let job = deployment.submit(&[flags, &["-t", "10m", "--malleable-threads", &script]].concat());
        Some(Teams { deployment, job: job.to_string(), told })
    }

    /// Until its last line says so.
    fn told(&self, threads: u32, cpus: u32) {
        let expected = format!("{threads} {cpus}");
        let mut last = String::new();
        let start = Instant::now();
        while last != expected {
            assert!(start.elapsed() < SOON, "it says '{last}' and not '{expected}':\n{}", self.all_told());
            std::thread::sleep(Duration::from_millis(10));
            last = self.all_told().lines().last().unwrap_or_default().to_owned();
        }
    }

    fn all_told(&self) -> String {
        fs::read_to_string(&self.told).unwrap_or_default()
    }

    fn shrink(&self) {
        self.deployment.rms(&["negotiate", &self.job, "--shrink-cores", "1"]).ok();
    }

    fn grow(&self) {
        self.deployment.rms(&["negotiate", &self.job, "--grow-cores", "1"]).ok();
    }

    fn end(self) {
        self.deployment.rms(&["cancel", &self.job]).ok();
        self.deployment.wait_for_end(self.job.parse().expect("a number"));
    }
}

/// To one CPU and back, twice; at one CPU it has so many threads.
fn follows(runtime: OpenMp, way: &str, (threads, of_one): (u32, u32)) {
    let Some(deployment) = deployment(&[]) else { return };
    let Some(teams) = Teams::submit_ready(&deployment, runtime, way, &[]) else { return };
    teams.told(threads, 2);
    for _ in 0..2 {
        teams.shrink();
        teams.told(of_one, 1);
        teams.grow();
        teams.told(threads, 2);
    }
    teams.end();
}

#[test]
fn a_team_of_gcc_is_as_large_as_there_are_cpus() {
    follows(OpenMp::Gnu, "default", (2, 1));
}

#[test]
fn a_team_of_clang_is_as_large_as_there_are_cpus() {
    follows(OpenMp::Llvm, "default", (2, 1));
}

#[test]
fn long_clauses_are_capped_and_kept_where_there_is_room() {
    for runtime in OpenMp::ALL {
        follows(runtime, "clause", (4, 1));
    }
}

#[test]
fn long_every_kind_of_parallel_loop_is_capped() {
    for runtime in OpenMp::ALL {
        follows(runtime, "loops", (3, 1));
    }
}

#[test]
fn long_inner_teams_share_what_outer_ones_have() {
    for runtime in OpenMp::ALL {
        follows(runtime, "nested", (4, 1));
    }
}

#[test]
fn long_regions_of_one_thread_and_programs_without_regions_go_on() {
    for runtime in OpenMp::ALL {
        follows(runtime, "one", (1, 1));
    }
    follows(OpenMp::Gnu, "serial", (1, 1));
}

#[test]
fn long_a_child_that_executes_nothing_follows_for_itself() {
    for runtime in OpenMp::ALL {
        follows(runtime, "fork", (2, 1));
    }
    // GCC's runtime cannot be used in a child of a program that has used it.
    follows(OpenMp::Llvm, "children", (2, 1));
}

/// It begins on one of two CPUs, and only later has both.
#[test]
fn long_masters_that_begin_at_once_and_children_begin_with_what_there_is() {
    let Some(deployment) = deployment(&[]) else { return };
    deployment.rms(&["admin", "set", "policy", "slowdown"]).ok();
    for (runtime, way) in [(OpenMp::Gnu, "masters"), (OpenMp::Llvm, "masters"), (OpenMp::Llvm, "children")] {
        let owner = deployment.submit(&["--share", "-t", "1h", "--wrap", "sleep 600"]);
        deployment.wait_for_state(owner, "started");
        let Some(guest) = Teams::submit_ready(&deployment, runtime, way, &["--share"]) else { return };
        guest.told(1, 1);
        assert_eq!(guest.all_told(), "1 1\n", "{runtime:?} {way}");
        deployment.rms(&["cancel", &owner.to_string()]).ok();
        guest.told(2, 2);
        guest.end();
    }
}

#[test]
fn long_a_program_whose_runtime_frees_all_it_has_still_follows() {
    for runtime in OpenMp::ALL {
        follows(runtime, "pause", (2, 1));
    }
}

/// It asked for two CPUs, begins on one that another job lends, and has both once that job has ended.
#[test]
fn a_team_of_a_guest_grows_to_what_its_job_asked_for() {
    let Some(deployment) = deployment(&[]) else { return };
    deployment.rms(&["admin", "set", "policy", "slowdown"]).ok();
    for (way, (of_one, of_two)) in [("default", (1, 2)), ("clause", (1, 4))] {
        let owner = deployment.submit(&["--share", "-t", "1h", "--wrap", "sleep 600"]);
        deployment.wait_for_state(owner, "started");
        let Some(guest) = Teams::submit_ready(&deployment, OpenMp::Gnu, way, &["--share"]) else { return };
        guest.told(of_one, 1);
        deployment.rms(&["cancel", &owner.to_string()]).ok();
        guest.told(of_two, 2);
        guest.end();
    }
}

/// A rank with threads keeps one of its two CPUs while the other one is lent, and has both again.
fn lends_under_mpirun(mpirun: &Path, program: &Path) {
    let Some(deployment) = deployment(&[]) else { return };
    deployment.rms(&["admin", "set", "policy", "slowdown"]).ok();
    let text = format!(
        "#!/bin/sh\ncd {}\nexec {} -n 1 {} > told\n",
        deployment.path().display(),
        mpirun.display(),
        program.display()
    );
    let script = deployment.script("owner.sh", &text);
    let owner = deployment.submit(&["--share", "-t", "10m", "--malleable-threads", &script]);
    let told = deployment.path().join("told");
    let wait_for = |line: &str| {
        let last = || fs::read_to_string(&told).ok().filter(|text| text.lines().last() == Some(line));
        wait_until(&format!("the rank to say '{line}'"), SOON, || last().map(drop));
    };
    wait_for("0 2 2");
    for _ in 0..2 {
        let guest = deployment.submit(&["--share", "-t", "1m", "--wrap", "sleep 600"]);
        deployment.wait_for_state(guest, "started");
        wait_for("0 1 1");
        deployment.rms(&["cancel", &guest.to_string()]).ok();
        wait_for("0 2 2");
    }
    fs::write(deployment.path().join("done"), "").expect("a file");
    assert_eq!(deployment.wait_for_end(owner)["outcome"]["word"], "completed");
}

#[test]
fn long_a_rank_with_threads_under_mpirun_lends_a_cpu_and_has_it_back() {
    for mpi in Mpi::ALL {
        if let (Some(program), Some(mpirun)) = (build_hybrid_or_skip(mpi, "hybrid"), mpi.mpirun()) {
            lends_under_mpirun(&mpirun, &program);
        }
    }
}

/// The CPUs of each thread of a process, as the kernel lists them.
fn lists(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let status = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let list =
        |status: String| Some(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().into());
    status.filter_map(list).collect()
}

/// How many CPUs each thread of a process may use.
fn counts(pid: u32) -> Vec<usize> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let status = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let mask = |status: String| {
        let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"))?.trim().replace(',', "");
        Some(u128::from_str_radix(&mask, 16).ok()?.count_ones() as usize)
    };
    status.filter_map(mask).collect()
}

fn pid(deployment: &Deployment) -> u32 {
    let path = deployment.path().join("pid");
    wait_until("the number of the process", SOON, || fs::read_to_string(&path).ok()?.trim().parse().ok())
}

fn in_force(deployment: &Deployment, job: &str) -> bool {
    deployment.rms(&["show", job, "--json"]).ok().json()["cores"][0]["in_force"] == true
}

#[test]
fn a_program_that_never_answers_costs_the_deadline_and_loses_the_cpu() {
    let Some(deployment) = deployment(&["--shrink-patience-ms", "400"]) else { return };
    let Some(teams) = Teams::submit(&deployment, OpenMp::Gnu, "stubborn", &[]) else { return };
    let pid = pid(&deployment);
    assert_eq!(counts(pid), [2, 2]);
    let start = Instant::now();
    teams.shrink();
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(400), "it had {took:?}");
    assert_eq!(counts(pid), [1, 1]);
    teams.grow();
    assert_eq!(counts(pid), [2, 2]);
    teams.end();
}

#[test]
fn a_program_that_was_linked_with_dlb_and_never_polls_gives_a_cpu_back_at_once() {
    let Some(deployment) = deployment(&["--shrink-patience-ms", "60000"]) else { return };
    let Some(teams) = Teams::submit(&deployment, OpenMp::Gnu, "dlb", &[]) else { return };
    let mut asking = deployment.command(&["negotiate", &teams.job, "--shrink-cores", "1"]).spawn().expect("it starts");
    wait_until("its answer, which is not the deadline", Duration::from_secs(30), || {
        asking.try_wait().expect("our child").map(|status| assert!(status.success()))
    });
    teams.told(1, 1);
    teams.end();
}

#[test]
fn tasks_of_a_step_and_inner_jobs_have_threads_for_their_own_cpus() {
    let Some(deployment) = deployment(&[]) else { return };
    let inner = deployment.script("inner.sh", "#!/bin/sh\necho \"$OMP_NUM_THREADS/$LD_PRELOAD\"\n");
    let rms = deployment.command(&["run"]).get_program().to_string_lossy().into_owned();
    let steps = format!(
        "#!/bin/sh\necho $OMP_NUM_THREADS\n{rms} run -q -n 2 -c 1 sh -c 'echo $OMP_NUM_THREADS'\n\
         OMP_NUM_THREADS=5 {rms} run -q -n 2 -c 1 sh -c 'echo $OMP_NUM_THREADS'\n\
         {rms} submit -q -t 1m -o inner {inner}\n"
    );
    let steps = deployment.script("steps.sh", &steps);
    let mut run = deployment.command(&["run", "-q", "-t", "1m", "--malleable-threads", &steps]);
    run.env_remove("LD_PRELOAD").env_remove("OMP_NUM_THREADS").current_dir(deployment.path());
    let told = deployment.finish(run).ok().stdout;
    assert!(told.starts_with("2\n1\n1\n5\n5\n"), "{told}");
    let read = || fs::read_to_string(deployment.path().join("inner")).ok().filter(|text| text.ends_with('\n'));
    assert_eq!(wait_until("the inner job", SOON, read), "/\n");
}

#[test]
fn a_process_that_is_killed_is_not_waited_for() {
    let Some(deployment) = deployment(&["--shrink-patience-ms", "60000"]) else { return };
    let Some(program) = build_or_skip(OpenMp::Gnu, "teams") else { return };
    let dir = deployment.path().display().to_string();
    let text =
        format!("#!/bin/sh\ncd {dir}\n{} stubborn > told &\necho $! > pid\nwait\nsleep 600\n", program.display());
    let script = deployment.script("two.sh", &text);
    let job = deployment.submit(&["-t", "10m", "--malleable-threads", &script]).to_string();
    let pid = pid(&deployment);
    wait_until("its first region", SOON, || (counts(pid).len() == 2).then_some(()));
    wait_until("it to have joined", SOON, || {
        fs::read_to_string(deployment.path().join("told")).ok().filter(|told| !told.is_empty())
    });
    let mut asking = deployment.command(&["negotiate", &job, "--shrink-cores", "1"]).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(500));
    assert!(asking.try_wait().expect("our child").is_none(), "it waits for the program");
    assert_eq!(counts(pid), [2, 2]);
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.expect("kill").success());
    assert!(asking.wait().expect("our child").success());
    assert!(in_force(&deployment, &job));
    deployment.rms(&["cancel", &job]).ok();
}

#[test]
fn long_an_agent_that_is_killed_between_the_word_and_the_move_finds_it_done() {
    let Some(mut deployment) = deployment(&["--shrink-patience-ms", "2000"]) else { return };
    let (job, pid) = {
        let Some(teams) = Teams::submit(&deployment, OpenMp::Gnu, "stubborn", &[]) else { return };
        (teams.job.clone(), pid(&deployment))
    };
    let mut asking = deployment.command(&["negotiate", &job, "--shrink-cores", "1"]).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(counts(pid), [2, 2], "it has been told, and not moved");
    deployment.kill_agent("a1");
    wait_until("the supervisor to do it alone", SOON, || (counts(pid) == [1, 1]).then_some(()));
    deployment.restart_agent("a1");
    wait_until("the server to hear of it", SOON, || in_force(&deployment, &job).then_some(()));
    asking.wait().expect("our child");
    deployment.rms(&["cancel", &job]).ok();
}

#[test]
fn long_a_supervisor_that_is_killed_between_the_word_and_the_move_takes_its_job_along() {
    let Some(deployment) = deployment(&["--shrink-patience-ms", "60000"]) else { return };
    let Some(teams) = Teams::submit(&deployment, OpenMp::Gnu, "stubborn", &[]) else { return };
    let pid = pid(&deployment);
    let mut asking = deployment.command(&["negotiate", &teams.job, "--shrink-cores", "1"]).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(600));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let parent = stat.rsplit_once(')').expect("a name").1.split_whitespace().nth(1).expect("a parent");
    let killed = Command::new("kill").args(["-9", parent]).status();
    assert!(killed.expect("kill").success());
    deployment.wait_for_end(teams.job.parse().expect("a number"));
    wait_until("it to be gone", SOON, || (!is_alive(pid.cast_signed())).then_some(()));
    asking.wait().expect("our child");
    deployment.wait_for_nodes();
}

#[test]
fn what_the_user_has_set_stays_and_jobs_without_the_flag_have_nothing_of_it() {
    let Some(deployment) = deployment(&[]) else { return };
    let script = deployment.script("env.sh", "#!/bin/sh\necho \"$OMP_NUM_THREADS/$OMP_PROC_BIND/$LD_PRELOAD\"\n");
    let seen = |flags: &[&str]| {
        let mut run = deployment.command(&[&["run", "-t", "1m"], flags, &[&script]].concat());
        run.env_remove("LD_PRELOAD").env_remove("OMP_PROC_BIND").env("OMP_NUM_THREADS", "7");
        deployment.finish(run).ok().stdout
    };
    assert_eq!(seen(&[]), "7//\n");
    let with = seen(&["--malleable-threads"]);
    assert!(with.starts_with("7/false/") && with.ends_with("librms-malleable.so\n"), "{with}");
}

#[test]
fn ranks_share_what_is_left_and_each_keeps_a_cpu() {
    let Some(deployment) = deployment(&[]) else { return };
    let Some(program) = build_or_skip(OpenMp::Gnu, "teams") else { return };
    let command = format!("exec {} default 5 > told-$RMS_TASK_ID", program.display());
    let mut run = deployment.command(&["run", "-n", "2", "-t", "10m", "--malleable-threads", "sh", "-c", &command]);
    let mut running = run.env("OMP_NUM_THREADS", "2").spawn().expect("it starts");
    let job = "1".to_owned();
    let told = |line: &str| {
        for rank in 0..2 {
            let path = deployment.path().join(format!("told-{rank}"));
            let last = || fs::read_to_string(&path).ok().filter(|text| text.lines().last() == Some(line));
            wait_until(&format!("rank {rank} to say '{line}'"), SOON, || last().map(drop));
        }
    };
    told("2 2");
    deployment.rms(&["negotiate", &job, "--shrink-cores", "1"]).ok();
    told("1 1");
    deployment.rms(&["negotiate", &job, "--grow-cores", "1"]).ok();
    told("2 2");
    deployment.rms(&["cancel", &job]).ok();
    running.wait().expect("our child");
}

#[test]
fn a_team_follows_the_mask_that_is_set_for_its_process() {
    let Some(deployment) = deployment(&[]) else { return };
    let Some(teams) = Teams::submit(&deployment, OpenMp::Gnu, "default", &[]) else { return };
    let (job, pid) = (&teams.job, pid(&deployment).to_string());
    let set = |cpus: &str| {
        let told = deployment.rms(&["masks", job, "--set", cpus, "--pid", &pid, "--json"]).ok().json();
        told["nodes"][0]["jobs"][0]["processes"].as_array().expect("a list")[0].clone()
    };
    let all = two_cpus();
    let (first, _) = all.split_once(',').expect("two");
    let process = set(first);
    assert_eq!((&process["told"], &process["slow_team"]), (&first.into(), &false.into()), "{process}");
    teams.told(1, 1);
    set("all");
    teams.told(2, 2);
    teams.end();
}

/// What a process of the job was told to use.
fn told_of(deployment: &Deployment, job: &str) -> serde_json::Value {
    let seen = deployment.rms(&["masks", job, "--json"]).ok().json();
    seen["nodes"][0]["jobs"][0]["processes"].as_array().expect("a list")[0]["told"].clone()
}

/// A runtime that binds threads has bound the main one before the process joins. The process is not pinned by that.
#[test]
fn long_a_team_that_is_bound_to_places_has_more_than_one_cpu_again() {
    let Some(deployment) = deployment(&[]) else { return };
    let listed = two_cpus();
    let (first, second) = listed.split_once(',').expect("two");
    let both: BTreeSet<&str> = [first, second].into();
    for (runtime, bind) in [(OpenMp::Gnu, "close"), (OpenMp::Gnu, "spread"), (OpenMp::Llvm, "close")] {
        let variables = format!("ALL,OMP_PROC_BIND={bind},OMP_PLACES=threads,OMP_NUM_THREADS=4");
        let flags = ["--export", variables.as_str()];
        let Some(teams) = Teams::submit_ready(&deployment, runtime, "default", &flags) else { return };
        teams.told(4, 1);
        let pid = pid(&deployment);
        let of_all = || {
            let cpus = lists(pid);
            cpus.iter().flat_map(|list| list.split([',', '-'])).map(str::to_owned).collect::<BTreeSet<String>>()
        };
        let has = |expected: &BTreeSet<&str>, when: &str| {
            let are_there = || of_all().iter().map(String::as_str).eq(expected.iter().copied()).then_some(());
            wait_until(&format!("{runtime:?}, {bind}: threads on {expected:?} {when}"), SOON, are_there);
        };
        has(&both, "at first");
        let told = told_of(&deployment, &teams.job);
        assert!([listed.as_str(), &format!("{first}-{second}")].iter().any(|all| told == *all), "{runtime:?}: {told}");
        teams.shrink();
        has(&[first].into(), "after it was shrunk");
        teams.grow();
        has(&both, "after it has grown again");
        teams.end();
        fs::remove_file(deployment.path().join("pid")).expect("the script's");
    }
}

/// A script may bind the threads with a variable of LLVM's runtime, which then ignores that the agent has switched binding
/// off.
#[test]
fn a_team_that_its_script_binds_to_places_uses_all_cpus_and_follows() {
    let Some(deployment) = deployment(&[]) else { return };
    let Some(program) = build_or_skip(OpenMp::Llvm, "teams") else { return };
    let listed = two_cpus();
    let both: BTreeSet<&str> = listed.split(',').collect();
    for affinity in ["compact", "granularity=fine,scatter"] {
        let text = format!(
            "#!/bin/sh\ncd {}\necho $$ > pid\nexport KMP_AFFINITY={affinity}\nexec {} default 5 > told 2> said\n",
            deployment.path().display(),
            program.display()
        );
        let script = deployment.script("bound.sh", &text);
        let job = deployment.submit(&["-t", "10m", "--malleable-threads", &script]).to_string();
        let teams = Teams { deployment: &deployment, job, told: deployment.path().join("told") };
        // The thread that says it is bound.
        teams.told(2, 1);
        let pid = pid(&deployment);
        let are_on_both = || {
            let cpus = lists(pid);
            let cpus: BTreeSet<&str> = cpus.iter().flat_map(|list| list.split([',', '-'])).collect();
            (cpus == both).then_some(())
        };
        wait_until(&format!("{affinity}: threads on {both:?}"), SOON, are_on_both);
        teams.shrink();
        teams.told(1, 1);
        teams.grow();
        let are_two = || teams.all_told().lines().last().filter(|line| line.starts_with("2 ")).map(drop);
        wait_until(&format!("{affinity}: two threads again"), SOON, are_two);
        wait_until(&format!("{affinity}: threads on {both:?} again"), SOON, are_on_both);
        let said = fs::read_to_string(deployment.path().join("said")).expect("the script's");
        assert!(!said.contains("OMP_PROC_BIND"), "{affinity}: {said}");
        teams.end();
        for name in ["pid", "told"] {
            fs::remove_file(deployment.path().join(name)).expect("the script's");
        }
    }
}

/// LLVM's runtime puts a new thread on the CPUs that the process had when the runtime started.
/// The supervisor looks again for threads that appear within half a second of a change; these come later.
#[test]
fn long_threads_that_are_created_after_the_job_has_grown_have_all_of_its_cpus() {
    let Some(deployment) = deployment(&[]) else { return };
    let listed = two_cpus();
    let (first, second) = listed.split_once(',').expect("two");
    let both = [listed.as_str(), &format!("{first}-{second}")];
    for runtime in OpenMp::ALL {
        let Some(program) = build_or_skip(runtime, "teams") else { continue };
        let (go, told) = (format!("go-{runtime:?}"), deployment.path().join(format!("told-{runtime:?}")));
        let text = format!(
            "#!/bin/sh\ncd {}\necho $$ > pid\nwhile [ ! -e {go} ]; do sleep 0.05; done\nexec {} clause 2000 > {}\n",
            deployment.path().display(),
            program.display(),
            told.display()
        );
        let script = deployment.script(&format!("late-{runtime:?}.sh"), &text);
        let job = deployment.submit(&["-t", "10m", "--malleable-threads", &script]).to_string();
        let teams = Teams { deployment: &deployment, job, told };
        let pid = pid(&deployment);
        teams.shrink();
        wait_until("one CPU", SOON, || counts(pid).iter().all(|count| *count == 1).then_some(()));
        fs::write(deployment.path().join(go), "").expect("a file");
        teams.told(1, 1);
        teams.grow();
        teams.told(4, 2);
        let have_all = || {
            let seen = lists(pid);
            let n_with_all = seen.iter().filter(|list| both.contains(&list.as_str())).count();
            (seen.len() >= 4 && n_with_all == seen.len()).then_some(())
        };
        wait_until(&format!("{runtime:?}: threads on {both:?}"), SOON, have_all);
        teams.end();
        fs::remove_file(deployment.path().join("pid")).expect("the script's");
    }
}

#[test]
fn a_process_that_was_started_on_one_cpu_stays_there_also_if_its_threads_are_bound() {
    let Some(deployment) = deployment(&[]) else { return };
    let Some(program) = build_or_skip(OpenMp::Gnu, "teams") else { return };
    let listed = two_cpus();
    let (_, second) = listed.split_once(',').expect("two");
    for variables in ["OMP_NUM_THREADS=2", "OMP_NUM_THREADS=2 OMP_PROC_BIND=close"] {
        let text = format!(
            "#!/bin/sh\ncd {}\necho $$ > pid\nexport {variables}\nexec taskset -c {second} {} clause 5 > told\n",
            deployment.path().display(),
            program.display()
        );
        let script = deployment.script("pinned.sh", &text);
        let job = deployment.submit(&["-t", "10m", "--malleable-threads", &script]).to_string();
        let pid = pid(&deployment);
        wait_until("its first region", SOON, || {
            fs::read_to_string(deployment.path().join("told")).ok().filter(|told| !told.is_empty())
        });
        assert!(lists(pid).iter().all(|list| list == second), "{variables}: {:?}", lists(pid));
        for name in ["pid", "told"] {
            fs::remove_file(deployment.path().join(name)).expect("the script's");
        }
        deployment.rms(&["cancel", &job]).ok();
        deployment.wait_for_end(job.parse().expect("a number"));
    }
}

#[test]
fn a_team_that_cannot_follow_is_named_in_the_log_and_to_its_owner() {
    let Some(deployment) = deployment(&[]) else { return };
    let Some(program) = build_or_skip(OpenMp::Gnu, "teams") else { return };
    let dir = deployment.path().display().to_string();
    let script =
        deployment.script("slow.sh", &format!("#!/bin/sh\ncd {dir}\nexec {} default 5 > told\n", program.display()));
    let mut submit = deployment.command(&["submit", "--json", "-t", "10m", &script]);
    submit.env("OMP_NUM_THREADS", "2");
    let job = deployment.finish(submit).ok().json()["job"].to_string();
    let told = deployment.path().join("told");
    wait_until("its first regions", SOON, || fs::read_to_string(&told).ok().filter(|text| text.contains("2 2")));
    let of_job = || deployment.rms(&["masks", &job, "--json"]).ok().json()["nodes"][0]["jobs"][0].clone();
    let is_slow = || of_job()["processes"].as_array().is_some_and(|all| all.iter().any(|one| one["slow_team"] == true));
    assert!(!is_slow() && !deployment.rms(&["show", &job]).ok().stdout.contains("warning"));
    deployment.rms(&["negotiate", &job, "--shrink-cores", "1"]).ok();
    wait_until("a word of it", SOON, || deployment.log_text("a1").contains("does not follow").then_some(()));
    // It is only moved.
    wait_until("it to run on one CPU", SOON, || {
        fs::read_to_string(&told).ok().filter(|text| text.lines().last() == Some("2 1")).map(drop)
    });
    assert!(is_slow(), "{}", of_job());
    let shown = deployment.rms(&["show", &job]).ok().stdout;
    assert!(shown.contains("warning") && shown.contains("--malleable-threads"), "{shown}");
    deployment.rms(&["cancel", &job]).ok();
}
