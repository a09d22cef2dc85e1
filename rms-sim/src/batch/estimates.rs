//! Learns what the scheduler plans with in place of requested times, from a user's last run times.
//!
//! Their mean: Tsafrir, Etsion and Feitelson 2007. The core knows one time of a job, its wall time. Here that is the estimate; one that
//! is exceeded is raised by an update of the running job, and nobody is killed for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use rms_api::call::Submission;
use rms_model::{JobId, Run, Span, Time};
use serde::Serialize;

/// By what run times are estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunTimes {
    /// As requested.
    #[default]
    Requested,
    /// The mean of the last two that the same user's jobs had, at most what is requested; that, as long as there are none.
    LastTwo,
    /// The same with the longest of the last five.
    LastFive,
}

impl RunTimes {
    pub const ALL: [RunTimes; 3] = [RunTimes::Requested, RunTimes::LastTwo, RunTimes::LastFive];

    /// As it is asked for and printed.
    pub fn word(self) -> &'static str {
        match self {
            RunTimes::Requested => "requested",
            RunTimes::LastTwo => "last-two",
            RunTimes::LastFive => "last-five",
        }
    }

    /// What is planned with, in whole seconds, rounded up, at least one; the last run time comes first.
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

/// More of a user's run times are not looked at.
const N_KEPT: usize = 5;

#[derive(Debug, Default)]
pub(super) struct Estimates {
    run_times: RunTimes,
    /// How long each user's last jobs ran, the last one first.
    past: BTreeMap<String, VecDeque<Span>>,
    /// Of jobs whose estimate is below their request, by place in the workload.
    low: BTreeMap<usize, Low>,
    /// When estimates of jobs that run are exceeded.
    over: BinaryHeap<Reverse<(Time, JobId, Run)>>,
}

#[derive(Debug)]
struct Low {
    n_raised: usize,
    /// What the request is above the estimate.
    left: Span,
}

impl Estimates {
    pub(super) fn by(run_times: RunTimes) -> Estimates {
        Estimates { run_times, ..Estimates::default() }
    }

    /// It is submitted with what is known of its owner.
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

    /// A job that runs is planned to end then.
    pub(super) fn expect(&mut self, job_idx: usize, (job, run): (JobId, Run), end: Time) {
        if self.low.contains_key(&job_idx) {
            self.over.push(Reverse((end, job, run)));
        }
    }

    /// When the first estimate is exceeded, unless the job ends or its cores change before.
    pub(super) fn next(&self) -> Option<Time> {
        self.over.peek().map(|Reverse((end, ..))| *end)
    }

    pub(super) fn pop(&mut self, now: Time) -> Option<(JobId, Run)> {
        let Reverse((_, job, run)) = self.over.peek().copied().filter(|Reverse((end, ..))| *end <= now)?;
        self.over.pop();
        Some((job, run))
    }

    /// How much longer it is planned to run. The request is the limit of estimates, but one that has fewer cores than it
    /// asked for may take longer.
    pub(super) fn raise(&mut self, job_idx: usize) -> Span {
        let low = self.low.get_mut(&job_idx).expect("only jobs with an estimate below their request are raised");
        let step = Span::from_secs(60 * STEPS[low.n_raised.min(STEPS.len() - 1)]);
        low.n_raised += 1;
        let more = if low.left > Span::ZERO { step.min(low.left) } else { step };
        low.left = Span::from_millis((low.left.as_millis() - more.as_millis()).max(0));
        more
    }

    /// With all its cores it would have run for so long.
    pub(super) fn learn(&mut self, job_idx: usize, owner: &str, ran: Span) {
        if self.run_times != RunTimes::Requested {
            let past = self.past.entry(owner.to_owned()).or_default();
            past.push_front(ran);
            past.truncate(N_KEPT);
        }
        self.low.remove(&job_idx);
    }
}

/// By how many minutes an estimate is raised the first time, the second one, and so on.
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
