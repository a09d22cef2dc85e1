//! Random kills, losses and partitions against the real core and the real node logic, under all checkers.
//!
//! `LIMBER_SEED=7` replays one seed, `LIMBER_SEEDS=100000` runs so many, and `LIMBER_TRACE=file` keeps all that happened
//! until a rule was broken.

use rms_core::State;
use rms_sim::scenario;

/// A snapshot as a server would read it back: through an encoding.
fn through_json(state: &State) -> State {
    let text = serde_json::to_string(state).expect("a state can be written");
    let mut state: State = serde_json::from_str(&text).expect("and read back");
    state.rebuild_index();
    state
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: '{text}'")))
}

/// Tells how to see it again, however the test fails.
struct Replay(u64);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let seed = self.0;
            eprintln!("seed {seed}; to see it again:");
            eprintln!("  LIMBER_SEED={seed} cargo test -p rms-tests --test sim_faults -- --nocapture seeds");
        }
    }
}

fn run(seed: u64) -> scenario::Ended {
    let _replay = Replay(seed);
    match scenario::small(seed, through_json) {
        Ok(ended) => ended,
        Err(broken) => {
            if let Some(path) = std::env::var_os("LIMBER_TRACE") {
                std::fs::write(&path, broken.whole_trace.join("\n")).expect("the trace can be written");
            }
            panic!("{broken}");
        }
    }
}

fn run_seeds(seeds: std::ops::Range<u64>) {
    if let Some(seed) = variable("LIMBER_SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let n_seeds = variable("LIMBER_SEEDS").unwrap_or(seeds.end - seeds.start);
    let (mut n_jobs, mut n_facts, mut n_views) = (0, 0, 0);
    for seed in seeds.start..seeds.start + n_seeds {
        let ended = run(seed);
        n_jobs += ended.n_jobs;
        n_facts += ended.n_facts;
        n_views += ended.n_views;
    }
    println!("{n_seeds} seeds: {n_jobs} jobs, {n_facts} facts, {n_views} views compared");
    assert!(n_jobs > 0 && n_views > 0, "nothing was run");
}

#[test]
fn some_seeds_of_faults_break_no_rule() {
    run_seeds(0..100);
}

mod long {
    #[test]
    fn a_thousand_seeds_of_faults_break_no_rule() {
        super::run_seeds(0..1000);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(0).trace_hash, run(1).trace_hash);
}
