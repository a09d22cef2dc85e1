//! The results of a run compared with static backfill: over all jobs, by their sizes and run times, and by day.

use rms_model::Time;
use rms_sim::batch::{Figures, Finished, Summary};
use serde::Serialize;

/// The results over all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    #[serde(flatten)]
    pub figures: Figures,
    /// Jobs that began on cores of others, and jobs that lent some.
    pub guests: usize,
    pub mates: usize,
    /// The part of jobs that were in the system for longer than under static backfill.
    pub later: f64,
    /// The value that 1 % of jobs exceed: their time in the system over that under static backfill, each at least ten
    /// seconds.
    pub worst_ratio: f64,
    /// The largest increase of a job's time in the system over that under static backfill, in seconds.
    pub worst_delay_s: f64,
}

impl Measured {
    /// Computes the results; `base` is the run under static backfill; the jobs are the same.
    pub fn new(summary: &Summary, base: &Summary) -> Measured {
        let pairs = || pairs(summary, base);
        let n_jobs = pairs().count().max(1) as f64;
        let delay =
            |(ours, base): (&Finished, &Finished)| ours.response().as_secs_f64() - base.response().as_secs_f64();
        let bounded = |job: &Finished| job.response().as_secs_f64().max(10.0);
        let mut ratios: Vec<f64> = pairs().map(|(ours, base)| bounded(ours) / bounded(base)).collect();
        ratios.sort_by(f64::total_cmp);
        let at = (ratios.len() * 99).div_ceil(100).max(1) - 1;
        Measured {
            figures: summary.figures,
            guests: summary.finished.iter().flatten().filter(|job| job.was_guest).count(),
            mates: summary.finished.iter().flatten().filter(|job| job.was_mate).count(),
            later: pairs().filter(|pair| delay(*pair) > 0.0).count() as f64 / n_jobs,
            worst_ratio: ratios.get(at).copied().unwrap_or(1.0),
            worst_delay_s: pairs().map(delay).fold(0.0, f64::max),
        }
    }
}

/// Jobs of similar size and run time (004, Figures 4 to 6): means under static backfill, over those of the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Category {
    pub jobs: usize,
    pub slowdown: f64,
    pub run_time: f64,
    /// 1 where no job waits in either run; `None` where jobs wait only under static backfill.
    pub wait: Option<f64>,
}

/// The largest size of each row, in nodes; the last row contains larger ones.
pub const SIZES: [u32; 7] = [1, 16, 64, 128, 256, 512, 1024];

/// The longest run of each column, in seconds; the last column contains longer ones.
pub const RUN_TIMES: [i64; 6] = [5 * 60, 30 * 60, 3600, 4 * 3600, 12 * 3600, 24 * 3600];

/// Returns the categories by row of sizes, then by column of run times; `None` without jobs.
pub fn categories(summary: &Summary, base: &Summary) -> Vec<Vec<Option<Category>>> {
    let mut sums = vec![vec![[Sums::default(); 2]; RUN_TIMES.len() + 1]; SIZES.len() + 1];
    for (ours, base) in pairs(summary, base) {
        let row = SIZES.partition_point(|size| *size < base.n_nodes);
        let column = RUN_TIMES.partition_point(|run| *run * 1000 < base.alone.as_millis());
        let [of_base, of_ours] = &mut sums[row][column];
        of_base.add(base);
        of_ours.add(ours);
    }
    let category = |[base, ours]: [Sums; 2]| {
        let wait = match (base.wait > 0.0, ours.wait > 0.0) {
            (_, true) => Some(base.wait / ours.wait),
            (false, false) => Some(1.0),
            (true, false) => None,
        };
        let (slowdown, run_time) = (base.slowdown / ours.slowdown, base.run_time / ours.run_time);
        (ours.jobs > 0).then_some(Category { jobs: ours.jobs, slowdown, run_time, wait })
    };
    sums.into_iter().map(|row| row.into_iter().map(category).collect()).collect()
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    jobs: usize,
    slowdown: f64,
    run_time: f64,
    wait: f64,
}

impl Sums {
    fn add(&mut self, job: &Finished) {
        self.jobs += 1;
        self.slowdown += job.slowdown();
        self.run_time += job.run().as_secs_f64();
        self.wait += job.wait().as_secs_f64();
    }
}

/// One day, counted from the first submit (004, Figure 7). A guest that waits over midnight counts among the jobs of
/// one day and the guests of the next, so a day can have more guests than jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Day {
    /// Jobs that were submitted on that day, and their mean slowdowns.
    pub jobs: usize,
    pub static_slowdown: f64,
    pub slowdown: f64,
    /// Jobs that began on cores of others on that day.
    pub guests: usize,
}

/// Returns all days until the last submit or the last start of a guest.
pub fn days(summary: &Summary, base: &Summary) -> Vec<Day> {
    let first = summary.finished.iter().flatten().map(|job| job.submitted).min().unwrap_or(Time::EPOCH);
    let day = |time: Time| (time.since(first).as_millis() / MILLIS_A_DAY) as usize;
    let mut days: Vec<Day> = Vec::new();
    let mut at = |idx: usize, change: &dyn Fn(&mut Day)| {
        if days.len() <= idx {
            days.resize(idx + 1, Day::default());
        }
        change(&mut days[idx]);
    };
    for (ours, base) in pairs(summary, base) {
        at(day(ours.submitted), &|day| {
            day.jobs += 1;
            day.slowdown += ours.slowdown();
            day.static_slowdown += base.slowdown();
        });
        if ours.was_guest {
            at(day(ours.started), &|day| day.guests += 1);
        }
    }
    for day in &mut days {
        let n_jobs = day.jobs.max(1) as f64;
        day.slowdown /= n_jobs;
        day.static_slowdown /= n_jobs;
    }
    days
}

/// Returns each job in both runs.
fn pairs<'a>(summary: &'a Summary, base: &'a Summary) -> impl Iterator<Item = (&'a Finished, &'a Finished)> {
    std::iter::zip(&summary.finished, &base.finished).filter_map(|(ours, base)| Some((ours.as_ref()?, base.as_ref()?)))
}

const MILLIS_A_DAY: i64 = 24 * 3600 * 1000;
