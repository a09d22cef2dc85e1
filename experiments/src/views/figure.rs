//! Figures 7 to 11 of 001, and the runs of each.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rms_model::{ClusterId, Span};
use thiserror::Error;

use super::assumption::cut_to_share;
use super::{Assumption, Experiment, FAIR_START, Heard, RESCHED_TIMER, System, ViewsError, run};
use crate::delegated::{self, CLUSTER_NODES, Complex, Mix, Platform};
use rms_sim::Dice;
use rms_sim::workload::swf::{Cleaned, Record, Trace, TraceJob};

/// A figure of 001.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Figure {
    /// One cluster with an increasing part of moldable applications: views compared with listed sizes.
    Seven,
    /// An increasing number of clusters: views compared with listed sizes.
    Eight,
    /// An increasing number of clusters, with complex-moldable applications.
    Nine,
    /// What a slow launcher loses if ghosts are too short.
    Ten,
    /// The cost of ghosts.
    Eleven,
}

/// A number that is not a figure.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no figure of the evaluation by simulation: write 7, 8, 9, 10, 11 or all")]
pub struct UnknownFigure(String);

impl Figure {
    pub const ALL: [Figure; 5] = [Figure::Seven, Figure::Eight, Figure::Nine, Figure::Ten, Figure::Eleven];

    pub fn number(self) -> u8 {
        match self {
            Figure::Seven => 7,
            Figure::Eight => 8,
            Figure::Nine => 9,
            Figure::Ten => 10,
            Figure::Eleven => 11,
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Figure::Seven => "One cluster, by the part of moldable applications",
            Figure::Eight => "By the number of clusters, 20 % moldable applications",
            Figure::Nine => "By the number of clusters, with complex-moldable applications",
            Figure::Ten => "How much later a launcher ends that takes time to adapt",
            Figure::Eleven => "What ghosts keep idle, 4 clusters",
        }
    }

    /// Returns the label of the horizontal axis, with its unit.
    pub fn x_label(self) -> &'static str {
        match self {
            Figure::Seven => "moldable applications (part)",
            Figure::Eight | Figure::Nine => "clusters",
            Figure::Ten => "adaptation delay (s)",
            Figure::Eleven => "fair-start delay (s)",
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

impl FromStr for Figure {
    type Err = UnknownFigure;

    fn from_str(text: &str) -> Result<Figure, UnknownFigure> {
        let named = Figure::ALL.into_iter().find(|figure| figure.to_string() == text);
        named.ok_or_else(|| UnknownFigure(text.to_owned()))
    }
}

/// The jobs from which applications are made.
#[derive(Clone, Debug)]
pub struct Logs {
    /// The first 200 jobs that ran.
    pub first: Cleaned,
    /// The jobs from which Figure 10 takes 200 consecutive ones.
    pub whole: Vec<TraceJob>,
}

impl Logs {
    /// Reads the first jobs of a log, and all of them. Jobs larger than a cluster are cut to it, or dropped.
    pub fn of(log: &Trace, assumption: Option<Assumption>) -> Logs {
        let is_taken = |record: &&Record| match assumption {
            Some(Assumption::Uncut) => delegated::fits_a_cluster(record),
            Some(_) | None => true,
        };
        let taken: Vec<Record> = log.records.iter().filter(is_taken).cloned().collect();
        let ran = taken.iter().filter(|record| delegated::has_run(record)).take(N_JOBS).cloned().collect();
        let beginning = Trace { header: log.header.clone(), records: ran };
        let whole = Trace { header: log.header.clone(), records: taken };
        Logs { first: delegated::jobs(&beginning), whole: delegated::jobs(&whole).jobs }
    }
}

/// The number of jobs of an experiment.
pub const N_JOBS: usize = 200;

/// The number of runs for a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    pub n_seeds: u32,
    pub first_seed: u64,
    /// Few points and few jobs: for a trial, not for a judgement.
    pub quick: bool,
}

/// A figure's axes: every series has a value at every x.
#[derive(Clone, Debug, PartialEq)]
pub struct Axes {
    pub xs: Vec<f64>,
    pub series: Vec<String>,
}

/// One run of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Case {
    pub figure: Figure,
    pub series_idx: usize,
    pub x_idx: usize,
    pub seed: u64,
    setup: Setup,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Setup {
    system: System,
    n_clusters: u16,
    mix: Mix,
    /// Whether its jobs are taken anywhere in the log, instead of from the beginning.
    anywhere: bool,
    n_jobs: usize,
    fair_start: Span,
    assumption: Option<Assumption>,
}

/// The results of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Values {
    pub n_configurations: u64,
    pub bytes: u64,
    pub server_steps: u64,
    pub launcher_steps: u64,
    pub ghost_node_secs: f64,
    /// When the first complex application ended, if there is one.
    pub complex_end: Option<Span>,
    /// Of the server and the launchers together.
    pub cpu: Duration,
}

