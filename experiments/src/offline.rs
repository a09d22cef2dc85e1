//! The experiment of 003, §5 (and of 000): evolving applications that are all submitted at once and scheduled in their
//! order.
//!
//! [`run`] reproduces the papers' Tables 1 and 2 with the `fit` of the production core.

mod metrics;
mod report;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rms_core::plan::compact;
use rms_core::plan::fit::{Fit, TooLarge};
use rms_model::evolution::MAX_STAGES;
use rms_model::{Evolution, ExpandLimit, Expansion, Profile, Time};
use thiserror::Error;

use crate::evolving::{EvolvingTests, Range, Ranges};

pub use metrics::{JobMetrics, TestMetrics};
pub use report::{Averages, Report, Spread, Table};

/// The algorithms that the papers compare. Names of 003, in parentheses those of 000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Conservative backfilling of rigid jobs: the peak for the whole time (rigid).
    Cbf,
    /// No stage waits (noX).
    Nos,
    /// A stage may last twice as long (2X).
    Mic,
    /// The same with compacting (2X+c).
    MicCompact,
    /// A stage may last for any time (infX).
    Inf,
    /// The same with compacting (infX+c).
    InfCompact,
}

/// A name that is not an algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no algorithm: write cbf, nos, mic, mic+c, inf or inf+c")]
pub struct UnknownAlgorithm(String);

impl Algorithm {
    pub const ALL: [Algorithm; 6] =
        [Algorithm::Cbf, Algorithm::Nos, Algorithm::Mic, Algorithm::MicCompact, Algorithm::Inf, Algorithm::InfCompact];

    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Cbf => "cbf",
            Algorithm::Nos => "nos",
            Algorithm::Mic => "mic",
            Algorithm::MicCompact => "mic+c",
            Algorithm::Inf => "inf",
            Algorithm::InfCompact => "inf+c",
        }
    }

    fn expansion(self) -> Expansion {
        let (limit, compacting) = match self {
            Algorithm::Cbf | Algorithm::Nos => (ExpandLimit::NONE, false),
            Algorithm::Mic => (ExpandLimit::TWICE, false),
            Algorithm::MicCompact => (ExpandLimit::TWICE, true),
            Algorithm::Inf => (ExpandLimit::Infinite, false),
            Algorithm::InfCompact => (ExpandLimit::Infinite, true),
        };
        Expansion { limit, compacting }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let named = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        named.ok_or_else(|| UnknownAlgorithm(text.to_owned()))
    }
}

/// Schedules a list (003, Alg. 2): fits each application above the sum of the earlier ones, which do not move.
///
/// # Errors
/// An application needs more nodes than there are.
pub fn schedule(algorithm: Algorithm, capacity: u32, apps: &[Evolution]) -> Result<Vec<Fit>, TooLarge> {
    let mut occupied = Profile::new();
    let expansion = algorithm.expansion();
    let place = |app: &Evolution| {
        let fit = match algorithm {
            Algorithm::Cbf => compact::place(&occupied, capacity, &app.rigid(), expansion, Time::EPOCH)?,
            Algorithm::Nos | Algorithm::Mic | Algorithm::MicCompact | Algorithm::Inf | Algorithm::InfCompact => {
                compact::place(&occupied, capacity, app, expansion, Time::EPOCH)?
            }
        };
        fit.occupy(&mut occupied);
        Ok(fit)
    };
    apps.iter().map(place).collect()
}

/// The parameters of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experiment {
    pub n_tests: u32,
    pub seed: u64,
    /// The number of nodes. The papers do not give it; 100 reproduces their tables.
    pub capacity: u32,
    pub ranges: Ranges,
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment { n_tests: 1000, seed: 1, capacity: 100, ranges: Ranges::default() }
    }
}

/// Why an experiment cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExperimentError {
    #[error("{capacity} nodes are too few: a stage may need {largest}")]
    TooFewNodes { capacity: u32, largest: u32 },
    #[error("{range} stages are too many: an application announces at most {MAX_STAGES}")]
    TooManyStages { range: Range },
    #[error("an experiment needs at least one test")]
    NoTests,
}

