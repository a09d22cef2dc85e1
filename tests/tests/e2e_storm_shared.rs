//! `kill -9` at random, of server, agents and supervisors, while jobs share nodes: none is lost, and nobody has a core or a GPU of another.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use test_kit::{Deployment, NodeOptions, any_seed, submit_all, wait_until};

const N_JOBS: usize = 90;
const NODES: [&str; 2] = ["a1", "a2"];
/// What jobs ask for, and how many of the two cores of a node they then have.
const KINDS: [(&[&str], usize); 4] = [
    (&["-n", "1"], 1),
    (&["-n", "1", "-c", "2"], 2),
    (&["-n", "1", "--gpus", "1"], 1),
    (&["-n", "1", "--exclusive"], 2),
];

/// From when to when an execution was seen with something.
#[derive(Debug)]
struct Seen {
    execution: String,
    from: u64,
    to: u64,
}

/// Numbers of a list as the kernel and the agent write them.
fn numbers(list: &str) -> Vec<u32> {
    let parse = |text: &str| text.parse::<u32>().unwrap_or_else(|_| panic!("no numbers: {list:?}"));
    let ranges = list.split(',').filter(|part| !part.is_empty());
    ranges
        .flat_map(|part| part.split_once('-').map_or_else(|| parse(part)..=parse(part), |(a, b)| parse(a)..=parse(b)))
        .collect()
}

#[test]
fn long_a_storm_of_kills_gives_no_core_of_a_shared_node_twice() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("skipped: one CPU cannot be shared");
        return;
    }
    let (mut dice, _replay) = any_seed("a_storm_of_kills_gives_no_core");
    let options = ["--topology", "core:2", "--devices", "gpu:2"];
    let nodes = NODES.map(|name| NodeOptions::new("a", name).with(&options));
    let settings = "[settings]\nresched_timer = \"50ms\"\nkill_grace = \"1s\"\n";
    let [one, two] = nodes;
    let mut deployment = Deployment::builder().node(one).node(two).config(settings).start();
    deployment.rms(&["admin", "set", "allocation", "cores"]).ok();
    let witnesses = deployment.path().join("witnesses");
    fs::create_dir(&witnesses).expect("ours");
    // Beats for as long as it lives; its last word is when it was last seen.
    let beat = "$RMS_NODELIST $(grep Cpus_allowed_list /proc/self/status | cut -f2) gpus=$RMS_GPUS $(date +%s%N)";
    let wrap = format!(
        "for beat in 1 2 3 4 5 6 7 8; do echo \"{beat}\" >> {}/$RMS_JOB_ID.$RMS_RUN; sleep 0.04; done",
        witnesses.display()
    );
    let over = AtomicBool::new(false);
    let commands: Vec<(usize, Command)> = (0..N_JOBS)
        .map(|_| dice.below(KINDS.len() as u64) as usize)
        .map(|kind| {
            let command =
                [&["submit", "--json", "-t", "5m", "-o", "/dev/null"], KINDS[kind].0, &["--wrap", &wrap]].concat();
            (kind, deployment.command(&command))
        })
        .collect();
    let (promised, n_kills) = std::thread::scope(|scope| {
        let submitter = scope.spawn(|| {
            let promised = submit_all(commands, Duration::from_millis(80));
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
                3 => {
                    let supervisors: Vec<i32> = deployment.pids().into_iter().filter(is_supervisor).collect();
                    if !supervisors.is_empty() {
                        let pid = nix::unistd::Pid::from_raw(dice.one_of(&supervisors));
                        let _gone_already = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
                    }
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
    assert!(n_kills >= 5 && promised.len() > N_JOBS / 2, "a storm with {n_kills} kills is none");
    wait_until("all jobs to end", Duration::from_secs(120), || {
        let queue = deployment.rms(&["queue", "--json"]).ok().json();
        queue["jobs"].as_array()?.is_empty().then_some(())
    });
    let history = deployment.rms(&["history", "--json", "--limit", "0"]).ok().json();
    let ended: BTreeSet<u64> =
        history["jobs"].as_array().expect("a list").iter().filter_map(|job| job["job"].as_u64()).collect();
    let missing: Vec<&u64> = promised.keys().filter(|job| !ended.contains(job)).collect();
    assert!(missing.is_empty(), "promised and not in the history: {missing:?}");

    let mut held: BTreeMap<String, Vec<Seen>> = BTreeMap::new();
    for entry in fs::read_dir(&witnesses).expect("ours").flatten() {
        let execution = entry.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(entry.path()).expect("written");
        // Whoever was killed may have been in the middle of a line.
        let beats: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split(' ').collect::<Vec<_>>())
            .filter(|beat| beat.len() == 4 && beat[3].len() == 19)
            .collect();
        let (Some(first), Some(last)) = (beats.first(), beats.last()) else { continue };
        assert!(beats.iter().all(|beat| beat[..3] == first[..3]), "{execution} was moved: {text}");
        let cpus = numbers(first[1]);
        let job: u64 = execution.split('.').next().and_then(|job| job.parse().ok()).expect("a job");
        if let Some(kind) = promised.get(&job) {
            assert_eq!(cpus.len(), KINDS[*kind].1, "{execution} asked for {:?} and has {}", KINDS[*kind].0, first[1]);
        }
        let time = |beat: &[&str]| beat[3].parse::<u64>().expect("nanoseconds");
        let things = cpus.into_iter().map(|cpu| format!("{} cpu {cpu}", first[0]));
        let gpus =
            numbers(first[2].trim_start_matches("gpus=")).into_iter().map(|gpu| format!("{} gpu {gpu}", first[0]));
        for thing in things.chain(gpus) {
            held.entry(thing).or_default().push(Seen {
                execution: execution.clone(),
                from: time(first),
                to: time(last),
            });
        }
    }
    assert!(held.len() >= 4, "both nodes were shared: {held:?}");
    for (thing, mut seen) in held {
        seen.sort_by_key(|seen| seen.from);
        for two in seen.windows(2) {
            let (one, other) = (&two[0].execution, &two[1].execution);
            assert!(two[0].to < two[1].from, "{one} and {other} had {thing} at once: {two:?}");
        }
    }
}

fn is_supervisor(pid: &i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "rms-supervisor")
}
