//! Runs a workload with increasing numbers of malleable jobs, for several seeds, and compares the results.

use rms_model::{OfferRule, Policy, Settings, ShrinkRule, Span};
use serde::Serialize;

use super::jobs::{GainJobs, Nature};
use rms_sim::batch::{Batch, BatchError, Finished, Summary, Workload, uniform_nodes};
use rms_sim::workload::swf::TraceJob;

/// The parameters of the comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Study {
    pub n_nodes: u32,
    pub policy: Policy,
    /// How many waiting jobs a pass considers; 0 for all.
    pub queue_depth: u32,
    /// Percentages of malleable jobs; the others are compared with the first.
    pub parts: Vec<u32>,
    /// The properties of malleable jobs, whatever their percentage.
    pub nature: Nature,
    /// Whether running jobs are not changed: then only the choice of the size at the start is left.
    pub only_at_start: bool,
}

/// The results of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    pub jobs: usize,
    /// Always 0, or nothing can be compared.
    pub refused: usize,
    pub malleable: usize,
    pub mean_response_s: f64,
    pub mean_wait_s: f64,
    /// Response time over the run time with the requested size; see [`Finished::bounded_slowdown`].
    pub mean_bounded_slowdown: f64,
    /// Node-time that jobs held, over all node-time until the last end.
    pub utilisation: f64,
    pub makespan_s: f64,
    /// Node-time that jobs held, over that of the same jobs with the requested sizes.
    pub node_time: f64,
    /// Changes of nodes per malleable job.
    pub mean_changes: f64,
    /// Jobs that reached their wall time before their end.
    pub killed: usize,
}

/// The quantities that figures show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    Response,
    Wait,
    Slowdown,
    Utilisation,
    Makespan,
}

/// Statistics over the seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub least: f64,
    pub mean: f64,
    pub most: f64,
}

/// The runs with one percentage of malleable jobs, one for each seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    pub malleable_pct: u32,
    pub runs: Vec<Measured>,
}

impl Default for Study {
    fn default() -> Study {
        let (parts, nature) = (vec![0, 20, 50, 100], Nature::default());
        let n_nodes = super::nbody::NODES;
        Study { n_nodes, policy: Policy::Easy, queue_depth: 0, parts, nature, only_at_start: false }
    }
}

impl Study {
    /// Returns a row for each percentage. `workload` returns the jobs of a seed; `progress` is called after every run.
    ///
    /// # Errors
    /// Some jobs never start.
    pub fn run(
        &self,
        seeds: &[u64],
        workload: impl Fn(u64) -> Vec<TraceJob>,
        mut progress: impl FnMut(),
    ) -> Result<Vec<Row>, BatchError> {
        let mut rows: Vec<Row> = self.parts.iter().map(|part| Row { malleable_pct: *part, runs: Vec::new() }).collect();
        for seed in seeds {
            let trace = workload(*seed);
            for row in &mut rows {
                let nature = Nature { malleable: row.malleable_pct, ..self.nature };
                let jobs = GainJobs::new(&trace, self.n_nodes, nature, *seed);
                row.runs.push(self.measure(&jobs)?);
                progress();
            }
        }
        Ok(rows)
    }

    fn measure(&self, jobs: &GainJobs) -> Result<Measured, BatchError> {
        let (offer_idle, shrink_for) = match self.only_at_start {
            true => (OfferRule::Never, ShrinkRule::Never),
            false => (OfferRule::EqualShare, ShrinkRule::Queue),
        };
        let settings = Settings {
            offer_idle,
            shrink_for,
            policy: self.policy,
            queue_depth: self.queue_depth.into(),
            max_wall: Span::MAX_WALL,
            max_jobs: u32::MAX,
            ..Settings::default()
        };
        let batch = Batch::new(settings, &[uniform_nodes(self.n_nodes, 1)], jobs)?;
        Ok(measured(jobs, &batch.run(|_| {})?))
    }
}

