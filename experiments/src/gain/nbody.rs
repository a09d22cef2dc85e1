//! Jobs like the N-body applications of 002: small powers of two on a small cluster that is nearly full.

use rms_model::{Span, Time};

use rms_sim::Dice;
use rms_sim::workload::swf::TraceJob;

/// Draws `n_jobs` jobs for a cluster of 16 nodes. 002 describes its applications and no workload: sizes, run times and
/// arrivals are chosen here.
pub fn nbody(n_jobs: usize, seed: u64) -> Vec<TraceJob> {
    let mut dice = Dice::new(seed, DRAWS);
    let mut submit = Time::EPOCH;
    let job = |number: usize| {
        // Two of three are at most a quarter of the cluster.
        let largest_log = if dice.chance(67) { 2 } else { 4 };
        let n_nodes = 1 << dice.number(0, largest_log);
        let longest = if dice.chance(80) { LONGEST_OF_MOST } else { LONGEST };
        let secs = i64::from(dice.number(SHORTEST, longest));
        let run = Span::from_secs(secs);
        // Users request up to three times as much as they need.
        let wall = Span::from_millis(run.as_millis() * i64::from(dice.number(110, 300)) / 100);
        let job = TraceJob {
            number: number as i64,
            submit,
            n_nodes,
            n_procs: n_nodes,
            wall,
            run,
            user: i64::from(dice.number(1, 8)),
        };
        submit += Span::from_secs(i64::from(dice.number(0, 2 * MEAN_GAP)));
        job
    };
    (1..=n_jobs).map(job).collect()
}

/// The cluster of these jobs.
pub const NODES: u32 = 16;
const SHORTEST: u32 = 60;
const LONGEST_OF_MOST: u32 = 1200;
const LONGEST: u32 = 7200;
/// With this mean gap, the jobs together need about nine tenths of the cluster.
const MEAN_GAP: u32 = 300;
/// The random stream.
const DRAWS: u64 = 41;
