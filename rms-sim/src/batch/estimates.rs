//! Estimates run times from a user's last jobs; the scheduler plans with them in place of requested times.
//!
//! The estimate is their mean: Tsafrir, Etsion and Feitelson 2007. The core knows one time of a job, its wall time.
//! Here that is the estimate; one that is exceeded is raised by an update of the running job, and no job is killed for
//! it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use rms_api::call::Submission;
use rms_model::{JobId, Run, Span, Time};
use serde::Serialize;

/// Which run times the core plans with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunTimes {
    /// As requested.
    #[default]
    Requested,
    /// The mean of the last two run times of the same user, at most the requested time; without earlier jobs, the
    /// requested time.
    LastTwo,
    /// The same with the longest of the last five.
    LastFive,
}

impl RunTimes {
    pub const ALL: [RunTimes; 3] = [RunTimes::Requested, RunTimes::LastTwo, RunTimes::LastFive];

    /// Returns the word with which it is selected and printed.
    pub fn word(self) -> &'static str {
        match self {
            RunTimes::Requested => "requested",
            RunTimes::LastTwo => "last-two",
            RunTimes::LastFive => "last-five",
        }
    }

    /// Returns the estimate in whole seconds, rounded up, at least one; the last run time comes first.
    fn of(self, past: &VecDeque<Span>) -> Option<Span> {
        let millis = |past: &Span| past.as_millis();
        let estimate = match self {
            RunTimes::Requested => return None,
            RunTimes::LastTwo => {
                let (last, before) = (past.front()?, past.get(1).or(past.front())?);
                i64::midpoint(millis(last), millis(before))
            }
            RunTimes::LastFive => past.iter().map(millis).max()?,
        };
        Some(Span::from_secs(((estimate + 999) / 1000).max(1)))
    }
}

/// How many run times of a user are kept.
const N_KEPT: usize = 5;

#[derive(Debug, Default)]
pub(super) struct Estimates {
    run_times: RunTimes,
    /// The run times of each user's last jobs, the latest first.
    past: BTreeMap<String, VecDeque<Span>>,
    /// Jobs whose estimate is below their request, by index in the workload.
    low: BTreeMap<usize, Low>,
    /// When estimates of running jobs are exceeded.
    over: BinaryHeap<Reverse<(Time, JobId, Run)>>,
}

#[derive(Debug)]
struct Low {
    n_raised: usize,
    /// How much of the request is above the estimate.
    left: Span,
}

impl Estimates {
    pub(super) fn by(run_times: RunTimes) -> Estimates {
        Estimates { run_times, ..Estimates::default() }
    }

    /// Shortens the wall time of a submission to the estimate for its owner.
    pub(super) fn shorten(&mut self, job_idx: usize, owner: &str, submission: &mut Submission) {
        let Some(estimate) = self.past.get(owner).and_then(|past| self.run_times.of(past)) else { return };
        for wall in submission.shapes.iter_mut().filter_map(|shape| shape.wall.as_mut()) {
            if estimate < *wall {
                let left = Span::from_millis(wall.as_millis() - estimate.as_millis());
                self.low.insert(job_idx, Low { n_raised: 0, left });
                *wall = estimate;
            }
        }
    }

    /// Records that a running job is planned to end at `end`.
    pub(super) fn expect(&mut self, job_idx: usize, (job, run): (JobId, Run), end: Time) {
        if self.low.contains_key(&job_idx) {
            self.over.push(Reverse((end, job, run)));
        }
    }

    /// Returns when the first estimate is exceeded, unless the job ends or its cores change before.
    pub(super) fn next(&self) -> Option<Time> {
        self.over.peek().map(|Reverse((end, ..))| *end)
    }

    pub(super) fn pop(&mut self, now: Time) -> Option<(JobId, Run)> {
        let Reverse((_, job, run)) = self.over.peek().copied().filter(|Reverse((end, ..))| *end <= now)?;
        self.over.pop();
        Some((job, run))
    }

    /// Returns by how much the planned time is raised. The request is the limit of estimates, but a job that has fewer
    /// cores than it requested may take longer.
    pub(super) fn raise(&mut self, job_idx: usize) -> Span {
        let low = self.low.get_mut(&job_idx).expect("only jobs with an estimate below their request are raised");
        let step = Span::from_secs(60 * STEPS[low.n_raised.min(STEPS.len() - 1)]);
        low.n_raised += 1;
        let more = if low.left > Span::ZERO { step.min(low.left) } else { step };
        low.left = Span::from_millis((low.left.as_millis() - more.as_millis()).max(0));
        more
    }

    /// Learns that a job would have run for `ran` with all its cores.
    pub(super) fn learn(&mut self, job_idx: usize, owner: &str, ran: Span) {
        if self.run_times != RunTimes::Requested {
            let past = self.past.entry(owner.to_owned()).or_default();
            past.push_front(ran);
            past.truncate(N_KEPT);
        }
        self.low.remove(&job_idx);
    }
}

/// By how many minutes an estimate is raised the first time, the second time, and so on.
const STEPS: [i64; 11] = [1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_made_of_the_last_run_times() {
        let of = |run_times: RunTimes, past: &[i64]| {
            run_times.of(&past.iter().map(|millis| Span::from_millis(*millis)).collect()).map(Span::as_millis)
        };
        assert_eq!([of(RunTimes::LastTwo, &[]), of(RunTimes::LastFive, &[])], [None, None]);
        assert_eq!(of(RunTimes::Requested, &[1000]), None);
        assert_eq!([of(RunTimes::LastTwo, &[1]), of(RunTimes::LastFive, &[1])], [Some(1000), Some(1000)]);
        let past = [10_000, 40_000, 20_000];
        assert_eq!([of(RunTimes::LastTwo, &past), of(RunTimes::LastFive, &past)], [Some(25_000), Some(40_000)]);
        let mut estimates = Estimates::by(RunTimes::LastFive);
        (1..=6).rev().for_each(|secs| estimates.learn(0, "ann", Span::from_secs(secs)));
        let estimate = RunTimes::LastFive.of(&estimates.past["ann"]);
        assert_eq!(estimate, Some(Span::from_secs(5)), "the longest is forgotten");
    }
}
