//! The jobs of the live mix: what each runs, on how many CPUs, when it comes and how long it says that it may take.

use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What a program spends its time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In the nearest cache, as PILS.
    Compute,
    /// In memory, as STREAM.
    Memory,
    /// Either in turn, as CoreNeuron, NEST and Alya.
    Mixed,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Compute, Kind::Memory, Kind::Mixed];

    /// What the programs of `tests/apps` call it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Compute => "compute",
            Kind::Memory => "memory",
            Kind::Mixed => "mixed",
        }
    }
}

/// One submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub kind: Kind,
    /// One rank of MPI with threads; a second one from four CPUs on.
    pub is_mpi: bool,
    pub n_cpus: u32,
    /// From the beginning of the run.
    pub arrival: Duration,
    /// How long it takes with all its CPUs, beside nobody.
    pub alone: Duration,
    /// Its wall time, in whole seconds.
    pub wall_secs: u64,
}

/// 004, Table 2, of 40 jobs: 30.5 % compute, 30.8 % memory, 38.1 % of CoreNeuron and NEST, and 0.6 %, one here, that is big.
const MIX: [(Kind, usize); 3] = [(Kind::Compute, 12), (Kind::Memory, 12), (Kind::Mixed, 15)];
pub const N_JOBS: usize = 40;

/// Of mixed jobs, one in so many has ranks.
const RANKS_OF: usize = 3;
/// Of ten jobs, so many ask for half of the CPUs, the others for all.
const HALVES_OF_TEN: u32 = 4;
/// Seconds alone; as many jobs between 2 and 4 as between 4 and 8.
const SHORTEST: f64 = 2.0;
const LONGEST: f64 = 20.0;
/// The mean time from one arrival to the next, in seconds: more comes than can be served, as in 004's workload 5.
const GAP: f64 = 3.0;
/// By how much wall times are longer than run times, and seconds beside that for starting.
const LEAST_ACCURATE: f64 = 8.0;
const MOST_ACCURATE: f64 = 1.5;
const STARTING: f64 = 4.0;

/// All jobs in the order of their arrival, for a machine of so many CPUs. The same seed gives the same jobs.
pub fn draw(seed: u64, n_cpus: u32) -> Vec<Job> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut kinds: Vec<(Kind, bool, bool)> = vec![(Kind::Mixed, false, true)];
    for (kind, n_jobs) in MIX {
        kinds.extend((0..n_jobs).map(|idx| (kind, kind == Kind::Mixed && idx % RANKS_OF == 0, false)));
    }
    kinds.shuffle(&mut random);
    let mut arrival = 0.0;
    let job = |(kind, is_mpi, is_big): (Kind, bool, bool)| {
        let is_half = random.random_range(0..10) < HALVES_OF_TEN;
        let (drawn, slack) = (random.random_range(0.0..1.0), random.random_range(0.0..1.0));
        let (alone, is_half) = if is_big { (LONGEST, false) } else { (between(SHORTEST, LONGEST, drawn), is_half) };
        let wall = alone * between(MOST_ACCURATE, LEAST_ACCURATE, slack) + STARTING;
        let job = Job {
            kind,
            is_mpi,
            n_cpus: if is_half { (n_cpus / 2).max(1) } else { n_cpus },
            arrival: Duration::from_secs_f64(arrival),
            alone: Duration::from_secs_f64(alone),
            wall_secs: wall.ceil() as u64,
        };
        arrival -= GAP * (1.0 - random.random_range(0.0..1.0_f64)).ln();
        job
    };
    kinds.into_iter().map(job).collect()
}

impl Job {
    /// Its tasks, and the CPUs and threads of each.
    pub fn tasks(&self) -> (u32, u32) {
        let n_tasks = if self.is_mpi && self.n_cpus >= 4 { 2 } else { 1 };
        (n_tasks, self.n_cpus / n_tasks)
    }
}

/// Evenly on a logarithmic scale, by a number from 0 to 1.
fn between(least: f64, most: f64, drawn: f64) -> f64 {
    least * (most / least).powf(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_has_the_mix_of_the_paper() {
        for seed in 1..20 {
            let jobs = draw(seed, 2);
            let of = |kind: Kind| jobs.iter().filter(|job| job.kind == kind).count();
            assert_eq!((jobs.len(), Kind::ALL.map(of)), (N_JOBS, [12, 12, 16]), "seed {seed}");
            assert_eq!(jobs.iter().filter(|job| job.is_mpi).count(), 5, "seed {seed}");
            assert!(jobs.iter().all(|job| !job.is_mpi || job.kind == Kind::Mixed), "seed {seed}");
        }
    }

    #[test]
    fn jobs_come_in_turn_and_ask_for_more_time_than_they_take() {
        for seed in 1..20 {
            let jobs = draw(seed, 4);
            assert!(jobs.is_sorted_by_key(|job| job.arrival), "seed {seed}");
            for job in &jobs {
                let alone = job.alone.as_secs_f64();
                assert!((SHORTEST..=LONGEST).contains(&alone), "seed {seed}: {job:?}");
                assert!(job.wall_secs as f64 >= MOST_ACCURATE * alone + STARTING, "seed {seed}: {job:?}");
                assert!([2, 4].contains(&job.n_cpus), "seed {seed}: {job:?}");
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_jobs() {
        assert_eq!(draw(7, 2), draw(7, 2));
        assert_ne!(draw(7, 2), draw(8, 2));
        assert!(draw(7, 1).iter().all(|job| job.n_cpus == 1));
    }
}
