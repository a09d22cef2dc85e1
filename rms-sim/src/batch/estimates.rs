//! Learns what the scheduler plans with in place of requested times: the mean of a user's last two run times.
//!
//! Tsafrir, Etsion and Feitelson 2007. The core knows one time of a job, its wall time. Here that is the estimate; one that
//! is exceeded is raised by an update of the running job, and nobody is killed for it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

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
}

#[derive(Debug, Default)]
pub(super) struct Estimates {
    run_times: RunTimes,
    /// How long each user's last job ran, and the one before it.
    past: BTreeMap<String, (Span, Option<Span>)>,
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
        let Some(estimate) = self.past.get(owner).map(|past| mean(*past)) else { return };
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
        if self.run_times == RunTimes::LastTwo {
            let last = self.past.get(owner).map(|(last, _)| *last);
            self.past.insert(owner.to_owned(), (ran, last));
        }
        self.low.remove(&job_idx);
    }
}

/// In whole seconds, rounded up; at least one.
fn mean((last, before): (Span, Option<Span>)) -> Span {
    let millis = before.map_or(last.as_millis(), |before| i64::midpoint(last.as_millis(), before.as_millis()));
    Span::from_secs(((millis + 999) / 1000).max(1))
}

/// By how many minutes an estimate is raised the first time, the second one, and so on.
const STEPS: [i64; 11] = [1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000];
