//! The Lublin–Feitelson workload model (JPDC 2003) with its parameters for jobs of all kinds together.

use rms_model::{Span, Time};
use thiserror::Error;

use super::draw::Draw;
use super::swf::{Record, Trace};

/// The parameters of the workload. The model has no requested times and no users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lublin {
    pub n_jobs: usize,
    pub seed: u64,
    /// The processors of the machine, at least 8.
    pub n_procs: u32,
}

/// More jobs than any trace has.
const MAX_JOBS: usize = 10_000_000;

/// Why a workload cannot be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LublinError {
    #[error("{n_procs} processors are too few for the model: at least 8")]
    TooSmall { n_procs: u32 },
    #[error("{n_jobs} jobs are more than {MAX_JOBS}")]
    TooMany { n_jobs: usize },
}

/// The part of jobs on one processor.
const SERIAL: f64 = 0.244;
/// The part of jobs on a power of two of them, other than one.
const POWER_OF_TWO: f64 = 0.576;
/// The logarithm of the other sizes is uniform below some middle with this probability, else above it.
const BELOW_MIDDLE: f64 = 0.86;
/// The logarithm of the smallest parallel size, lowered to give it its share.
const LOWEST: f64 = 0.8;
/// How far the middle is below the logarithm of the machine's size.
const MIDDLE_BELOW_HIGHEST: f64 = 2.5;

/// Run times: the natural logarithm is a gamma variate of (shape, scale), of the short or of the long kind.
const SHORT: (f64, f64) = (4.2, 0.94);
const LONG: (f64, f64) = (312.0, 0.03);
/// The probability of the short kind falls with the size: slope and intercept.
const SHORT_BY_SIZE: (f64, f64) = (-0.0054, 0.78);
/// No job runs for longer than exp(12) s, about two days.
const LONGEST_LOG_RUN: f64 = 12.0;

/// Gaps between arrivals: the natural logarithm is a gamma variate; the last factor turns rush hours into all hours.
const GAP: (f64, f64) = (10.2303 * 1.0225, 0.4871);
/// No gap is longer than exp(13) s, about five days.
const LONGEST_LOG_GAP: f64 = 13.0;
/// The arrivals over half-hours of a day follow a gamma density, which begins at the 11th of them.
const DAY: (f64, f64) = (8.1737, 3.9631);
const N_BUCKETS: usize = 48;
const FIRST_BUCKET: usize = 11;
const SECS_PER_BUCKET: f64 = 1800.0;

impl Lublin {
    /// # Errors
    /// The machine is too small, or there are too many jobs.
    pub fn generate(&self) -> Result<Trace, LublinError> {
        if self.n_procs < 8 {
            return Err(LublinError::TooSmall { n_procs: self.n_procs });
        }
        if self.n_jobs > MAX_JOBS {
            return Err(LublinError::TooMany { n_jobs: self.n_jobs });
        }
        let mut draw = Draw::new(self.seed);
        let mut clock = Clock::new();
        let record = |idx: usize| {
            let submit = clock.next(&mut draw);
            let size = self.size(&mut draw);
            let run = run(size, &mut draw);
            Record {
                number: idx as i64 + 1,
                submit: Time::from_secs(submit as i64),
                run: Some(Span::from_secs(run as i64)),
                allocated: i64::from(size),
                status: 1,
                ..Record::default()
            }
        };
        let records = (0..self.n_jobs).map(record).collect();
        let header = vec![
            "Version: 2".to_owned(),
            "Computer: synthetic, Lublin-Feitelson model".to_owned(),
            format!("Note: {self:?}"),
            format!("MaxJobs: {}", self.n_jobs),
            format!("MaxProcs: {}", self.n_procs),
        ];
        Ok(Trace { header, records })
    }

    fn size(&self, draw: &mut Draw) -> u32 {
        let kind = draw.uniform();
        if kind < SERIAL {
            return 1;
        }
        let highest = f64::from(self.n_procs).log2();
        let middle = highest - MIDDLE_BELOW_HIGHEST;
        let log_size = if draw.chance(BELOW_MIDDLE) {
            draw.between(LOWEST.min(middle), middle)
        } else {
            draw.between(middle, highest)
        };
        let log_size = if kind < SERIAL + POWER_OF_TWO { log_size.round() } else { log_size };
        (log_size.exp2().round() as u32).clamp(1, self.n_procs)
    }
}

/// Draws a run time in seconds, depending on the size.
fn run(size: u32, draw: &mut Draw) -> f64 {
    let (slope, intercept) = SHORT_BY_SIZE;
    let is_short = draw.chance((slope * f64::from(size) + intercept).clamp(0.0, 1.0));
    let (shape, scale) = if is_short { SHORT } else { LONG };
    below(LONGEST_LOG_RUN, || draw.gamma(shape, scale)).exp().floor().max(1.0)
}

