//! What a run of the live mix came to: 004's metrics over all jobs, and who ran better for the CPUs that it held.

/// One job that has ended. Times are seconds of one clock, the same for all jobs of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Ran {
    pub submitted: f64,
    pub started: f64,
    pub ended: f64,
    /// CPU seconds that its processes used.
    pub cpu: f64,
    /// CPU seconds that it lent and borrowed.
    pub lent: f64,
    pub borrowed: f64,
    /// CPU seconds on which its processes might run, by the program itself; nothing if it did not come to its end.
    pub held: Option<f64>,
}

impl Ran {
    pub fn response(&self) -> f64 {
        self.ended - self.submitted
    }

    pub fn run(&self) -> f64 {
        self.ended - self.started
    }

    /// It began on CPUs of others.
    pub fn is_guest(&self) -> bool {
        self.borrowed > 0.0
    }

    /// It lent some.
    pub fn is_mate(&self) -> bool {
        self.lent > 0.0
    }
}

/// Over all jobs of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metrics {
    /// From the first arrival to the last end, in seconds.
    pub makespan: f64,
    /// Means; of the response in seconds.
    pub response: f64,
    pub slowdown: f64,
    pub bounded_slowdown: f64,
    /// CPU seconds that all jobs used.
    pub cpu: f64,
}

impl Metrics {
    /// `fixed` are the same jobs under static backfill, whose run times slowdowns are counted in.
    pub fn new(jobs: &[Ran], fixed: &[Ran]) -> Metrics {
        let first = jobs.iter().map(|job| job.submitted).fold(f64::INFINITY, f64::min);
        let last = jobs.iter().map(|job| job.ended).fold(f64::NEG_INFINITY, f64::max);
        let mean = |of: fn(&Ran, &Ran) -> f64| {
            jobs.iter().zip(fixed).map(|(job, fixed)| of(job, fixed)).sum::<f64>() / jobs.len() as f64
        };
        Metrics {
            makespan: last - first,
            response: mean(|job, _| job.response()),
            slowdown: mean(|job, fixed| job.response() / fixed.run()),
            bounded_slowdown: mean(|job, fixed| (job.response() / fixed.run().max(BOUND)).max(1.0)),
            cpu: jobs.iter().map(|job| job.cpu).sum(),
        }
    }
}

/// How many of some jobs did the same work with fewer CPU seconds than under static backfill.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Better {
    pub n_jobs: usize,
    pub n_better: usize,
    /// CPU seconds that all of them held, here and there.
    pub held: f64,
    pub held_fixed: f64,
}

impl Better {
    /// Of those jobs for which `is_one` holds, as far as both runs say what they held.
    pub fn of(jobs: &[Ran], fixed: &[Ran], is_one: fn(&Ran) -> bool) -> Better {
        let ones = jobs.iter().zip(fixed).filter(|(job, _)| is_one(job));
        ones.filter_map(|(job, fixed)| Some((job.held?, fixed.held?))).fold(Better::default(), |sum, (held, before)| {
            Better {
                n_jobs: sum.n_jobs + 1,
                n_better: sum.n_better + usize::from(held < before),
                held: sum.held + held,
                held_fixed: sum.held_fixed + before,
            }
        })
    }
}

/// Shorter runs count as long as this in bounded slowdowns, in seconds.
const BOUND: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(submitted: f64, started: f64, ended: f64) -> Ran {
        Ran { submitted, started, ended, cpu: 1.0, lent: 0.0, borrowed: 0.0, held: Some(2.0 * (ended - started)) }
    }

    #[test]
    fn slowdowns_are_counted_in_static_run_times() {
        let fixed = [ran(100.0, 100.0, 120.0), ran(104.0, 120.0, 124.0)];
        let metrics = Metrics::new(&fixed, &fixed);
        assert_eq!((metrics.makespan, metrics.response, metrics.cpu), (24.0, 20.0, 2.0));
        assert_eq!((metrics.slowdown, metrics.bounded_slowdown), ((1.0 + 5.0) / 2.0, (1.0 + 2.0) / 2.0));
        // The second begins at once beside the first: twice as long, and sooner out.
        let shared = [ran(0.0, 0.0, 24.0), ran(4.0, 4.0, 12.0)];
        let metrics = Metrics::new(&shared, &fixed);
        assert_eq!((metrics.makespan, metrics.response), (24.0, 16.0));
        assert_eq!((metrics.slowdown, metrics.bounded_slowdown), ((1.2 + 2.0) / 2.0, (1.2 + 1.0) / 2.0));
    }

    #[test]
    fn a_guest_is_better_if_it_held_fewer_cpu_seconds() {
        let fixed = [ran(0.0, 0.0, 10.0), ran(0.0, 0.0, 10.0), ran(0.0, 0.0, 10.0), ran(0.0, 0.0, 10.0)];
        let guest = |held| Ran { borrowed: 5.0, held, ..ran(0.0, 0.0, 18.0) };
        let mate = Ran { lent: 5.0, held: Some(19.0), ..ran(0.0, 0.0, 12.0) };
        let shared = [guest(Some(18.0)), guest(Some(20.0)), guest(None), mate];
        let guests = Better::of(&shared, &fixed, Ran::is_guest);
        assert_eq!(guests, Better { n_jobs: 2, n_better: 1, held: 38.0, held_fixed: 40.0 });
        assert_eq!(Better::of(&shared, &fixed, Ran::is_mate).n_better, 1);
        assert_eq!(Better::of(&fixed, &fixed, Ran::is_guest), Better::default());
    }
}
