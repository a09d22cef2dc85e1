//! The evaluation of 004: static backfill compared with slowdown-driven sharing of nodes, on the same jobs.
//!
//! Both are the policy `slowdown` of the production core. Static backfill is its cut-off 0, at which no job lends
//! cores.

mod jobs;
mod measured;
mod oversubscribed;
mod paper;

use rms_model::settings::Depth;
use rms_model::{MaxSlowdown, Policy, Ratio, RuntimeModel, Settings, Span};
use rms_sim::batch::{Batch, BatchError, RunTimes, Summary, uniform_nodes};
use rms_sim::workload::swf::TraceJob;

pub use jobs::SharedJobs;
pub use measured::{Category, Day, Measured, RUN_TIMES, SIZES, categories, days};
pub use paper::{Paper, Printed};

/// What all compared runs have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Study {
    pub n_nodes: u32,
    pub cores_per_node: u32,
    /// How many waiting jobs a pass considers; 0 for all.
    pub queue_depth: u32,
    /// The least time between two passes.
    pub interval: Span,
    /// The model by which the scheduler estimates run times.
    pub estimate: RuntimeModel,
    /// The seed that decides which jobs are malleable.
    pub seed: u64,
}

/// The parameters of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    pub policy: Policy,
    pub cut_off: MaxSlowdown,
    /// How fast jobs really run with some of their cores.
    pub model: RuntimeModel,
    pub factor: Ratio,
    pub max_mates: u32,
    pub max_sharers: u32,
    /// Whether a guest may use free nodes beside those of its mates (004, §3.2.4).
    pub mix_free_nodes: bool,
    /// Whether the slowdown of each mate counts once for each of its nodes, as in the authors' code.
    pub weigh_nodes: bool,
    /// The percentage of jobs that may lend and borrow.
    pub malleable_pct: u32,
    /// The run times with which the scheduler plans.
    pub run_times: RunTimes,
    /// Whether each event is a pass over all waiting jobs, whatever depth and interval the study has.
    pub whole_queue: bool,
}

impl Variant {
    /// Returns static backfill, with which 004 compares.
    pub fn fixed() -> Variant {
        Variant { cut_off: MaxSlowdown::At(nothing()), ..Variant::default() }
    }

    /// Returns whether no job lends.
    pub fn is_static(&self) -> bool {
        self.cut_off == MaxSlowdown::At(nothing()) || self.policy != Policy::Slowdown
    }
}

/// The setting of 004, §4.1, at its best cut-off for Curie.
impl Default for Variant {
    fn default() -> Variant {
        Variant {
            policy: Policy::Slowdown,
            cut_off: MaxSlowdown::At(Ratio::new(10, 1).expect("1 is not 0")),
            model: RuntimeModel::Ideal,
            factor: Ratio::new(1, 2).expect("2 is not 0"),
            max_mates: 2,
            max_sharers: 2,
            mix_free_nodes: false,
            weigh_nodes: false,
            malleable_pct: 100,
            run_times: RunTimes::Requested,
            whole_queue: false,
        }
    }
}

fn nothing() -> Ratio {
    Ratio::new(0, 1).expect("1 is not 0")
}

impl Study {
    /// Runs all jobs with one variant; `progress` is called from time to time with the number of jobs that have ended.
    ///
    /// # Errors
    /// Some jobs never start.
    pub fn run(
        &self,
        trace: &[TraceJob],
        variant: Variant,
        progress: impl FnMut(usize),
    ) -> Result<Summary, BatchError> {
        let jobs = SharedJobs::new(trace, variant.malleable_pct, self.seed);
        let (depth, interval) = if variant.whole_queue { (0, Span::ZERO) } else { (self.queue_depth, self.interval) };
        let mut settings = Settings {
            policy: variant.policy,
            queue_depth: Depth::from(depth),
            resched_timer: interval,
            max_wall: Span::MAX_WALL,
            max_jobs: u32::MAX,
            ..Settings::default()
        };
        settings.sharing.max_slowdown = variant.cut_off;
        settings.sharing.sharing_factor = variant.factor;
        settings.sharing.max_mates = variant.max_mates;
        settings.sharing.max_sharers = variant.max_sharers;
        settings.sharing.mix_free_nodes = variant.mix_free_nodes;
        settings.sharing.weigh_nodes = variant.weigh_nodes;
        settings.sharing.runtime_model = self.estimate;
        let nodes = [uniform_nodes(self.n_nodes, self.cores_per_node)];
        let batch = Batch::new(settings, &nodes, &jobs)?;
        batch.paced_by(variant.model).planned_by(variant.run_times).run(progress)
    }

    /// Runs all jobs, two to a core wherever they would have to wait; no policy chooses which jobs share.
    pub fn oversubscribe(&self, trace: &[TraceJob], model: RuntimeModel) -> Summary {
        oversubscribed::Cluster::new(self, trace, model).run()
    }
}

#[cfg(test)]
mod tests;
