//! `kill -9` at random, of server and agents, while jobs flow: none is lost, none runs twice, nothing stays behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use test_kit::{Deployment, any_seed, submit_all, wait_until};

const N_JOBS: u32 = 200;
const NODES: [&str; 3] = ["a1", "a2", "a3"];

#[test]
fn long_a_storm_of_kills_loses_no_job_and_runs_none_twice() {
    let (mut dice, _replay) = any_seed("a_storm_of_kills_loses_no_job");
    let mut deployment = Deployment::of_nodes(3);
    let witnesses = deployment.path().join("witnesses");
    fs::create_dir(&witnesses).expect("ours");

    let over = AtomicBool::new(false);
    let commands: Vec<(u32, Command)> = (0..N_JOBS)
        .map(|idx| {
            let wrap = format!("echo $RMS_JOB_ID >> {}/{idx}; sleep 0.05; exit {}", witnesses.display(), idx % 7);
            (idx, deployment.command(&["submit", "--json", "-o", "/dev/null", "--wrap", &wrap]))
        })
        .collect();
    let (promised, n_kills) = std::thread::scope(|scope| {
        let submitter = scope.spawn(|| {
            let promised = submit_all(commands, Duration::from_millis(50));
            over.store(true, Ordering::SeqCst);
            promised
        });
        let mut n_kills = 0;
        while !over.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(dice.number(100, 900).into()));
            match dice.below(4) {
                0 => {
                    deployment.kill_server();
                    std::thread::sleep(Duration::from_millis(dice.below(300)));
                    deployment.start_server();
                }
                node => {
                    deployment.kill_agent(NODES[node as usize - 1]);
                    std::thread::sleep(Duration::from_millis(dice.below(300)));
                    deployment.restart_agent(NODES[node as usize - 1]);
                }
            }
            n_kills += 1;
        }
        (submitter.join().expect("the submitter ends"), n_kills)
    });
    println!("{n_kills} kills, {} jobs promised", promised.len());
    assert!(n_kills >= 5 && promised.len() > N_JOBS as usize / 2, "a storm with {n_kills} kills is none");

    let start = Instant::now();
    wait_until("all jobs to end", Duration::from_secs(120), || {
        let queue = deployment.rms(&["queue", "--json"]).ok().json();
        queue["jobs"].as_array()?.is_empty().then_some(())
    });
    println!("the rest took {:?}", start.elapsed());

    let history = deployment.rms(&["history", "--json", "--limit", "0"]).ok().json();
    let records = history["jobs"].as_array().expect("a list");
    let mut seen = BTreeSet::new();
    for record in records {
        let job = record["job"].as_u64().expect("an id");
        assert!(seen.insert(job), "job {job} is in the history twice");
        assert_eq!(record["run"], 1, "nothing was lost, so nothing was started again: {record}");
        let Some(idx) = promised.get(&job) else { continue };
        let outcome = &record["outcome"];
        let is_right = match idx % 7 {
            0 => outcome["word"] == "completed",
            code => outcome["word"] == "failed" && outcome["code"] == code,
        };
        assert!(is_right, "job {job} was to exit with {}: {record}", idx % 7);
    }
    let missing: Vec<&u64> = promised.keys().filter(|job| !seen.contains(job)).collect();
    assert!(missing.is_empty(), "promised and not in the history: {missing:?}");
    for idx in 0..N_JOBS {
        let runs = fs::read_to_string(witnesses.join(idx.to_string())).unwrap_or_default();
        let is_promised = promised.values().any(|promised| *promised == idx);
        let n_runs = runs.lines().count();
        assert!(n_runs <= 1, "script {idx} ran {n_runs} times: {runs}");
        assert!(n_runs == 1 || !is_promised, "script {idx} never ran");
    }
    let left: Vec<String> = deployment.pids().into_iter().filter_map(job_of).collect();
    assert!(left.is_empty(), "processes of jobs stayed behind: {left:?}");
    for node in NODES {
        let jobs = deployment.agent_dir(node).join("spool/jobs");
        wait_until("the spool to be empty", Duration::from_secs(10), || {
            fs::read_dir(&jobs).expect("it is there").next().is_none().then_some(())
        });
    }
    // Each node keeps a few supervisors ready, in each hierarchy of cgroups one apiece.
    wait_until("the cgroups of the jobs to be gone", Duration::from_secs(20), || {
        let leaves = deployment.cgroups();
        let hierarchy = |leaf: &PathBuf| leaf.components().take(5).collect::<PathBuf>();
        let hierarchies: BTreeSet<PathBuf> = leaves.iter().map(hierarchy).collect();
        (leaves.len() <= hierarchies.len() * NODES.len() * 4).then_some(())
    });
}

/// What a process says it belongs to, if it is a job's.
fn job_of(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|byte| *byte == 0);
    let job = variables.find(|variable| variable.starts_with(b"RMS_JOB_ID="))?;
    Some(format!("{pid}: {}", String::from_utf8_lossy(job)))
}