fn measured(jobs: &GainJobs, summary: &Summary) -> Measured {
    let ran: Vec<(usize, Finished)> =
        summary.finished.iter().enumerate().filter_map(|(idx, job)| Some((idx, (*job)?))).collect();
    let mean = |of: &dyn Fn(usize, &Finished) -> f64| {
        ran.iter().map(|(idx, job)| of(*idx, job)).sum::<f64>() / ran.len().max(1) as f64
    };
    let (mut asked, mut held, mut n_changes, mut killed) = (0.0, 0.0, 0, 0);
    for (idx, job) in &ran {
        held += job.node_s;
        asked += f64::from(jobs.size(*idx)) * jobs.run(*idx).as_secs_f64();
        n_changes += job.n_changes;
        killed += usize::from(jobs.elastic(*idx).is_some_and(|elastic| job.run() >= elastic.wall));
    }
    let figures = summary.figures;
    Measured {
        jobs: figures.jobs,
        refused: figures.refused,
        malleable: jobs.n_malleable(),
        mean_response_s: figures.mean_response_s,
        mean_wait_s: figures.mean_wait_s,
        mean_bounded_slowdown: mean(&|idx, job| {
            let static_s = jobs.run(idx).as_secs_f64().max(10.0);
            (job.response().as_secs_f64() / static_s).max(1.0)
        }),
        utilisation: figures.utilisation,
        makespan_s: figures.makespan_s,
        node_time: if asked > 0.0 { held / asked } else { 1.0 },
        mean_changes: f64::from(n_changes) / jobs.n_malleable().max(1) as f64,
        killed,
    }
}

impl Metric {
    /// The order in tables and pictures.
    pub const ALL: [Metric; 5] =
        [Metric::Response, Metric::Wait, Metric::Slowdown, Metric::Utilisation, Metric::Makespan];

    /// Returns its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Response => "response",
            Metric::Wait => "wait",
            Metric::Slowdown => "bounded slowdown",
            Metric::Utilisation => "utilisation",
            Metric::Makespan => "makespan",
        }
    }

    /// Returns its value in one run.
    pub fn of(self, run: &Measured) -> f64 {
        match self {
            Metric::Response => run.mean_response_s,
            Metric::Wait => run.mean_wait_s,
            Metric::Slowdown => run.mean_bounded_slowdown,
            Metric::Utilisation => run.utilisation,
            Metric::Makespan => run.makespan_s,
        }
    }
}

impl Row {
    /// Returns the statistics of the values themselves.
    pub fn spread(&self, metric: Metric) -> Spread {
        Spread::of(self.runs.iter().map(|run| metric.of(run)))
    }

    /// Returns the statistics of each run's value over that of the same seed's run of `base`; 1 if that is 0.
    pub fn against(&self, base: &Row, metric: Metric) -> Spread {
        let pairs = self.runs.iter().zip(&base.runs);
        Spread::of(pairs.map(|(run, base)| {
            let base = metric.of(base);
            if base > 0.0 { metric.of(run) / base } else { 1.0 }
        }))
    }
}

impl Spread {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Spread {
        let n_values = values.clone().count().max(1) as f64;
        Spread {
            least: values.clone().fold(f64::INFINITY, f64::min),
            mean: values.clone().sum::<f64>() / n_values,
            most: values.fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::nbody;
    use super::*;

    fn study(parts: &[u32]) -> Vec<Row> {
        let study = Study { parts: parts.to_vec(), ..Study::default() };
        study.run(&[1, 2], |seed| nbody(80, seed), || {}).expect("every job ends")
    }

    #[test]
    fn malleable_jobs_are_faster_although_each_change_costs_them_a_pause() {
        let rows = study(&[0, 100]);
        let [none, all] = rows.as_slice() else { panic!("two rows") };
        assert!(none.runs.iter().all(|run| run.malleable == 0 && run.mean_changes == 0.0 && run.node_time == 1.0));
        assert!(rows.iter().flat_map(|row| &row.runs).all(|run| run.jobs == 80 && run.refused == 0));
        assert!(all.runs.iter().all(|run| run.malleable == 80 && run.mean_changes > 0.1), "{all:?}");
        assert!(all.against(none, Metric::Response).mean < 0.9, "{:?}", all.against(none, Metric::Response));
        assert!(all.against(none, Metric::Utilisation).mean > 1.0);
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        assert_eq!(study(&[50]), study(&[50]));
    }
}
