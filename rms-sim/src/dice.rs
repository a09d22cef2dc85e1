//! Random numbers from a seed: the same seed gives the same numbers on every machine.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rms_model::Span;

/// One independent random stream.
#[derive(Clone, Debug)]
pub struct Dice {
    rng: ChaCha8Rng,
}

impl Dice {
    /// Creates a stream. Streams of one seed are independent: a new use of one does not change the others.
    pub fn new(seed: u64, stream: u64) -> Dice {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Dice { rng }
    }

    /// Returns true in `percent` of all cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_range(0..100) < percent
    }

    /// Draws from `least` to `most`, both included.
    pub fn number(&mut self, least: u32, most: u32) -> u32 {
        self.rng.random_range(least..=most)
    }

    /// Draws from `least` to `most`, both included.
    pub fn span(&mut self, least: Span, most: Span) -> Span {
        Span::from_millis(self.rng.random_range(least.as_millis()..=most.as_millis()))
    }

    /// Picks one of the things; `None` if there are none.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> Option<&'a T> {
        if things.is_empty() {
            return None;
        }
        things.get(self.rng.random_range(0..things.len()))
    }
}