const SYSTEMS: [(System, &str); 2] = [(System::Views, "views"), (System::Listed, "all sizes listed")];
const P_CEM: [f64; 4] = [0.2, 0.5, 0.8, 1.0];
const FIGURE_11_P_CEM: [f64; 5] = [0.0, 0.2, 0.5, 0.8, 1.0];
/// Fair-start delays of Figure 10, in seconds; the paper does not give the ones that it used.
pub(super) const FIGURE_10_FAIR_STARTS: [i64; 3] = [5, 10, 20];
/// Figure 10 is about means and extremes of single applications, so it needs more runs than sums over 200 do.
const FIGURE_10_RUNS: u32 = 8;
const QUICK_JOBS: usize = 30;

impl Figure {
    pub fn axes(self, effort: Effort) -> Axes {
        let counts = || if effort.quick { vec![1.0, 2.0, 4.0] } else { (1..=8).map(f64::from).collect() };
        let named = |names: &[(System, &str)]| names.iter().map(|(_, name)| (*name).to_owned()).collect();
        match self {
            Figure::Seven => {
                let n_points = if effort.quick { 2 } else { 10 };
                let xs = (0..=n_points).map(|idx| f64::from(idx) / f64::from(n_points)).collect();
                Axes { xs, series: named(&SYSTEMS) }
            }
            Figure::Eight => Axes { xs: counts(), series: named(&SYSTEMS) },
            Figure::Nine => {
                let w2 = P_CEM.map(|p_cem| format!("W2, {:.0} % complex", 100.0 * p_cem));
                Axes { xs: counts(), series: ["W0", "W1"].map(str::to_owned).into_iter().chain(w2).collect() }
            }
            Figure::Ten => {
                let delays: &[i64] = if effort.quick { &[0, 4, 24] } else { &[0, 2, 4, 7, 9, 12, 18, 22, 30] };
                let series = FIGURE_10_FAIR_STARTS.map(|secs| format!("fair-start {secs} s")).into();
                Axes { xs: delays.iter().map(|secs| *secs as f64).collect(), series }
            }
            Figure::Eleven => {
                let delays: &[i64] = if effort.quick { &[0, 10, 30] } else { &[0, 5, 10, 15, 20, 25, 30] };
                let series = FIGURE_11_P_CEM.map(|p_cem| format!("{:.0} % complex", 100.0 * p_cem)).into();
                Axes { xs: delays.iter().map(|secs| *secs as f64).collect(), series }
            }
        }
    }

    /// Returns every run of the figure; they are independent, so they may run in any order.
    pub fn cases(self, effort: Effort, assumption: Option<Assumption>) -> Vec<Case> {
        let Axes { xs, series } = self.axes(effort);
        let n_runs = match self {
            Figure::Ten if !effort.quick => effort.n_seeds.saturating_mul(FIGURE_10_RUNS),
            Figure::Seven | Figure::Eight | Figure::Nine | Figure::Ten | Figure::Eleven => effort.n_seeds,
        };
        let mut cases = Vec::new();
        for run_idx in 0..u64::from(n_runs) {
            let seed = effort.first_seed.wrapping_add(run_idx);
            for series_idx in 0..series.len() {
                for (x_idx, x) in xs.iter().enumerate() {
                    let n_jobs = if effort.quick { QUICK_JOBS } else { N_JOBS };
                    let mut setup = Setup { n_jobs, assumption, ..self.setup(series_idx, *x, seed) };
                    setup.mix = self.assumed(setup.mix, assumption);
                    cases.push(Case { figure: self, series_idx, x_idx, seed, setup });
                }
            }
        }
        cases
    }

