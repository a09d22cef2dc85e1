//! Converts records to jobs: missing or impossible values are repaired or dropped, by rule, and counted.

use std::collections::BTreeSet;

use rms_model::{Span, Time};

use super::{Record, Trace};

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaning {
    /// The size of a node; processors are given out by whole nodes.
    pub cores_per_node: u32,
    pub size_from: SizeFrom,
    /// Jobs that need more nodes are cut to this number, and counted.
    pub most_nodes: Option<u32>,
    pub zero_run: ZeroRun,
    pub overrun: Overrun,
    /// Wall times are rounded up to multiples of this.
    pub wall_unit: Span,
    /// Only records of this partition (field 16).
    pub partition: Option<i64>,
    /// Only this many jobs of those that are left, the first ones.
    pub most_jobs: Option<usize>,
}

/// Which of a job's sizes counts; if it is missing, the other one is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeFrom {
    Allocated,
    Requested,
}

/// What is done with a job whose run time is 0 or unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroRun {
    /// It runs for a second.
    OneSecond,
    Drop,
}

/// What is done with a job that ran for longer than it had requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// It is killed at its limit.
    Kill,
    /// Its request is set to its run time.
    Extend,
}

impl Default for Cleaning {
    fn default() -> Cleaning {
        Cleaning {
            cores_per_node: 1,
            size_from: SizeFrom::Allocated,
            most_nodes: None,
            zero_run: ZeroRun::OneSecond,
            overrun: Overrun::Kill,
            wall_unit: Span::from_secs(1),
            partition: None,
            most_jobs: None,
        }
    }
}

/// A job that can be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceJob {
    /// The number in the trace, which [`Cleaned::renumber_doubles`] makes unique.
    pub number: i64,
    /// The time since the first submit.
    pub submit: Time,
    pub n_nodes: u32,
    /// The processors of the size that was used; at most those of its nodes.
    pub n_procs: u32,
    /// Never shorter than the run.
    pub wall: Span,
    pub run: Span,
    pub user: i64,
}

/// The jobs in the order of their submits, and how many were repaired or dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub jobs: Vec<TraceJob>,
    /// Dropped: no submit time.
    pub n_without_submit: usize,
    /// Dropped: neither an allocated nor a requested size.
    pub n_without_size: usize,
    /// Dropped or set to a second: no run time.
    pub n_without_run: usize,
    /// Dropped: a wall time of more than 100 years, which no server accepts.
    pub n_too_long: usize,
    /// Killed at their limit or extended.
    pub n_overrun: usize,
    /// Larger than `most_nodes`.
    pub n_cut: usize,
    pub n_dropped: usize,
    /// The highest number in the whole trace, also of records that are left out; `None` without records.
    pub highest_number: Option<i64>,
}

impl Cleaned {
    /// Drops jobs that no cluster of this size can run, and counts them.
    pub fn drop_larger_than(&mut self, n_nodes: u32) {
        let n_before = self.jobs.len();
        self.jobs.retain(|job| job.n_nodes <= n_nodes);
        self.n_dropped += n_before - self.jobs.len();
    }

    /// Drops the first `n_skipped` jobs, and all after the next `most`; time begins with the first one that is left.
    pub fn keep(&mut self, n_skipped: usize, most: Option<usize>) {
        self.jobs.drain(..n_skipped.min(self.jobs.len()));
        self.jobs.truncate(most.unwrap_or(usize::MAX));
        self.count_from_first();
    }

    /// Gives each job that has the number of an earlier one a new number, above all others of the whole trace, as a
    /// schedule names jobs by their numbers.
    pub fn renumber_doubles(&mut self) -> Option<Doubles> {
        // True for nearly every log.
        if self.jobs.is_sorted_by(|one, next| one.number < next.number) {
            return None;
        }
        let highest = self.jobs.iter().map(|job| job.number).chain(self.highest_number).max()?;
        let from = highest.saturating_add(1);
        let mut known = BTreeSet::new();
        let mut doubles: Option<Doubles> = None;
        for job in &mut self.jobs {
            if known.insert(job.number) {
                continue;
            }
            let doubles = doubles.get_or_insert(Doubles { first: job.number, n_jobs: 0, from });
            job.number = from.saturating_add(doubles.n_jobs as i64);
            doubles.n_jobs += 1;
            self.highest_number = Some(job.number);
        }
        doubles
    }

    fn count_from_first(&mut self) {
        let first = self.jobs.first().map_or(Time::EPOCH, |job| job.submit);
        for job in &mut self.jobs {
            job.submit = Time::EPOCH + job.submit.since(first);
        }
    }
}

/// Jobs that had the number of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubles {
    /// The number of the first of them.
    pub first: i64,
    pub n_jobs: usize,
    /// The first of their new numbers.
    pub from: i64,
}

pub(super) fn clean(trace: &Trace, cleaning: &Cleaning) -> Cleaned {
    let mut cleaner = Cleaner::new(cleaning);
    trace.records.iter().for_each(|record| cleaner.take(record));
    cleaner.finish()
}

