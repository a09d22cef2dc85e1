//! Random kills, losses, partitions and bad channels against negotiations: the real core, the real node logic and the
//! real end of applications, under all checkers.
//!
//! `LIMBER_SEED=7` replays one seed, `LIMBER_SEEDS=100000` runs so many, and `LIMBER_TRACE=file` keeps all that happened
//! until a rule was broken. `LIMBER_SMALLEST=2000` tries so many seeds and names the failing one with the shortest trace.

use rms_core::State;
use rms_sim::scenario::{self, Broken, Ended, Talks};

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
            eprintln!("  LIMBER_SEED={seed} cargo test -p rms-tests --test sim_negotiations -- --nocapture some_seeds");
        }
    }
}

fn run(seed: u64) -> Ended {
    let _replay = Replay(seed);
    scenario::negotiating(seed, through_json).unwrap_or_else(|broken| fail(&broken))
}

fn fail(broken: &Broken) -> ! {
    if let Some(path) = std::env::var_os("LIMBER_TRACE") {
        std::fs::write(&path, broken.whole_trace.join("\n")).expect("the trace can be written");
    }
    panic!("{broken}");
}

fn run_seeds(seeds: std::ops::Range<u64>) {
    if let Some(seed) = variable("LIMBER_SEED") {
        println!("{:?}", run(seed));
        return;
    }
    if let Some(n_seeds) = variable("LIMBER_SMALLEST") {
        find_smallest(0..n_seeds);
        return;
    }
    let n_seeds = variable("LIMBER_SEEDS").unwrap_or(seeds.end - seeds.start);
    let mut n_jobs = 0;
    let mut all = Talks::default();
    for seed in seeds.start..seeds.start + n_seeds {
        let Ended { n_jobs: n, talks, .. } = run(seed);
        n_jobs += n;
        all.n_opened += talks.n_opened;
        all.n_agreed += talks.n_agreed;
        all.n_applied += talks.n_applied;
        all.n_failed += talks.n_failed;
        all.n_asks += talks.n_asks;
    }
    println!("{n_seeds} seeds: {n_jobs} jobs, {all:?}");
    let happens = [all.n_opened, all.n_agreed, all.n_applied, all.n_failed, all.n_asks];
    assert!(happens.iter().all(|n| *n > 0), "something never happened: {all:?}");
}

/// Of all seeds that fail, the one after which the least has happened is the easiest to read.
fn find_smallest(seeds: std::ops::Range<u64>) {
    let failing = seeds.filter_map(|seed| Some((seed, scenario::negotiating(seed, through_json).err()?)));
    if let Some((seed, broken)) = failing.min_by_key(|(_, broken)| broken.whole_trace.len()) {
        let _replay = Replay(seed);
        fail(&broken);
    }
}

#[test]
fn some_seeds_of_negotiations_break_no_rule() {
    run_seeds(0..200);
}

mod long {
    // Three at once, so that they take a third of the time.
    #[test]
    fn a_thousand_seeds_of_negotiations_break_no_rule() {
        super::run_seeds(200..1200);
    }

    #[test]
    fn another_thousand_seeds_break_none() {
        super::run_seeds(1200..2200);
    }

    #[test]
    fn nor_does_a_third_thousand() {
        super::run_seeds(2200..3200);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for seed in 0..10 {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
    assert_ne!(run(0).trace_hash, run(1).trace_hash);
}