    fn assumed(self, mix: Mix, assumption: Option<Assumption>) -> Mix {
        match (assumption, mix.complex) {
            (Some(Assumption::ComplexSize { thousandths }), _) => {
                Mix { iterations: mix.iterations * u64::from(thousandths) / 1000, ..mix }
            }
            (Some(Assumption::ComplexAt { number }), Complex::Inserted { number: _, adaptation })
                if self == Figure::Nine =>
            {
                Mix { complex: Complex::Inserted { number: number as usize, adaptation }, ..mix }
            }
            (Some(Assumption::WallsOfLog), _) => Mix { has_walls_of_log: true, ..mix },
            _ => mix,
        }
    }

    fn setup(self, series_idx: usize, x: f64, seed: u64) -> Setup {
        let (system, n_jobs) = (System::Views, N_JOBS);
        let (mix, fair_start) = (Mix::W0, FAIR_START);
        let plain = Setup { system, n_clusters: 1, mix, anywhere: false, n_jobs, fair_start, assumption: None };
        let whole_secs = |secs: f64| Span::from_secs(secs as i64);
        match self {
            Figure::Seven => {
                let mix = Mix { p_mo: x, ..Mix::W0 };
                Setup { system: SYSTEMS[series_idx].0, mix, ..plain }
            }
            Figure::Eight => Setup { system: SYSTEMS[series_idx].0, n_clusters: x as u16, ..plain },
            Figure::Nine => {
                let mix = match series_idx {
                    0 => Mix::W0,
                    1 => Mix::W1,
                    _ => Mix::w2(P_CEM[series_idx - 2]),
                };
                Setup { mix, n_clusters: x as u16, ..plain }
            }
            Figure::Ten => {
                // The same place and platform for all delays.
                let mut dice = Dice::new(seed, 10);
                let n_clusters = dice.number(1, 8) as u16;
                let number = dice.number(1, N_JOBS as u32) as usize;
                let complex = Complex::Inserted { number, adaptation: whole_secs(x) };
                let mix = Mix { complex, ..Mix::W0 };
                let fair_start = Span::from_secs(FIGURE_10_FAIR_STARTS[series_idx]);
                Setup { mix, n_clusters, anywhere: true, fair_start, ..plain }
            }
            Figure::Eleven => {
                Setup { mix: Mix::w2(FIGURE_11_P_CEM[series_idx]), n_clusters: 4, fair_start: whole_secs(x), ..plain }
            }
        }
    }
}

impl Case {
    /// Runs the case. `clock` only measures.
    ///
    /// # Errors
    /// An application cannot be run.
    pub fn run(&self, logs: &Logs, clock: &mut dyn FnMut() -> Duration) -> Result<Values, ViewsError> {
        let Setup { system, n_clusters, mix, anywhere, n_jobs, fair_start, assumption } = self.setup;
        let jobs = match anywhere {
            true => delegated::window(&logs.whole, n_jobs, self.seed),
            false => &logs.first.jobs[..n_jobs.min(logs.first.jobs.len())],
        };
        let platform = Platform { n_clusters };
        let mut applications = delegated::applications(jobs, mix, platform, self.seed);
        if let Some(Assumption::ViewShare { percent }) = assumption {
            cut_to_share(&mut applications, percent);
        }
        let clusters: Vec<(ClusterId, u32)> = platform.clusters().map(|cluster| (cluster, CLUSTER_NODES)).collect();
        let experiment = Experiment {
            system,
            heard: Heard::ByAll,
            clusters: &clusters,
            applications: &applications,
            fair_start,
            resched_timer: RESCHED_TIMER,
            assumption,
        };
        let outcome = run(&experiment, clock)?;
        let complex = applications.iter().zip(&outcome.ran).find(|(application, _)| application.is_complex());
        Ok(Values {
            n_configurations: outcome.n_configurations,
            bytes: outcome.bytes(),
            server_steps: outcome.server.steps,
            launcher_steps: outcome.launchers.steps,
            ghost_node_secs: outcome.ghost_node_time.as_secs_f64(),
            complex_end: complex.map(|(_, ran)| ran.end.since(rms_model::Time::EPOCH)),
            cpu: outcome.server.cpu + outcome.launchers.cpu,
        })
    }
}
