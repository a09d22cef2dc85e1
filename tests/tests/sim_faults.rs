//! Random kills, losses and partitions against the real core and the real node logic, under all checkers. How one seed is
//! replayed, and more are run, says `rms_tests::seeds`.

use rms_sim::scenario;
use rms_tests::seeds::Sweep;

const FAULTS: Sweep = Sweep { program: "sim_faults", scenario: scenario::small };

fn run_seeds(seeds: std::ops::Range<u64>) {
    let Some(all) = FAULTS.run_all(seeds) else { return };
    assert!(all.n_jobs > 0 && all.n_views > 0, "something never happened: {all:?}");
}

#[test]
fn some_seeds_of_faults_break_no_rule() {
    run_seeds(0..16);
}

mod long {
    #[test]
    fn a_thousand_seeds_of_faults_break_no_rule() {
        super::run_seeds(0..1000);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    FAULTS.expect_repeatable();
}
