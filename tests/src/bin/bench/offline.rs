//! Times the offline experiment of 003 and prints its averages beside the paper's.

use std::time::Instant;

use anyhow::Result;
use experiments::offline::{Algorithm, Experiment, run};

use crate::table::{Table, Target};

/// The paper's milliseconds, on a 2.53 GHz Core 2 in Python.
const PAPER_MS: [f64; 6] = [6.2, 24.7, 24.4, 36.7, 23.4, 36.0];

pub fn table() -> Result<Table> {
    let mut table = Table::new("The experiment of 003: 1000 tests of 15 to 20 evolving applications on 100 nodes");
    let begun = Instant::now();
    let report = run(Experiment::default(), || begun.elapsed())?;
    for (algorithm, paper_ms) in Algorithm::ALL.into_iter().zip(PAPER_MS) {
        let row = report.averages(algorithm);
        let what = format!("{algorithm}: one test (003: {:.0} µs)", paper_ms * 1000.0);
        let bound = "searches for holes in a profile of up to 200 steps, about two for each stage";
        table.measure(what, row.us_per_test, "µs", Target::AtMost(50.0), bound);
    }
    Ok(table)
}
