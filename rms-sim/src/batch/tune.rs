//! A sweep over the fair-start delay and the re-scheduling timer: their costs, the launchers they protect, and what is
//! chance.
//!
//! Cost is simulated: nodes that ghosts keep idle, and the effect on waits. Unfairness is estimated, because the
//! launchers of a recorded workload answer at once: a launcher that needs time to adapt loses its turn at a hole that
//! opens early if its adaptation takes longer than the nodes are kept (001, Fig. 10). Adaptation times are assumed to
//! be uniformly distributed from 0 to the longest.
//!
//! A past happened only once: an apparent difference between two settings may come from a single bad day. So each
//! setting also runs resamples of the past ([`Blocks`]), the same ones for all, and the verdict is based on the paired
//! differences to the setting in force.

mod resample;
mod verdict;

use rms_model::{Settings, Span};
use serde::Serialize;

use super::{Batch, BatchError, ClusterNodes, Figures, Workload};
pub use resample::{Blocks, LEAST_BLOCKS};
pub use verdict::{Advice, Interval, Verdict};

/// The settings to try.
#[derive(Clone, Debug)]
pub struct Sweep {
    pub fair_starts: Vec<Span>,
    pub resched_timers: Vec<Span>,
    /// How long the slowest launcher takes to adapt to a new view.
    pub longest_adaptation: Span,
    /// The largest part of all node-time that ghosts may waste.
    pub most_waste: f64,
    /// How often the past is resampled; at least [`LEAST_RESAMPLES`].
    pub n_resamples: u64,
    /// The seed of the first resample; the next ones follow it.
    pub seed: u64,
    /// The length of the blocks of a resample; absent: derived from the length of the past.
    pub block: Option<Span>,
}

impl Default for Sweep {
    fn default() -> Sweep {
        Sweep {
            fair_starts: [0, 1, 2, 5, 10, 20, 30].map(Span::from_secs).to_vec(),
            resched_timers: [0, 1, 5, 30].map(Span::from_secs).to_vec(),
            longest_adaptation: Span::from_secs(10),
            most_waste: 0.01,
            n_resamples: 39,
            seed: 1,
            block: None,
        }
    }
}

/// With fewer resamples there is no value that 95 % of them stay below.
pub const LEAST_RESAMPLES: u64 = 19;

/// The launchers, for which alone the fair-start delay matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Launchers {
    /// Jobs that had an external launcher.
    pub known: usize,
    /// Jobs of which this is no longer known.
    pub unknown: usize,
}

impl Launchers {
    /// Returns whether there were any, as far as is known.
    pub fn matter(self) -> bool {
        self.known > 0 || self.unknown > 0
    }
}

/// The results with one pair of both settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub fair_start_s: f64,
    pub resched_timer_s: f64,
    /// Node-time that ghosts kept idle, over all node-time.
    pub waste: Interval,
    pub ghost_node_s: f64,
    /// Estimated: the part of the launchers that would lose their turn at a hole that opens early.
    pub unfairness: f64,
    pub mean_wait_s: Interval,
    pub mean_bounded_slowdown: f64,
    pub makespan_s: f64,
    /// The mean wait minus that under the setting in force; these intervals hold for all points together.
    pub difference_s: Interval,
    pub verdict: Verdict,
}

/// The results of the sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuned {
    pub points: Vec<Point>,
    pub current: Point,
    pub recommended: Point,
    pub answer: Advice,
    pub reason: String,
    pub launchers: Launchers,
    pub resamples: u64,
    pub seed: u64,
    pub block_s: f64,
    /// The number of blocks of the past with submitted jobs.
    pub blocks: usize,
}

/// All runs of the sweep; the caller may distribute them over threads.
#[derive(Debug)]
pub struct Study<'a, W> {
    sweep: Sweep,
    settings: &'a Settings,
    nodes: &'a [ClusterNodes],
    workload: &'a W,
    launchers: Launchers,
    blocks: Blocks,
    /// Fair-start delay and re-scheduling timer.
    pairs: Vec<(Span, Span)>,
    current_idx: usize,
}

/// One run: a setting on the past as it was, or on a resample of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    pair_idx: usize,
    seed: Option<u64>,
}

