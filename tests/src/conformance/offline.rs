//! The offline experiment of 003: placements and metrics (RULES O and M), and the random tests (X2).

use std::collections::BTreeMap;

use experiments::evolving::{EvolvingTests, Ranges};
use experiments::offline::{Algorithm, TestMetrics, schedule};
use rms_model::Evolution;
use serde::Deserialize;

use super::evolution::{Pairs, Placement, evolution, expect_placed};

#[derive(Deserialize)]
struct Vector {
    nodes: u32,
    apps: Vec<Pairs>,
    results: BTreeMap<String, Scheduled>,
}

#[derive(Deserialize)]
struct Scheduled {
    placements: Vec<Placement>,
    metrics: Metrics,
    derived: Derived,
}

/// Areas in host-seconds, times in seconds.
#[derive(Debug, PartialEq, Deserialize)]
struct Metrics {
    used_area: i128,
    reserved_area: i128,
    waste_area: i128,
    makespan: i128,
    total_area: i128,
    sum_completion: i128,
    sum_waiting: i128,
    stretched_jobs: usize,
}

#[derive(Deserialize)]
struct Derived {
    waste: f64,
    utilisation: f64,
    avg_jct: f64,
    avg_jwt: f64,
    stretches: f64,
    mean_job_stretch: f64,
    max_job_stretch: f64,
    mean_job_waste: f64,
    max_job_waste: f64,
    relative: Relative,
}

#[derive(Deserialize)]
struct Relative {
    reservation: Option<f64>,
    makespan: Option<f64>,
    avg_jct: Option<f64>,
    avg_jwt: Option<f64>,
}

fn measured(nodes: u32, metrics: &TestMetrics) -> Metrics {
    Metrics {
        used_area: metrics.used / 1000,
        reserved_area: metrics.reserved / 1000,
        waste_area: (metrics.reserved - metrics.used) / 1000,
        makespan: i128::from(metrics.makespan) / 1000,
        total_area: i128::from(nodes) * i128::from(metrics.makespan) / 1000,
        sum_completion: metrics.sum_completion / 1000,
        sum_waiting: metrics.sum_waiting / 1000,
        stretched_jobs: metrics.n_stretched(),
    }
}

/// A line of offline_paper or offline_small.
///
/// # Errors
/// The first difference, or why the line is no vector.
pub fn check(line: &str) -> Result<(), String> {
    let vector: Vector = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let apps = vector.apps.iter().map(evolution).collect::<Result<Vec<_>, _>>()?;
    let mut baseline = None;
    for algorithm in Algorithm::ALL {
        let expected = vector.results.get(algorithm.name()).ok_or(format!("no result for {algorithm}"))?;
        let fits = schedule(algorithm, vector.nodes, &apps).map_err(|error| error.to_string())?;
        if fits.len() != expected.placements.len() {
            return Err(format!("{algorithm}: {} placements", fits.len()));
        }
        for (idx, (fit, placement)) in fits.iter().zip(&expected.placements).enumerate() {
            expect_placed(&format!("{algorithm}, application {idx}"), fit, placement)?;
        }
        let metrics = TestMetrics::new(vector.nodes, &apps, &fits);
        let actual = measured(vector.nodes, &metrics);
        if actual != expected.metrics {
            return Err(format!("{algorithm}: {actual:?} instead of {:?}", expected.metrics));
        }
        check_derived(&metrics, baseline.get_or_insert_with(|| metrics.clone()), &expected.derived)
            .map_err(|difference| format!("{algorithm}: {difference}"))?;
    }
    Ok(())
}