/// Schedules every test with every algorithm. `clock` is any monotonic clock; it only measures.
///
/// # Errors
/// The experiment has no tests, or too few nodes for some application.
pub fn run(experiment: Experiment, mut clock: impl FnMut() -> Duration) -> Result<Report, ExperimentError> {
    let Experiment { n_tests, seed, capacity, ranges } = experiment;
    if n_tests == 0 {
        return Err(ExperimentError::NoTests);
    }
    let largest = ranges.stage_nodes.most;
    let too_few = |_: TooLarge| ExperimentError::TooFewNodes { capacity, largest };
    if capacity < largest {
        return Err(ExperimentError::TooFewNodes { capacity, largest });
    }
    if ranges.n_stages.most as usize > MAX_STAGES {
        return Err(ExperimentError::TooManyStages { range: ranges.n_stages });
    }
    let mut tests = EvolvingTests::new(seed, ranges);
    let mut report = Report::new();
    for _ in 0..n_tests {
        let apps = tests.draw();
        let mut baseline = None;
        for algorithm in Algorithm::ALL {
            let begun = clock();
            let fits = schedule(algorithm, capacity, &apps).map_err(too_few)?;
            let took = clock().saturating_sub(begun);
            let metrics = TestMetrics::new(capacity, &apps, &fits);
            let relative = metrics.relative_to(baseline.get_or_insert_with(|| metrics.clone()));
            report.add(algorithm, &metrics, relative, took);
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference rows of the experiment: waste %, reservation, utilisation %, makespan, JCT, JWT, stretches %,
    /// job stretch %, job waste %.
    const ROWS: [(Algorithm, [f64; 9]); 6] = [
        (Algorithm::Cbf, [70.4, 1.0, 40.4, 1.0, 1.0, 1.0, 0.0, 0.0, 66.8]),
        (Algorithm::Nos, [0.0, 0.59, 62.0, 0.65, 0.61, 0.55, 0.0, 0.0, 0.0]),
        (Algorithm::Mic, [2.5, 0.60, 63.3, 0.64, 0.61, 0.55, 21.8, 4.1, 2.4]),
        (Algorithm::MicCompact, [0.41, 0.59, 63.5, 0.64, 0.61, 0.55, 6.7, 0.8, 0.4]),
        (Algorithm::Inf, [6.9, 0.63, 64.2, 0.63, 0.62, 0.53, 26.1, 19.6, 6.8]),
        (Algorithm::InfCompact, [1.7, 0.60, 65.0, 0.62, 0.60, 0.54, 13.1, 5.5, 1.65]),
    ];

    /// Checks within these tolerances: 1.5 points of percentages, 0.02 of ratios.
    fn check(seed: u64) {
        let report = run(Experiment { seed, ..Experiment::default() }, || Duration::ZERO).expect("it can be run");
        for (algorithm, expected) in ROWS {
            let row = report.averages(algorithm);
            let ratio = |value: Option<f64>, expected: f64| value.is_some_and(|value| (value - expected).abs() <= 0.02);
            let percent = |value: f64, expected: f64| (value - expected).abs() <= 1.5;
            let near = percent(row.waste_pct, expected[0])
                && ratio(row.reservation, expected[1])
                && percent(row.utilisation_pct, expected[2])
                && ratio(row.makespan, expected[3])
                && ratio(row.jct, expected[4])
                && ratio(row.jwt, expected[5])
                && percent(row.stretches_pct, expected[6])
                && percent(row.job_stretch_pct, expected[7])
                && percent(row.job_waste_pct, expected[8]);
            assert!(near, "seed {seed}, {algorithm}: {row:?} instead of {expected:?}");
        }
    }

    #[test]
    fn long_the_tables_of_the_paper_come_out() {
        check(1);
    }

    #[test]
    fn long_the_tables_of_the_paper_come_out_for_another_seed() {
        check(20_101);
    }

    #[test]
    fn long_the_tables_of_the_paper_come_out_for_a_third_seed() {
        check(u64::MAX);
    }

    /// A single application starts at once, so no wait can be compared.
    #[test]
    fn a_wait_that_nobody_had_is_no_number() {
        let ranges = Ranges { n_apps: "1".parse().expect("a range"), ..Ranges::default() };
        let report = run(Experiment { n_tests: 2, ranges, ..Experiment::default() }, || Duration::ZERO);
        let report = report.expect("it can be run");
        for algorithm in Algorithm::ALL {
            let row = report.averages(algorithm);
            assert_eq!((row.jwt, row.jct.is_some()), (None, true), "{algorithm}");
        }
        let table = report.table_2().to_string();
        let row = table.lines().find(|line| line.starts_with("nos ")).expect("its row");
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!((cells[4], table.contains("-inf")), ("-", false), "the wait, after three values of JCT: {table}");
    }

    #[test]
    fn what_cannot_be_run_says_why() {
        let run = |experiment| run(experiment, || Duration::ZERO).map(|_| ()).map_err(|error| error.to_string());
        let few = Experiment { capacity: 74, ..Experiment::default() };
        assert_eq!(run(few), Err("74 nodes are too few: a stage may need 75".to_owned()));
        let many = Ranges { n_stages: "1-100000".parse().expect("a range"), ..Ranges::default() };
        assert!(run(Experiment { ranges: many, ..Experiment::default() }).is_err());
        let small = Ranges { stage_nodes: "1-8".parse().expect("a range"), ..Ranges::default() };
        assert_eq!(run(Experiment { ranges: small, capacity: 8, n_tests: 1, ..Experiment::default() }), Ok(()));
        let none = Experiment { n_tests: 0, ..Experiment::default() };
        assert_eq!(run(none), Err("an experiment needs at least one test".to_owned()));
        assert!("2X".parse::<Algorithm>().is_err());
        assert_eq!("inf+c".parse(), Ok(Algorithm::InfCompact));
    }
}