impl<'a, W: Workload> Study<'a, W> {
    /// Creates a study. `settings` are those in force, which are always tried, too. An empty sweep tries them alone.
    pub fn new(
        sweep: Sweep,
        settings: &'a Settings,
        nodes: &'a [ClusterNodes],
        workload: &'a W,
        launchers: Launchers,
    ) -> Study<'a, W> {
        let or = |spans: &[Span], own: Span| if spans.is_empty() { vec![own] } else { spans.to_vec() };
        let mut pairs = Vec::new();
        for timer in or(&sweep.resched_timers, settings.resched_timer) {
            pairs.extend(or(&sweep.fair_starts, settings.fair_start).into_iter().map(|delay| (delay, timer)));
        }
        let current = (settings.fair_start, settings.resched_timer);
        let current_idx = pairs.iter().position(|pair| *pair == current).unwrap_or_else(|| {
            pairs.insert(0, current);
            0
        });
        let blocks = Blocks::new(workload, sweep.block);
        Study { sweep, settings, nodes, workload, launchers, blocks, pairs, current_idx }
    }

    /// Returns all runs, in the order in which [`Study::conclude`] expects their figures.
    pub fn trials(&self) -> Vec<Trial> {
        let seeds = || (0..self.sweep.n_resamples).map(|idx| Some(self.sweep.seed.wrapping_add(idx)));
        let of_pair = |pair_idx| std::iter::once(None).chain(seeds()).map(move |seed| Trial { pair_idx, seed });
        (0..self.pairs.len()).flat_map(of_pair).collect()
    }

    /// # Errors
    /// Those of the run.
    pub fn run(&self, trial: &Trial) -> Result<Figures, BatchError> {
        let (fair_start, resched_timer) = self.pairs[trial.pair_idx];
        let mut tried = self.settings.clone();
        if fair_start != tried.fair_start {
            // A delay that is tried is that of all clusters; the one in force may differ between them.
            tried.forget_own("fair_start");
        }
        (tried.fair_start, tried.resched_timer) = (fair_start, resched_timer);
        let summary = match trial.seed {
            None => Batch::new(tried, self.nodes, self.workload)?.run(|_| {})?,
            Some(seed) => Batch::new(tried, self.nodes, &self.blocks.resample(self.workload, seed))?.run(|_| {})?,
        };
        Ok(summary.figures)
    }

    /// Concludes from the `figures` of all trials.
    pub fn conclude(&self, figures: &[Figures]) -> Tuned {
        let n_runs = 1 + self.sweep.n_resamples as usize;
        let by_pair: Vec<&[Figures]> = figures.chunks(n_runs).collect();
        let waits: Vec<Vec<f64>> =
            by_pair.iter().map(|runs| runs.iter().map(|run| run.mean_wait_s).collect()).collect();
        let differences = verdict::against(&waits, self.current_idx);
        let point = |((pair_idx, runs), difference): ((usize, &&[Figures]), &Interval)| {
            let waste: Vec<f64> = runs.iter().map(|run| self.waste(run)).collect();
            let first = &runs[0];
            let (fair_start, resched_timer) = self.pairs[pair_idx];
            let verdict = if pair_idx == self.current_idx { Verdict::Current } else { difference.verdict() };
            Point {
                fair_start_s: fair_start.as_secs_f64(),
                resched_timer_s: resched_timer.as_secs_f64(),
                waste: Interval::of(&waste),
                ghost_node_s: first.ghost_node_s,
                unfairness: self.unfairness(fair_start, resched_timer),
                mean_wait_s: Interval::of(&waits[pair_idx]),
                mean_bounded_slowdown: first.mean_bounded_slowdown,
                makespan_s: first.makespan_s,
                difference_s: *difference,
                verdict,
            }
        };
        let points: Vec<Point> = by_pair.iter().enumerate().zip(&differences).map(point).collect();
        let is_enough = self.blocks.n_filled() >= LEAST_BLOCKS;
        let (best_idx, answer, reason) =
            verdict::recommend(&self.sweep, &points, &waits, self.current_idx, self.launchers.matter(), is_enough);
        Tuned {
            current: points[self.current_idx],
            recommended: points[best_idx],
            points,
            answer,
            reason,
            launchers: self.launchers,
            resamples: self.sweep.n_resamples,
            seed: self.sweep.seed,
            block_s: self.blocks.span().as_secs_f64(),
            blocks: self.blocks.n_filled(),
        }
    }

    fn waste(&self, figures: &Figures) -> f64 {
        let n_nodes: usize = self.nodes.iter().map(|cluster| cluster.names.len()).sum();
        let all = figures.makespan_s * n_nodes as f64;
        if all > 0.0 { figures.ghost_node_s / all } else { 0.0 }
    }

    fn unfairness(&self, fair_start: Span, resched_timer: Span) -> f64 {
        let longest = self.sweep.longest_adaptation.as_secs_f64();
        // A pass comes up to a timer later than the view that it changes: the delay is shorter by that much.
        let left = (fair_start.as_secs_f64() - resched_timer.as_secs_f64()).max(0.0);
        if longest > 0.0 { (1.0 - left / longest).clamp(0.0, 1.0) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests;