fn check_derived(metrics: &TestMetrics, baseline: &TestMetrics, expected: &Derived) -> Result<(), String> {
    let stretches: Vec<f64> = metrics.jobs.iter().map(|job| job.stretch()).collect();
    let wastes: Vec<f64> = metrics.jobs.iter().map(|job| job.waste()).collect();
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    near("waste", metrics.waste(), expected.waste)?;
    near("utilisation", metrics.utilisation(), expected.utilisation)?;
    near("avg_jct", metrics.jct(), expected.avg_jct)?;
    near("avg_jwt", metrics.jwt(), expected.avg_jwt)?;
    near("stretches", metrics.stretches(), expected.stretches)?;
    near("mean_job_stretch", mean(&stretches), expected.mean_job_stretch)?;
    near("max_job_stretch", most(&stretches), expected.max_job_stretch)?;
    near("mean_job_waste", mean(&wastes), expected.mean_job_waste)?;
    near("max_job_waste", most(&wastes), expected.max_job_waste)?;
    let relative = metrics.relative_to(baseline);
    let both = [
        ("reservation", relative.reservation, expected.relative.reservation),
        ("makespan", relative.makespan, expected.relative.makespan),
        ("avg_jct", relative.jct, expected.relative.avg_jct),
        ("avg_jwt", relative.jwt, expected.relative.avg_jwt),
    ];
    for (what, actual, expected) in both {
        match (actual, expected) {
            (None, None) => {}
            (Some(actual), Some(expected)) => near(what, actual, expected)?,
            (Some(_), None) | (None, Some(_)) => return Err(format!("{what}: {actual:?} instead of {expected:?}")),
        }
    }
    Ok(())
}

fn near(what: &str, actual: f64, expected: f64) -> Result<(), String> {
    let is_near = (actual - expected).abs() <= 1e-9 * expected.abs().max(1e-9);
    if is_near { Ok(()) } else { Err(format!("{what}: {actual} instead of {expected}")) }
}

#[derive(Deserialize)]
struct RandomTest {
    seed: u64,
    test: usize,
    nodes: u32,
    napps: usize,
    nsteps: usize,
    used_area: i128,
    /// Reserved area, makespan, sum of completions, sum of waits, stretched jobs.
    results: BTreeMap<String, [i128; 5]>,
}

/// Draws the tests of offline_experiment as their lines are met: those before a line are drawn, too.
#[derive(Debug, Default)]
pub struct Experiment {
    drawn: Option<(u64, usize, EvolvingTests)>,
}

impl Experiment {
    /// # Errors
    /// The first difference, or why the line is no vector.
    pub fn check(&mut self, line: &str) -> Result<(), String> {
        let vector: RandomTest = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let apps = self.draw(vector.seed, vector.test);
        let n_stages: usize = apps.iter().map(|app| app.stages().len()).sum();
        let used: i128 = apps.iter().map(Evolution::area).sum();
        let drawn = (apps.len(), n_stages, used / 1000);
        if drawn != (vector.napps, vector.nsteps, vector.used_area) {
            return Err(format!("another test was drawn: {drawn:?}"));
        }
        for algorithm in Algorithm::ALL {
            let expected = vector.results.get(algorithm.name()).ok_or(format!("no result for {algorithm}"))?;
            let fits = schedule(algorithm, vector.nodes, &apps).map_err(|error| error.to_string())?;
            let actual = measured(vector.nodes, &TestMetrics::new(vector.nodes, &apps, &fits));
            let Metrics { reserved_area, makespan, sum_completion, sum_waiting, stretched_jobs, .. } = actual;
            let actual = [reserved_area, makespan, sum_completion, sum_waiting, stretched_jobs as i128];
            if actual != *expected {
                return Err(format!("{algorithm}: {actual:?} instead of {expected:?}"));
            }
        }
        Ok(())
    }

    fn draw(&mut self, seed: u64, test_idx: usize) -> Vec<Evolution> {
        let (n_drawn, mut tests) = match self.drawn.take() {
            Some((drawn_seed, n_drawn, tests)) if drawn_seed == seed && n_drawn <= test_idx => (n_drawn, tests),
            Some(_) | None => (0, EvolvingTests::new(seed, Ranges::default())),
        };
        for _ in n_drawn..test_idx {
            tests.draw();
        }
        let apps = tests.draw();
        self.drawn = Some((seed, test_idx + 1, tests));
        apps
    }
}
