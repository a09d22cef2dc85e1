//! The costs and benefits of letting an application choose from a share of each cluster only (001, §8).

use std::time::Duration;

use rms_model::{ClusterId, Span, Time};
use serde::Serialize;

use super::assumption::cut_to_share;
use super::figure::{Logs, N_JOBS};
use super::{Assumption, Experiment, FAIR_START, Heard, Outcome, RESCHED_TIMER, System, ViewsError, run};
use crate::delegated::{self, Application, CLUSTER_NODES, Mix, Platform};

/// One run: a workload on four clusters with a share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareCase {
    pub percent: u32,
    /// The part of complex applications.
    pub p_cem: f64,
    pub seed: u64,
}

/// The results of one run, or the mean of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ShareValues {
    pub configurations: f64,
    pub megabytes: f64,
    pub server_steps: f64,
    pub launcher_steps: f64,
    /// The average number of nodes of an application.
    pub nodes: f64,
    /// The average time from an application's arrival to its end.
    pub response_s: f64,
    pub makespan_s: f64,
    /// Of all nodes, until the last application has ended.
    pub utilisation_pct: f64,
}

/// As for Figures 10 and 11 of the paper: half of the maximum in Figure 9.
const N_CLUSTERS: u16 = 4;

/// Returns every run for these shares and parts of complex applications; all shares have the same applications.
pub fn cases(percents: &[u32], p_cems: &[f64], seeds: impl Iterator<Item = u64> + Clone) -> Vec<ShareCase> {
    let of_share = |percent| p_cems.iter().map(move |p_cem| (percent, *p_cem));
    let pairs = percents.iter().flat_map(|percent| of_share(*percent));
    pairs.flat_map(|(percent, p_cem)| seeds.clone().map(move |seed| ShareCase { percent, p_cem, seed })).collect()
}

impl ShareCase {
    /// Runs the case with the first `n_jobs` of the log. `clock` only measures.
    ///
    /// # Errors
    /// An application cannot be run.
    pub fn run(
        &self,
        logs: &Logs,
        n_jobs: usize,
        clock: &mut dyn FnMut() -> Duration,
    ) -> Result<ShareValues, ViewsError> {
        let platform = Platform { n_clusters: N_CLUSTERS };
        let jobs = &logs.first.jobs[..n_jobs.min(N_JOBS).min(logs.first.jobs.len())];
        let mut applications = delegated::applications(jobs, Mix::w2(self.p_cem), platform, self.seed);
        cut_to_share(&mut applications, self.percent);
        let clusters: Vec<(ClusterId, u32)> = platform.clusters().map(|cluster| (cluster, CLUSTER_NODES)).collect();
        let experiment = Experiment {
            system: System::Views,
            heard: Heard::ByAll,
            clusters: &clusters,
            applications: &applications,
            fair_start: FAIR_START,
            resched_timer: RESCHED_TIMER,
            assumption: Some(Assumption::ViewShare { percent: self.percent }),
        };
        let n_nodes = clusters.iter().map(|(_, n_nodes)| f64::from(*n_nodes)).sum();
        Ok(ShareValues::of(&run(&experiment, clock)?, &applications, n_nodes))
    }
}

impl ShareValues {
    fn of(outcome: &Outcome, applications: &[Application], n_nodes: f64) -> ShareValues {
        let n_ran = outcome.ran.len().max(1) as f64;
        let makespan = outcome.makespan().as_secs_f64();
        let response = |(application, end): (&Application, Time)| end.since(application.arrival).as_secs_f64();
        let ends = outcome.ran.iter().map(|ran| ran.end);
        let node_secs = outcome.ran.iter().map(|ran| {
            let span: Span = ran.end.since(ran.start);
            span.as_secs_f64() * f64::from(ran.request.n_nodes())
        });
        ShareValues {
            configurations: outcome.n_configurations as f64,
            megabytes: outcome.bytes() as f64 / 1e6,
            server_steps: outcome.server.steps as f64,
            launcher_steps: outcome.launchers.steps as f64,
            nodes: outcome.ran.iter().map(|ran| f64::from(ran.request.n_nodes())).sum::<f64>() / n_ran,
            response_s: applications.iter().zip(ends).map(response).sum::<f64>() / n_ran,
            makespan_s: makespan,
            utilisation_pct: 100.0 * node_secs.sum::<f64>() / (n_nodes * makespan).max(1.0),
        }
    }

    /// Returns the mean of runs that differ in their seeds.
    pub fn mean(runs: &[ShareValues]) -> ShareValues {
        let n_runs = runs.len().max(1) as f64;
        let mean = |value: fn(&ShareValues) -> f64| runs.iter().map(value).sum::<f64>() / n_runs;
        ShareValues {
            configurations: mean(|values| values.configurations),
            megabytes: mean(|values| values.megabytes),
            server_steps: mean(|values| values.server_steps),
            launcher_steps: mean(|values| values.launcher_steps),
            nodes: mean(|values| values.nodes),
            response_s: mean(|values| values.response_s),
            makespan_s: mean(|values| values.makespan_s),
            utilisation_pct: mean(|values| values.utilisation_pct),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the whole share, nothing is cut or hidden: this is the experiment of Figure 9.
    #[test]
    fn a_share_bounds_what_is_taken_and_all_of_it_changes_nothing() {
        let logs = Logs::of(&delegated::first_log(), None);
        let run = |percent| {
            let case = ShareCase { percent, p_cem: 1.0, seed: 1 };
            case.run(&logs, 12, &mut || Duration::ZERO).expect("every application can be run")
        };
        let (all, quarter) = (run(100), run(25));
        let most = f64::from(CLUSTER_NODES / 4 * u32::from(N_CLUSTERS));
        assert!(quarter.nodes <= most && all.nodes > most, "{quarter:?}, {all:?}");
        assert_eq!(run(25), quarter, "the same seed gives the same numbers");
    }

    #[test]
    fn shares_that_are_equal_over_the_seeds_are_their_mean() {
        let one = ShareValues { nodes: 2.0, ..ShareValues::default() };
        let other = ShareValues { nodes: 4.0, ..ShareValues::default() };
        assert_eq!(ShareValues::mean(&[one, other]).nodes, 3.0);
        assert_eq!(cases(&[100, 50], &[0.0], 1..3).len(), 4);
    }
}
