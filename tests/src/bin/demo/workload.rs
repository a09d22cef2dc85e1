//! Makes a short programme of jobs from the first records of a real machine's log.

use std::time::Duration;

use rms_tests::apps::Mpi;
use thiserror::Error;

/// The log: LLNL's Atlas, 1,152 nodes of 8 cores; its header names who made it available.
pub const TRACE: &str = include_str!("../../../data/traces/LLNL-Atlas-2006-2.1-cln.first200-ran.swf");
const TRACE_NODES: u64 = 1152;
const TRACE_CORES: u64 = 8;

/// A job of the demonstration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// After its record in the log.
    pub name: String,
    /// Since the beginning.
    pub arrives: Duration,
    pub nodes: u32,
    pub lasts: Duration,
    pub work: Work,
}

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Sleeps, and ends with this code: 1 where the record says that the job failed.
    Sleep { code: u8 },
    /// A batch script that calls this MPI's own mpirun.
    Mpirun(Mpi),
    /// `rms run`, which starts the ranks itself.
    Direct(Mpi),
}

/// How much of the log, and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub n_jobs: usize,
    /// Nodes of the largest job.
    pub nodes: u32,
    /// Seconds of the log that become one second.
    pub speed_up: u32,
    pub longest: Duration,
    pub longest_gap: Duration,
}

/// What the demonstration shows: about a minute of work for eight nodes.
pub const FULL: Scale = Scale {
    n_jobs: 40,
    nodes: 4,
    speed_up: 120,
    longest: Duration::from_secs(6),
    longest_gap: Duration::from_millis(1500),
};

/// The same in about twenty seconds.
pub const SHORT: Scale =
    Scale { n_jobs: 14, longest: Duration::from_secs(3), longest_gap: Duration::from_secs(1), ..FULL };

/// A record that cannot be read.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("line {line} of the log is no record: '{text}'")]
pub struct BadRecord {
    line: usize,
    text: String,
}

/// The first jobs of `trace`, scaled. Every second one is an MPI program, of the MPIs in `mpis` by turns.
///
/// # Errors
/// The first line that is neither a comment nor a record.
pub fn programme(trace: &str, scale: Scale, mpis: &[Mpi]) -> Result<Vec<Planned>, BadRecord> {
    let mut programme: Vec<Planned> = Vec::new();
    let (mut before, mut clock) = (None, Duration::ZERO);
    for (line_idx, line) in trace.lines().enumerate().filter(|(_, line)| !line.starts_with(';')) {
        if programme.len() == scale.n_jobs {
            break;
        }
        let record = Record::read(line)
            .ok_or_else(|| BadRecord { line: line_idx + 1, text: line.chars().take(80).collect() })?;
        let gap = record.submit.saturating_sub(before.unwrap_or(record.submit));
        before = Some(record.submit);
        clock += (Duration::from_secs(gap) / scale.speed_up).min(scale.longest_gap);
        programme.push(Planned {
            name: format!("atlas-{}", record.number),
            arrives: clock,
            nodes: record.scaled_nodes(scale.nodes),
            lasts: (Duration::from_secs(record.run) / scale.speed_up).clamp(SHORTEST, scale.longest),
            work: work(programme.len(), record.failed, mpis),
        });
    }
    Ok(programme)
}

/// Shorter jobs would not be seen.
const SHORTEST: Duration = Duration::from_millis(800);

fn work(job_idx: usize, failed: bool, mpis: &[Mpi]) -> Work {
    let round = job_idx / 2;
    let mpi = mpis.get(round % mpis.len().max(1)).copied();
    match (job_idx % 2 == 1, mpi) {
        // Ranks are started directly through PMI-1, which is MPICH's language.
        (true, Some(Mpi::Mpich)) if (round / mpis.len()).is_multiple_of(2) => Work::Direct(Mpi::Mpich),
        (true, Some(mpi)) => Work::Mpirun(mpi),
        (true, None) | (false, _) => Work::Sleep { code: u8::from(failed) },
    }
}

/// What matters of a line in the Standard Workload Format.
struct Record {
    number: u64,
    submit: u64,
    run: u64,
    processors: u64,
    failed: bool,
}

impl Record {
    fn read(line: &str) -> Option<Record> {
        let fields: Vec<i64> = line.split_whitespace().map(|field| field.parse().ok()).collect::<Option<_>>()?;
        let field = |number: usize| fields.get(number - 1).copied();
        let positive = |number: usize| field(number).and_then(|value| u64::try_from(value).ok());
        Some(Record {
            number: positive(1)?,
            submit: positive(2)?,
            run: positive(4)?,
            processors: positive(5)?,
            failed: field(11)? == 0,
        })
    }

    fn scaled_nodes(&self, most: u32) -> u32 {
        let scaled = (self.processors.div_ceil(TRACE_CORES) * u64::from(most)).div_ceil(TRACE_NODES);
        u32::try_from(scaled).unwrap_or(most).clamp(1, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_becomes_a_mix_of_sizes_that_ends_within_two_minutes() {
        let programme = programme(TRACE, FULL, &Mpi::ALL).unwrap();
        assert_eq!(programme.len(), 40);
        let sizes: std::collections::BTreeSet<u32> = programme.iter().map(|job| job.nodes).collect();
        assert!(sizes.contains(&1) && sizes.contains(&4) && sizes.len() >= 3, "{sizes:?}");
        let node_time: Duration = programme.iter().map(|job| job.lasts * job.nodes).sum();
        let longest = programme.last().unwrap().arrives + node_time / 8 * 2;
        assert!(longest < Duration::from_secs(120), "{longest:?}");
        assert!(programme.is_sorted_by_key(|job| job.arrives));
    }

    #[test]
    fn the_mpis_take_turns_and_without_any_all_jobs_sleep() {
        let of =
            |mpis: &[Mpi]| programme(TRACE, FULL, mpis).unwrap().into_iter().map(|job| job.work).collect::<Vec<_>>();
        let works = of(&Mpi::ALL);
        for wanted in [Work::Mpirun(Mpi::OpenMpi), Work::Mpirun(Mpi::Mpich), Work::Direct(Mpi::Mpich)] {
            assert!(works.contains(&wanted), "{wanted:?} is missing");
        }
        assert!(works.contains(&Work::Sleep { code: 1 }) && works.contains(&Work::Sleep { code: 0 }));
        assert!(of(&[]).iter().all(|work| matches!(work, Work::Sleep { .. })));
        assert!(of(&[Mpi::OpenMpi]).iter().all(|work| !matches!(work, Work::Direct(_))));
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = programme("; a comment\n1 2 3\n", FULL, &[]).unwrap_err();
        assert_eq!(error.to_string(), "line 2 of the log is no record: '1 2 3'");
    }
}
