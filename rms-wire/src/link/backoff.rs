//! Exponential backoff with jitter.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Delays between attempts. After a restart of the server, they spread the reconnections of a thousand agents over
/// time.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
    rng: StdRng,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Backoff {
        Backoff::seeded(first, longest, rand::rng().random())
    }

    /// Creates delays that are the same for the same seed.
    pub fn seeded(first: Duration, longest: Duration, seed: u64) -> Backoff {
        Backoff { first, longest, next: first, rng: StdRng::seed_from_u64(seed) }
    }

    /// Returns the next delay: half of it is fixed and half is random; the one after it is twice as long.
    pub fn delay(&mut self) -> Duration {
        let most = self.next;
        self.next = (most * 2).min(self.longest);
        most.mul_f64(self.rng.random_range(0.5..=1.0))
    }

    /// Starts again from the shortest delay, after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

/// Short delays, for programs that a person waits for: they reconnect within a second after the server has returned.
impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::new(Duration::from_millis(100), Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_longest_and_start_again() {
        let ms = Duration::from_millis;
        let mut backoff = Backoff::seeded(ms(100), ms(1000), 7);
        for most in [100, 200, 400, 800, 1000, 1000] {
            let delay = backoff.delay();
            assert!(ms(most / 2) <= delay && delay <= ms(most), "{delay:?} of {most} ms");
        }
        backoff.reset();
        assert!(backoff.delay() <= ms(100));
    }
}