/// Converts records one by one.
pub(super) struct Cleaner<'a> {
    cleaning: &'a Cleaning,
    cleaned: Cleaned,
    /// The job whose own line was read last.
    last_job: Option<i64>,
    /// The jobs that had a line of their own before the first stretch that does not follow its job's line directly, and
    /// those after it.
    known: Option<BTreeSet<i64>>,
}

/// The status of lines for the stretches in which a job ran between interruptions. They come after the line of the job
/// itself, which contains their sum. Without such a line each of them is a job.
const OF_STRETCHES: std::ops::RangeInclusive<i64> = 2..=4;

impl<'a> Cleaner<'a> {
    pub(super) fn new(cleaning: &'a Cleaning) -> Cleaner<'a> {
        Cleaner { cleaning, cleaned: Cleaned::default(), last_job: None, known: None }
    }

    pub(super) fn take(&mut self, record: &Record) {
        self.cleaned.highest_number = self.cleaned.highest_number.max(Some(record.number));
        if !OF_STRETCHES.contains(&record.status) {
            self.last_job = Some(record.number);
            self.known.iter_mut().for_each(|known| _ = known.insert(record.number));
        } else if self.is_known(record.number) {
            return;
        }
        let is_wanted = self.cleaning.partition.is_none_or(|partition| record.partition == partition);
        if is_wanted && let Some(job) = job(record, self.cleaning, &mut self.cleaned) {
            self.cleaned.jobs.push(job);
        }
    }

    /// Returns whether the job had a line of its own.
    fn is_known(&mut self, number: i64) -> bool {
        if self.last_job == Some(number) {
            return true;
        }
        let jobs = &self.cleaned.jobs;
        self.known.get_or_insert_with(|| jobs.iter().map(|job| job.number).collect()).contains(&number)
    }

    pub(super) fn finish(mut self) -> Cleaned {
        // Submits can go backwards. Jobs of one instant keep their order.
        self.cleaned.jobs.sort_by_key(|job| job.submit);
        self.cleaned.jobs.truncate(self.cleaning.most_jobs.unwrap_or(usize::MAX));
        self.cleaned.count_from_first();
        self.cleaned
    }
}

fn job(record: &Record, cleaning: &Cleaning, cleaned: &mut Cleaned) -> Option<TraceJob> {
    if record.submit < Time::EPOCH {
        cleaned.n_without_submit += 1;
        cleaned.n_dropped += 1;
        return None;
    }
    let Some(n_procs) = size(record, cleaning.size_from) else {
        cleaned.n_without_size += 1;
        cleaned.n_dropped += 1;
        return None;
    };
    let n_nodes = u32::try_from(n_procs.div_ceil(u64::from(cleaning.cores_per_node.max(1)))).unwrap_or(u32::MAX);
    let is_cut = cleaning.most_nodes.is_some_and(|most| n_nodes > most);
    let run = record.run.filter(|run| !run.is_zero());
    if run.is_none() {
        cleaned.n_without_run += 1;
        if cleaning.zero_run == ZeroRun::Drop {
            cleaned.n_dropped += 1;
            return None;
        }
    }
    cleaned.n_cut += usize::from(is_cut);
    let run = run.unwrap_or(Span::from_secs(1));
    let wall = record.requested_time.filter(|limit| !limit.is_zero()).unwrap_or(run);
    let is_overrun = wall < run;
    cleaned.n_overrun += usize::from(is_overrun);
    let (run, wall) = match cleaning.overrun {
        Overrun::Kill => (run.min(wall), wall),
        Overrun::Extend => (run, wall.max(run)),
    };
    let wall = round_up(wall, cleaning.wall_unit);
    if wall > Span::MAX_WALL {
        cleaned.n_too_long += 1;
        cleaned.n_dropped += 1;
        return None;
    }
    let n_nodes = n_nodes.min(cleaning.most_nodes.unwrap_or(u32::MAX));
    Some(TraceJob {
        number: record.number,
        submit: record.submit,
        n_nodes,
        n_procs: u32::try_from(n_procs).unwrap_or(u32::MAX).min(n_nodes.saturating_mul(cleaning.cores_per_node.max(1))),
        wall,
        run,
        user: record.user,
    })
}

fn size(record: &Record, size_from: SizeFrom) -> Option<u64> {
    let (first, second) = match size_from {
        SizeFrom::Allocated => (record.allocated, record.requested),
        SizeFrom::Requested => (record.requested, record.allocated),
    };
    [first, second].into_iter().find(|size| *size > 0).and_then(|size| u64::try_from(size).ok())
}

fn round_up(span: Span, unit: Span) -> Span {
    let unit = unit.as_millis().max(1);
    let n_units = span.as_millis().saturating_add(unit - 1) / unit;
    Span::from_millis(n_units.saturating_mul(unit))
}