/// Draws until the value is small enough.
fn below(most: f64, mut draw: impl FnMut() -> f64) -> f64 {
    loop {
        let value = draw();
        if value <= most {
            return value;
        }
    }
}

/// Advances through the days. A gap is a number of points, of which a half-hour consumes more the busier it is.
struct Clock {
    weights: [f64; N_BUCKETS],
    bucket: usize,
    /// Points spent in the current half-hour.
    spent: f64,
    bucket_began: f64,
}

impl Clock {
    /// Creates a clock at midnight.
    fn new() -> Clock {
        let mut weights = [0.0; N_BUCKETS];
        for hour in FIRST_BUCKET..FIRST_BUCKET + N_BUCKETS {
            weights[(hour - 1) % N_BUCKETS] = share(hour as f64);
        }
        let mean = weights.iter().sum::<f64>() / N_BUCKETS as f64;
        Clock { weights: weights.map(|weight| weight / mean), bucket: 0, spent: 0.0, bucket_began: 0.0 }
    }

    /// Returns the time of the next arrival in seconds.
    fn next(&mut self, draw: &mut Draw) -> f64 {
        let (shape, scale) = GAP;
        let gap = below(LONGEST_LOG_GAP, || draw.gamma(shape, scale)).exp();
        self.spent += gap / SECS_PER_BUCKET;
        while self.spent > self.weights[self.bucket] {
            self.spent -= self.weights[self.bucket];
            self.bucket = (self.bucket + 1) % N_BUCKETS;
            self.bucket_began += SECS_PER_BUCKET;
        }
        self.bucket_began + SECS_PER_BUCKET * self.spent / self.weights[self.bucket]
    }
}

/// Returns the density of the day's gamma over the half-hour around `at`, up to a constant factor (Simpson's rule).
fn share(at: f64) -> f64 {
    let (shape, scale) = DAY;
    let density = |x: f64| x.powf(shape - 1.0) * (-x / scale).exp();
    (density(at - 0.5) + 4.0 * density(at) + density(at + 0.5)) / 6.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures of 10,000 jobs for 256 processors that the authors' program has generated.
    #[test]
    fn it_is_like_the_authors_own_sample() {
        let trace = Lublin { n_jobs: 10_000, seed: 1, n_procs: 256 }.generate().expect("a machine");
        let sizes: Vec<i64> = trace.records.iter().map(|record| record.allocated).collect();
        let part = |is: &dyn Fn(i64) -> bool| sizes.iter().filter(|size| is(**size)).count() as f64 / 10_000.0;
        assert!((part(&|size| size == 1) - 0.249).abs() < 0.02);
        assert!((part(&|size| size > 1 && size & (size - 1) == 0) - 0.612).abs() < 0.02);
        let mean_size = sizes.iter().sum::<i64>() as f64 / 10_000.0;
        assert!((mean_size / 22.1 - 1.0).abs() < 0.1, "{mean_size}");
        let runs: Vec<f64> = trace.records.iter().filter_map(|record| record.run).map(Span::as_secs_f64).collect();
        let mean_log = runs.iter().map(|run| run.ln()).sum::<f64>() / 10_000.0;
        assert!((mean_log - 5.68).abs() < 0.15, "{mean_log}");
        let mean_run = runs.iter().sum::<f64>() / 10_000.0;
        assert!((mean_run / 4863.0 - 1.0).abs() < 0.12, "{mean_run}");
        let mean_gap = trace.records[9_999].submit.as_secs() as f64 / 10_000.0;
        // Heavy-tailed, so seeds differ much: 840 to 1030. The sample has 771, which is usual without the last factor
        // of GAP.
        assert!((750.0..1150.0).contains(&mean_gap), "{mean_gap}");
        // The sample has 884 jobs from 12 to 13 o'clock and 88 from 3 to 4.
        let at_hour = |hour| trace.records.iter().filter(|record| record.submit.as_secs() / 3600 % 24 == hour).count();
        assert!((700..1100).contains(&at_hour(12)), "{}", at_hour(12));
        assert!((40..170).contains(&at_hour(3)), "{}", at_hour(3));
        assert!(trace.records.windows(2).all(|two| two[0].submit <= two[1].submit));
    }

    #[test]
    fn what_the_model_does_not_know_is_refused() {
        let lublin = Lublin { n_jobs: 1, seed: 1, n_procs: 7 };
        assert_eq!(lublin.generate(), Err(LublinError::TooSmall { n_procs: 7 }));
        let many = Lublin { n_jobs: usize::MAX, seed: 1, n_procs: 8 };
        assert!(many.generate().is_err());
        let small = Lublin { n_jobs: 500, seed: 1, n_procs: 8 }.generate().expect("a machine");
        assert!(small.records.iter().all(|record| (1..=8).contains(&record.allocated)));
    }
}
