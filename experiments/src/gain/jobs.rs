//! The jobs of a trace, some of them malleable.

use rms_api::call::{Nodes, Shape, Submission};
use rms_model::{Identity, Malleable, OnResize, Role, Sizes, Span, Speedup, Time};

use rms_sim::Dice;
use rms_sim::batch::{Elastic, Workload, submission};
use rms_sim::workload::swf::TraceJob;

/// The properties of malleable jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nature {
    /// The percentage of jobs that are malleable.
    pub malleable: u32,
    /// A malleable job can run with its size divided by this.
    pub shrinks_to: u32,
    /// It can use up to its size times this.
    pub grows_to: u32,
    /// For how long it pauses at each change.
    pub pause: Span,
    /// The part of its work that more nodes speed up, in thousandths: from, to.
    pub parallel: (u32, u32),
}

impl Default for Nature {
    fn default() -> Nature {
        let pause = Span::from_secs(10);
        Nature { malleable: 100, shrinks_to: 4, grows_to: 4, pause, parallel: (950, 999) }
    }
}

/// A workload for [`Batch`](rms_sim::batch::Batch).
#[derive(Debug)]
pub struct GainJobs {
    jobs: Vec<GainJob>,
}

#[derive(Clone, Debug)]
struct GainJob {
    trace: TraceJob,
    /// The limits of a malleable job.
    limits: Option<Limits>,
}

#[derive(Clone, Debug)]
struct Limits {
    least: u32,
    most: u32,
    sizes: Sizes,
    speedup: Speedup,
    /// The wall time with the fewest nodes.
    wall: Span,
    pause: Span,
}

impl GainJobs {
    /// Creates a workload. The same seed makes the same jobs malleable, and further ones if the percentage is larger:
    /// the compared workloads differ in nothing else.
    pub fn new(jobs: &[TraceJob], n_nodes: u32, nature: Nature, seed: u64) -> GainJobs {
        let mut dice = Dice::new(seed, DRAWS);
        let job = |trace: &TraceJob| {
            // Each job draws the same numbers whether it is malleable or not.
            let (lot, parallel) = (dice.number(1, 100), dice.number(nature.parallel.0, nature.parallel.1));
            let is_power = trace.n_nodes.is_power_of_two();
            let limits = (lot <= nature.malleable).then(|| Limits::of(trace, n_nodes, nature, parallel, is_power));
            GainJob { trace: *trace, limits }
        };
        GainJobs { jobs: jobs.iter().map(job).collect() }
    }

    /// Returns how many nodes a job requested.
    pub fn size(&self, job_idx: usize) -> u32 {
        self.jobs[job_idx].trace.n_nodes
    }

    /// Returns how many jobs are malleable.
    pub fn n_malleable(&self) -> usize {
        self.jobs.iter().filter(|job| job.limits.is_some()).count()
    }
}

impl Limits {
    fn of(trace: &TraceJob, n_nodes: u32, nature: Nature, parallel: u32, is_power: bool) -> Limits {
        let size = trace.n_nodes.max(1);
        let least = size.div_ceil(nature.shrinks_to.max(1)).max(1);
        let most = size.saturating_mul(nature.grows_to.max(1)).min(n_nodes).max(size);
        let sizes = if is_power { Sizes::PowerOfTwo } else { Sizes::Any };
        let speedup = amdahl(parallel, most);
        // The wall time allows for the least size, and for some changes.
        let factor = |nodes| i64::from(speedup.at(nodes).unwrap_or(1).max(1));
        let stretched = trace.wall.as_millis().saturating_mul(factor(size)) / factor(least);
        let wall = Span::from_millis(stretched) + Span::from_millis(nature.pause.as_millis() * CHANGES);
        Limits { least, most, sizes, speedup, wall, pause: nature.pause }
    }
}

/// Returns speeds by Amdahl's law, at the powers of two and at the end, with lines between them.
fn amdahl(parallel: u32, most: u32) -> Speedup {
    let speed = |nodes: u32| {
        let (parallel, nodes) = (u64::from(parallel), u64::from(nodes));
        // 1000 / ((1 - p) + p / n), with p in thousandths.
        (1_000_000 * nodes / ((1000 - parallel) * nodes + parallel)) as u32
    };
    let powers = (0..32).map(|log| 1 << log).take_while(|nodes| *nodes < most);
    Speedup(powers.chain([most]).map(|nodes| (nodes, speed(nodes))).collect())
}

impl Workload for GainJobs {
    fn n_jobs(&self) -> usize {
        self.jobs.len()
    }

    fn submit(&self, job_idx: usize) -> Time {
        self.jobs[job_idx].trace.submit
    }

    fn submission(&self, job_idx: usize) -> (Identity, Submission) {
        let GainJob { trace, limits } = &self.jobs[job_idx];
        let who = Identity { role: Role::User, name: format!("u{}", trace.user) };
        let shape = |nodes, wall| vec![Shape { nodes, wall: Some(wall) }];
        let submission = match limits {
            None => submission(shape(Nodes::Count(trace.n_nodes), trace.wall)),
            Some(limits) => {
                let malleable = Malleable {
                    least: limits.least,
                    most: limits.most,
                    sizes: limits.sizes.clone(),
                    on_resize: OnResize::Workers,
                    speedup: limits.speedup.clone(),
                    survives_loss: None,
                };
                Submission { malleable: Some(malleable), ..submission(shape(Nodes::FromTasks, limits.wall)) }
            }
        };
        (who, submission)
    }

    fn run(&self, job_idx: usize) -> Span {
        self.jobs[job_idx].trace.run
    }

    fn elastic(&self, job_idx: usize) -> Option<Elastic> {
        let GainJob { trace, limits } = &self.jobs[job_idx];
        let limits = limits.as_ref()?;
        let Limits { speedup, wall, pause, .. } = limits.clone();
        Some(Elastic { size: trace.n_nodes, speedup, pause, wall })
    }
}

/// The number of changes that a wall time allows for.
const CHANGES: i64 = 20;
/// The random stream.
const DRAWS: u64 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(n_nodes: u32) -> TraceJob {
        let (wall, run) = (Span::from_secs(2000), Span::from_secs(1000));
        TraceJob { number: 1, submit: Time::EPOCH, n_nodes, n_procs: n_nodes, wall, run, user: 1 }
    }

    #[test]
    fn more_malleable_jobs_are_the_same_ones_and_others() {
        let jobs: Vec<TraceJob> = (0..200).map(|_| trace(4)).collect();
        let which = |malleable| {
            let jobs = GainJobs::new(&jobs, 16, Nature { malleable, ..Nature::default() }, 7);
            (0..200).filter(|idx| jobs.elastic(*idx).is_some()).collect::<Vec<_>>()
        };
        let (few, many) = (which(20), which(50));
        assert!(few.len() > 20 && few.len() < 60, "{}", few.len());
        assert!(few.iter().all(|idx| many.contains(idx)));
        assert_eq!((which(0).len(), which(100).len()), (0, 200));
    }

    #[test]
    fn speeds_follow_amdahl_and_the_wall_time_allows_for_the_least_size() {
        assert_eq!(amdahl(900, 4), Speedup(vec![(1, 1000), (2, 1818), (4, 3076)]));
        let limits = Limits::of(&trace(8), 16, Nature::default(), 999, true);
        assert_eq!((limits.least, limits.most), (2, 16));
        let stretched = limits.wall.as_millis() as f64 / 1000.0;
        assert!((7900.0..8300.0).contains(&stretched), "four times as slow on two nodes: {stretched}");
    }
}
