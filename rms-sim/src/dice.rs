//! Chance from a seed: the same seed falls the same way on every machine.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rms_model::Span;

/// One independent stream of chance.
#[derive(Clone, Debug)]
pub struct Dice {
    rng: ChaCha8Rng,
}

impl Dice {
    /// Streams of one seed know nothing of each other: a new use of one does not move the others.
    pub fn new(seed: u64, stream: u64) -> Dice {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Dice { rng }
    }

    /// True in `percent` of all cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// From `least` to `most`, both included.
    pub fn number(&mut self, least: u32, most: u32) -> u32 {
        self.rng.random_range(least..=most)
    }

    /// From `least` to `most`, both included.
    pub fn span(&mut self, least: Span, most: Span) -> Span {
        Span::from_millis(self.rng.random_range(least.as_millis()..=most.as_millis()))
    }

    /// One of the things; none if there are none.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> Option<&'a T> {
        if things.is_empty() {
            return None;
        }
        things.get(self.rng.random_range(0..things.len()))
    }
}
