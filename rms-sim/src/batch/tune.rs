//! A sweep over the fair-start delay and the re-scheduling timer: what they cost, and whom they protect.
//!
//! Cost is simulated: hosts that ghosts keep idle, and what that does to waits. Unfairness is estimated, because the
//! launchers of a workload that was recorded answer at once: a launcher that needs time to adapt loses its turn at a
//! hole that opens early if its adaptation takes longer than the hosts are kept (001, Fig. 10). Adaptation times are
//! taken to be spread evenly from 0 to the longest.

use rms_model::{Settings, Span};
use serde::Serialize;

use super::{Batch, BatchError, Figures, Hosts, Workload};

/// What is tried.
#[derive(Clone, Debug)]
pub struct Sweep {
    pub fair_starts: Vec<Span>,
    pub resched_timers: Vec<Span>,
    /// How long the slowest launcher takes to adapt to a new view.
    pub longest_adaptation: Span,
    /// The most of all host-time that ghosts may waste.
    pub most_waste: f64,
}

impl Default for Sweep {
    fn default() -> Sweep {
        Sweep {
            fair_starts: [0, 1, 2, 5, 10, 20, 30].map(Span::from_secs).to_vec(),
            resched_timers: [0, 1, 5, 30].map(Span::from_secs).to_vec(),
            longest_adaptation: Span::from_secs(10),
            most_waste: 0.01,
        }
    }
}

/// One setting of both.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    pub fair_start_s: f64,
    pub resched_timer_s: f64,
    /// Host-time that ghosts kept idle, over all there was.
    pub waste: f64,
    pub ghost_host_s: f64,
    /// Estimated: how many of the launchers would lose their turn at a hole that opens early.
    pub unfairness: f64,
    pub mean_wait_s: f64,
    pub mean_bounded_slowdown: f64,
    pub makespan_s: f64,
}

/// What the sweep gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuned {
    pub points: Vec<Point>,
    pub recommended: Point,
    pub reason: String,
}

/// Runs the workload once for each pair.
///
/// # Errors
/// Those of a run. A sweep over nothing recommends what `settings` have.
pub fn tune<W: Workload>(
    sweep: &Sweep,
    settings: &Settings,
    hosts: &[Hosts],
    workload: &W,
    mut progress: impl FnMut(usize),
) -> Result<Tuned, BatchError> {
    let n_hosts: usize = hosts.iter().map(|cluster| cluster.names.len()).sum();
    let mut points = Vec::new();
    for resched_timer in
        sweep.resched_timers.iter().copied().chain(sweep.resched_timers.is_empty().then_some(settings.resched_timer))
    {
        for fair_start in
            sweep.fair_starts.iter().copied().chain(sweep.fair_starts.is_empty().then_some(settings.fair_start))
        {
            let tried = Settings { fair_start, resched_timer, ..settings.clone() };
            let n_before = points.len() * workload.n_jobs();
            let summary = Batch::new(tried, hosts, workload)?.run(|n_done| progress(n_before + n_done))?;
            points.push(point(sweep, fair_start, resched_timer, n_hosts, &summary.figures));
        }
    }
    let (recommended, reason) = recommend(sweep, &points);
    Ok(Tuned { points, recommended, reason })
}

fn point(sweep: &Sweep, fair_start: Span, resched_timer: Span, n_hosts: usize, figures: &Figures) -> Point {
    let all = figures.makespan_s * n_hosts as f64;
    let longest = sweep.longest_adaptation.as_secs_f64();
    // A pass comes up to a timer later than the view that it changes: that much of the delay is gone by then.
    let left = (fair_start.as_secs_f64() - resched_timer.as_secs_f64()).max(0.0);
    Point {
        fair_start_s: fair_start.as_secs_f64(),
        resched_timer_s: resched_timer.as_secs_f64(),
        waste: if all > 0.0 { figures.ghost_host_s / all } else { 0.0 },
        ghost_host_s: figures.ghost_host_s,
        unfairness: if longest > 0.0 { (1.0 - left / longest).clamp(0.0, 1.0) } else { 0.0 },
        mean_wait_s: figures.mean_wait_s,
        mean_bounded_slowdown: figures.mean_bounded_slowdown,
        makespan_s: figures.makespan_s,
    }
}

/// The fairest of those that waste little enough; of those the one with the shortest waits, then the least waste.
fn recommend(sweep: &Sweep, points: &[Point]) -> (Point, String) {
    let affordable = points.iter().filter(|point| point.waste <= sweep.most_waste);
    let key = |point: &&Point| (point.unfairness, point.mean_wait_s, point.waste);
    let less = |one: &&Point, two: &&Point| key(one).partial_cmp(&key(two)).unwrap_or(std::cmp::Ordering::Equal);
    let percent = 100.0 * sweep.most_waste;
    match affordable.min_by(less) {
        Some(best) => {
            let reason = format!(
                "of the settings that waste at most {percent} % of the host-time it leaves the fewest launchers behind \
                 ({:.0} %, if they take up to {} to adapt), with the shortest waits among its equals",
                100.0 * best.unfairness,
                sweep.longest_adaptation
            );
            (*best, reason)
        }
        None => {
            let least = points.iter().min_by(|one, two| one.waste.total_cmp(&two.waste)).copied();
            let least = least.expect("each sweep has a point");
            (least, format!("every setting wastes more than {percent} % of the host-time; this one wastes the least"))
        }
    }
}
