//! The results of a workload: the figures that papers and other schedulers give.

use rms_model::{Span, Time};
use serde::Serialize;

/// The result of one job that ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finished {
    pub submitted: Time,
    pub started: Time,
    pub ended: Time,
    /// How long it would have run with all that it requested.
    pub alone: Span,
    /// The number of nodes with which it started.
    pub n_nodes: u32,
    /// The sum over its nodes of the seconds for which it held them; of a shared node, its share of the cores.
    pub node_s: f64,
    /// How often its nodes changed while it ran.
    pub n_changes: u32,
    /// Whether it began on cores that others lent.
    pub was_guest: bool,
    /// Whether it has lent cores.
    pub was_mate: bool,
}

impl Finished {
    pub fn wait(&self) -> Span {
        self.started.since(self.submitted)
    }

    pub fn run(&self) -> Span {
        self.ended.since(self.started)
    }

    pub fn response(&self) -> Span {
        self.ended.since(self.submitted)
    }

    /// Returns the response time over the run time with all that it requested (004, §4).
    pub fn slowdown(&self) -> f64 {
        self.response().as_secs_f64() / self.alone.as_secs_f64().max(0.001)
    }

    /// Returns the same for jobs of at least ten seconds; shorter ones count as if they ran for ten, and no value is
    /// below 1.
    pub fn bounded_slowdown(&self) -> f64 {
        (self.response().as_secs_f64() / self.alone.as_secs_f64().max(10.0)).max(1.0)
    }
}

/// The results of all jobs of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// In the order of their submits; `None`: the job was refused.
    pub finished: Vec<Option<Finished>>,
    pub figures: Figures,
}

/// Means over the jobs that ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    pub jobs: usize,
    /// Jobs larger than the cluster, which were refused.
    pub refused: usize,
    /// From the first submit to the last end.
    pub makespan_s: f64,
    pub mean_wait_s: f64,
    pub mean_response_s: f64,
    pub mean_slowdown: f64,
    pub mean_bounded_slowdown: f64,
    /// The node-seconds that jobs ran, over all node-seconds until the last end.
    pub utilisation: f64,
    /// Node-seconds that ghosts kept idle.
    pub ghost_node_s: f64,
}

impl Summary {
    /// Summarizes jobs in the order of their submits, on `n_nodes` nodes.
    pub fn new(finished: Vec<Option<Finished>>, n_nodes: u32, refused: usize, ghosts: Span) -> Summary {
        let ran = || finished.iter().flatten();
        let jobs = ran().count();
        let begin = ran().map(|job| job.submitted).min().unwrap_or(Time::EPOCH);
        let end = ran().map(|job| job.ended).max().unwrap_or(begin);
        let makespan_s = end.since(begin).as_secs_f64();
        let mean =
            |of: &dyn Fn(&Finished) -> f64| if jobs == 0 { 0.0 } else { ran().map(of).sum::<f64>() / jobs as f64 };
        let busy: f64 = ran().map(|job| job.node_s).sum();
        let figures = Figures {
            jobs,
            refused,
            makespan_s,
            mean_wait_s: mean(&|job| job.wait().as_secs_f64()),
            mean_response_s: mean(&|job| job.response().as_secs_f64()),
            mean_slowdown: mean(&Finished::slowdown),
            mean_bounded_slowdown: mean(&Finished::bounded_slowdown),
            utilisation: if makespan_s > 0.0 { busy / (f64::from(n_nodes) * makespan_s) } else { 0.0 },
            ghost_node_s: ghosts.as_secs_f64(),
        };
        Summary { finished, figures }
    }
}
