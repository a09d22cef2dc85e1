//! Seeded random numbers for the tests of every crate; a failing test prints how to replay it.
//!
//! `LIMBER_SEED=7` runs the case of one seed alone, `LIMBER_SEEDS=100000` runs that number of seeds.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// A random number generator with a seed (SplitMix64), equal on every machine.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Draws any number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Draws a number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    /// Draws from `least` to `most`, both included.
    pub fn number(&mut self, least: u32, most: u32) -> u32 {
        least + self.below(u64::from(most - least) + 1) as u32
    }

    /// Returns true with this probability in percent.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.number(1, 100) <= percent
    }

    /// Draws from 0.0, included, to 1.0, excluded.
    pub fn fraction(&mut self) -> f64 {
        // All that a float of this size holds exactly.
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Picks one of several values; there is at least one.
    pub fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.roll().to_le_bytes()[..piece.len()]);
        }
    }
}

/// Runs a case for each of `n_seeds` seeds, or for those that the environment names.
pub fn for_seeds(test: &'static str, n_seeds: u64, mut case: impl FnMut(&mut Dice)) {
    for seed in seeds(n_seeds) {
        let _replay = Replay { seed, filter: test.to_owned() };
        case(&mut Dice::new(seed));
    }
}

/// Returns a generator whose seed differs from run to run, unless the environment names one: for tests that are too slow
/// for many seeds.
pub fn any_seed(test: &str) -> (Dice, Replay) {
    let seed = one_seed().unwrap_or_else(|| RandomState::new().hash_one(test));
    println!("seed {seed}");
    (Dice::new(seed), Replay { seed, filter: test.to_owned() })
}

/// Returns `n_seeds` seeds, or those that the environment names.
pub fn seeds(n_seeds: u64) -> Range<u64> {
    let seeds = match one_seed() {
        Some(seed) => seed..seed + 1,
        None => 0..variable("LIMBER_SEEDS").unwrap_or(n_seeds),
    };
    println!("seeds {seeds:?}");
    seeds
}

/// Returns the seed if only one is to be tried, for which more output is useful.
pub fn one_seed() -> Option<u64> {
    variable("LIMBER_SEED")
}

/// Reads a number from the environment, if it is set.
///
/// # Panics
/// It is set and is not a number.
pub fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: '{text}'")))
}

/// While it exists, a panic prints the seed.
#[derive(Debug)]
pub struct Replay {
    pub seed: u64,
    /// The name of the test for a filter: a part of its name, or more.
    pub filter: String,
}

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Replay { seed, filter } = self;
            eprintln!("seed {seed}; to see it again: LIMBER_SEED={seed} cargo nextest run --profile ci {filter}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_roll_equal_numbers_within_their_bounds() {
        let (mut dice, mut again) = (Dice::new(7), Dice::new(7));
        for _ in 0..1000 {
            let number = dice.number(3, 9);
            assert!((3..=9).contains(&number));
            assert_eq!(number, again.number(3, 9));
            assert!((0.0..1.0).contains(&dice.fraction()));
            again.fraction();
        }
        assert_ne!(Dice::new(7).roll(), Dice::new(8).roll());
        // The first number of the reference implementation for this seed.
        assert_eq!(Dice::new(1_234_567).roll(), 6_457_827_717_110_365_317);
        let mut bytes = [0; 11];
        Dice::new(7).fill(&mut bytes);
        assert_eq!(bytes[..8], Dice::new(7).roll().to_le_bytes());
    }
}
