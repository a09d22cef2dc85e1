//! The values in 003's Tables 1 and 2, for one test.

use rms_core::plan::fit::Fit;
use rms_model::{Evolution, Time};

/// Exact sums over the applications of a test; areas are nodes times milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestMetrics {
    pub capacity: u32,
    pub used: i128,
    /// What is held from start to completion, without the delay before the start.
    pub reserved: i128,
    /// The latest completion; in milliseconds, like all that follows.
    pub makespan: i64,
    pub sum_completion: i128,
    /// All applications arrive at 0, so the start is the wait.
    pub sum_waiting: i128,
    pub jobs: Vec<JobMetrics>,
}

/// The values of one application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobMetrics {
    pub used: i128,
    pub reserved: i128,
    pub requested_millis: i64,
    pub scheduled_millis: i64,
}

/// A test's values relative to those of conservative backfilling in the same test; `None` if that value is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Relative {
    pub reservation: Option<f64>,
    pub makespan: Option<f64>,
    pub jct: Option<f64>,
    pub jwt: Option<f64>,
}

impl TestMetrics {
    /// Computes the values; `fits` are the placements of `apps`, in their order.
    pub fn new(capacity: u32, apps: &[Evolution], fits: &[Fit]) -> TestMetrics {
        let millis = |time: Time| i128::from(time.as_millis());
        let job = |(app, fit): (&Evolution, &Fit)| JobMetrics {
            used: app.area(),
            reserved: fit.expanded.area(),
            requested_millis: app.span().as_millis(),
            scheduled_millis: fit.expanded.span().as_millis(),
        };
        let jobs: Vec<JobMetrics> = apps.iter().zip(fits).map(job).collect();
        TestMetrics {
            capacity,
            used: jobs.iter().map(|job| job.used).sum(),
            reserved: jobs.iter().map(|job| job.reserved).sum(),
            makespan: fits.iter().map(|fit| fit.completion().as_millis()).max().unwrap_or(0),
            sum_completion: fits.iter().map(|fit| millis(fit.completion())).sum(),
            sum_waiting: fits.iter().map(|fit| millis(fit.start)).sum(),
            jobs,
        }
    }

    /// Returns what is reserved and not used, relative to what is used (003 prints a maximum of 116 %).
    pub fn waste(&self) -> f64 {
        ratio(self.reserved - self.used, self.used)
    }

    pub fn utilisation(&self) -> f64 {
        ratio(self.used, i128::from(self.capacity) * i128::from(self.makespan))
    }

    /// Returns the mean completion time in seconds.
    pub fn jct(&self) -> f64 {
        ratio(self.sum_completion, 1000 * self.jobs.len() as i128)
    }

    /// Returns the mean waiting time in seconds.
    pub fn jwt(&self) -> f64 {
        ratio(self.sum_waiting, 1000 * self.jobs.len() as i128)
    }

    pub fn n_stretched(&self) -> usize {
        self.jobs.iter().filter(|job| job.scheduled_millis > job.requested_millis).count()
    }

    /// Returns the part of applications that are stretched.
    pub fn stretches(&self) -> f64 {
        ratio(self.n_stretched() as i128, self.jobs.len() as i128)
    }

    pub fn relative_to(&self, baseline: &TestMetrics) -> Relative {
        let part = |own: i128, base: i128| (base != 0).then(|| ratio(own, base));
        Relative {
            reservation: part(self.reserved, baseline.reserved),
            makespan: part(i128::from(self.makespan), i128::from(baseline.makespan)),
            jct: part(self.sum_completion, baseline.sum_completion),
            jwt: part(self.sum_waiting, baseline.sum_waiting),
        }
    }
}

impl JobMetrics {
    /// Returns by how much it takes longer than requested, relative to the request.
    pub fn stretch(&self) -> f64 {
        ratio(i128::from(self.scheduled_millis - self.requested_millis), i128::from(self.requested_millis))
    }

    /// Returns by how much it holds more than it uses, relative to its use.
    pub fn waste(&self) -> f64 {
        ratio(self.reserved - self.used, self.used)
    }
}

/// Returns the ratio; 0 over 0 is 0.
fn ratio(numerator: i128, denominator: i128) -> f64 {
    if denominator == 0 { 0.0 } else { numerator as f64 / denominator as f64 }
}
