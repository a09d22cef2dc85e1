//! Lives whole lives from seeds, under all checkers of the simulator, and says how a failing one is seen again.
//!
//! `LIMBER_SEED=7` replays one seed, `LIMBER_SEEDS=100000` runs so many, and `LIMBER_TRACE=file` keeps all that happened
//! until a rule was broken. `LIMBER_SMALLEST=2000` tries so many seeds and names the failing one with the shortest trace.

use std::ops::Range;

use rms_core::State;
use rms_sim::scenario::{Broken, Ended, JobNegotiations};
use test_kit::{Replay, one_seed, variable};

/// Lives one life of this seed; a snapshot goes through what it is given.
pub type Scenario = fn(u64, fn(&State) -> State) -> Result<Ended, Box<Broken>>;

/// One scenario with many seeds.
#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    /// The test program that runs it; its quick test's name begins with `some_seeds`.
    pub program: &'static str,
    pub scenario: Scenario,
}

/// What came of all seeds of a range.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum {
    /// Jobs that were acknowledged.
    pub n_jobs: usize,
    /// Everything that became true.
    pub n_facts: usize,
    /// Views that were compared with the plan.
    pub n_views: usize,
    /// How negotiations went.
    pub negotiations: JobNegotiations,
}

impl Sweep {
    fn replay(&self, seed: u64) -> Replay {
        Replay { seed, filter: format!("--no-capture --test {} some_seeds", self.program) }
    }

    /// Lives one seed.
    ///
    /// # Panics
    /// A rule was broken.
    pub fn run(&self, seed: u64) -> Ended {
        let _replay = self.replay(seed);
        (self.scenario)(seed, through_json).unwrap_or_else(|broken| fail(&broken))
    }

    /// Lives all of them, or those that the environment names. `None` if that is not a range whose sum says anything.
    ///
    /// # Panics
    /// A rule was broken.
    pub fn run_all(&self, seeds: Range<u64>) -> Option<Sum> {
        if let Some(seed) = one_seed() {
            println!("{:?}", self.run(seed));
            return None;
        }
        if let Some(n_seeds) = variable("LIMBER_SMALLEST") {
            self.find_smallest(0..n_seeds);
            return None;
        }
        let n_seeds = variable("LIMBER_SEEDS").unwrap_or(seeds.end - seeds.start);
        let mut sum = Sum::default();
        for seed in seeds.start..seeds.start + n_seeds {
            let Ended { trace_hash: _, n_jobs, n_facts, n_views, negotiations } = self.run(seed);
            sum.n_jobs += n_jobs;
            sum.n_facts += n_facts;
            sum.n_views += n_views;
            sum.negotiations += negotiations;
        }
        println!("{n_seeds} seeds: {sum:?}");
        Some(sum)
    }

    /// Of all seeds that fail, the one after which the least has happened is the easiest to read.
    fn find_smallest(&self, seeds: Range<u64>) {
        let failing = seeds.filter_map(|seed| Some((seed, (self.scenario)(seed, through_json).err()?)));
        if let Some((seed, broken)) = failing.min_by_key(|(_, broken)| broken.whole_trace.len()) {
            let _replay = self.replay(seed);
            fail(&broken);
        }
    }

    /// The same seed gives the same bytes, and another one does not.
    ///
    /// # Panics
    /// It does not.
    pub fn expect_repeatable(&self) {
        for seed in 0..10 {
            assert_eq!(self.run(seed), self.run(seed), "seed {seed}");
        }
        assert_ne!(self.run(0).trace_hash, self.run(1).trace_hash);
    }
}

/// A snapshot as a server would read it back: through an encoding.
fn through_json(state: &State) -> State {
    let text = serde_json::to_string(state).expect("a state can be written");
    let mut state: State = serde_json::from_str(&text).expect("and read back");
    state.rebuild_index();
    state
}

fn fail(broken: &Broken) -> ! {
    if let Some(path) = std::env::var_os("LIMBER_TRACE") {
        std::fs::write(&path, broken.whole_trace.join("\n")).expect("the trace can be written");
    }
    panic!("{broken}");
}
