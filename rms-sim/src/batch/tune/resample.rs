//! Resamples a past from blocks of itself: whole stretches of submissions, with replacement.
//!
//! Jobs that come together wait together, so single jobs must not be drawn: a block keeps which jobs came together, and
//! when (a block bootstrap).

use rms_api::call::Submission;
use rms_model::{Identity, RuntimeModel, Span, Time};

use crate::Dice;
use crate::batch::{Elastic, Workload};

/// A past in stretches of equal length, by the time of the submits.
#[derive(Debug)]
pub struct Blocks {
    first: Time,
    span: Span,
    /// Where each block begins: its jobs are those from here to the next block's, by index in the workload.
    begins: Vec<usize>,
    n_jobs: usize,
}

/// With jobs in fewer blocks, a past does not show what is chance.
pub const LEAST_BLOCKS: usize = 5;

/// How many blocks a past should have at least, so that they can be drawn.
const WANTED_BLOCKS: i64 = 10;

/// Jobs of one minute depend on each other, so shorter stretches of a past are no past of their own.
const LEAST_SPAN: Span = Span::from_mins(1);

impl Blocks {
    /// Splits a workload into blocks of `span`; else of weeks, if there are ten or more, of days, or of something
    /// shorter, but no less than a minute.
    pub fn new(workload: &impl Workload, span: Option<Span>) -> Blocks {
        let n_jobs = workload.n_jobs();
        let at = |job_idx: usize| if n_jobs == 0 { Time::EPOCH } else { workload.submit(job_idx) };
        let (first, last) = (at(0), at(n_jobs.saturating_sub(1)));
        let all = last.since(first).as_millis() + 1;
        let natural = [7 * 24 * 60, 24 * 60, 6 * 60, 60, 10].map(Span::from_mins);
        let by_length = || natural.into_iter().find(|span| all / span.as_millis() >= WANTED_BLOCKS);
        let span = span.or_else(by_length).unwrap_or(LEAST_SPAN).max(Span::from_millis(1));
        // A given span may be too short to be useful, and a list of blocks takes memory.
        let span = span.max(Span::from_millis(all / MOST_BLOCKS));
        let n_blocks = (all - 1) / span.as_millis() + 1;
        let mut begins = Vec::with_capacity(n_blocks as usize);
        let mut job_idx = 0;
        for block_idx in 0..n_blocks {
            while job_idx < n_jobs && at(job_idx).since(first).as_millis() < block_idx * span.as_millis() {
                job_idx += 1;
            }
            begins.push(job_idx);
        }
        Blocks { first, span, begins, n_jobs }
    }

    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns in how many blocks jobs were submitted.
    pub fn n_filled(&self) -> usize {
        (0..self.begins.len()).filter(|block_idx| !self.jobs(*block_idx).is_empty()).count()
    }

    fn jobs(&self, block_idx: usize) -> std::ops::Range<usize> {
        self.begins[block_idx]..self.begins.get(block_idx + 1).copied().unwrap_or(self.n_jobs)
    }

    /// Draws as many blocks as there are, each at random.
    pub fn resample<'a, W: Workload>(&self, workload: &'a W, seed: u64) -> Resample<'a, W> {
        let mut dice = Dice::new(seed, STREAM);
        let mut jobs = Vec::with_capacity(self.n_jobs);
        // A resample without jobs is useless; a past that has jobs has a block with some.
        while jobs.is_empty() && self.n_jobs > 0 {
            for place in 0..self.begins.len() {
                let drawn = dice.number(0, self.begins.len() as u32 - 1) as usize;
                let moved = (place as i64 - drawn as i64) * self.span.as_millis();
                let at = |job_idx: usize| Time::from_millis(workload.submit(job_idx).as_millis() + moved);
                jobs.extend(self.jobs(drawn).map(|job_idx| (job_idx, at(job_idx))));
            }
        }
        debug_assert!(jobs.first().is_none_or(|(_, at)| *at >= self.first), "blocks are laid from the first submit on");
        Resample { workload, jobs }
    }
}

const STREAM: u64 = 21;
const MOST_BLOCKS: i64 = 1_000_000;

/// The jobs of a workload at other times, some of them several times and some not at all.
#[derive(Debug)]
pub struct Resample<'a, W> {
    workload: &'a W,
    jobs: Vec<(usize, Time)>,
}

impl<W: Workload> Workload for Resample<'_, W> {
    fn n_jobs(&self) -> usize {
        self.jobs.len()
    }

    fn submit(&self, job_idx: usize) -> Time {
        self.jobs[job_idx].1
    }

    fn submission(&self, job_idx: usize) -> (Identity, Submission) {
        self.workload.submission(self.jobs[job_idx].0)
    }

    fn run(&self, job_idx: usize) -> Span {
        self.workload.run(self.jobs[job_idx].0)
    }

    fn elastic(&self, job_idx: usize) -> Option<Elastic> {
        self.workload.elastic(self.jobs[job_idx].0)
    }

    fn paced_by(&self) -> RuntimeModel {
        self.workload.paced_by()
    }
}
