//! Random kills, losses, partitions and bad channels against negotiations: the real core, the real node logic and the
//! real end of applications, under all checkers. How one seed is replayed, and more are run, says `rms_tests::seeds`.

use rms_sim::scenario::{self, JobNegotiations};
use rms_tests::seeds::Sweep;

const NEGOTIATIONS: Sweep = Sweep { program: "sim_negotiations", scenario: scenario::negotiating };

fn run_seeds(seeds: std::ops::Range<u64>) {
    let Some(all) = NEGOTIATIONS.run_all(seeds) else { return };
    let JobNegotiations { n_opened, n_agreed, n_applied, n_failed, n_asks, n_ambushes, n_sharing } = all.negotiations;
    let happens = [n_opened, n_agreed, n_applied, n_failed, n_asks, n_ambushes, n_sharing];
    assert!(happens.iter().all(|n| *n > 0), "something never happened: {all:?}");
}

#[test]
fn some_seeds_of_negotiations_break_no_rule() {
    run_seeds(0..20);
}

mod long {
    // Two at once, so that they take half of the time.
    #[test]
    fn eleven_hundred_seeds_of_negotiations_break_no_rule() {
        super::run_seeds(0..1100);
    }

    #[test]
    fn eleven_hundred_others_break_none() {
        super::run_seeds(1100..2200);
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    NEGOTIATIONS.expect_repeatable();
}
